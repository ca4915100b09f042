"""Graphs that are no pack's parts: files somebody put in place, run as they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from models.engines.base import Engine, StateTensor
from models.engines.ladder import LadderEngine, Rung, RungChanged, open_ladders
from models.engines.quarantine import Quarantine
from models.files import version_of

__all__ = ["GivenGraphs", "given_rungs", "open_given"]


@dataclass(frozen=True, slots=True)
class GivenGraphs:
    """A task's graphs as files."""

    name: str
    """As people read it."""
    graphs: Mapping[str, Path]
    """Part -> its file."""
    precision: Literal["fp32", "int8"]
    """As whoever made the files says."""
    states: Mapping[str, tuple[StateTensor, ...]]
    """Part -> its recurrent tensors; parts that are left out have none."""
    mb: float
    """Size of all files."""


def given_rungs(
    given: GivenGraphs, threads: int, machine: str = "", cores: Sequence[int] = ()
) -> dict[str, tuple[Rung, ...]]:
    """Part -> its rungs: ONNX Runtime on the processor, and NumPy where it knows all operators. Nothing is opened.

    `cores` as of `Choice.cores`.
    """
    return {
        part: (
            _rung(given, part, "ort-cpu", "onnxruntime", machine, partial(_on_cpu, given, part, threads, cores)),
            _rung(given, part, "numpy", "numpy", machine, partial(_on_numpy, given, part, threads)),
        )
        for part in given.graphs
    }


def open_given(
    task: str,
    given: GivenGraphs,
    threads: int,
    *,
    quarantine: Quarantine,
    listener: Callable[[RungChanged], None],
    machine: str = "",
    cores: Sequence[int] = (),
) -> dict[str, LadderEngine]:
    """A ladder for each graph, the first rung open. Raises `EngineError` where not one rung of a part can be opened."""
    rungs = given_rungs(given, threads, machine, cores)
    return open_ladders(task, rungs, given.states, quarantine=quarantine, listener=listener)


def _rung(
    given: GivenGraphs, part: str, backend: str, distribution: str, machine: str, opened: Callable[[], Engine]
) -> Rung:
    name = f"{backend} {given.precision}"
    return Rung(
        name=name,
        backend=backend,
        precision=given.precision,
        key=_key(given.graphs[part], name, version_of(distribution), machine),
        open=opened,
    )


def _key(path: Path, name: str, version: str, machine: str) -> str:
    """The file by its place, size and time: reading hundreds of megabytes for a checksum would delay every start."""
    try:
        stat = path.stat()
        file = [str(path), stat.st_size, stat.st_mtime_ns]
    except OSError:  # it cannot be opened either, and says why then
        file = [str(path)]
    return hashlib.sha256(json.dumps([*file, name, version, machine]).encode()).hexdigest()[:16]


def _on_cpu(given: GivenGraphs, part: str, threads: int, cores: Sequence[int]) -> Engine:
    from models.engines.onnx_cpu import OrtCpuEngine

    return OrtCpuEngine(given.graphs[part], given.states.get(part, ()), threads=threads, cores=cores)


def _on_numpy(given: GivenGraphs, part: str, threads: int) -> Engine:
    from models.engines.numpy import NumpyEngine

    return NumpyEngine(given.graphs[part], given.states.get(part, ()), threads=threads)
