"""Every shared board: facts and choices as expected; every broken root survived, and no outside file read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hw.plan import Choice, TaskNeed, make_plan
from hw.probe import Machine, Root, probe_root
from tests.hw import roots

pytestmark = pytest.mark.shared

NOT_FACTS = ("board", "choice", "notes")
"""The name of the folder, and what is no fact."""


def _needs(gate: bool) -> tuple[TaskNeed, ...]:
    return tuple(TaskNeed(task=task, model=task, int8_gate=gate, weights_mb={"fp32": 300.0}) for task in ("asr", "tts"))


def _board(shared: Path, name: str) -> tuple[Machine, dict[str, Any]]:
    folder = shared / "boards" / "boards" / name
    return probe_root(Root(folder)), json.loads((folder / "expected.json").read_text())


@pytest.mark.parametrize("name", roots.names("boards"))
def test_a_boards_facts_are_found(shared: Path, name: str) -> None:
    machine, expected = _board(shared, name)
    facts = machine.to_dict()
    wanted = {key: value for key, value in expected.items() if key not in NOT_FACTS}
    assert {key: facts[key] for key in wanted} == wanted
    roots.sealed(facts)
    assert all(machine.sources[key] for key in wanted)


@pytest.mark.parametrize("name", roots.names("boards"))
@pytest.mark.parametrize("gate", [True, False], ids=["gate passed", "gate failed"])
def test_a_board_gets_the_engines_it_deserves(shared: Path, name: str, gate: bool) -> None:
    machine, expected = _board(shared, name)
    plan = make_plan(machine, _needs(gate), {})
    for task, wanted in expected["choice"].items():
        choice, column = plan.tasks[task], "gate_passed" if gate else "gate_failed"
        assert choice.backend == wanted["backend"]
        assert choice.precision in wanted["precision"][column]
        assert not choice.measured
        assert choice.reason
        _scheme_fits(choice)
        if "fallback" in wanted:
            assert choice.fallback is not None
            assert choice.fallback.backend == wanted["fallback"]["backend"]
            assert choice.fallback.precision in wanted["fallback"]["precision"][column]
    assert plan.memory.fits


def _scheme_fits(choice: Choice) -> None:
    if choice.precision != "int8":
        assert choice.scheme is None
    elif choice.backend == "tensorrt":
        assert choice.scheme == "qdq"
    else:
        assert choice.scheme in ("u8s8", "s8-dynamic", "reduce-range")


@pytest.mark.parametrize("gate", [True, False])
def test_a_desktop_card_with_tensorrt_gets_tensorrt(shared: Path, tmp_path: Path, gate: bool) -> None:
    source = shared / "boards" / "boards" / "x86-64-rtx3060-desktop"
    root = roots.copy(source, tmp_path / "root")
    with (root / "var/lib/dpkg/status").open("a") as file:
        file.write("\nPackage: libnvinfer10\nStatus: install ok installed\nVersion: 10.13.3.9-1+cuda13.0\n\n")
    machine = probe_root(Root(root))
    assert machine.tensorrt == "10.13.3.9"
    wanted = json.loads((source / "expected.json").read_text())["choice"]["asr"]["if_tensorrt_installed"]
    choice = make_plan(machine, _needs(gate), {}).tasks["asr"]
    assert choice.backend == wanted["backend"]
    assert choice.precision == wanted["precision"]["gate_passed" if gate else "gate_failed"]


@pytest.mark.parametrize("name", roots.names("broken"))
def test_a_broken_root_is_survived(shared: Path, tmp_path: Path, name: str) -> None:
    root = roots.copy(shared / "boards" / "broken" / name, tmp_path / "root")
    expected = json.loads((root / "expected.json").read_text())["fields"]
    started_s = time.monotonic()
    machine = probe_root(Root(root))
    assert time.monotonic() - started_s < 1.0
    facts = machine.to_dict()
    roots.sealed(facts)
    said = " ".join(machine.warnings)
    for key, value in expected.items():
        if not key.startswith("choice."):
            assert facts[key] == value, key
            if value is None:
                assert f"{key} is unknown: " in said
    for gate in (True, False):
        plan = make_plan(machine, _needs(gate), {})
        roots.sealed(plan.to_dict())
        for choice in plan.tasks.values():
            assert choice.backend == expected.get("choice.backend", "ort-cpu")
            assert choice.precision == expected.get("choice.precision", "fp32")


def test_the_model_string_alone_gives_no_chip(shared: Path) -> None:
    machine = probe_root(Root(shared / "boards" / "broken" / "b02-empty-compatible"))
    assert machine.model == "NVIDIA Jetson Orin Nano Developer Kit"
    assert machine.sm is None
    assert machine.l4t == "36.4.3"


def test_the_order_of_the_boards_does_not_matter(shared: Path) -> None:
    names = roots.names("boards")
    once = [_board(shared, name)[0].digest for name in names]
    again = [_board(shared, name)[0].digest for name in reversed(names)]
    assert once == again[::-1]
    assert len(set(once)) == len(names)
