"""Where sound ends, to 10 ms: levels against the room's floor and the speaker's own level.

Voice activity lets go some 200 ms after the last speech sample; energy tells at once, but not whether it was speech.
The two are used together.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from appliance.audio.frame import FRAME_S
from appliance.voice.room import RoomFloor

__all__ = ["EnergyEdge", "EnergySettings"]

_NO_LEVEL_DBFS: Final = -120.0
_RECENT: Final = 5  # frames


@dataclass(frozen=True, slots=True)
class EnergySettings:
    """Levels in dB."""

    above_floor_db: float = 10.0
    """Sound stands out of the room from here on."""
    below_speaker_db: float = 28.0
    """Sound further below the speaker's loudest is not speech: breath, reverberation."""
    near_speaker_db: float = 12.0
    """Sound within this of the speaker's loudest is the speaker, not a television behind."""
    speaker_fall_db: float = 0.02
    """A frame of speech: the speaker's level rises at once and falls by 2 dB a second."""
    voice: float = 0.35
    """Voice-activity probability from which loud sound counts as speech that goes on."""


class EnergyEdge:
    """A streaming part: one level a frame in; how long it has been quiet, and whether speech goes on, out."""

    def __init__(self, settings: EnergySettings = EnergySettings()) -> None:
        self._settings = settings
        self._floor = RoomFloor()
        self.reset()

    def reset(self) -> None:
        """A new utterance. The room's floor is kept: the room has not changed."""
        self._speaker_dbfs = _NO_LEVEL_DBFS
        self._recent: deque[tuple[float, bool, bool, bool]] = deque(maxlen=_RECENT)
        self._now_s = 0.0
        self._loud_s: float | None = None
        self._near_s: float | None = None

    def push(self, level_dbfs: float, end_s: float, probability: float, *, speaking: bool) -> None:
        """Take a frame: its level, when it ended, the newest voice activity, and whether speech is under way."""
        settings = self._settings
        self._now_s = end_s
        self._floor.follow(level_dbfs)
        if speaking:
            self._speaker_dbfs = max(level_dbfs, self._speaker_dbfs - settings.speaker_fall_db)
        heard = self._speaker_dbfs > _NO_LEVEL_DBFS
        voiced = probability >= settings.voice
        threshold = max(self._floor.dbfs + settings.above_floor_db, self._speaker_dbfs - settings.below_speaker_db)
        loud = heard and level_dbfs >= threshold
        near = heard and level_dbfs >= self._speaker_dbfs - settings.near_speaker_db
        self._recent.append((end_s, loud, loud and voiced, near and voiced))
        # Two of three frames: a click is one long.
        newest = list(self._recent)[-3:]
        if loud and sum(frame[1] for frame in newest) >= 2:
            self._loud_s = end_s
        if near:
            self._near_s = end_s

    @property
    def loud_s(self) -> float | None:
        """When sound last stood out; None before any speech."""
        return self._loud_s

    @property
    def quiet_s(self) -> float:
        """How long ago that is; 0 before any speech."""
        return 0.0 if self._loud_s is None else self._now_s - self._loud_s

    @property
    def faint_s(self) -> float:
        """How long ago sound was last near the speaker's level; 0 before any speech."""
        return 0.0 if self._near_s is None else self._now_s - self._near_s

    def goes_on(self, since_s: float, *, near: bool = False) -> bool:
        """Whether speech was heard after a moment, in three of the newest five frames; with `near`, at the speaker's
        own level."""
        after = [frame for frame in self._recent if frame[0] > since_s + FRAME_S / 2]
        return sum(frame[3 if near else 2] for frame in after) >= 3
