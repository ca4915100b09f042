"""How much of a reply is made at a time: soon enough to start early, large enough never to run dry."""

from __future__ import annotations

from typing import Final

__all__ = ["chunk_frames"]

LEAST_FIRST: Final = 12
"""Frames of the first chunk at least: 140 ms of sound at 11.6 ms, about one network and device buffer."""
LARGEST: Final = 60
USUAL: Final = (12, 24, 40, 60)
"""Where nothing was measured: fits a voice that is at least four times as fast as speech."""
SLOW: Final = (120,)
"""Where it is hardly faster than speech, overlaps cannot be afforded: few, long chunks."""
SAFETY: Final = 0.5
"""Part of a chunk's own duration in which the next must be made: the machine does other things too."""


def chunk_frames(frame_ms: float | None, hop_ms: float, overlap: int) -> tuple[int, ...]:
    """Sizes of a reply's chunks in new frames; the last one holds for all that follow.

    A chunk of n frames is made in (n + overlap) * frame_ms, while the one before it sounds for its own n * hop_ms.
    Each chunk is as long as the one before it allows, so that the overlap is paid as seldom as can be.
    """
    if frame_ms is None or frame_ms <= 0:
        return USUAL
    pace = SAFETY * hop_ms / frame_ms
    """Frames made while one sounds."""
    # The second chunk must be no shorter than the first: n * pace - overlap >= n.
    if pace <= 1 or (least := overlap / (pace - 1)) > LARGEST:
        return SLOW
    sizes = [max(LEAST_FIRST, -int(-least // 1))]
    while sizes[-1] < LARGEST:
        following = min(LARGEST, int(sizes[-1] * pace) - overlap)
        if following <= sizes[-1]:
            break
        sizes.append(following)
    return tuple(sizes)
