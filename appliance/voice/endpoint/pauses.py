"""The speaker's own pauses: whoever stops for thought in mid-sentence is given more time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PauseSettings", "SpeakerPauses"]


@dataclass(frozen=True, slots=True)
class PauseSettings:
    """How pauses become patience."""

    shortest_s: float = 0.2
    """Shorter ones are consonants and breath, which everybody has."""
    longest_s: float = 1.5
    """Longer ones count as this: one telephone call must not make Wren slow for the day."""
    weight: float = 0.3
    """Of the newest pause in the mean: three of a kind make two thirds of it."""
    forgetting: float = 0.1
    """Share of what was learnt that an utterance without a pause takes away."""
    most_s: float = 0.4
    """Extra patience at most."""


class SpeakerPauses:
    """An exponentially weighted mean of the pauses after which speech went on, within one session."""

    def __init__(self, settings: PauseSettings = PauseSettings()) -> None:
        self._settings = settings
        self._mean_s = 0.0
        self._paused = False

    @property
    def extra_s(self) -> float:
        """Patience beyond the usual, 0..`most_s` seconds."""
        return min(self._mean_s, self._settings.most_s)

    def observe(self, pause_s: float) -> None:
        """Speech went on after a silence of this length."""
        settings = self._settings
        if pause_s < settings.shortest_s:
            return
        self._paused = True
        self._mean_s += settings.weight * (min(pause_s, settings.longest_s) - self._mean_s)

    def utterance_over(self) -> None:
        """An utterance ended; one without any pause is evidence too."""
        if not self._paused:
            self._mean_s *= 1.0 - self._settings.forgetting
        self._paused = False
