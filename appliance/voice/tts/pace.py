"""How fast a voice makes sound here and now, and what follows: how much of a reply is made at a time.

The plan's chunks were chosen on a quiet machine. Where it is not quiet, the first chunk must last until the second
is made, stalls included, and each one after it must be made while what is ahead still plays.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LARGEST_FRAMES", "Ahead", "VoicePace"]

LARGEST_FRAMES: Final = 120
"""1.4 s: where a voice is hardly faster than speech, few and long chunks waste least on their margins."""
LEAST_FRAME_S: Final = 1e-7
"""Faster than anything makes sound: a clock that stands."""
WEIGHT: Final = 1 / 8
"""Of a new chunk in the mean."""
STALL: Final = 2.0
"""What took longer than this many times the usual is a stall, and says nothing of the pace."""
LEAST_STALL_S: Final = 0.01
FORGET: Final = 0.97
"""A stall is remembered for some dozen chunks: where there was one there will be others …"""
MARGIN: Final = 1.25
"""… and longer ones."""
SPARE: Final = 0.5
"""Of the sound that is ahead, what a chunk longer than planned may take to be made."""
EASY: Final = 0.4
"""Real-time factor up to which a voice has time to spare."""
STRAINED: Final = 0.6
"""Real-time factor from which on the voice is near its limit: the rest of the machine wants to live too."""


class VoicePace:
    """Shared by all sessions of a voice; for any thread (each of its numbers is at worst a chunk old)."""

    def __init__(self, hop_s: float, overlap_frames: int) -> None:
        """`hop_s` of sound a frame; each chunk makes `overlap_frames` besides its own, for its margins."""
        self._hop_s, self._overlap = hop_s, overlap_frames
        self._frame_s: float | None = None
        self._count = 0
        self._stall_s = 0.0

    @property
    def frame_s(self) -> float | None:
        """Making one frame takes so long; None before any was made."""
        return self._frame_s

    @property
    def stall_s(self) -> float:
        """Longer than usual that a chunk took of late, at worst."""
        return self._stall_s

    @property
    def strained(self) -> bool:
        """Whether making long chunks takes more than `STRAINED` of the time that they play."""
        return self._frame_s is not None and self._frame_s > STRAINED * self._hop_s

    def made(self, frames: int, cost_s: float) -> None:
        """A chunk of so many new frames was made in so many seconds."""
        all_frames = frames + self._overlap
        self._count += 1
        if self._frame_s is None:
            self._frame_s = cost_s / all_frames
            return
        usual_s = self._frame_s * all_frames
        stall_s = cost_s - usual_s
        self._stall_s = max(self._stall_s * FORGET, stall_s if stall_s > LEAST_STALL_S else 0.0)
        seen_s = min(cost_s, STALL * usual_s) / all_frames
        self._frame_s += max(WEIGHT, 1.0 / self._count) * (seen_s - self._frame_s)

    def frames(self, planned: int, most: int, ahead_s: float | None) -> int:
        """New frames of the next chunk; `planned` where nothing speaks against it.

        `ahead_s` is the sound that plays while it is made, None for the first; `most` is the plan's largest chunk.
        """
        frame_s = self._frame_s
        if frame_s is None or frame_s < LEAST_FRAME_S:
            return planned
        opening = self._opening(frame_s)
        if ahead_s is None:
            return max(planned, opening)
        fits = int((ahead_s - MARGIN * self._stall_s) / frame_s) - self._overlap
        if fits < planned:
            # Too late for what was planned. Less is in time if it is not too little; else as if it began anew.
            return fits if fits >= max(opening, planned // 2) else max(planned, opening)
        # Longer than planned is less work, as margins are paid once a chunk. A fast voice needs that less than time for
        # others that work beside it; a slow one falls behind without.
        share = SPARE if frame_s < EASY * self._hop_s else 1.0
        roomy = int((share * ahead_s - MARGIN * self._stall_s) / frame_s) - self._overlap
        return max(planned, min(roomy, max(most, opening)))

    def _opening(self, frame_s: float) -> int:
        """Frames that play for as long as the next chunk, no longer than this one, takes to be made."""
        spare_s = self._hop_s - frame_s
        if spare_s <= 0.0:
            return LARGEST_FRAMES
        return min(LARGEST_FRAMES, int((frame_s * self._overlap + MARGIN * self._stall_s) / spare_s) + 1)


class Ahead:
    """How much of a reply's sound has been handed out and not been played yet, as far as its maker can know."""

    def __init__(self) -> None:
        self._end_s: float | None = None
        self._pieces = 0

    def given(self, now_s: float, length_s: float) -> None:
        """A piece of so many seconds is handed out."""
        self._pieces += 1
        self._end_s = max(now_s, self._end_s or now_s) + length_s

    def resumed(self, now_s: float, waited_s: float) -> None:
        """The next piece is asked for; the maker waited for that."""
        if self._pieces == 1 and self._end_s is not None:
            # The first may have been made ahead: until the next is asked for it has hardly begun to play.
            self._end_s = max(self._end_s + waited_s, now_s)

    def seconds(self, now_s: float) -> float | None:
        """Sound ahead; None before the first piece."""
        return None if self._end_s is None else max(0.0, self._end_s - now_s)
