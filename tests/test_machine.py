"""This machine's facts, kept for the boot."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance import machine
from appliance.machine import this_machine
from hw.probe import Machine
from models import Store


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    found: list[Machine] = []

    def probe() -> Machine:
        found.append(Machine(arch="x86_64", cpu={"name": "x", "avx2": True}, cpu_cores=2, ram_available_kib=len(found)))
        return found[-1]

    monkeypatch.setattr(machine, "probe", probe)
    return found


def test_it_is_probed_once_a_boot(tmp_path: Path, probes: list[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    first = this_machine(store)
    again = this_machine(store)
    assert len(probes) == 1
    assert again.digest == first.digest
    assert again.ram_available_kib is None  # of an hour ago, perhaps
    this_machine(store, fresh=True)
    assert len(probes) == 2
    boot = tmp_path / "boot_id"
    boot.write_text("another boot\n")
    monkeypatch.setattr(machine, "BOOT_ID", boot)
    this_machine(store)
    assert len(probes) == 3


def test_damage_costs_a_probe_and_nothing_else(tmp_path: Path, probes: list[Machine]) -> None:
    store = Store(tmp_path)
    this_machine(store)
    (kept,) = (tmp_path / "plans").iterdir()
    for damage in (b"", b"{}", kept.read_bytes()[:-40], b"\xff\xfe"):
        before = len(probes)
        kept.write_bytes(damage)
        assert this_machine(store).arch == "x86_64"
        assert len(probes) == before + 1


def test_a_store_that_cannot_be_written_is_no_failure(tmp_path: Path, probes: list[Machine]) -> None:
    (tmp_path / "plans").write_text("a file where the folder belongs")
    assert this_machine(Store(tmp_path)).arch == "x86_64"
    assert probes
