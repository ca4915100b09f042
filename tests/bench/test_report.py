from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from appliance.bench.baseline import BaselineRun
from appliance.bench.cuts import CutResult
from appliance.bench.errors import BenchError
from appliance.bench.meters import Load, machine_line
from appliance.bench.report import Material, Report, write_docs
from appliance.bench_engines import EngineBench, EngineRow, PartRow

from .material import a_clip, a_result

SPREAD = {"n": int, "p50": float, "p95": float, "mean": float, "sd": float, "least": float, "most": float}
STEPS = ("endpoint", "recognition", "intent", "synthesis", "device", "total", "after_endpoint")
ACCURACY = {"clips": int, "right": int, "rate": float}
AHEAD = {"recognitions": float, "replies": float, "hits": float, "spent_s": float, "wasted_s": float}
SUMMARY = {
    "clips": int,
    "failed": int,
    "times_ms": dict.fromkeys(STEPS, SPREAD),
    "cut": int,
    "accuracy": {"human": ACCURACY, "synthesised": ACCURACY},
    "wrong_actions": int,
    "cpu_s": SPREAD,
    "ahead": AHEAD,
    "others_cores": SPREAD,
    "dropped_frames": int,
}
CLIP = {
    "file": str, "kind": str, "said": str, "expected_intent": str, "expected_slots": dict, "heard": str,
    "actions": [{"intent": str, "slots": dict}], "split_ms": dict.fromkeys(STEPS, float), "right": bool,
    "wrong_action": bool, "cut": bool, "endpoint_reason": str, "reply": str, "cpu_s": float, "others_cores": float,
    "dropped_frames": int, "error": str, "ahead": {**AHEAD, "recognitions": int, "replies": int, "hits": int},
}  # fmt: skip
LOAD = {"load_1min": float, "probe_wall_per_cpu": float}
SCHEMA: dict[str, Any] = {
    "version": int,
    "started": str,
    "machine": {"cpu": str, "cores": int, "python": str, "system": str},
    "load_before": LOAD,
    "load_after": LOAD,
    "material": {
        "speech": str, "home": str, "match": str, "limit": int, "noise_db": float, "keep_replies": bool,
    },
    "run_by": dict,
    "wren": {
        **SUMMARY,
        "peak_rss_mb": float,
        "repeats": [{"times_ms": {"total": SPREAD}, "cut": int, "right": int}],
        "each_clip": [CLIP],
    },
    "baseline": {
        "A": {
            **SUMMARY,
            "peak_rss_mb": float,
            "wren_on_the_same_clips": SUMMARY,
            "times_slower_than_wren": {
                "total_p50": float, "total_p95": float, "after_endpoint_p50": float, "cpu_p50": float,
            },
            "each_clip": [CLIP],
        }
    },
    "negatives": {"clips": int, "failed": int, "false_commands": int, "rate": float, "which": [CLIP]},
    "pauses": [
        {"name": str, "clips": int, "failed": int, "cut": [str], "right": int, "asked": int, "rate": float},
    ],
    "engines": dict,
    "troubles": [str],
}  # fmt: skip


def a_report(**changes: Any) -> Report:
    known: dict[str, Any] = {
        "started": "2026-11-29 23:00",
        "machine": machine_line(),
        "load_before": Load(0.1, 1.0),
        "load_after": Load(0.2, 1.01),
        "material": Material("/speech", "/home.json", None, None, None, False),
        "run_by": {"asr": "ort-cpu int8, 1 thread(s)"},
        "passes": [[a_result(250.0), a_result(350.0, clip=a_clip("b.flac")), a_result(400.0, clip=a_clip("c.flac"))]],
        "peak_rss_mb": 350.0,
        "baselines": [BaselineRun("A", (a_result(2500.0), a_result(3500.0, clip=a_clip("b.flac"))), 500.0)],
        "negatives": [a_result(None, actions=(), clip=a_clip("n.flac", intent=None)), a_result(clip=a_clip("m.flac"))],
        "cuts": [CutResult("orders", 10, 0, ("x.flac",), 0, 0)],
    }
    return Report(**{**known, **changes})


def _check(schema: Any, value: Any, where: str = "report") -> None:
    """Every field of the schema is there, no other, and of its kind (or null)."""
    if value is None:
        return
    if isinstance(schema, Mapping):
        assert isinstance(value, dict), where
        assert set(value) == set(schema), where
        for name, part in schema.items():
            _check(part, value[name], f"{where}.{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list), where
        for number, part in enumerate(value):
            _check(schema[0], part, f"{where}[{number}]")
    else:
        wanted = (int, float) if schema is float else schema
        assert isinstance(value, wanted), f"{where}: {value!r}"


def test_the_json_has_the_agreed_shape() -> None:
    body = json.loads(json.dumps(a_report().to_dict(), allow_nan=False))
    _check(SCHEMA, body)
    assert body["wren"]["times_ms"]["total"]["n"] == 3
    assert body["negatives"]["false_commands"] == 1
    assert body["negatives"]["rate"] == 0.5
    assert body["pauses"][0]["rate"] == 0.1


def test_parts_that_were_not_asked_for_are_null() -> None:
    report = a_report(passes=[], baselines=[], negatives=None, cuts=None, peak_rss_mb=None)
    body = json.loads(json.dumps(report.to_dict()))
    _check(SCHEMA, body)
    assert [name for name, value in body.items() if value is None] == [
        "wren", "baseline", "negatives", "pauses", "engines",
    ]  # fmt: skip
    assert report.markdown()


def test_the_baseline_is_compared_on_the_clips_that_both_heard() -> None:
    baseline = a_report().to_dict()["baseline"]["A"]
    assert baseline["wren_on_the_same_clips"]["clips"] == 2
    assert baseline["times_slower_than_wren"]["total_p50"] == 10.0  # 2500 over 250, not over 350
    assert baseline["times_slower_than_wren"]["total_p95"] == 10.0


def test_wrens_figures_on_the_same_clips_stand_beside_a_baseline_that_heard_fewer() -> None:
    assert "| Wren | Wren, same clips | baseline A |" in a_report().markdown()
    everything = a_report(passes=[[a_result(250.0), a_result(350.0, clip=a_clip("b.flac"))]])
    assert "| Wren | baseline A |" in everything.markdown()


def test_repeats_count_together_and_are_told_apart() -> None:
    passes = [[a_result(250.0)], [a_result(270.0)], [a_result(260.0)]]
    report = a_report(passes=passes, baselines=[])
    body = report.to_dict()["wren"]
    assert body["times_ms"]["total"]["n"] == 3
    assert [repeat["times_ms"]["total"]["p50"] for repeat in body["repeats"]] == [250.0, 270.0, 260.0]
    assert "3 repeats: median 250 to 270 ms" in report.markdown()


def test_clips_that_could_not_be_heard_are_counted_and_told() -> None:
    assert a_report().unheard == 0
    broken = [[a_result(None, error="truncated", right=False)]]
    assert a_report(passes=broken, cuts=[CutResult("orders", 10, 2, (), 0, 0)]).unheard == 3
    assert "| not heard: truncated |" in a_report(passes=broken).markdown()


def test_engines_stand_behind_the_rest_and_keep_their_small_numbers() -> None:
    parts = (PartRow("vad", 10, 1.5, 2.0, 1.4, 3.1e-7, 92.0),)
    row = EngineRow("vad", "silero-vad", "numpy", "fp32", None, parts, 0.05, 0.1, 12.0, None, None)
    engines = EngineBench(machine_line(), "2026-11-29 23:00", Load(0.1, 1.0), Load(0.1, 1.0), [row], [])
    report = a_report(engines=engines)
    assert report.to_dict()["engines"]["rows"][0]["parts"][0]["max_error"] == 3.1e-7
    text = report.markdown()
    assert text.index("## Engines") > text.index("Not commands")
    assert "numpy" in text[text.index("## Engines") :]


def test_what_could_not_be_measured_is_told() -> None:
    report = a_report(troubles=["the baseline is broken"])
    assert "Not measured: the baseline is broken." in report.markdown()
    assert report.to_dict()["troubles"] == ["the baseline is broken"]


def test_tables_hold_the_figures_and_every_miss() -> None:
    miss = a_result(900.0, clip=a_clip("miss|.flac"), heard="turn | on", actions=(), right=False)
    text = a_report(passes=[[a_result(250.0), miss]]).markdown()
    assert "**250 / 900**" in text
    assert "times as long as Wren" in text
    assert "| miss\\|.flac |" in text
    assert "| orders | 10 | 1 (10.0%) | - |" in text
    assert "taken for a command: 1 (50.0%)" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


def test_the_docs_are_written_and_name_their_command(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "bench"
    write_docs(a_report(), folder, "wren bench --write docs/bench")
    page = (folder / "response.md").read_text(encoding="utf-8")
    assert "`wren bench --write docs/bench`" in page
    assert "(response.svg)" in page
    picture = ElementTree.fromstring((folder / "response.svg").read_text(encoding="utf-8"))
    words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Wren", "Baseline A", "p50", "p95"} <= set(words)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchError, match="--write"):
        write_docs(a_report(), tmp_path / "file", "wren bench")
