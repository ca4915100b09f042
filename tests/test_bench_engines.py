"""The bench of engines: rows for what runs here, reasons for what does not, figures that mean what they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance import bench_engines
from appliance.bench_engines import REFERENCE, EngineBench, measure_engines, run_engine_bench
from appliance.engine_jobs import MODELS, feeds_for, load_arrays, save_arrays, sound_s
from models import Store
from models.engines.rungs import Kind, open_kind

NUMPY = Kind("numpy", "fp32")


@pytest.fixture(scope="module")
def store() -> Store:
    made = Store()
    made.ensure("silero-vad")
    return made


@pytest.fixture(scope="module")
def bench(store: Store) -> EngineBench:
    """Voice activity only: a second a combination."""
    return measure_engines(store, tasks=("vad",), kinds=(NUMPY, Kind("ort-cpu", "int8", "u8s8"), REFERENCE))


@pytest.mark.models
def test_what_runs_here_has_times_memory_and_errors(bench: EngineBench) -> None:
    assert [(row.backend, row.precision) for row in bench.rows] == [("ort-cpu", "fp32"), ("numpy", "fp32")]
    for row in bench.rows:
        (part,) = row.parts
        assert 0 < part.p50_ms <= part.p95_ms
        assert part.calls >= 30
        assert 0 < row.rtf < 1
        assert row.memory_mb > 0
        assert row.words is None
    reference, numpy = (row.parts[0] for row in bench.rows)
    assert (reference.max_error, reference.snr_db) == (None, None)
    assert numpy.max_error is not None
    assert numpy.max_error < 1e-4
    assert numpy.snr_db is not None
    assert numpy.snr_db > 80


@pytest.mark.models
def test_what_does_not_run_here_has_a_reason_and_ends_nothing(bench: EngineBench) -> None:
    (gone,) = bench.absent
    assert (gone.task, gone.kind) == ("vad", "ort-cpu int8 u8s8")
    assert "int8 was asked for" in gone.reason


@pytest.mark.models
def test_both_forms_of_the_report_hold_every_row(bench: EngineBench) -> None:
    text = bench.markdown()
    assert text.count("| vad | numpy fp32 | vad |") == 1
    assert "| vad on ort-cpu int8 u8s8 |" in text
    assert json.loads(json.dumps(bench.to_dict()))["rows"][1]["backend"] == "numpy"


@pytest.mark.models
def test_a_process_that_dies_or_hangs_is_a_row_of_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_engines, "TIMEOUT_S", 0.05)
    bench = measure_engines(store, tasks=("vad",), kinds=(REFERENCE,))
    assert [gone.reason for gone in bench.absent] == ["not done within 0.05 s"]


def test_a_store_without_models_gives_reasons_and_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = measure_engines
    monkeypatch.setattr(
        bench_engines, "measure_engines", lambda store, **more: measure(store, tasks=("vad",), kinds=(NUMPY,))
    )
    assert run_engine_bench(json=True, store=Store(tmp_path)) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["rows"] == []
    assert "wren models fetch silero-vad" in shown["absent"][0]["reason"]


@pytest.mark.models
def test_a_job_is_as_long_as_it_says(store: Store) -> None:
    model, parts = MODELS["vad"]
    engines = open_kind(store, model, parts, NUMPY)
    feeds = feeds_for(store, "vad", {part: engine.stream() for part, engine in engines.items()})
    assert sound_s(store, "vad", feeds) == pytest.approx(30 * 0.032)
    assert all(run["input"].shape == (1, 576) for run in feeds["vad"])


@settings(max_examples=20, deadline=None)
@given(shapes=st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
def test_arrays_come_back_as_they_were_and_shared_ones_once(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[list[int]]
) -> None:
    shared = np.arange(3.0)
    rows = {
        "a": [{"x": np.full(shape, n, np.float32), "shared": shared} for n, shape in enumerate(shapes)],
        "b": [{"shared": shared}],
    }
    path = tmp_path_factory.mktemp("arrays") / "rows.npz"
    save_arrays(path, rows)
    back = load_arrays(path)
    assert [list(run) for run in back["a"]] == [["x", "shared"]] * len(shapes)
    for before, after in zip(rows["a"] + rows["b"], back["a"] + back["b"], strict=True):
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value)
            assert after[name].dtype == value.dtype
    assert len({id(run["shared"]) for run in back["a"] + back["b"]}) == 1
