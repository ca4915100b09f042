"""How much sound to keep ready: enough for what is late, and no more, for all of it is waiting.

One controller for everything that plays what comes unevenly: replies that are made while they sound, and sound from
the network. It knows no clock and no samples; it is told how late things were and says how deep to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["NETWORK", "PLAYBACK", "DepthController", "DepthSettings"]

LONGEST_STEP_S: Final = 0.1
"""Time between two observations counts as calm up to this long: nothing was seen in between."""


@dataclass(frozen=True, slots=True)
class DepthSettings:
    """How a depth follows what is seen; all in seconds but where a unit is named."""

    first_s: float = 0.06
    """Before anything was seen."""
    least_s: float = 0.02
    most_s: float = 0.12
    """However late things are: people notice a longer wait."""
    deviations: float = 1.4
    """Depth beyond the mean lateness, in deviations."""
    mean_weight: float = 1 / 64
    """Of a new observation in the mean."""
    rise_weight: float = 1 / 8
    """The same in the deviation, where it is larger than that: what is uneven shows at once …"""
    fall_weight: float = 1 / 128
    """… and is remembered where it is smaller."""
    underrun_s: float = 0.02
    """Raise after an underrun, beyond what was short."""
    calm_s: float = 1.5
    """Headroom must last for so long before the depth goes down."""
    lower_s_per_s: float = 0.04
    """How fast it then does: 4 % of the pace, which nobody hears, and never in one step."""
    horizon_s: float = 1.0
    """Length of the sound that is to play through where it is made slower than it is played."""


PLAYBACK: Final = DepthSettings(least_s=0.03)
"""Of replies: no less than two or three blocks of a loudspeaker."""
NETWORK: Final = DepthSettings(least_s=0.03, most_s=0.3)
"""Of sound from a network, where stalls of a fifth of a second are usual."""


class _Spread:
    """Exponentially weighted mean and deviation of what is observed; the deviation rises faster than it falls."""

    def __init__(self, mean_weight: float, rise_weight: float, fall_weight: float) -> None:
        self._mean_weight, self._rise_weight, self._fall_weight = mean_weight, rise_weight, fall_weight
        self.mean = 0.0
        self.deviation = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        """One observation. While there are few they all count alike."""
        self.count += 1
        if self.count == 1:
            self.mean = value
            return
        error = value - self.mean
        self.mean += max(self._mean_weight, 1.0 / self.count) * error
        larger = abs(error) - self.deviation
        weight = self._rise_weight if larger > 0.0 else self._fall_weight
        self.deviation += max(weight, 1.0 / self.count) * larger


class DepthController:
    """A depth that is raised at once and lowered slowly. Pure: times are told, any clock that only goes forward.

    Not for two threads at a time.
    """

    def __init__(self, settings: DepthSettings = PLAYBACK) -> None:
        self._settings = settings
        weights = (settings.mean_weight, settings.rise_weight, settings.fall_weight)
        self._late, self._rtf = _Spread(*weights), _Spread(*weights)
        self._target_s = min(max(settings.first_s, settings.least_s), settings.most_s)
        self._seen_s: float | None = None
        self._calm_from_s = 0.0
        self.underruns = 0
        """Told so far."""

    @property
    def target_s(self) -> float:
        """How much sound to have before it begins to play, or goes on after an underrun."""
        return self._target_s

    @property
    def rtf(self) -> float | None:
        """Mean real-time factor of what is played; None before any was told."""
        return self._rtf.mean if self._rtf.count else None

    def observe(self, now_s: float, late_s: float) -> None:
        """A piece of sound came, so much later than it would have had to with no depth at all; 0 if in time."""
        self._late.add(max(0.0, late_s))
        self._follow(now_s)

    def observe_rtf(self, now_s: float, rtf: float) -> None:
        """A piece of sound was made, at this real-time factor."""
        self._rtf.add(max(0.0, rtf))
        self._follow(now_s)

    def underrun(self, now_s: float, short_s: float = 0.0) -> None:
        """There was nothing to play; `short_s` is for how long, where that is known."""
        self.underruns += 1
        self._raise(now_s, self._target_s + max(0.0, short_s) + self._settings.underrun_s)
        self._seen_s = now_s

    def _follow(self, now_s: float) -> None:
        settings = self._settings
        if self._seen_s is None:
            self._seen_s = self._calm_from_s = now_s
        elapsed_s = min(max(0.0, now_s - self._seen_s), LONGEST_STEP_S)
        self._seen_s = now_s
        wanted_s = self._wanted_s()
        if wanted_s >= self._target_s:
            self._raise(now_s, wanted_s)
        elif now_s - self._calm_from_s >= settings.calm_s:
            self._target_s = max(wanted_s, self._target_s - settings.lower_s_per_s * elapsed_s)

    def _wanted_s(self) -> float:
        settings, late, rtf = self._settings, self._late, self._rtf
        wanted_s = late.mean + settings.deviations * late.deviation
        # Made slower than played, sound runs short by the difference for as long as it lasts.
        short_s = (rtf.mean + 2.0 * rtf.deviation - 1.0) * settings.horizon_s if rtf.count > 1 else 0.0
        return min(max(wanted_s, short_s, settings.least_s), settings.most_s)

    def _raise(self, now_s: float, target_s: float) -> None:
        self._target_s = min(max(target_s, self._target_s), self._settings.most_s)
        self._calm_from_s = now_s
