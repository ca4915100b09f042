"""Whether a fresh engine computes what the rung below computes, before anyone hears it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.engines.base import Array, Engine
from models.errors import EngineCheckError

__all__ = ["CheckResult", "Extra", "Golden", "check_engine"]

MIN_SNR_DB = 15.0
"""Least signal to noise against the rung below. INT8 graphs for TensorRT are kept from 20 dB on (docs/quantisation.md)
and FP16 has 58 and more; an engine that computes something else is near 0 dB or below."""

Extra = Callable[[Engine], Mapping[str, float | int | str]]
"""A further check, as `the right words on golden audio`; gives figures or raises `EngineCheckError`."""


@dataclass(frozen=True, slots=True)
class Golden:
    """Inputs of one stream, run after run, and the engine that answers them rightly. States stay inside."""

    feeds: Sequence[Mapping[str, Array]]
    reference: Callable[[], Engine]
    """Opens the rung below; closed again after the check."""
    min_snr_db: float = MIN_SNR_DB
    extra: Extra | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was found."""

    runs: int
    worst_snr_db: float
    figures: Mapping[str, float | int | str]


def check_engine(engine: Engine, golden: Golden, name: str) -> CheckResult:
    """Run both. Raises `EngineCheckError` where an output is not finite, of another shape or too far off."""
    powers: dict[str, tuple[float, float]] = {}
    with contextlib.closing(golden.reference()) as reference, contextlib.ExitStack() as closing:
        ours, theirs = engine.stream(), reference.stream()
        # Backends that hold memory for a stream can give it back at once.
        closing.callback(getattr(ours, "close", _nothing))
        for _ in range(_ROUNDS):
            ours.reset()
            theirs.reset()
            for number, feed in enumerate(golden.feeds):
                made, wanted = ours.run(feed), theirs.run(feed)
                for output, value in wanted.items():
                    signal, noise = _powers(made[output], value, f"{name}: run {number}, {output}")
                    before = powers.get(output, (0.0, 0.0))
                    powers[output] = (before[0] + signal, before[1] + noise)
    ratios = {output: _db(signal, noise) for output, (signal, noise) in powers.items()}
    bad = [f"{output} {db:.1f} dB" for output, db in ratios.items() if not db >= golden.min_snr_db]  # NaN, too
    if bad:
        raise EngineCheckError(
            f"{name}: {', '.join(bad)} of signal to noise against the rung below; {golden.min_snr_db:.0f} dB are wanted"
        )
    figures = {} if golden.extra is None else golden.extra(engine)
    return CheckResult(len(golden.feeds), min(ratios.values(), default=_SAME_DB), figures)


_ROUNDS = 3
"""From the start each time: in the second round graphs are captured, in the third they run."""
_SAME_DB = 200.0
"""Reported where there is no difference at all."""


def _powers(made: Array, wanted: Array, where: str) -> tuple[float, float]:
    if made.shape != wanted.shape:
        raise EngineCheckError(f"{where} has shape {made.shape}; the rung below gives {wanted.shape}")
    ours, theirs = made.astype(np.float64), wanted.astype(np.float64)
    if not np.isfinite(ours).all():
        bad = int(ours.size - np.isfinite(ours).sum())
        raise EngineCheckError(f"{where}: {bad} of {ours.size} values are not finite")
    # A constant offset is no signal: logits have one.
    centred = theirs - theirs.mean() if theirs.size > 1 else theirs
    return float((centred**2).sum()), float(((ours - theirs) ** 2).sum())


def _db(signal: float, noise: float) -> float:
    if noise == 0.0:
        return _SAME_DB
    return -_SAME_DB if signal == 0.0 else float(10 * np.log10(signal / noise))


def _nothing() -> None:
    """For a backend whose streams hold nothing."""
