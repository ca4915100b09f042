"""The probe: every fact that can be found, in an order in which each finds what it needs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from hw import thermal  # as a module: whoever imports it first comes by here before it is whole
from hw.cpu import usable_cores
from hw.probe import board, cores, devices, gpu, live, processor, software
from hw.probe.commands import RealRunner, ReplayRunner, Runner
from hw.probe.facts import Facts
from hw.probe.machine import Machine
from hw.probe.root import Root, complete_lines, printable

__all__ = ["probe", "probe_root"]

ROOT_DEADLINE_S: Final = 5.0
"""For a folder: files only, and those are read in milliseconds."""
LIVE_DEADLINE_S: Final = 120.0
"""For this machine, whose programs have time limits of their own."""

_log = logging.getLogger(__name__)


def probe() -> Machine:
    """This machine. Never raises, needs no rights, and ends even where a driver does not answer."""
    return _probe(Root(), RealRunner(), LIVE_DEADLINE_S, live_machine=True)


def probe_root(root: Root, runner: Runner | None = None, deadline_s: float = ROOT_DEADLINE_S) -> Machine:
    """The machine whose files lie under `root`; programs are answered from its `commands/index.json`."""
    return _probe(root, ReplayRunner(root) if runner is None else runner, deadline_s, live_machine=False)


def _probe(root: Root, runner: Runner, deadline_s: float, *, live_machine: bool) -> Machine:
    """Gather in another thread: a read that hangs in the kernel cannot be broken off, only left alone."""
    facts = Facts()
    worker = threading.Thread(target=_gather, args=(root, runner, facts, live_machine), name="probe", daemon=True)
    worker.start()
    worker.join(deadline_s)
    if worker.is_alive():
        facts.warn(f"the probe was broken off after {deadline_s:g} s: something does not answer")
        return facts.machine("the probe was broken off before it")
    return facts.machine()


def _gather(root: Root, runner: Runner, facts: Facts, live_machine: bool) -> None:
    asked = _Asked(root, runner, facts)
    steps: list[Callable[[], None]] = [
        lambda: processor.gather_processor(root, facts),
        lambda: board.gather_board(root, facts),
        asked.packages,
        asked.nvidia_smi,
        lambda: board.gather_release(root, facts, asked.installed.get("nvidia-l4t-core")),
        lambda: software.gather_os(root, facts),
        lambda: software.gather_python(root, facts, asked.installed),
        lambda: software.gather_libraries(root, facts, asked.installed, asked.smi.banner_cuda),
        lambda: gpu.gather_gpu(root, facts, asked.smi),
        lambda: processor.gather_memory(root, facts),
        lambda: processor.gather_governors(root, facts),
        lambda: cores.gather_cores(root, facts),
        lambda: _power_mode(runner, facts),
        lambda: _thermal(root, facts),
        lambda: devices.gather_audio(root, facts),
    ]
    if live_machine:
        steps += [
            lambda: facts.put("usable_cores", usable_cores(), "affinity and control groups"),
            lambda: live.gather_runtimes(facts, runner),
            lambda: _disk_speed(root, facts),
        ]
    else:
        steps.append(lambda: devices.gather_disk(root, facts))
        for name in ("usable_cores", "onnxruntime", "runtimes"):
            facts.absent(name, "not asked: it is not this machine")
    for number, gather in enumerate(steps):
        try:
            gather()
        except Exception as error:  # noqa: BLE001 (a fault of ours costs these facts, not the others)
            _log.debug("probe step %d failed", number, exc_info=True)
            facts.warn(f"the probe has a fault ({type(error).__name__}: {printable(str(error))}); please report it")


class _Asked:
    """Answers that several gatherers use."""

    def __init__(self, root: Root, runner: Runner, facts: Facts) -> None:
        self._root, self._runner, self._facts = root, runner, facts
        self.installed = software.Packages({}, whole=False)
        self.smi = gpu.NvidiaSmi(missing=True)

    def packages(self) -> None:
        self.installed = software.read_packages(self._root, self._facts)

    def nvidia_smi(self) -> None:
        self.smi = gpu.ask_nvidia_smi(self._runner)


def _power_mode(runner: Runner, facts: Facts) -> None:
    source = "nvpmodel -q"
    result = runner.run("nvpmodel", "-q")
    # Warnings (`NVPM WARN: fan mode is not set!`) come before the answer.
    lines = [line.strip() for line in complete_lines(result.stdout)]
    mode = next((line.partition(":")[2].strip() for line in lines if line.startswith("NV Power Mode:")), "")
    chip = facts.get("chip")
    if result.ok and mode:
        facts.put("power_mode", printable(mode), source)
    elif chip is not None and not chip.startswith("tegra"):
        facts.absent("power_mode", "no Jetson")
    else:
        facts.unknown("power_mode", f"there is no {source}" if result.missing else f"{source} does not name one")


def _thermal(root: Root, facts: Facts) -> None:
    zones = thermal.read_zones(root)
    source = "sys/class/thermal"
    for text in zones.skipped:
        facts.warn(text)
    if zones.readings:
        facts.put("thermal", {reading.name: reading.value for reading in zones.readings}, source)
        facts.put("max_temp_c", zones.hottest_c, source)
    else:
        for name in ("thermal", "max_temp_c"):
            if zones.trouble is None:
                facts.absent(name, f"{source} gives no reading")
            else:
                facts.unknown(name, zones.trouble)
    if zones.slowed is None:
        facts.absent("throttled", f"{source} has nothing that slows down to cool")
    else:
        facts.put("throttled", bool(zones.slowed), f"{source}: {', '.join(zones.slowed) or 'nothing is slowed down'}")


def _disk_speed(root: Root, facts: Facts) -> None:
    measured = live.disk_read_mb_s()
    devices.gather_disk(root, facts, None if measured is None else measured[0])
