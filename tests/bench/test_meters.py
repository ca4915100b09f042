from __future__ import annotations

import subprocess
import sys
import time

import pytest

from appliance.bench.meters import CpuMeter, Load, cpu_name, machine_line, peak_rss_mb

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

CHILD = """
import sys
block = bytearray(80_000_000)
total = sum(i * i for i in range(2_000_000))
print("ready", flush=True)
sys.stdin.read()
"""


def _work() -> None:
    sum(number * number for number in range(1_000_000))


def test_own_work_counts_as_ours() -> None:
    meter, before_s = CpuMeter(), time.process_time()
    _work()
    spent_s = time.process_time() - before_s
    assert meter.read()[0] >= spent_s > 0.0


@linux
def test_work_and_memory_of_children_count() -> None:
    meter, alone_mb = CpuMeter(), peak_rss_mb()
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        own_s = time.process_time()
        used_s, others = meter.read()
        both_mb = peak_rss_mb()
        child.communicate()
    assert used_s > 0.02
    assert used_s < own_s + 60.0
    assert others is not None
    assert alone_mb is not None
    assert both_mb is not None
    assert both_mb - alone_mb > 80.0


def test_the_machine_and_its_load_are_told() -> None:
    machine = machine_line()
    assert machine.cores >= 1
    assert machine.cpu == cpu_name() != ""
    load = Load.now()
    assert load.load_1min >= 0.0
    assert load.probe_wall_per_cpu > 0.5
