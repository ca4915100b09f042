"""An engine for a graph: from the cache, or built, checked and kept. Meanwhile the rung below serves."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from models.engines.base import StateTensor
from models.engines.tensorrt.api import Flavour, TensorRt
from models.engines.tensorrt.build_process import BuildReport, BuildRequest
from models.engines.tensorrt.builder import BuildLimits, Runner, never, run_build
from models.engines.tensorrt.cache import CachedEngine, EngineCache, EngineManifest, Failure
from models.engines.tensorrt.device import Device
from models.engines.tensorrt.engine import EngineOptions, TensorRtEngine
from models.engines.tensorrt.key import BuildSettings, EngineKey, profile_data
from models.engines.tensorrt.pool import Pool
from models.engines.tensorrt.profiles import GraphProfiles
from models.engines.tensorrt.selfcheck import Golden, check_engine
from models.errors import EngineError, EnginePlanError, EngineRefusedError, TensorRtMissingError
from models.files import sha256_of
from models.progress import Progress, silent

if TYPE_CHECKING:
    from models.store import Store

__all__ = ["BackgroundBuild", "BuildAt", "EngineSpec", "Provider", "provider_here"]


FOLDER = "engines"
"""Of built engines, under the store's root."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """A graph, and how it is to be built and run."""

    name: str
    """For people: `moonshine-base-en decoder fp16`."""
    onnx: Path
    graph: GraphProfiles
    states: Sequence[StateTensor] = ()
    settings: BuildSettings = field(default_factory=BuildSettings)
    onnx_sha256: str | None = None
    """Of the file, where it has been verified already; None: it is read for it."""


@functools.cache
def _board() -> tuple[str | None, str | None]:
    """Module and L4T release of this machine, which take a second to find out."""
    from hw.probe import probe

    machine = probe()
    return machine.module, machine.l4t


@dataclass(frozen=True, slots=True)
class BuildAt:
    """The machine that the engine is built on and for: what the key needs beyond the graph."""

    trt: TensorRt
    device: Device
    flavour: Flavour = "tensorrt"
    module: str | None = field(default_factory=lambda: _board()[0])
    """A Jetson's, as `hw.probe` says, and so the next."""
    l4t: str | None = field(default_factory=lambda: _board()[1])


def provider_here(store: Store) -> Provider:
    """The provider of this machine, its engines beside the store's models.

    Raises `TensorRtMissingError`, which says what is missing and how to get it.
    """
    from models.engines.tensorrt.api import load_tensorrt
    from models.engines.tensorrt.device import CudaDevice

    trt, device = load_tensorrt(), CudaDevice()
    return Provider(BuildAt(trt, device), EngineCache(store.root / FOLDER), Pool(device))


@dataclass(slots=True)
class Provider:
    """Makes engines on one machine, in one cache. Thread-safe: one build of a key at a time, by any process."""

    at: BuildAt
    cache: EngineCache
    pool: Pool
    limits: BuildLimits = field(default_factory=BuildLimits)
    options: EngineOptions = field(default_factory=EngineOptions)
    runner: Runner = field(default=run_build)

    def key(self, spec: EngineSpec) -> EngineKey:
        """What the engine depends on."""
        info = self.at.device.info()
        return EngineKey(
            onnx_sha256=spec.onnx_sha256 or sha256_of(spec.onnx),
            flavour=self.at.flavour,
            tensorrt=self.at.trt.__version__,
            cuda=info.cuda,
            sm=info.sm,
            gpu=info.name,
            module=self.at.module,
            l4t=self.at.l4t,
            profiles=profile_data(spec.graph.profiles),
            settings=spec.settings,
        )

    def cached(self, spec: EngineSpec) -> TensorRtEngine | None:
        """The engine, if it has been built and TensorRT still takes it; quick, and never builds.

        One that was built with other settings serves too, and a version-compatible one of an older minor version.
        """
        return self._opened(spec, self.cache.open_like(self.key(spec)))

    def get(
        self,
        spec: EngineSpec,
        golden: Golden,
        progress: Progress = silent,
        cancelled: Callable[[], bool] = never,
    ) -> TensorRtEngine:
        """The engine, built if it has to be.

        Raises what `run_build` raises, `EngineCheckError`, `StoreFullError`. A refusal, a failed check and a device
        that broke in it are remembered: they are raised again at once, until the graph, TensorRT or the machine
        changes. What may pass (a crash, no memory, a cancel, a library that is missing) is not remembered.
        """
        key = self.key(spec)
        if (engine := self._cached(spec, key)) is not None:
            return engine
        self._raise_known(key)
        with self.cache.building(key) as work:
            # Another process may have built it while this one waited.
            if (engine := self._cached(spec, key)) is not None:
                return engine
            self._raise_known(key)
            try:
                return self._build(spec, key, golden, work, progress, cancelled)
            except EngineError as error:
                if not error.retry and not isinstance(error, TensorRtMissingError):
                    self.cache.fail(
                        Failure(name=spec.name, key=key, code=error.code, reason=f"{error}", failed_at=time.time())
                    )
                raise

    def in_background(
        self,
        spec: EngineSpec,
        golden: Golden,
        on_ready: Callable[[TensorRtEngine], None],
        on_failed: Callable[[Exception], None],
        progress: Progress = silent,
    ) -> BackgroundBuild:
        """`get` on a thread of its own. One of the two is called there when it is over; none after a cancel."""
        build = BackgroundBuild()

        def work() -> None:
            try:
                engine = self.get(spec, golden, progress, build.cancelled)
            except Exception as error:  # noqa: BLE001 (it is the listener's to tell; a thread has nobody to raise to)
                if not build.cancelled():
                    on_failed(error)
                return
            if build.cancelled():
                engine.close()
            else:
                on_ready(engine)

        build.start(work, f"build {spec.name}")
        return build

    def _raise_known(self, key: EngineKey) -> None:
        if (failure := self.cache.failure(key)) is not None:
            raise EngineRefusedError(
                f"{failure.name} was given up before: {failure.reason} (try again: wren engines build --again)"
            )

    def _cached(self, spec: EngineSpec, key: EngineKey) -> TensorRtEngine | None:
        return self._opened(spec, self.cache.open(key))

    def _opened(self, spec: EngineSpec, found: CachedEngine | None) -> TensorRtEngine | None:
        if found is None:
            return None
        try:
            return self._load(spec, found.plan, found.manifest.key.settings)
        except EnginePlanError:
            # Right by its checksum, and yet no plan for this TensorRT: it can only be built anew.
            self.cache.remove(found.manifest.key.digest)
            return None

    def _build(
        self,
        spec: EngineSpec,
        key: EngineKey,
        golden: Golden,
        work: Path,
        progress: Progress,
        cancelled: Callable[[], bool],
    ) -> TensorRtEngine:
        plan = work / "engine"
        request = BuildRequest(
            onnx=spec.onnx,
            output=plan,
            flavour=self.at.flavour,
            profiles=key.profiles,
            settings=spec.settings,
            timing_cache=self.cache.timing_cache(key),
        )
        report = self.runner(request, self.limits, progress, cancelled)
        engine = self._load(spec, plan.read_bytes(), spec.settings)
        try:
            progress(f"check {spec.name}", 0, None)
            result = check_engine(engine, golden, spec.name)
            self.cache.put(plan, _manifest(spec, key, plan, report, result.worst_snr_db, dict(result.figures)))
        except BaseException:  # also an interrupt: the weights would stay on the device
            engine.close()
            raise
        return engine

    def _load(self, spec: EngineSpec, plan: bytes, settings: BuildSettings) -> TensorRtEngine:
        options = self.options
        if settings.version_compatible:
            options = EngineOptions(options.graphs, options.float_dtype, version_compatible=True)
        return TensorRtEngine(
            plan,
            spec.states,
            trt=self.at.trt,
            pool=self.pool,
            name=spec.name,
            padding=spec.graph.padding,
            options=options,
        )


class BackgroundBuild:
    """A build that goes on while others serve."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None], name: str) -> None:
        """Begin; called once."""
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """End it soon; nothing is left behind and nobody is told."""
        self._cancelled.set()

    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it has come."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()


def _manifest(
    spec: EngineSpec,
    key: EngineKey,
    plan: Path,
    report: BuildReport,
    snr_db: float,
    figures: dict[str, float | int | str],
) -> EngineManifest:
    return EngineManifest(
        name=spec.name,
        key=key,
        size=plan.stat().st_size,
        sha256=sha256_of(plan),
        built_at=time.time(),
        build_s=report.seconds,
        layers=report.layers,
        log=report.log,
        checks={"worst_snr_db": round(snr_db, 1), **figures},
    )
