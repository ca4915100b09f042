"""Which rungs a task's ladders have, from the plan's choice down to NumPy, and how each is opened.

A backend is imported by its opener and nowhere else: what does not load here is a rung that fails, with its reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from models.convert import Artefact, needs_conversion, open_artefact
from models.engines.base import Engine, StateTensor
from models.engines.ladder import LadderEngine, Rung, RungChanged, TimeLimits, open_ladders
from models.engines.quarantine import Quarantine
from models.errors import EngineError, ModelsError, PackMissingError
from models.files import version_of
from models.graphs import form_of
from models.store import Store

if TYPE_CHECKING:
    from hw.plan import Choice
    from models.catalogue import PackFile
    from models.engines.tensorrt.provide import Provider

__all__ = [
    "TABLE",
    "Kind",
    "converted_before",
    "open_kind",
    "open_task",
    "quarantine_of",
    "rungs_for",
    "with_engine",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A row: one way to run a graph."""

    backend: str
    precision: str
    scheme: str | None = None

    @property
    def name(self) -> str:
        """As people read it."""
        return f"{self.backend} {self.precision}"


TABLE: Final = (
    Kind("tensorrt", "int8", "qdq"),
    Kind("tensorrt", "fp16"),
    Kind("ort-cuda", "fp16"),
    Kind("ort-cuda", "fp32"),
    Kind("ort-cpu", "int8", "u8s8"),
    Kind("ort-cpu", "int8", "s8-dynamic"),
    Kind("ort-cpu", "fp32"),
    Kind("numpy", "fp32"),
)
"""Best first. A ladder begins with the plan's choice and goes on below it: what stands above was decided against."""

CPU_ONLY: Final = frozenset({"frontend"})
"""Graphs whose sizes depend on their values: no GPU backend takes them."""
_DEVICES: Final = frozenset({"tensorrt", "ort-cuda"})
_DISTRIBUTION: Final = {"ort-cuda": "onnxruntime-gpu", "ort-cpu": "onnxruntime", "numpy": "numpy"}
_LEAST_LIMIT_S: Final = 5.0
_TIMES_MEASURED: Final = 30
"""A run that takes so many times what the whole job took when it was measured hangs."""


def open_task(
    store: Store,
    choice: Choice,
    parts: Sequence[str],
    *,
    quarantine: Quarantine | None = None,
    listener: Callable[[RungChanged], None] | None = None,
    machine: str = "",
    provider: Callable[[], Provider] | None = None,
) -> dict[str, LadderEngine]:
    """A ladder for each graph of a task: part -> engine, the first rung open.

    `machine` names what else decides (`Machine.digest`): an engine that failed is tried again on another. `provider`
    makes TensorRT's engines; None: the machine's own, with the store's cache. Raises `EngineError` where not one rung
    of a part can be opened, and what `rungs_for` raises.
    """
    rungs = rungs_for(store, choice, parts, machine=machine, provider=provider)
    pack = store.catalogue.get(choice.model)
    return open_ladders(
        choice.task,
        rungs,
        {part: pack.state_tensors(part) for part in rungs},
        quarantine=quarantine_of(store) if quarantine is None else quarantine,
        listener=listener,
    )


def rungs_for(
    store: Store,
    choice: Choice,
    parts: Sequence[str],
    *,
    machine: str = "",
    provider: Callable[[], Provider] | None = None,
) -> dict[str, tuple[Rung, ...]]:
    """Part -> its rungs, best first; nothing is opened.

    Raises `CatalogueError` for an unknown pack, `EngineError` for a backend that no engine of ours is for.
    """
    limits = TimeLimits(run_s=max(_LEAST_LIMIT_S, (choice.ms or 0) / 1000 * _TIMES_MEASURED))
    found = {}
    for part in parts:
        graph = _Graph(store, choice.model, tuple(parts), part, store.catalogue.get(choice.model).state_tensors(part))
        found[part] = tuple(
            Rung(
                name=kind.name,
                backend=kind.backend,
                precision=kind.precision,
                key=_key(graph, kind, machine),
                open=_opener(graph, kind, choice.threads, provider, choice.cores),
                limits=limits if kind.backend in _DEVICES else None,
                may_crash=kind.backend in _DEVICES,
            )
            for kind in _kinds(choice, part)
        )
    return found


def open_kind(store: Store, model: str, parts: Sequence[str], kind: Kind, threads: int = 1) -> dict[str, Engine]:
    """Part -> engine of one kind, without a ladder, for what measures. Raises what the backend raises, or ours."""
    engines: dict[str, Engine] = {}
    try:
        for part in parts:
            # What no GPU takes runs where a ladder would run it.
            there = Kind("ort-cpu", "fp32") if part in CPU_ONLY and kind.backend in _DEVICES else kind
            states = store.catalogue.get(model).state_tensors(part)
            engines[part] = _opener(_Graph(store, model, tuple(parts), part, states), there, threads, None)()
    except BaseException:  # also an interrupt: whoever asked never gets them to close
        for engine in engines.values():
            engine.close()
        raise
    return engines


def quarantine_of(store: Store) -> Quarantine:
    """The store's list of engines that failed."""
    return Quarantine(store.root / "engines" / "quarantine.json")


def with_engine(rung: Rung, engine: Engine) -> Rung:
    """The rung, its engine made already: for `LadderEngine.offer`, when a build is done.

    Opened again, later, it opens as the rung would have: the engine that was given may be closed by then.
    """
    given = [engine]
    return replace(rung, open=lambda: given.pop() if given else rung.open())


def _kinds(choice: Choice, part: str) -> Iterator[Kind]:
    """The plan's choice and all below it. INT8 only where the plan's own words allow it."""
    chosen = Kind(choice.backend, choice.precision, choice.scheme)
    backends = list(dict.fromkeys(kind.backend for kind in TABLE))
    if chosen.backend not in backends:
        raise EngineError(f"{choice.task}: no engine of ours runs on {choice.backend}")
    # What is no row of the table (a precision set by hand) stands above the backends below its own.
    after = TABLE.index(chosen) + 1 if chosen in TABLE else 0
    below = backends[backends.index(chosen.backend) + (chosen not in TABLE) :]
    bytes_allowed = "int8" in {choice.precision, choice.fallback.precision if choice.fallback else None}
    seen: set[str] = set()
    for kind in (chosen, *(kind for kind in TABLE[after:] if kind.backend in below)):
        refused = (kind.precision == "int8" and not bytes_allowed) or (part in CPU_ONLY and kind.backend in _DEVICES)
        if not refused and kind.name not in seen:
            seen.add(kind.name)
            yield kind


# ---- graphs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph of a pack, in whatever forms the store has it."""

    store: Store
    pack: str
    parts: tuple[str, ...]
    """All of the task's: a precision may be fewer bits in one of them only."""
    part: str
    states: tuple[StateTensor, ...]

    def path(self, kind: Kind) -> Path:
        """Its file for a rung, the checksum verified. Raises `ModelsError` where it is not there or failed its gate."""
        if not needs_conversion(self.pack):
            return self.store.open(self.pack).path(self._shipped(kind).name)
        artefact, name = self._held(kind)
        return artefact.path(self.part, name)

    def sha256(self, kind: Kind) -> str:
        """What its checksum should be; the file is not read."""
        if not needs_conversion(self.pack):
            return self._shipped(kind).sha256
        artefact, name = self._held(kind)
        return next(f.sha256 for f in artefact.manifest.files if (f.part, f.precision) == (self.part, name))

    def _held(self, kind: Kind) -> tuple[Artefact, str]:
        if kind.backend == "numpy":
            return converted_before(self.store, self.pack), kind.precision
        form = form_of(self.store, self.pack, self.parts, kind.precision, kind.scheme)
        if not form.passed:
            raise EngineError(f"{self.pack} at {kind.precision} did not pass its accuracy gate")
        return form.parts[self.part]

    def _shipped(self, kind: Kind) -> PackFile:
        """The pack's only graph, or the one of several that is named after the part."""
        files = [file for file in self.store.catalogue.get(self.pack).files if file.name.endswith(".onnx")]
        if len(files) > 1:
            files = [file for file in files if file.name == f"{self.part}.onnx"]
        if kind.precision != "fp32" or len(files) != 1:
            raise PackMissingError(f"{self.pack} {self.part} comes as one FP32 graph; {kind.precision} was asked for")
        return files[0]


def converted_before(store: Store, pack_id: str) -> Artefact:
    """What was converted from the pack's present files, by the present tools or, failing that, by others.

    NumPy runs what was converted; converting needs ONNX Runtime. Raises `PackMissingError`, which says so.
    """
    try:
        return open_artefact(store, pack_id)
    except ModelsError as error:
        trouble = error
    inputs = {file.name: file.sha256 for file in store.catalogue.get(pack_id).files}
    for folder in sorted((store.root / "artefacts" / pack_id).glob("*/")):
        try:
            artefact = Artefact.load(folder)
        except ModelsError:
            continue
        if artefact.manifest.inputs == inputs:
            return artefact
    raise PackMissingError(
        f"NumPy runs {pack_id} only once it has been converted, and converting needs ONNX Runtime to read the shipped "
        f"files: make ONNX Runtime load again, then run: wren models fetch {pack_id} ({trouble})"
    )


def _key(graph: _Graph, kind: Kind, machine: str) -> str:
    """Digest of the graph's file, the backend and its version, and the machine."""
    try:
        file = graph.sha256(kind)
    except (ModelsError, ImportError, StopIteration):  # it cannot be opened either, and says why then
        file = "absent"
    version = version_of(_DISTRIBUTION.get(kind.backend, kind.backend))
    text = json.dumps([graph.pack, graph.part, kind.name, kind.scheme, file, version, machine])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- openers --------------------------------------------------------------------------------------------------


def _opener(
    graph: _Graph,
    kind: Kind,
    threads: int,
    provider: Callable[[], Provider] | None,
    cores: Sequence[int] = (),
) -> Callable[[], Engine]:
    def on_cpu() -> Engine:
        from models.engines.onnx_cpu import OrtCpuEngine

        return OrtCpuEngine(graph.path(kind), graph.states, threads=threads, cores=cores)

    def on_cuda() -> Engine:
        from models.engines.onnx_cuda import OrtCudaEngine

        return OrtCudaEngine(graph.path(kind), graph.states)

    def on_numpy() -> Engine:
        from models.engines.numpy import NumpyEngine

        return NumpyEngine(graph.path(kind), graph.states, threads=threads)

    def on_tensorrt() -> Engine:
        from models.engines.tensorrt.key import BuildSettings
        from models.engines.tensorrt.provide import provider_here
        from models.engines.tensorrt.sources import spec_for

        variant = "int8-trt" if kind.precision == "int8" else kind.precision
        made = provider_here(graph.store) if provider is None else provider()
        engine = made.cached(spec_for(graph.store, graph.pack, graph.part, variant, BuildSettings()))
        if engine is None:
            raise EngineError(
                f"{graph.pack} {graph.part} has not been built for TensorRT yet; it is built beside, or run: "
                "wren engines build"
            )
        return engine

    return {"tensorrt": on_tensorrt, "ort-cuda": on_cuda, "ort-cpu": on_cpu, "numpy": on_numpy}[kind.backend]
