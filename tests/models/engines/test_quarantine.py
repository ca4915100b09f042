"""The list of engines that failed: kept through power cuts, shared by processes, never in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.engines.quarantine import Quarantine

ROOT = Path(__file__).resolve().parents[3]


def _add(quarantine: Quarantine, key: str = "k1", rung: str = "tensorrt fp16", kind: str = "hang") -> None:
    quarantine.add(key, task="asr.decoder", rung=rung, kind=kind, reason="no answer")  # type: ignore[arg-type]


def test_an_entry_is_there_at_the_next_start_with_time_reason_and_count(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "quarantine.json"
    first = Quarantine(path, clock=lambda: 1000.0)
    _add(first)
    _add(first, kind="non-finite")
    entry = Quarantine(path).find("k1")
    assert entry is not None
    assert (entry.time_s, entry.count, entry.kind, entry.reason) == (1000.0, 2, "non-finite", "no answer")
    assert Quarantine(path).find("k2") is None


def test_the_same_rung_under_another_key_replaces_the_old_entry(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "q.json")
    _add(quarantine, "old")
    _add(quarantine, "other", rung="ort-cuda fp16")
    _add(quarantine, "new")
    assert [e.key for e in quarantine.entries()] == ["other", "new"]


def test_it_can_be_cleared_one_by_one_or_all(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "q.json")
    _add(quarantine, "a", "x")
    _add(quarantine, "b", "y")
    assert quarantine.clear("a") == 1
    assert quarantine.find("a") is None
    assert quarantine.clear() == 1
    assert Quarantine(tmp_path / "q.json").entries() == ()


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"entries": [{"key": 1}]}', b"\xff\xfe"])
def test_a_damaged_file_counts_as_empty_and_is_replaced(
    tmp_path: Path, junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "q.json"
    path.write_bytes(junk)
    quarantine = Quarantine(path)
    assert quarantine.find("k1") is None
    assert "counts as empty" in caplog.text
    _add(quarantine)
    assert json.loads(path.read_text())["entries"][0]["key"] == "k1"


def test_where_nothing_can_be_written_it_still_holds_in_this_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    quarantine = Quarantine(tmp_path / "file" / "q.json")
    _add(quarantine)
    assert quarantine.find("k1") is not None
    assert "cannot be written" in caplog.text


def test_two_programs_add_without_losing_each_others(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    code = (
        "import sys; from pathlib import Path; from models.engines.quarantine import Quarantine\n"
        "q = Quarantine(Path(sys.argv[1]))\n"
        "[q.add(f'{sys.argv[2]}{i}', task='t', rung=f'{sys.argv[2]}{i}', kind='error', reason='r') for i in range(10)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "ab"]
    quarantine = Quarantine(path)
    for i in range(10):
        quarantine.add(f"c{i}", task="t", rung=f"c{i}", kind="error", reason="r")
    assert [process.wait(60) for process in running] == [0, 0]
    assert {e.key for e in quarantine.entries()} == {f"{n}{i}" for n in "abc" for i in range(10)}


def test_threads_add_without_losing_each_others(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "q.json")
    threads = [threading.Thread(target=_add, args=(quarantine, f"k{n}", f"r{n}")) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(quarantine.entries()) == 6


def _die_in_trial(path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from models.engines.quarantine import Quarantine\n"
        "with Quarantine(Path(sys.argv[1])).trial('k1', task='t', rung='r'): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9


def test_a_process_that_dies_twice_while_opening_an_engine_is_stopped_from_trying_again(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    _die_in_trial(path)
    once = Quarantine(path)
    assert once.find("k1") is None  # the plug may have been pulled
    assert [(e.kind, e.count, e.in_force) for e in once.entries()] == [("crash", 1, False)]
    _die_in_trial(path)
    entry = Quarantine(path).find("k1")
    assert entry is not None
    assert entry.kind == "crash"


def test_a_death_is_forgotten_when_the_engine_has_run_since(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    _die_in_trial(path)
    Quarantine(path).pardon("k1")
    assert Quarantine(path).entries() == ()
    _die_in_trial(path)
    assert Quarantine(path).find("k1") is None
    kept = Quarantine(path)
    _add(kept, "k2", rung="another")
    kept.pardon("k2")  # for what is in force it is no pardon
    assert kept.find("k2") is not None


def test_two_first_runs_that_a_process_dies_in_are_one_death(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    code = (
        "import os, sys; from pathlib import Path; from models.engines.quarantine import Quarantine\n"
        "q = Quarantine(Path(sys.argv[1])); one = q.trial('k1', task='t', rung='r'); one.__enter__()\n"
        "with q.trial('k1', task='t', rung='r'): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    assert [(e.kind, e.count) for e in Quarantine(path).entries()] == [("crash", 1)]


def test_a_process_that_dies_twice_in_an_engines_first_run_does_not_try_again(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    code = (
        "import os, sys; from pathlib import Path\n"
        "from models.engines.ladder import LadderEngine\n"
        "from models.engines.quarantine import Quarantine\n"
        "from tests.models.engines.fakes import SUM, FakeSumEngine, rung\n"
        "from tests.models.engines.ladders import x\n"
        "class Dying(FakeSumEngine):\n"
        "    def stream(self):\n"
        "        made = super().stream(); made.run = lambda inputs: os._exit(9); return made\n"
        "rungs = [rung('device', Dying, may_crash=True), rung('cpu', FakeSumEngine)]\n"
        "ladder = LadderEngine('sum', rungs, [SUM], quarantine=Quarantine(Path(sys.argv[1])))\n"
        "print(ladder.stream().run(x(1))['y'][0])"
    )
    ends = [
        subprocess.run([sys.executable, "-c", code, str(path)], check=False, capture_output=True, text=True, cwd=ROOT)
        for _ in range(3)
    ]
    assert [(end.returncode, end.stdout.strip()) for end in ends] == [(9, ""), (9, ""), (0, "1.0")], ends[-1].stderr


def test_a_trial_of_a_process_that_lives_is_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    quarantine = Quarantine(path)
    with quarantine.trial("k1", task="t", rung="r"):
        assert Quarantine(path).entries() == ()
        trials = json.loads(path.read_text())["trials"]
        assert [t["pid"] for t in trials] == [os.getpid()]
    assert json.loads(path.read_text())["trials"] == []
    with pytest.raises(ValueError, match="as it was"), quarantine.trial("k1", task="t", rung="r"):
        raise ValueError("as it was")
    assert Quarantine(path).entries() == ()


@settings(max_examples=15, deadline=None)
@given(operations=st.lists(st.tuples(st.sampled_from(["add", "clear"]), st.integers(0, 4)), max_size=20))
def test_memory_and_file_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("q") / "q.json"
    kept, only = Quarantine(path, clock=lambda: 1.0), Quarantine(None, clock=lambda: 1.0)
    for what, n in operations:
        for quarantine in (kept, only):
            _add(quarantine, f"k{n}", f"r{n}") if what == "add" else quarantine.clear(f"k{n}")
    assert kept.entries() == only.entries() == Quarantine(path, clock=lambda: 1.0).entries()
