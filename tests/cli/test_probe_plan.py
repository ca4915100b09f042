"""`wren probe` and `wren plan` as a user types them: this machine, a board's files, and folders that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from appliance import planning
from appliance.cli import main
from hw.plan import Candidate, Timing
from hw.probe import Machine, Root, probe, probe_root
from models import Store
from tests.hw import roots
from tests.voice.asr.transducer.small_models import write_zipformer

TASKS = ("asr", "tts", "vad", "wake")
PROMISED = {"backend", "precision", "scheme", "threads", "measured", "reason"}


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    found = json.loads(lines[0])
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The user's packs and artefacts, in a store of its own in which nothing was measured yet."""
    real, folder = Store(), tmp_path_factory.mktemp("store")
    for name in ("packs", "artefacts"):
        (folder / name).symlink_to(real.root / name)
    return Store(folder)


# ---- a folder's machine -------------------------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize("name", roots.names("boards"))
def test_probe_json_uses_the_agreed_names(shared: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    folder = shared / "boards" / "boards" / name
    facts = _json(capsys, "probe", "--root", str(folder))
    expected = json.loads((folder / "expected.json").read_text())
    for key in set(expected) - {"board", "choice", "notes"}:
        assert facts[key] == expected[key]
    assert isinstance(facts["warnings"], list)


@pytest.mark.shared
@pytest.mark.parametrize("name", roots.names("boards"))
@pytest.mark.parametrize("gate", ["passed", "failed"])
def test_plan_json_chooses_as_the_board_deserves(
    shared: Path, capsys: pytest.CaptureFixture[str], name: str, gate: str
) -> None:
    folder = shared / "boards" / "boards" / name
    plan = _json(capsys, "plan", "--root", str(folder), "--gate", gate)
    choices = json.loads((folder / "expected.json").read_text())["choice"]
    assert set(plan["tasks"]) == set(TASKS)
    for task, choice in plan["tasks"].items():
        assert choice.keys() >= PROMISED
        assert choice["measured"] is False
        assert choice["threads"] >= 1
        if task in choices:
            assert choice["backend"] == choices[task]["backend"]
            assert choice["precision"] in choices[task]["precision"][f"gate_{gate}"]
    assert plan["tasks"]["wake"]["backend"] == "tflite"
    assert plan["tasks"]["vad"]["backend"] == "ort-cpu"


@pytest.mark.shared
@pytest.mark.parametrize("name", roots.names("broken"))
@pytest.mark.parametrize("command", ["probe", "plan"])
def test_a_broken_root_is_no_failure(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, command: str
) -> None:
    root = roots.copy(shared / "boards" / "broken" / name, tmp_path / "root")
    assert main([command, "--root", str(root)]) == 0
    shown = capsys.readouterr()
    assert (shown.out + shown.err).replace("\n", "").isprintable()
    assert _json(capsys, command, "--root", str(root))["warnings"] or command == "plan"


@pytest.mark.shared
def test_verbose_says_where_facts_came_from_and_shows_sensors(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(shared / "boards" / "boards" / "jetson-orin-nano-8gb-l4t36.4")
    assert main(["probe", "--root", root, "--verbose"]) == 0
    shown = capsys.readouterr()
    assert "[proc/device-tree/compatible]" in shown.out
    assert "VDD_IN" in shown.out
    assert "6.2.1+b38" in shown.err  # what disagrees is a warning
    assert any(reading["unit"] == "mW" for reading in _json(capsys, "probe", "--root", root, "--verbose")["sensors"])


@pytest.mark.shared
def test_explain_gives_reasons_what_was_passed_over_and_advice(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(shared / "boards" / "boards" / "jetson-xavier-nx-8gb-l4t35.4")
    assert main(["plan", "--root", root, "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "passed over tensorrt: TensorRT is 8.5.2" in shown
    assert "if that fails" in shown
    assert "chunks: 12, 24, 40, 60 frames" in shown
    assert "power: the power mode is MODE_10W_DESKTOP" in shown


def test_without_the_option_the_gates_are_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WREN_MODELS_DIR", str(tmp_path / "models"))  # nothing was quantised there
    roots.write(tmp_path, {**roots.ORIN, "var/lib/dpkg/status": "Package: libnvinfer10\nStatus: install ok installed\n"
                           "Version: 10.3.0.30-1+cuda12.5\n\n"})  # fmt: skip
    tasks = _json(capsys, "plan", "--root", str(tmp_path))["tasks"]
    assert (tasks["asr"]["precision"], tasks["asr"]["scheme"]) == ("int8", "qdq")
    assert (tasks["tts"]["precision"], tasks["tts"]["scheme"]) == ("fp16", None)


@pytest.mark.parametrize(
    "arguments",
    [("probe", "--root", "absent"), ("plan", "--root", "absent"), ("plan", "--gate", "perhaps"), ("probe", "it")],
)
def test_wrong_use_is_exit_code_2_and_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    try:
        code = main(list(arguments))
    except SystemExit as stopped:
        code = int(str(stopped.code))
    assert code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_file_is_no_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["probe", "--root", str(tmp_path / "file")]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.shared
def test_how_many_at_once_and_which_cores_are_told_with_their_reasons(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(shared / "boards" / "boards" / "raspberry-pi-5-8gb")
    plan = _json(capsys, "plan", "--root", root)
    assert plan["workers"]["recognitions"] == 2  # four cores, two threads each
    assert plan["workers"]["measured"] is False
    assert plan["affinity"] == {"engines": [], "sound": [], "reason": plan["affinity"]["reason"]}
    assert main(["plan", "--root", root]) == 0
    shown = capsys.readouterr().out
    assert "recognitions at once: 2; by rule\n" in shown
    assert f"cores: {plan['affinity']['reason']}\n" in shown
    assert main(["plan", "--root", root, "--explain"]) == 0
    assert plan["workers"]["reason"] in capsys.readouterr().out


# ---- this machine -------------------------------------------------------------------------------------------------


def test_this_machine_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 0
    shown = capsys.readouterr().out
    assert "cpu_cores" in shown
    facts = _json(capsys, "probe")
    assert facts["runtimes"]["CPUExecutionProvider"] is None
    assert facts["sources"]["cpu"].startswith("proc/cpuinfo")


def test_the_recogniser_that_the_settings_choose_is_planned_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"asr": (Timing(Candidate("ort-cpu", "int8", "s8-dynamic", 1), 1.0),)}  # Moonshine's
    monkeypatch.setattr(planning, "kept_timings", lambda *_: kept)
    monkeypatch.setenv("WREN_CONFIG", str(tmp_path / "wren.toml"))
    (tmp_path / "wren.toml").write_text('[models]\nrecogniser = "./my-model"\n', encoding="utf-8")
    assert main(["plan"]) != 0
    assert "there is no such folder" in capsys.readouterr().err
    write_zipformer(tmp_path / "my-model")
    asr = _json(capsys, "plan")["tasks"]["asr"]
    assert (asr["model"], asr["precision"], asr["measured"]) == ("my-model", "fp32", False)
    assert main(["plan", "--explain"]) == 0
    assert "my-model" in capsys.readouterr().out


@pytest.fixture(scope="module")
def measured(store: Store) -> tuple[Machine, planning.Timings]:
    """This machine, and what was measured on it: once for all tests."""
    machine, seen = probe(), []
    timings = planning.measure(store, machine, lambda stage, done, total: seen.append((stage, done, total)))
    assert seen[-1][1] == seen[-1][2]
    return machine, timings


@pytest.mark.models
@pytest.mark.slow
def test_this_machine_s_plan_is_measured_and_better_than_the_worst(
    store: Store, measured: tuple[Machine, planning.Timings]
) -> None:
    machine, timings = measured
    plan = planning.current_plan(store, machine)
    asr = plan.tasks["asr"]
    assert asr.measured
    assert plan.tasks["tts"].measured
    assert asr.times_faster_than_worst is not None
    assert asr.times_faster_than_worst >= 1.4  # 2.1 on an idle AVX2 machine, 2.3 with VNNI; others may be at work here
    assert {timing.candidate.precision for timing in timings["asr"]} == {"fp32", "int8"}
    assert "measured here" in asr.reason
    assert plan.memory.fits


@pytest.mark.models
@pytest.mark.slow
def test_what_was_measured_is_kept_for_this_machine_and_these_models(
    store: Store, measured: tuple[Machine, planning.Timings]
) -> None:
    machine, timings = measured
    assert planning.kept_timings(Store(store.root), machine) == timings
    assert planning.current_plan(store, machine) == planning.current_plan(store, machine)
    assert planning.kept_timings(store, Machine(arch="x86_64")) is None
    (kept,) = (store.root / "plans").iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"{}", b'{"timings": {"asr": [{"ms": "fast"}]}}'):
        kept.write_bytes(damaged)
        assert planning.kept_timings(store, machine) is None
        assert not planning.current_plan(store, machine).tasks["asr"].measured
    kept.write_bytes(whole)


@pytest.mark.models
@pytest.mark.slow
def test_measuring_again_chooses_the_same(store: Store, measured: tuple[Machine, planning.Timings]) -> None:
    machine, _ = measured
    first = planning.current_plan(store, machine).tasks["asr"]
    planning.measure(store, machine, background=True)
    again = planning.current_plan(store, machine).tasks["asr"]
    assert (again.backend, again.precision, again.scheme) == (first.backend, first.precision, first.scheme)


def test_without_models_the_rules_decide_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    machine = probe_root(Root(tmp_path))
    with pytest.raises(planning.MeasuringError, match="fetch"):
        planning.measure(store, machine)
    plan = planning.current_plan(store, machine)
    assert not plan.tasks["asr"].measured
    assert set(plan.tasks) == set(TASKS)


def test_the_gate_changes_only_what_has_a_choice(tmp_path: Path) -> None:
    needs = planning.task_needs(Store(tmp_path))
    assert planning.with_gate(needs, None) == needs
    passed = {need.task: need.int8_gate for need in planning.with_gate(needs, True)}
    assert (passed["asr"], passed["tts"], passed["vad"], passed["wake"]) == (True, True, None, None)
