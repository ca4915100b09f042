"""Sound that is missing, made up for; and sound made a little longer or shorter without changing its pitch.

Both rest on the same thing: speech repeats itself from one period of the voice to the next, so a period can be said
once more or left out, and what meets at the seam is alike. WSOLA: Verhelst and Roelands, An overlap-add technique
based on waveform similarity, Proc. ICASSP 1993. Concealment follows ITU-T G.711 Appendix I.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from appliance.audio.frame import RATE_HZ, Samples

__all__ = ["LEAST_STRETCH_SAMPLES", "Concealer", "lengthened", "shortened"]

LEAST_LAG: Final = RATE_HZ // 400
"""Period of the highest voice looked for."""
MOST_LAG: Final = RATE_HZ // 66
"""Of the lowest."""
TEMPLATE: Final = RATE_HZ // 100
"""Samples compared: 10 ms, a period of most voices."""
KEEP_S: Final = 0.02
"""Made-up sound is as loud as what it goes on from for so long …"""
FADE_S: Final = 0.04
"""… and silent after so much more: after that nobody can say how speech went on."""
MERGE_S: Final = 0.005
"""Cross-fade where true sound goes on."""
LEAST_LIKENESS: Final = 0.6
"""Correlation at a seam; below it a repetition would be heard."""
FAINT: Final = 1e-6
"""Mean power (-60 dBFS) below which any seam is inaudible."""
LEAST_STRETCH_SAMPLES: Final = 2 * TEMPLATE
"""A piece must be this long to be stretched (20 ms): two periods of a voice of 100 Hz; 30 ms serve all voices."""


class Concealer:
    """Goes on with sound where it is missing. A streaming part at 16 kHz: `heard` for what came, `missing` for what
    did not, in the order of time; the output does not depend on how either was chunked."""

    def __init__(self) -> None:
        self._history: Samples = np.zeros(MOST_LAG + TEMPLATE, dtype=np.float32)
        self._period: Samples = np.zeros(1, dtype=np.float32)
        self._made = 0
        self._merge = np.linspace(0.0, 1.0, round(MERGE_S * RATE_HZ) + 2, dtype=np.float32)[1:-1]
        self._merged = self._merge.size

    def heard(self, samples: Samples) -> Samples:
        """Take [n] float32 as it came; gives it back, its first samples faded in where something was made up before
        them. Remembers the last 25 ms."""
        out = samples
        if self._merged < self._merge.size and samples.size:
            count = min(samples.size, self._merge.size - self._merged)
            rise = self._merge[self._merged : self._merged + count]
            out = samples.copy()
            out[:count] = rise * out[:count] + (1.0 - rise) * self._go_on(count)
            self._merged += count
        self._remember(samples)
        return out

    def missing(self, count: int) -> Samples:
        """`count` samples made up: the last period of the voice said again, and faded to silence in 60 ms."""
        if count and self._merged:
            # After true sound, or some of it: what is repeated is chosen anew.
            self._period, self._made = self._last_period(), 0
            self._merged = 0
        return self._go_on(count)

    def reset(self) -> None:
        """Forget everything heard."""
        self.__init__()  # type: ignore[misc]

    def _go_on(self, count: int) -> Samples:
        at = np.arange(self._made, self._made + count)
        self._made += count
        gain = np.clip(1.0 - (at - KEEP_S * RATE_HZ) / (FADE_S * RATE_HZ), 0.0, 1.0)
        made: Samples = (self._period[at % self._period.size] * gain).astype(np.float32)
        return made

    def _last_period(self) -> Samples:
        """One period [lag] that follows on what was heard, made to meet itself."""
        history = self._history
        at, likeness = _most_alike(history[-TEMPLATE:], history[: history.size - LEAST_LAG])
        # Where there is no voice: the longer what is repeated, the less it sounds like one.
        lag = MOST_LAG if likeness < LEAST_LIKENESS else history.size - TEMPLATE - at
        period = history[-lag:].copy()
        # The end of the period meets its beginning: fade it into what came before that.
        join = min(lag // 4, history.size - lag)
        rise = np.linspace(0.0, 1.0, join + 2, dtype=np.float32)[1:-1]
        period[-join:] = (1.0 - rise) * period[-join:] + rise * history[-lag - join : -lag]
        return period

    def _remember(self, samples: Samples) -> None:
        size = self._history.size
        if samples.size >= size:
            self._history[:] = samples[-size:]
        elif samples.size:
            self._history[: size - samples.size] = self._history[samples.size :].copy()
            self._history[size - samples.size :] = samples


def lengthened(piece: Samples) -> Samples:
    """[n] float32 at 16 kHz with one period of the voice said twice (2.5 to 15 ms more); as it is where that would be
    heard, or where it is shorter than `LEAST_STRETCH_SAMPLES`."""
    lag = _seam(piece)
    if lag is None:
        return piece
    # Where the second period begins, go back to the first, gently.
    rise = np.linspace(0.0, 1.0, lag, dtype=np.float32)
    joined = (1.0 - rise) * piece[lag : 2 * lag] + rise * piece[:lag]
    longer: Samples = np.concatenate((piece[:lag], joined, piece[lag:]))
    return longer


def shortened(piece: Samples) -> Samples:
    """The same with one period left out."""
    lag = _seam(piece)
    if lag is None:
        return piece
    rise = np.linspace(0.0, 1.0, lag, dtype=np.float32)
    joined = (1.0 - rise) * piece[:lag] + rise * piece[lag : 2 * lag]
    shorter: Samples = np.concatenate((joined, piece[2 * lag :]))
    return shorter


def _seam(piece: Samples) -> int | None:
    """The lag at which the piece's beginning is like what follows it; None where there is none good enough."""
    if piece.size < LEAST_STRETCH_SAMPLES:
        return None
    most = min(MOST_LAG, piece.size // 2)
    if float(np.dot(piece, piece)) <= FAINT * piece.size:
        return most
    at, likeness = _most_alike(piece[:TEMPLATE], piece[LEAST_LAG : most + TEMPLATE])
    return LEAST_LAG + at if likeness >= LEAST_LIKENESS else None


def _most_alike(template: Samples, within: Samples) -> tuple[int, float]:
    """Where in a longer sound the template fits best, and the correlation there (-1 to 1)."""
    fits = np.correlate(within, template, "valid").astype(np.float64)
    power = np.concatenate(([0.0], np.cumsum(within.astype(np.float64) ** 2)))
    powers = power[template.size :] - power[: -template.size]
    scale = np.sqrt(np.maximum(powers, 0.0) * float(np.dot(template, template)))
    likeness = np.divide(fits, scale, out=np.zeros_like(fits), where=scale > FAINT)
    at = int(np.argmax(likeness))
    return at, float(likeness[at])
