"""What MQTT costs: CPU of link and bridge while nothing happens, and under a flood, against a real mosquitto.

    .venv/bin/python benchmarks/mqtt_bench.py

Prints Markdown. The appliance behind the bridge is fake; link, bridge and broker are real. CPU time of the whole
process, so that it means something on a busy machine too.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

IDLE_S = 30.0
FLOOD = 10_000


def main() -> None:
    """Measure and print."""
    import hw.probe  # noqa: F401 - before hw.thermal, which cannot be imported first
    from tests.peers.mosquitto import Watcher, mosquitto, until
    from tests.peers.test_home_assistant import BASE, connected

    with (
        tempfile.TemporaryDirectory() as folder,
        mosquitto(Path(folder)) as broker,
        connected(broker, "device") as wren,
    ):
        until(lambda: wren.link.state().connected, "Wren is connected")
        time.sleep(3.0)  # discovery, states, and the look at what stood
        idle_s = _spent(IDLE_S)
        watcher = Watcher(broker, f"{BASE}/#")
        begun_s, wall_s = time.process_time(), time.monotonic()
        watcher.flood([(f"{BASE}/command/volume", str(number % 100).encode()) for number in range(FLOOD)])
        time.sleep(5.0)
        flood_s, wall_s = time.process_time() - begun_s, time.monotonic() - wall_s
        acted, refused = len(wren.controls.asked), len(watcher.payloads(f"{BASE}/error"))
        watcher.close()
    print("| what | |\n|---|---|")
    print(f"| idle, share of a core | {100 * idle_s / IDLE_S:.2f} % |")
    print(f"| {FLOOD} commands at once, the sender's own share included | {flood_s:.1f} s of CPU in {wall_s:.1f} s |")
    print(f"| of them carried out / answered as refused | {acted} / {refused} |")


def _spent(seconds: float) -> float:
    begun_s = time.process_time()
    time.sleep(seconds)
    return time.process_time() - begun_s


if __name__ == "__main__":
    main()
