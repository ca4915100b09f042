"""Which layers do not survive 8 bits: found by quantising them one at a time, never listed by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from models.quantize.sites import Site

__all__ = ["Sweep", "find_keep_float", "sweep"]

Measure = Callable[[Collection[str]], float]
"""Names of the sites kept in float -> signal to noise in dB of the outputs."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Each site's own damage."""

    snr_db: dict[str, float]
    """Site -> signal to noise with it alone in 8 bits; the worst first."""


def sweep(sites: Sequence[Site], measure: Measure, progress: Callable[[int, int], None]) -> Sweep:
    """Quantise each layer alone; then, in the layers that hurt most, each site alone.

    A graph of few sites is looked at site by site at once.
    """
    names = [s.name for s in sites]
    layers = list(dict.fromkeys(s.layer for s in sites))
    found: dict[str, float] = {}
    if len(layers) < len(sites):
        by_layer = {}
        for number, layer in enumerate(layers):
            by_layer[layer] = measure([s.name for s in sites if s.layer != layer])
            progress(number + 1, len(layers))
        worst = sorted(by_layer, key=lambda layer: by_layer[layer])[: max(1, len(layers) // 3)]
        # A site does no more damage than its layer, so those of good layers need no run of their own.
        found = {s.name: by_layer[s.layer] for s in sites if s.layer not in worst}
        single = [s.name for s in sites if s.layer in worst]
    else:
        single = names
    for number, name in enumerate(single):
        found[name] = measure([n for n in names if n != name])
        progress(number + 1, len(single))
    return Sweep(dict(sorted(found.items(), key=lambda item: item[1])))


def find_keep_float(ranking: Sweep, measure: Measure, target_db: float) -> tuple[tuple[str, ...], float]:
    """The fewest of the worst sites that must stay in float for `target_db`, and what is reached.

    All of them, if nothing less does. By halving: more in float is never worse by much.
    """
    order = list(ranking.snr_db)
    low, high, reached = 0, len(order), float("inf")
    while low < high:
        middle = (low + high) // 2
        snr = measure(order[:middle])
        if snr >= target_db:
            high, reached = middle, snr
        else:
            low = middle + 1
    return tuple(order[:high]), reached
