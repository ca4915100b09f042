"""Sizes of the blocks in which a device is served: which are tried, and the step up when one proves too small."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["MICROPHONE_BLOCKS", "SPEAKER_BLOCKS", "BlockLadder", "KeepBlock"]

MICROPHONE_BLOCKS: Final = (64, 128, 256, 480)
"""Sample frames. Above 480 the sound would be old before it is heard."""
SPEAKER_BLOCKS: Final = (64, 128, 256, 480, 960)
"""The last is for machines that miss 480 (10 ms at 48 kHz): a stop then takes 60 ms and not 40, but nothing is torn."""
KeepBlock = Callable[[str, int], None]
"""Told the device's stable name and the larger size that it needs, on its keeper's thread; must not raise."""
FAULTS: Final = 3
WINDOW_S: Final = 60.0


class BlockLadder:
    """The size in use. Three faults within a minute, and the next larger one is; never back, until it is made anew."""

    def __init__(self, block: int, sizes: tuple[int, ...]) -> None:
        self.block = block
        self._sizes = sizes
        self._faults: deque[float] = deque(maxlen=FAULTS)

    def fault(self, now_s: float) -> bool:
        """Sound was lost. True if the size has gone up, and the stream should be opened again when that hurts least."""
        self._faults.append(now_s)
        larger = [size for size in self._sizes if size > self.block]
        if len(self._faults) < FAULTS or now_s - self._faults[0] > WINDOW_S or not larger:
            return False
        self.block = larger[0]
        self._faults.clear()
        return True
