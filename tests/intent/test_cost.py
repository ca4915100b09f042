"""What understanding costs: start, memory, time per sentence. The figures are printed with `pytest -s`."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import pytest

from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import MemoryHome
from tests.intent.homes import entity, home
from tests.intent.shared import shared
from tests.intent.test_households import rows

START_CPU_S = 1.0
RESIDENT_MB = 60.0
MATCH_CPU_MS = 10.0

FRESH = """
import json, time
from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import MemoryHome
who = Assistant(MemoryHome.from_file({path!r}))
understood = who.match("turn on the kitchen lights")
reply = who.preview(understood)
status = open("/proc/self/status").read()
resident_kb = int(status.split("VmRSS:")[1].split()[0])
print(json.dumps({{"cpu_s": time.process_time(), "mb": resident_kb / 1024, "reply": reply.text}}))
"""

LIGHT = """
import sys
import appliance.intent, appliance.intent.types, appliance.intent.normalise
print([m for m in ("hassil", "jinja2", "pydantic", "home_assistant_intents") if m in sys.modules])
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.shared
def test_from_nothing_to_the_first_reply() -> None:
    path = str(shared("speech", "commands", "home.json"))
    tries = [json.loads(run(FRESH.format(path=path))) for _ in range(2)]
    print(f"\nimport, load, first match and reply: {tries}")
    assert tries[0]["reply"] == "Turned on the lights"
    assert min(t["cpu_s"] for t in tries) <= START_CPU_S
    assert min(t["mb"] for t in tries) <= RESIDENT_MB


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert run(LIGHT).strip() == "[]"


def match_cpu_ms(who: Assistant, texts: list[str]) -> list[float]:
    for text in texts:
        who.match(text)
    times = []
    for text in texts:
        started = time.thread_time()
        who.match(text)
        times.append(1000 * (time.thread_time() - started))
    return times


@pytest.mark.parametrize("things", [25, 1000])
def test_a_match_is_quick_in_a_home_of(things: int) -> None:
    rooms = [f"{where} {what}" for where in ("North", "South", "East", "West") for what in ("Hall", "Den", "Attic")]
    kinds = [("light", "Lamp"), ("switch", "Plug"), ("cover", "Roller"), ("media_player", "Speaker")]
    entities = [
        entity(f"{rooms[i % len(rooms)]} {kinds[i % 4][1]} {i}", kinds[i % 4][0], rooms[i % len(rooms)])
        for i in range(things)
    ]
    house: MemoryHome = home(*entities, areas=("Kitchen", *rooms))
    texts = [row[0] for row in rows()] + [f"turn on {e.name}" for e in entities[:25]]
    times = match_cpu_ms(Assistant(house), texts)
    print(f"\n{things} things: median {statistics.median(times):.1f} ms, slowest {max(times):.1f} ms")
    assert statistics.median(times) <= MATCH_CPU_MS
