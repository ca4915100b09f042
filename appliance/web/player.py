"""A browser as the loudspeaker of a session: the reply goes out as messages, the page says when it was heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from appliance.audio.frame import Samples
from appliance.voice import loop
from appliance.voice.runner import LiveRunner
from appliance.web.broadcast import encode
from appliance.web.outbox import Outbox

__all__ = ["BrowserPlayer"]

PIECE_SAMPLES: Final = 8192
"""Samples of one message, at most: a kept reply comes in one piece and would hold up the messages behind it."""
PLAYED_GRACE_S: Final = 5.0
"""How much later than due the page may say that it has played a reply: its buffers, its speaker, the network."""
_INT16_SCALE: Final = 32767.0


class BrowserPlayer:
    """See `Player`. All of it runs on the session's thread; `played` and `overdue` may be asked from elsewhere."""

    def __init__(self, runner: LiveRunner, outbox: Outbox) -> None:
        self._runner = runner
        self._outbox = outbox
        self._generation = 0
        self._rate_hz = 0
        self._end_s = 0.0
        self._due_s: float | None = None
        self.timeouts = 0
        """Replies that the page never said it had played."""
        self.underruns = 0
        """Gaps in replies, as the page reported them."""

    def begin(self, generation: int, rate_hz: int) -> None:
        """Announce a reply."""
        self._generation, self._rate_hz, self._due_s = generation, rate_hz, None
        self._end_s = self._runner.now()
        self._tell("audio", rate_hz=rate_hz, encoding="s16le")

    def write(self, samples: Samples) -> None:
        """Send a piece of it."""
        self._end_s = max(self._end_s, self._runner.now()) + samples.size / self._rate_hz
        pcm = np.rint(np.clip(samples, -1.0, 1.0) * _INT16_SCALE).astype("<i2")
        for at in range(0, pcm.size, PIECE_SAMPLES):
            self._outbox.put(pcm[at : at + PIECE_SAMPLES].tobytes())

    def finish(self) -> None:
        """Say that it is whole; `played` is now awaited, but not for ever."""
        self._tell("audio_end")
        self._due_s = max(self._end_s, self._runner.now()) + PLAYED_GRACE_S

    def stop(self) -> None:
        """Tell the page to be silent."""
        self._due_s = None
        self._tell("audio_stop")

    def played(self, generation: int, underruns: int = 0) -> None:
        """The page says that it has played a reply to its end. From any thread."""
        self._runner.call(self._ended(generation, underruns))

    def expire(self) -> None:
        """Go on without the page's word if it is overdue: it may have vanished, or have no sound. From any thread."""
        due_s, generation = self._due_s, self._generation
        if due_s is not None and self._runner.now() >= due_s:
            self.timeouts += 1
            self._runner.call(self._ended(generation, 0))

    def _ended(self, generation: int, underruns: int) -> Callable[[], None]:
        def action() -> None:
            if self._due_s is not None and generation == self._generation:
                self._due_s = None
                self.underruns += underruns
                self._runner.session.deliver(loop.Played(generation))

        return action

    def _tell(self, kind: str, **details: object) -> None:
        self._outbox.put(encode({"type": kind, "generation": self._generation, **details}))
