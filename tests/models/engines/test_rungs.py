"""Which rungs a plan's choice makes, and how they open on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from hw.plan import Choice, Fallback
from models import Store
from models.convert import open_artefact
from models.engines.ladder import RungChanged
from models.engines.numpy import NumpyEngine
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.quarantine import Quarantine
from models.engines.rungs import open_task, rungs_for, with_engine
from models.errors import CatalogueError, EngineError, PackMissingError
from models.graphs import form_of
from tests.models.engines.choices import PACK, PARTS, choice

pytestmark = pytest.mark.models

# ---- the table --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (choice(), ["ort-cpu int8", "ort-cpu fp32", "numpy fp32"]),
        (choice("ort-cpu", "fp32"), ["ort-cpu fp32", "numpy fp32"]),
        (choice("numpy", "fp32"), ["numpy fp32"]),
        (
            choice("tensorrt", "fp16", fallback=Fallback("ort-cpu", "int8", "s8-dynamic")),
            ["tensorrt fp16", "ort-cuda fp16", "ort-cuda fp32", "ort-cpu int8", "ort-cpu fp32", "numpy fp32"],
        ),
        (
            choice("tensorrt", "fp16", fallback=Fallback("ort-cpu", "fp32", None)),
            ["tensorrt fp16", "ort-cuda fp16", "ort-cuda fp32", "ort-cpu fp32", "numpy fp32"],
        ),
        (
            choice("tensorrt", "int8"),
            [
                "tensorrt int8",
                "tensorrt fp16",
                "ort-cuda fp16",
                "ort-cuda fp32",
                "ort-cpu int8",
                "ort-cpu fp32",
                "numpy fp32",
            ],
        ),
        (
            choice("tensorrt", "fp32"),
            ["tensorrt fp32", "ort-cuda fp16", "ort-cuda fp32", "ort-cpu fp32", "numpy fp32"],
        ),
        (choice("ort-cuda", "fp32"), ["ort-cuda fp32", "ort-cpu fp32", "numpy fp32"]),
    ],
)
def test_a_ladder_begins_with_the_plans_choice_and_ends_with_numpy(
    real_store: Store, wanted: Choice, names: list[str]
) -> None:
    rungs = rungs_for(real_store, wanted, PARTS)
    assert {part: [r.name for r in rows] for part, rows in rungs.items()} == {"encoder": names, "decoder": names}
    for row in rungs["decoder"]:
        device = row.backend in ("tensorrt", "ort-cuda")
        assert (row.limits is not None, row.may_crash) == (device, device)
    assert len({r.key for rows in rungs.values() for r in rows}) == 2 * len(names)


def test_the_voices_front_end_never_goes_to_a_gpu(real_store: Store) -> None:
    wanted = choice("tensorrt", "fp16", task="tts", model="piper-en-us-joe")
    rungs = rungs_for(real_store, wanted, ("frontend", "flow", "vocoder"))
    assert [r.name for r in rungs["frontend"]] == ["ort-cpu fp32", "numpy fp32"]
    assert rungs["flow"][0].name == "tensorrt fp16"


def test_keys_change_with_the_graph_the_machine_and_nothing_else(real_store: Store) -> None:
    def keys(machine: str, **more: Any) -> list[str]:
        return [r.key for r in rungs_for(real_store, choice(**more), PARTS, machine=machine)["decoder"]]

    assert keys("a") == keys("a")
    assert set(keys("a")).isdisjoint(keys("b"))
    assert keys("a")[1:] == keys("a", precision="fp32")


def test_what_no_engine_is_for_is_refused(real_store: Store) -> None:
    with pytest.raises(EngineError, match="tflite"):
        rungs_for(real_store, choice("tflite", "int8"), PARTS)
    with pytest.raises(CatalogueError):
        rungs_for(real_store, choice(model="no-such-pack"), PARTS)


def test_every_rung_that_cannot_be_opened_says_why(real_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither TensorRT nor ONNX Runtime's GPU build: the ladder opens on the CPU, and tells."""
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    events: list[RungChanged] = []
    wanted = choice("tensorrt", "fp16", fallback=Fallback("ort-cpu", "int8", "s8-dynamic"))
    ladders = open_task(real_store, wanted, PARTS, quarantine=Quarantine(None), listener=events.append)
    state = ladders["decoder"].state()
    assert state.serving == "ort-cpu int8"
    assert state.degraded
    reasons = {r.name: r.reason for r in state.rungs}
    assert "CUDAExecutionProvider" in reasons["ort-cuda fp32"]
    assert "pip install tensorrt" in reasons["tensorrt fp16"]
    assert {e.task for e in events} == {"asr.encoder", "asr.decoder"}
    for ladder in ladders.values():
        ladder.close()


def test_a_shipped_graph_has_a_ladder_too(real_store: Store) -> None:
    wanted = choice("ort-cpu", "fp32", task="vad", model="silero-vad")
    (ladder,) = open_task(real_store, wanted, ("vad",), quarantine=Quarantine(None)).values()
    out = ladder.stream().run({"input": np.zeros((1, 576), np.float32)})
    assert 0 <= float(out["output"].ravel()[0]) < 0.5
    ladder.close()


def test_a_built_engine_takes_its_rung(real_store: Store) -> None:
    """A FAKE build: onnxruntime's engine in the place of TensorRT's."""
    wanted = choice("tensorrt", "fp16", fallback=Fallback("ort-cpu", "fp32", None))
    rungs = rungs_for(real_store, wanted, PARTS)["decoder"]
    ladder = open_task(real_store, wanted, PARTS, quarantine=Quarantine(None))["decoder"]
    stream = ladder.stream()
    path = form_of(real_store, PACK, PARTS, "fp32", None).path("decoder")
    built = OrtCpuEngine(path, real_store.catalogue.get(PACK).state_tensors("decoder"))
    assert ladder.offer(with_engine(rungs[0], built))
    assert ladder.state().serving == "tensorrt fp16"
    assert not ladder.state().degraded
    stream.reset()
    ladder.close()


# ---- NumPy where ONNX Runtime is absent ---------------------------------------------------------------


def test_numpy_runs_what_was_converted_with_other_tools_and_says_so_where_nothing_was(
    real_store: Store, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    (row,) = rungs_for(store, choice("numpy", "fp32"), ("encoder",))["encoder"]
    with pytest.raises(PackMissingError, match="converting needs ONNX Runtime"):
        row.open()
    folder = open_artefact(real_store, PACK).folder
    there = tmp_path / "artefacts" / PACK / "of-another-version"
    there.parent.mkdir(parents=True)
    shutil.copytree(folder, there, copy_function=os.symlink)
    (row,) = rungs_for(store, choice("numpy", "fp32"), ("encoder",))["encoder"]
    assert isinstance(row.open(), NumpyEngine)


def test_a_plan_for_onnxruntime_still_answers_where_it_does_not_load(real_store: Store) -> None:
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "import numpy as np\n"
        "from models import Store; from models.engines.quarantine import Quarantine\n"
        "from models.engines.rungs import open_task\n"
        "from tests.models.engines.choices import choice\n"
        "ladders = open_task(Store(), choice('ort-cpu', 'fp32', task='vad', model='silero-vad'), ('vad',), "
        "quarantine=Quarantine(None))\n"
        "out = ladders['vad'].stream().run({'input': np.zeros((1, 576), np.float32)})\n"
        "state = ladders['vad'].state()\n"
        "assert np.isfinite(out['output']).all()\n"
        "print(state.serving, state.degraded, state.rungs[0].reason)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("numpy fp32 True")
    assert "onnxruntime" in done.stdout
