"""This machine, really probed; and runtimes that crash, hang or lie."""

from __future__ import annotations

import json
import os
import platform
import time

import pytest

from hw.probe import CommandResult, probe
from hw.probe.commands import TIMEOUT_S
from hw.probe.facts import Facts
from hw.probe.live import disk_read_mb_s, gather_runtimes
from tests.hw import roots


def test_this_machine_is_probed() -> None:
    started_s = time.monotonic()
    machine = probe()
    assert time.monotonic() - started_s < 60
    assert machine.arch == platform.machine()
    assert machine.cpu_cores == os.cpu_count()
    assert machine.usable_cores is not None
    assert 1 <= machine.usable_cores <= len(os.sched_getaffinity(0))
    assert machine.ram_total_kib == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    assert machine.runtimes is not None
    assert machine.runtimes["CPUExecutionProvider"] is None  # it works
    assert machine.cpu is not None
    assert not any("has a fault" in text for text in machine.warnings)
    roots.sealed(machine.to_dict())


def test_it_is_the_same_machine_the_next_time() -> None:
    assert probe().digest == probe().digest


def test_the_disk_reads_at_some_speed_or_cannot_be_asked() -> None:
    measured = disk_read_mb_s()
    assert measured is None or measured[0] > 1


class FakeRunner:
    """Stands in for the processes that try runtimes: each call takes the next output."""

    def __init__(self, *outputs: str) -> None:
        self.outputs = list(outputs)
        self.skipped: list[tuple[str, ...]] = []

    def run(self, *argv: str, timeout_s: float = TIMEOUT_S, lines: int | None = None) -> CommandResult:
        self.skipped.append(argv[5:])
        return CommandResult(0, self.outputs.pop(0) if self.outputs else "")


def _said(*rows: tuple[str, str | None]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _runtimes(runner: FakeRunner) -> tuple[Facts, dict[str, str | None] | None]:
    facts = Facts()
    gather_runtimes(facts, runner)
    return facts, facts.get("runtimes")


def test_a_provider_that_crashes_does_not_hide_the_others() -> None:
    first = _said(("onnxruntime", "1.32.0"), ("CPUExecutionProvider", None), ("CUDAExecutionProvider", "it crashed"))
    runner = FakeRunner(first, "noise\n" + _said(("onnxruntime", "1.32.0"), ("tensorrt", None), ("end", None)))
    facts, found = _runtimes(runner)
    assert found == {"CPUExecutionProvider": None, "CUDAExecutionProvider": "it crashed", "tensorrt": None}
    assert "CUDAExecutionProvider" in runner.skipped[1]
    assert facts.get("onnxruntime") == "1.32.0"
    assert any("CUDAExecutionProvider does not work: it crashed" in text for text in facts.machine().warnings)


@pytest.mark.parametrize("output", ["", "Segmentation fault\n", "[1, 2]\n{}\n", '["a", 7]\n'])
def test_no_answer_is_unknown(output: str) -> None:
    facts, found = _runtimes(FakeRunner(output, output))
    assert found is None
    assert facts.get("onnxruntime") is None


def test_without_onnxruntime_nothing_is_claimed_of_it() -> None:
    text = _said(
        ("CPUExecutionProvider", "onnxruntime cannot be imported"), ("tensorrt", "no such module"), ("end", None)
    )
    facts, found = _runtimes(FakeRunner(text))
    assert found == {"CPUExecutionProvider": "onnxruntime cannot be imported", "tensorrt": "no such module"}
    assert facts.get("onnxruntime") is None
