#!/usr/bin/env python3
"""Everything of Wren's that needs a GPU, tried on the GPU that is here: one command, a few minutes.

    .venv/bin/python benchmarks/gpu_check.py [--graphs none|quick|all] [--flavour tensorrt_rtx] [--json]

Streams, events, pinned memory, CUDA graphs and the memory pool by themselves; our TensorRT engine on a made graph and
on Wren's own; ONNX Runtime's CUDA provider on Wren's own. Each check ends as passed, FAILED, or `could not run` with
the reason, and what could not run is listed at the end: a short list of passes is no proof. Exit status: 0 nothing
failed and something ran, 1 something failed, 3 nothing could run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from models import Store
from models.engines.base import Array, Engine, StateTensor
from models.engines.tensorrt.api import Flavour, load_tensorrt
from models.engines.tensorrt.cache import EngineCache
from models.engines.tensorrt.device import CudaDevice
from models.engines.tensorrt.engine import EngineOptions
from models.engines.tensorrt.pool import Pool
from models.engines.tensorrt.profiles import GraphProfiles, Span
from models.engines.tensorrt.provide import BuildAt, EngineSpec, Provider
from models.engines.tensorrt.selfcheck import Golden, check_engine
from models.engines.tensorrt.sources import PARTS, golden, spec_for
from models.errors import ArtefactError, ModelsError, PackMissingError, TensorRtMissingError

MIB = 1 << 20
ROUNDS = 30
"""Times through the golden inputs when a run is timed."""
QUICK = (("silero-vad", "vad", "fp16"), ("piper-en-us-joe", "vocoder", "fp16"))
COPIES = 64


class CannotRunError(Exception):
    """What a check needs is not here."""


@dataclass
class Result:
    """How one check ended."""

    name: str
    outcome: str
    detail: str
    seconds: float


class Checks:
    """Runs checks one after the other and keeps what came of them."""

    def __init__(self, as_json: bool) -> None:
        self.results: list[Result] = []
        self._json = as_json

    def run(self, name: str, check: Callable[[], str]) -> None:
        start = time.monotonic()
        try:
            outcome, detail = "passed", check()
        except (CannotRunError, TensorRtMissingError, PackMissingError, ArtefactError) as error:
            outcome, detail = "could not run", " ".join(str(error).split())
        except (ModelsError, AssertionError) as error:
            outcome, detail = "FAILED", " ".join(f"{type(error).__name__}: {error}".split())
        except Exception as error:  # noqa: BLE001 (a check that breaks must not keep the others from running)
            outcome, detail = "FAILED", traceback.format_exception_only(error)[-1].strip()
        self.results.append(Result(name, outcome, detail, round(time.monotonic() - start, 2)))
        row = self.results[-1]
        text = json.dumps(asdict(row)) if self._json else f"{row.outcome:<14} {row.seconds:>7.1f} s  {name}: {detail}"
        print(text, flush=True)

    def status(self) -> int:
        outcomes = {r.outcome for r in self.results}
        missing = [r.name for r in self.results if r.outcome == "could not run"]
        if missing and not self._json:
            print(f"\nNot shown by this run, because it could not run here: {'; '.join(missing)}.")
        if "FAILED" in outcomes:
            return 1
        return 0 if "passed" in outcomes else 3


# ---- the device by itself -------------------------------------------------------------------------


def device_facts() -> str:
    info = CudaDevice().info()
    return f"{info.name}, SM {info.sm}, CUDA {info.cuda} (driver up to {info.driver}), {info.total_bytes // MIB} MiB"


def streams_and_events() -> str:
    """Data goes in on one stream, from block to block on another, out on a third; only events order them."""
    device, nbytes = CudaDevice(), 8 * MIB
    with contextlib.ExitStack() as stack:
        a, b = _block(device, nbytes, stack), _block(device, nbytes, stack)
        source, target = _host(device, nbytes, stack), _host(device, nbytes, stack)
        copy_in, move, copy_out = (_stream(device, stack) for _ in range(3))
        came, moved, gone = (_event(device, stack) for _ in range(3))
        for round_number in range(10):
            source.bytes[:] = round_number + 1
            device.copy_in(a, source.address, nbytes, copy_in)
            device.record(came, copy_in)
            device.wait(move, came)
            device.copy(b, a, nbytes, move)
            device.record(moved, move)
            device.wait(copy_out, moved)
            device.copy_out(target.address, b, nbytes, copy_out)
            device.record(gone, copy_out)
            device.synchronize_event(gone)
            assert (target.bytes == round_number + 1).all(), f"round {round_number}: other bytes came out"
    return "30 copies on three streams came out in order"


def pinned_memory() -> str:
    device, nbytes = CudaDevice(), 64 * MIB
    with contextlib.ExitStack() as stack:
        block, host = _block(device, nbytes, stack), _host(device, nbytes, stack)
        stream = _stream(device, stack)
        rates = []
        for copy in (
            lambda: device.copy_in(block, host.address, nbytes, stream),
            lambda: device.copy_out(host.address, block, nbytes, stream),
        ):
            start = time.perf_counter()
            for _ in range(8):
                copy()
            device.synchronize(stream)
            rates.append(8 * nbytes / (time.perf_counter() - start) / 1e9)
    return f"{rates[0]:.1f} GB/s in, {rates[1]:.1f} GB/s out"


def cuda_graphs() -> str:
    """The same small copies one by one and as a graph: the same bytes, and the time of each."""
    device, nbytes = CudaDevice(), 4096
    with contextlib.ExitStack() as stack:
        a, b = _block(device, nbytes, stack), _block(device, nbytes, stack)
        host, stream, aside = _host(device, nbytes, stack), _stream(device, stack), _stream(device, stack)

        def copies(on: int) -> None:
            for _ in range(COPIES // 2):
                device.copy(b, a, nbytes, on)
                device.copy(a, b, nbytes, on)

        device.begin_capture(aside)
        copies(aside)
        graph = device.end_capture(aside)
        stack.callback(device.destroy_graph, graph)
        host.bytes[:] = 7
        device.copy_in(a, host.address, nbytes, stream)
        times = {}
        for name, work in (
            ("one by one", lambda: copies(stream)),
            ("as a graph", lambda: device.launch(graph, stream)),
        ):
            work()
            device.synchronize(stream)
            start = time.perf_counter()
            for _ in range(50):
                work()
            device.synchronize(stream)
            times[name] = (time.perf_counter() - start) / 50 * 1e6
        host.bytes[:] = 0
        device.copy_out(host.address, a, nbytes, stream)
        device.synchronize(stream)
        assert (host.bytes == 7).all(), "other bytes came out of the graph"
    return f"{COPIES} copies " + ", ".join(f"{name} {us:.0f} us" for name, us in times.items())


def memory_pool() -> str:
    device = CudaDevice()
    before = device.free_bytes()
    pool = Pool(device)
    blocks = [pool.device_block(4 * MIB) for _ in range(32)]
    taken = before - device.free_bytes()
    pool.release(*blocks)
    pool.trim()
    left = before - device.free_bytes()
    assert taken >= 100 * MIB, f"128 MiB were taken, the device says {taken / MIB:.0f}"
    assert left <= 4 * MIB, f"{left / MIB:.1f} MiB did not come back"
    return f"{taken / MIB:.0f} MiB taken, all but {max(left, 0) / MIB:.1f} given back"


# ---- our TensorRT engine --------------------------------------------------------------------------


class OurEngines:
    """Our provider, on the device here, with a cache that is gone afterwards."""

    def __init__(self, flavour: Flavour, folder: Path) -> None:
        self._flavour, self._folder = flavour, folder
        self._provider: Provider | None = None

    def provider(self) -> Provider:
        if self._provider is None:
            trt, device = load_tensorrt(self._flavour), CudaDevice()
            at = BuildAt(trt, device, self._flavour)
            self._provider = Provider(at, EngineCache(self._folder / "engines"), Pool(device))
        return self._provider

    def version(self) -> str:
        CudaDevice()  # without a device it is no more than an import
        return f"{self._flavour} {load_tensorrt(self._flavour).__version__}"

    def made_graph(self) -> str:
        """A growing cache on two profiles: no model packs are needed for it."""
        spec, wanted = made_spec(self._folder)
        return self._checked(spec, wanted)

    def graph(self, pack_id: str, part: str, precision: str) -> str:
        from models.engines.tensorrt.key import BuildSettings

        store = Store()
        spec = spec_for(store, pack_id, part, precision, BuildSettings())
        return self._checked(spec, golden(store, pack_id, part, precision))

    def _checked(self, spec: EngineSpec, wanted: Golden) -> str:
        provider = self.provider()
        free = provider.at.device.free_bytes()
        start = time.monotonic()
        engine = provider.get(spec, wanted)
        build_s = time.monotonic() - start
        with contextlib.closing(engine):
            with_graphs = _times(engine, wanted)
            used = provider.pool.used_bytes
            again = engine.stream()
            for feed in wanted.feeds:
                again.run(feed)
            session = provider.pool.used_bytes - used
            kept = again.snapshot()
            again.restore(kept)
            for name, value in again.snapshot().items():
                assert np.array_equal(value, kept[name]), f"state {name} came back otherwise"
            again.close()
        provider.options = EngineOptions(graphs=0)
        plain = provider.cached(spec)
        provider.options = EngineOptions()
        assert plain is not None, "the engine that was just built is not in the cache"
        with contextlib.closing(plain):
            without = _times(plain, wanted)
        provider.pool.trim()
        lost = free - provider.at.device.free_bytes()
        found = provider.cache.open(provider.key(spec))
        snr = "?" if found is None else found.manifest.checks["worst_snr_db"]
        return (
            f"built in {build_s:.0f} s, {snr} dB; p50/p95 {_ms(with_graphs)} ms with graphs, {_ms(without)} without; "
            f"{session / MIB:.1f} MiB a further session; {max(lost, 0) / MIB:.0f} MiB not given back"
        )


def made_spec(folder: Path) -> tuple[EngineSpec, Golden]:
    """present = past with x behind it; y = sum of its squares."""
    import onnx
    from onnx import TensorProto, helper

    from models.engines.onnx_cpu import OrtCpuEngine

    state = StateTensor("past", "present", (1, 0, 16))
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=1, name="extend"),
        helper.make_node("Mul", ["present", "present"], ["squares"], name="square"),
        helper.make_node("ReduceSum", ["squares"], ["y"], keepdims=1, name="sum"),
    ]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, dims)
        for n, dims in (("past", [1, "p", 16]), ("x", [1, "n", 16]))
    ]
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, dims)
        for n, dims in (("y", [1, 1, 1]), ("present", [1, "t", 16]))
    ]
    path = folder / "made.onnx"
    graph = helper.make_graph(nodes, "made", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def profile(past: tuple[int, int, int]) -> Mapping[str, Span]:
        return {"past": Span(*((1, n, 16) for n in past)), "x": Span((1, 1, 16), (1, 1, 16), (1, 4, 16))}

    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1, 1 + n % 4, 16)).astype(np.float32)} for n in range(12)]
    spec = EngineSpec("made cache fp32", path, GraphProfiles((profile((0, 4, 16)), profile((0, 16, 64)))), [state])

    def reference() -> Engine:
        return OrtCpuEngine(path, [state])

    return spec, Golden(feeds, reference, min_snr_db=60.0)


# ---- ONNX Runtime ---------------------------------------------------------------------------------


def onnxruntime_cuda(pack_id: str, part: str, precision: str) -> str:
    import onnxruntime as ort

    from models.engines.onnx_cuda import OrtCudaEngine
    from models.engines.tensorrt.key import BuildSettings

    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise CannotRunError(
            f"onnxruntime {ort.__version__} here has no CUDA provider; install onnxruntime-gpu in its place"
        )
    CudaDevice()
    store = Store()
    spec, wanted = spec_for(store, pack_id, part, precision, BuildSettings()), golden(store, pack_id, part, precision)
    with contextlib.closing(OrtCudaEngine(spec.onnx, spec.states)) as engine:
        fitted = Golden([_fitted(engine, feed) for feed in wanted.feeds], wanted.reference, wanted.min_snr_db)
        reference_feeds = list(wanted.feeds)
        result = check_engine(_Fitting(engine, reference_feeds, fitted.feeds), wanted, spec.name)
        return f"{result.worst_snr_db:.1f} dB; run p50/p95 {_ms(_times(engine, fitted))} ms"


class _Fitting:
    """An engine that is given the feeds in its own widths of floats."""

    def __init__(self, engine: Any, given: list[Mapping[str, Array]], fitted: Any) -> None:
        self._engine = engine
        self._fitted = {id(a): b for a, b in zip(given, fitted, strict=True)}

    def stream(self) -> Any:
        stream, fitted = self._engine.stream(), self._fitted

        class _Stream:
            reset = stream.reset

            @staticmethod
            def run(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
                return stream.run(fitted[id(inputs)])  # type: ignore[no-any-return]

        return _Stream()

    def close(self) -> None:
        self._engine.close()


def _fitted(engine: Any, feed: Mapping[str, Array]) -> Mapping[str, Array]:
    return {name: np.asarray(feed[name]).astype(info.dtype, copy=False) for name, info in engine.inputs.items()}


# ---- helpers --------------------------------------------------------------------------------------


def _times(engine: Any, wanted: Golden) -> list[float]:
    """Seconds of each run, after the first rounds, in which graphs are made."""
    stream, times = engine.stream(), []
    for round_number in range(ROUNDS):
        stream.reset()
        for feed in wanted.feeds:
            start = time.perf_counter()
            stream.run(feed)
            if round_number >= 3:
                times.append(time.perf_counter() - start)
    if hasattr(stream, "close"):
        stream.close()
    return times


def _ms(times: list[float]) -> str:
    return f"{statistics.median(times) * 1e3:.2f}/{statistics.quantiles(times, n=20)[-1] * 1e3:.2f}"


def _block(device: CudaDevice, nbytes: int, stack: contextlib.ExitStack) -> int:
    address = device.allocate(nbytes)
    stack.callback(device.free, address)
    return address


def _host(device: CudaDevice, nbytes: int, stack: contextlib.ExitStack) -> Any:
    block = device.allocate_host(nbytes)
    stack.callback(device.free_host, block)
    return block


def _stream(device: CudaDevice, stack: contextlib.ExitStack) -> int:
    handle = device.create_stream()
    stack.callback(device.destroy_stream, handle)
    return handle


def _event(device: CudaDevice, stack: contextlib.ExitStack) -> int:
    handle = device.create_event()
    stack.callback(device.destroy_event, handle)
    return handle


def _graphs(which: str) -> Iterator[tuple[str, str, str]]:
    if which == "quick":
        yield from QUICK
    if which != "all":
        return
    for pack_id, parts in PARTS.items():
        for part in parts:
            for precision in ("fp16", "int8-trt"):
                yield pack_id, part, precision


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--graphs",
        choices=("none", "quick", "all"),
        default="all",
        help="which of Wren's own, from the store",
    )
    parser.add_argument("--flavour", choices=("tensorrt", "tensorrt_rtx"), default="tensorrt")
    parser.add_argument("--json", action="store_true", help="one JSON object a check")
    arguments = parser.parse_args()
    checks = Checks(arguments.json)
    checks.run("CUDA device", device_facts)
    checks.run("streams and events", streams_and_events)
    checks.run("pinned memory", pinned_memory)
    checks.run("CUDA graphs", cuda_graphs)
    checks.run("memory pool", memory_pool)
    with tempfile.TemporaryDirectory() as folder:
        ours = OurEngines(arguments.flavour, Path(folder))
        checks.run("TensorRT", ours.version)
        checks.run("our engine, made graph", ours.made_graph)
        for row in _graphs(arguments.graphs):
            checks.run(f"our engine, {' '.join(row)}", lambda row=row: ours.graph(*row))  # type: ignore[misc]
    for row in _graphs(arguments.graphs):
        if row[2] != "int8-trt":  # pairs are for TensorRT; this provider refuses them
            checks.run(f"ONNX Runtime CUDA, {' '.join(row)}", lambda row=row: onnxruntime_cuda(*row))  # type: ignore[misc]
    return checks.status()


if __name__ == "__main__":
    sys.exit(main())
