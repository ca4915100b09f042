"""The process that builds an engine: `python -m models.engines.tensorrt.build_process`.

Stdin: the request, one line of JSON; then nothing, or `cancel`. When stdin closes, whoever asked has gone, and so does
this process. Stdout: one JSON object a line, `progress` while it goes on, then `done` or `failed`. A build takes
minutes and gigabytes, and may take its process down; the appliance lives on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import BaseModel, ConfigDict

from models.engines.tensorrt.api import (
    Builder,
    Flavour,
    IBuilderConfig,
    INetworkDefinition,
    LogLines,
    TensorRt,
    checked,
    load_tensorrt,
)
from models.engines.tensorrt.key import BuildSettings, ProfileData
from models.engines.tensorrt.profiles import Profile, Span, validate
from models.errors import (
    EngineBuildError,
    EngineCancelledError,
    EngineRefusedError,
    ModelsError,
    ProfileError,
    QuantisationRefusedError,
)

__all__ = ["BuildReport", "BuildRequest", "build", "main"]

_WARNING = 2


class BuildRequest(BaseModel):
    """What is to be built, and where it is to go."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    onnx: Path
    output: Path
    """Written whole and synced, or not at all of use: the parent moves it into place."""
    flavour: Flavour
    profiles: tuple[ProfileData, ...]
    settings: BuildSettings
    timing_cache: Path | None = None
    """Read if it is there, written anew afterwards."""


class BuildReport(BaseModel):
    """What came of it."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["done"] = "done"
    tensorrt: str
    bytes: int
    layers: int
    seconds: float
    cpu_s: float
    """Processor time of the build's process, all threads."""
    log: str
    """What TensorRT warned of."""


class _Talk:
    """This process's side of the two pipes."""

    def __init__(self, requests: TextIO, answers: TextIO) -> None:
        self._requests, self._answers = requests, answers
        self._writing = threading.Lock()
        self.cancelled = threading.Event()

    def request(self) -> BuildRequest:
        return BuildRequest.model_validate_json(self._requests.readline())

    def watch(self) -> None:
        """From now on, notice a cancel, and leave when the parent is gone."""
        threading.Thread(target=self._watch, name="parent", daemon=True).start()

    def say(self, message: dict[str, Any]) -> None:
        with self._writing:
            self._answers.write(json.dumps(message) + "\n")
            self._answers.flush()

    def _watch(self) -> None:
        for line in self._requests:
            if line.strip() == "cancel":
                self.cancelled.set()
        os._exit(3)


def main() -> int:
    """Serve one request."""
    # Libraries write to descriptor 1 as they like: the answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    talk = _Talk(sys.stdin, answers)
    request = talk.request()
    talk.watch()
    try:
        report = build(request, load_tensorrt(request.flavour), talk.say, talk.cancelled)
    except (ModelsError, OSError, MemoryError) as error:
        code = error.code if isinstance(error, ModelsError) else EngineBuildError.code
        talk.say({"kind": "failed", "code": code, "message": f"{error}" or type(error).__name__})
        return 1
    talk.say(report.model_dump(mode="json"))
    return 0


def build(request: BuildRequest, trt: TensorRt, say: Any, cancelled: threading.Event) -> BuildReport:
    """Parse, check, build, write. `say` takes a message; raises `EngineRefusedError`, `ProfileError`,
    `EngineCancelledError`, `OSError`."""
    start, cpu_start, log = time.monotonic(), time.process_time(), LogLines()
    logger = log.logger(trt)
    builder = checked(trt.Builder(logger), "make a builder", log, EngineRefusedError)
    network = _parsed(trt, builder, request.onnx, logger, log)
    config = checked(builder.create_builder_config(), "make a configuration", log, EngineRefusedError)
    config.progress_monitor = monitor = _monitor(trt, say, cancelled)
    _configure(trt, config, request, log)
    _add_profiles(builder, network, config, request, log)
    plan = builder.build_serialized_network(network, config)
    if cancelled.is_set():
        raise EngineCancelledError(f"the build of {request.onnx.name} was cancelled")
    plan = checked(plan, f"build {request.onnx.name}", log, EngineRefusedError)
    del monitor
    _write_synced(request.output, plan)
    if request.timing_cache is not None:
        _keep_timings(config, request.timing_cache)
    return BuildReport(
        tensorrt=trt.__version__,
        bytes=plan.nbytes,
        layers=network.num_layers,
        seconds=round(time.monotonic() - start, 2),
        cpu_s=round(time.process_time() - cpu_start, 2),
        log=log.text(nothing=""),
    )


def _parsed(trt: TensorRt, builder: Builder, onnx: Path, logger: Any, log: LogLines) -> INetworkDefinition:
    # Precision is in the graph; the builder is not to choose it.
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = checked(builder.create_network(flags), "make a network", log, EngineRefusedError)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx.read_bytes()):
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        reasons = [" ".join(f"{e.node_operator()} {e.node_name()}: {e.desc()}".split()) for e in errors]
        raise EngineRefusedError(f"TensorRT's parser refuses {onnx.name}: {'; '.join(reasons) or log.text()}")
    if network.num_layers == 0:
        # An empty file is parsed without complaint.
        raise EngineRefusedError(f"TensorRT's parser finds nothing in {onnx.name} ({onnx.stat().st_size} bytes)")
    _check_bytes(onnx)
    return network


def _check_bytes(path: Path) -> None:
    """Unsigned bytes without a zero point are taken without a word (TensorRT-RTX 1.7); no promise says how they are
    read. Our own rules have the last word."""
    import onnx

    from models.quantize.tensorrt_rules import check_tensorrt_qdq

    try:
        check_tensorrt_qdq(onnx.load(path, load_external_data=False))
    except QuantisationRefusedError as error:
        raise EngineRefusedError(f"{path.name}: {error} (TensorRT's parser took it)") from error


def _configure(trt: TensorRt, config: IBuilderConfig, request: BuildRequest, log: LogLines) -> None:
    settings = request.settings
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace_mib << 20)
    config.builder_optimization_level = settings.optimization_level
    # Kernels on streams of TensorRT's own would run beside another session's, on the same activations' memory.
    config.max_aux_streams = 0
    if settings.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if settings.ampere_plus:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if request.timing_cache is not None:
        known = request.timing_cache.read_bytes() if request.timing_cache.exists() else b""
        # One of another version or device is refused; then everything is timed anew.
        cache = config.create_timing_cache(known) or config.create_timing_cache(b"")
        cache = checked(cache, "make a timing cache", log, EngineRefusedError)
        if not config.set_timing_cache(cache, False):
            fresh = checked(config.create_timing_cache(b""), "make a timing cache", log, EngineRefusedError)
            checked(config.set_timing_cache(fresh, False), "use a timing cache", log, EngineRefusedError)
    if settings.compute_capabilities:
        _target(trt, config, settings.compute_capabilities)


def _target(rtx: Any, config: Any, capabilities: tuple[str, ...]) -> None:
    """TensorRT-RTX's own: build for GPUs that are not here."""
    known = getattr(rtx, "ComputeCapability", None)
    if known is None:
        raise EngineRefusedError("compute_capabilities can be chosen with TensorRT-RTX only")
    config.num_compute_capabilities = len(capabilities)
    for index, name in enumerate(capabilities):
        if not hasattr(known, name):
            raise EngineRefusedError(f"TensorRT-RTX {rtx.__version__} knows no compute capability {name}")
        config.set_compute_capability(getattr(known, name), index)


def _add_profiles(
    builder: Builder, network: INetworkDefinition, config: IBuilderConfig, request: BuildRequest, log: LogLines
) -> None:
    """Hand the profiles over. What is wrong with them is said by us, in plain words, and by TensorRT."""
    inputs = {}
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        inputs[tensor.name] = tuple(tensor.shape)
    profiles: list[Profile] = [{n: Span(*shapes) for n, shapes in data.items()} for data in request.profiles]
    ours: ProfileError | None = None
    try:
        validate(profiles, inputs)
    except ProfileError as error:
        ours = error
    log.clear()
    for number, profile in enumerate(profiles):
        row = checked(builder.create_optimization_profile(), "make a profile", log, ProfileError)
        for name, span in profile.items():
            row.set_shape(name, span.least, span.usual, span.most)
        if config.add_optimization_profile(row) < 0 and ours is None:
            raise ProfileError(f"TensorRT refuses profile {number}: {log.text()}")
    if ours is not None:
        # It ends at once, with TensorRT's own reason in the log.
        refused = builder.build_serialized_network(network, config) is None
        raise ProfileError(f"{ours}; TensorRT: {log.text() if refused else 'took it'}")


def _monitor(trt: TensorRt, say: Any, cancelled: threading.Event) -> Any:
    """Tells how far it is, by TensorRT's outermost phase, and whether it should go on."""

    class _Monitor(trt.IProgressMonitor):  # type: ignore[misc, name-defined]  # the base is known at run time only
        def __init__(self) -> None:
            super().__init__()
            self._steps: dict[str, int] = {}
            self._inner: set[str] = set()

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self._steps[phase_name] = num_steps
            if parent_phase:
                self._inner.add(phase_name)
            say({"kind": "progress", "phase": phase_name, "done": 0, "total": num_steps})

        def phase_finish(self, phase_name: str) -> None:
            total = self._steps.pop(phase_name, 0)
            if phase_name not in self._inner:
                say({"kind": "progress", "phase": phase_name, "done": total, "total": total})

        def step_complete(self, phase_name: str, step: int) -> bool:
            if phase_name not in self._inner:
                total = self._steps.get(phase_name, 0)
                say({"kind": "progress", "phase": phase_name, "done": min(step + 1, total), "total": total})
            return not cancelled.is_set()

    return _Monitor()


def _write_synced(path: Path, data: Any) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _keep_timings(config: IBuilderConfig, path: Path) -> None:
    cache = config.get_timing_cache()
    timings = None if cache is None else cache.serialize()
    if timings is not None:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        _write_synced(fresh, timings)
        fresh.replace(path)


if __name__ == "__main__":
    sys.exit(main())
