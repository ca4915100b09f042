"""Real recordings through the real path: two of them in real time, the rest on the simulated clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from appliance.app import Wren, WrenSettings
from appliance.bench.cuts import CutCase, paused, run_cuts
from appliance.bench.material import Clip, home_file, load_clips
from appliance.bench.run import Noise, hear_clip, noisy, run_by, run_clips, warm_up
from appliance.bench.sound import read_sound
from appliance.bench.summary import STEPS, Summary
from appliance.voice.asr.protocol import Cancel
from models import silent

from .material import a_clip, write_sound

pytestmark = [pytest.mark.models, pytest.mark.shared]

TIMER, DATE = "rh3_set_timer.flac", "rh3_whats_the_date_today.flac"


@pytest.fixture(scope="module")
def speech(shared: Path) -> Path:
    return shared / "speech"


@pytest.fixture(scope="module")
def bench(speech: Path) -> Iterator[Wren]:
    with Wren.open(WrenSettings(home_file=home_file(speech), keep_replies=False)) as wren:
        wren.wait_for_bias()
        yield wren


def _clip(speech: Path, name: str) -> Clip:
    return load_clips(speech, match=f"^{name}$")[0]


def test_two_commands_in_real_time(bench: Wren, speech: Path) -> None:
    clips = [_clip(speech, TIMER), _clip(speech, DATE)]
    warm_up(bench, clips)
    told: list[tuple[int, int | None]] = []
    started_s = time.monotonic()
    results = run_clips(bench, clips, lambda _, done, total: told.append((done, total)), "commands", realtime=True)
    # The files last 3.0 and 2.0 s, and a reply is played to its end.
    assert time.monotonic() - started_s >= 5.0
    assert told == [(0, 2), (1, 2), (2, 2)]
    timer, date = results
    assert timer.right
    assert date.right
    assert timer.actions[0].intent == "HassStartTimer"
    assert timer.actions[0].slots["minutes"] == 10
    for result in results:
        assert result.error is None
        assert not result.cut
        split = result.split
        assert split is not None
        assert split.total is not None
        assert sum(getattr(split, step) for step in STEPS) == pytest.approx(split.total, abs=1e-6)
        assert split.device == 0.0
        assert result.cpu_s > 0.0
    summary = Summary.of(results)
    assert summary.accuracy["human"].right == 2
    assert summary.times_ms["total"] is not None


def test_files_that_cannot_be_heard_are_said_and_the_others_go_on(bench: Wren, speech: Path, tmp_path: Path) -> None:
    good = _clip(speech, DATE)
    whole = good.path.read_bytes()
    (tmp_path / "cut.flac").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.flac").write_text("no sound")
    write_sound(tmp_path / "quiet.flac", 1.0, level=1e-4)
    clips = [a_clip(name, path=tmp_path / name) for name in ("cut.flac", "text.flac", "none.flac", "quiet.flac")]
    results = run_clips(bench, [*clips, good], silent, "x", realtime=False)
    for result in results[:3]:
        assert result.error is not None
        assert result.clip.name in result.error
        assert not result.right
    assert results[3].error is None
    assert results[3].split is None
    assert results[4].right
    summary = Summary.of(results)
    assert (summary.clips, summary.failed) == (5, 3)


def test_no_reply_comes_from_a_cache_unless_asked_for(bench: Wren) -> None:
    def kept() -> bool:  # what comes from the cache comes in one piece
        chunks = [list(bench.synthesiser().stream("It is half past nine.", Cancel())) for _ in range(2)]
        return len(chunks[1]) == 1 < len(chunks[0])

    assert not kept()
    asked = bench.settings
    bench.settings = replace(asked, keep_replies=True)
    try:
        assert kept()
    finally:
        bench.settings = asked


def test_noise_goes_on_behind_the_clip_and_the_command_is_answered(bench: Wren, speech: Path) -> None:
    clip = _clip(speech, TIMER)
    noise = Noise(read_sound(speech / "noise" / "kitchen_a.flac"), 20.0)
    mixed = noisy(clip, noise)
    tail = mixed[-16_000:]
    assert float(np.sqrt(np.mean(tail**2))) > 1e-3
    result = hear_clip(bench, clip, realtime=False, noise=noise)
    assert result.error is None
    assert result.right
    assert result.split is not None


def test_a_pause_put_in_moves_the_end_of_speech(speech: Path) -> None:
    clip = _clip(speech, TIMER)
    longer, sound = paused(clip, 0.4)
    assert longer.speech_end_s == pytest.approx(clip.speech_end_s + 0.4)
    assert sound.size == read_sound(clip.path).size + 6_400


def test_cut_offs_are_counted_case_by_case(bench: Wren, speech: Path, tmp_path: Path) -> None:
    clip = _clip(speech, DATE)
    # Said to end four seconds late: whoever answers what was said has cut this speaker off.
    late = a_clip(DATE, path=clip.path, intent=clip.intent, slots=clip.slots, speech_end_s=clip.speech_end_s + 4.0)
    broken = a_clip("none.flac", path=tmp_path / "none.flac")
    cases = [
        CutCase("as recorded", (clip, late)),
        CutCase("with a pause", (clip, broken), 0.25),
    ]
    recorded, put_in = run_cuts(bench, cases, silent)
    assert recorded.cut == (DATE,)
    assert (recorded.clips, recorded.rate, recorded.right, recorded.asked) == (2, 0.5, 2, 2)
    assert (put_in.clips, put_in.failed, put_in.asked) == (2, 1, 1)


def test_what_runs_each_task_is_told(bench: Wren) -> None:
    assert set(run_by(bench)) >= {"asr", "tts"}
    assert "thread" in run_by(bench)["asr"]
