"""What can only be asked of the machine we run on: which runtimes work, and how fast its disk reads.

Runtimes are tried in a process of their own: a library that does not fit the driver may crash or hang.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from hw.probe.commands import Runner
from hw.probe.facts import Facts
from hw.probe.root import printable

__all__ = ["disk_read_mb_s", "gather_runtimes"]

PROOF_TIMEOUT_S: Final = 60.0
"""A first use of CUDA compiles kernels for some seconds on a Jetson."""
READ_BYTES: Final = 64 << 20
READ_TIME_S: Final = 0.3
_ALIGNED: Final = 1 << 20

# y = x @ [[0, 1], [1, 0]], float32 [2, 2], opset 13: made with onnx.helper, 103 bytes.
_TINY: Final = (
    "CAc6XQoRCgF4CgF3EgF5IgZNYXRNdWwSAWcqGwgCCAIQASIQAAAAAAAAgD8AAIA/AAAAAEIBd1oTCgF4Eg4KDAgBEggKAggCCgIIAmITCgF5Eg4K"
    "DAgBEggKAggCCgIIAkIECgAQDQ=="
)
_SCRIPT: Final = """
import base64, importlib.util, json, sys

def say(name, trouble):
    print(json.dumps([name, trouble]), flush=True)

def run(name):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    # Without this a provider that cannot run the model hands it to the CPU in silence.
    if name != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = ort.InferenceSession(base64.b64decode(sys.argv[1]), options, providers=[name])
    if session.get_providers()[0] != name:
        return "onnxruntime chose " + session.get_providers()[0] + " instead"
    got = session.run(None, {"x": numpy.array([[1, 2], [3, 4]], dtype="float32")})[0]
    return None if got.tolist() == [[2, 1], [4, 3]] else "it computes " + repr(got.tolist())

def tensorrt_works():
    import tensorrt
    return None if tensorrt.Builder(tensorrt.Logger(tensorrt.Logger.ERROR)) else "no builder can be made"

def attempt(name, function, *arguments):
    if name in sys.argv[2:]:
        return
    say(name, "it crashed")  # stands if the next line is the last one
    try:
        trouble = function(*arguments)
    except BaseException as error:  # also a library that calls exit: the others are still to be tried
        trouble = " ".join(str(error).split())[:160] or type(error).__name__
    say(name, trouble)

try:
    import numpy, onnxruntime as ort
    say("onnxruntime", ort.__version__)
    for name in sorted(ort.get_available_providers(), key=lambda name: name != "CPUExecutionProvider"):
        if name != "AzureExecutionProvider":  # in every build, and runs nothing here
            attempt(name, run, name)
except ImportError as error:
    say("CPUExecutionProvider", "onnxruntime cannot be imported: " + " ".join(str(error).split())[:120])
if importlib.util.find_spec("tensorrt") is None:
    say("tensorrt", "no such module in this environment")
else:
    attempt("tensorrt", tensorrt_works)
say("end", None)
"""
_MOST_CRASHES: Final = 6


def gather_runtimes(facts: Facts, runner: Runner) -> None:
    """onnxruntime and runtimes: each is made to multiply a tiny matrix, with no other to fall back on."""
    tried: dict[str, str | None] = {}
    source = "tried on a tiny model"
    for _ in range(_MOST_CRASHES):
        # One that crashes the process is passed over the next time.
        result = runner.run(sys.executable, "-I", "-c", _SCRIPT, _TINY, *tried, timeout_s=PROOF_TIMEOUT_S)
        before = len(tried)
        for name, trouble in _answers(result.stdout):
            tried[name] = None if trouble is None else printable(trouble)
        if "end" in tried or len(tried) == before:
            break
    tried.pop("end", None)
    number = tried.pop("onnxruntime", None)
    if number is not None:
        facts.put("onnxruntime", number, source)
    else:
        facts.unknown("onnxruntime", tried.get("CPUExecutionProvider") or "it gives no answer")
    if not tried:
        facts.unknown("runtimes", "the process that tries them gives no answer")
        return
    facts.put("runtimes", tried, source)
    for name, trouble in tried.items():
        if trouble is not None and name != "tensorrt":
            facts.warn(f"{name} does not work: {trouble}")


def disk_read_mb_s() -> tuple[float, str] | None:
    """(MB/s, file) of reading a large file of this environment past the page cache; None where that is impossible."""
    path = _large_file()
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:  # some file systems have no direct reading
        return None
    started_s, done = time.perf_counter(), 0
    try:
        with mmap.mmap(-1, _ALIGNED) as buffer:  # direct reading wants aligned memory
            while done < READ_BYTES and time.perf_counter() - started_s < READ_TIME_S:
                got = os.preadv(handle, [buffer], done)
                if not got:
                    break
                done += got
    except OSError:
        return None
    finally:
        os.close(handle)
    spent_s = time.perf_counter() - started_s
    return (round(done / 1e6 / spent_s, 1), str(path)) if done >= _ALIGNED else None


def _large_file() -> Path:
    spec = importlib.util.find_spec("onnxruntime")
    folder = Path(spec.origin).parent / "capi" if spec is not None and spec.origin is not None else Path()
    try:
        sizes = [(file.stat().st_size, file) for file in folder.glob("*.so*")]
    except OSError:
        sizes = []
    return max(sizes)[1] if sizes else Path(sys.executable).resolve()


def _answers(text: str) -> list[tuple[str, str | None]]:
    found = []
    for line in text.splitlines():
        try:
            row: Any = json.loads(line)
        except ValueError:  # a library's own message
            continue
        if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], str | None):
            found.append((row[0], row[1]))
    return found
