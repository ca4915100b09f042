"""What runs on the browser's audio thread, run by the JavaScript engine that comes with the test tools."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from playwright._impl._driver import compute_driver_executable

import appliance.web
from appliance.audio.adaptive import PLAYBACK, DepthController

WORKLETS = Path(appliance.web.__file__).parent / "page" / "static" / "worklets"
RATE = 22_050

DEPTH = """
import { Depth } from "./depth.js";
const depth = new Depth();
const told = JSON.parse(process.argv[2]).map(([kind, now, value]) => {
  depth[kind](now, value);
  return depth.target;
});
console.log(JSON.stringify(told));
"""

PLAYBACK_BENCH = """
// A fake audio thread: `currentTime` goes on by a quantum, messages come when they are due.
let Processor;
globalThis.sampleRate = 22050;
globalThis.currentTime = 0;
globalThis.AudioWorkletProcessor = class {
  port = { postMessage: (message) => told.push({ ...message, at: currentTime }) };
};
globalThis.registerProcessor = (_name, made) => (Processor = made);
const told = [];
await import("./playback.js");
const player = new Processor();
const sound = [];
const messages = JSON.parse(process.argv[2]);
const until = Number(process.argv[3]);
for (let quantum = 0; (globalThis.currentTime = (quantum * 128) / sampleRate) < until; quantum += 1) {
  while (messages.length && messages[0].at <= currentTime) {
    const { type, length } = messages.shift();
    const samples = type === "piece" ? new Float32Array(Math.round(length * sampleRate)).fill(0.5) : undefined;
    player.port.onmessage({ data: { type, samples } });
  }
  const output = new Float32Array(128);
  player.process([], [[output]]);
  sound.push(...output);
}
console.log(JSON.stringify({ told, sound }));
"""


def _node(folder: Path, script: str, *arguments: str) -> object:
    shutil.copytree(WORKLETS, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "test.js").write_text(script)
    node = str(compute_driver_executable()[0])
    done = subprocess.run(
        [node, str(folder / "test.js"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _replies(
    folder: Path, messages: list[dict[str, object]], until_s: float
) -> tuple[list[dict[str, float]], np.ndarray]:
    """What the player says, and what sounds."""
    made = _node(folder, PLAYBACK_BENCH, json.dumps(messages), str(until_s))
    assert isinstance(made, dict)
    return made["told"], np.array(made["sound"])


def _reply(start_s: float, comes_s: list[float], length_s: float = 0.1) -> list[dict[str, object]]:
    pieces: list[dict[str, object]] = [{"at": start_s + at, "type": "piece", "length": length_s} for at in comes_s]
    return [*pieces, {"at": start_s + comes_s[-1], "type": "end"}]


def test_the_pages_depth_is_the_appliances(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    seen: list[tuple[str, float, float]] = []
    now_s = 0.0
    for number in range(2000):
        now_s += float(random.exponential(0.05))
        late_s = float(random.exponential(0.03)) if random.random() < 0.3 else 0.0
        seen.append(("underrun" if number % 211 == 210 else "observe", now_s, late_s))
    ours, controller = [], DepthController(PLAYBACK)
    for kind, at_s, late_s in seen:
        getattr(controller, kind)(at_s, late_s)
        ours.append(controller.target_s)
    theirs = _node(tmp_path, DEPTH, json.dumps(seen))
    assert len({round(target, 6) for target in ours}) > 100
    assert theirs == pytest.approx(ours, abs=1e-12)


def test_a_steady_reply_is_played_whole_without_a_gap_and_its_end_is_told(tmp_path: Path) -> None:
    told, sound = _replies(tmp_path, _reply(0.0, [0.0, 0.05, 0.1, 0.15]), 0.6)
    assert [(row["type"], row["underruns"]) for row in told] == [("drained", 0)]
    heard = np.flatnonzero(sound)
    assert heard.size == pytest.approx(0.4 * RATE, abs=1)
    assert heard[-1] - heard[0] + 1 == heard.size
    assert set(sound[heard]) == {0.5}


def test_a_gap_fades_is_counted_and_makes_the_next_reply_wait_for_more(tmp_path: Path) -> None:
    first = _reply(0.0, [0.0, 0.3, 0.35, 0.4], length_s=0.06)
    second = _reply(1.0, [0.0, 0.07, 0.08], length_s=0.07)
    told, sound = _replies(tmp_path, [*first, *second], 1.6)
    assert [row["underruns"] for row in told] == [1, 0]
    edges = np.flatnonzero(np.abs(np.diff(sound)) > 0.1)
    # Only beginnings and ends of replies are sharp (the fake sound is); the gap is not.
    assert edges.size == 3
    began = np.flatnonzero(sound[RATE:])[0] / RATE
    # One piece of 70 ms was enough before the gap (60 ms); now it takes the second.
    assert began == pytest.approx(0.07, abs=0.01)


def test_stop_is_silence_and_forgets_the_reply_but_not_the_link(tmp_path: Path) -> None:
    messages = [*_reply(0.0, [0.0, 0.01, 0.02])[:-1], {"at": 0.15, "type": "stop"}]
    told, sound = _replies(tmp_path, messages, 0.5)
    assert told == []
    assert not sound[round(0.16 * RATE) :].any()
