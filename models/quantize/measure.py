"""What a graph costs on one core, and how far its outputs are from FP32's."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from models.engines.base import Array
from models.engines.onnx_cpu import OrtCpuEngine
from models.quantize.ranges import Feed

__all__ = ["cpu_ms", "fitted", "run_all", "snr_db"]

_CEILING_DB = 150.0
"""Said of outputs that are the same to the last bit."""


def fitted(engine: OrtCpuEngine, feed: Feed) -> dict[str, Array]:
    """The feed in the dtypes the engine wants: an FP16 graph takes its keys and values as FP16."""
    return {name: np.asarray(feed[name]).astype(info.dtype, copy=False) for name, info in engine.inputs.items()}


def run_all(engine: OrtCpuEngine, feeds: Sequence[Feed], outputs: Sequence[str]) -> list[dict[str, Array]]:
    """The outputs named, for each feed, copied."""
    stream = engine.stream()
    results = []
    for feed in feeds:
        made = stream.run(fitted(engine, feed))
        results.append({name: np.array(made[name], dtype=np.float32) for name in outputs})
    return results


def snr_db(
    reference: Sequence[Mapping[str, Array]], other: Sequence[Mapping[str, Array]], *, centred: bool = False
) -> float:
    """Signal to noise over all outputs, each weighed alike; with `centred`, a row's mean is no signal (logits).

    -inf where a shape differs: the variant gives another number of frames.
    """
    noise_shares: list[float] = []
    for name in reference[0]:
        signal = noise = 0.0
        for a, b in zip((r[name] for r in reference), (o[name] for o in other), strict=True):
            if a.shape != b.shape:
                return -math.inf
            base = a - a.mean(axis=-1, keepdims=True) if centred else a
            signal += float(np.square(base, dtype=np.float64).sum())
            noise += float(np.square(a - b, dtype=np.float64).sum())
        noise_shares.append(noise / max(signal, 1e-30))
    share = statistics.fmean(noise_shares)
    if not math.isfinite(share):
        return -math.inf
    return min(_CEILING_DB, -10 * math.log10(max(share, 1e-15)))


def cpu_ms(engines: Sequence[OrtCpuEngine], work: Sequence[Feed], repeats: int) -> list[float]:
    """CPU milliseconds of all the work for each engine, median of the repeats.

    The engines take turns, so that what else goes on in the machine meets all of them alike.
    """
    jobs = [(engine.stream(), [fitted(engine, feed) for feed in work]) for engine in engines]
    times: list[list[float]] = [[] for _ in engines]
    for repeat in range(repeats + 1):
        for number, (stream, feeds) in enumerate(jobs):
            started = time.process_time()
            for feed in feeds:
                stream.run(feed)
            if repeat:  # the first one warms up
                times[number].append((time.process_time() - started) * 1000)
    return [statistics.median(t) for t in times]
