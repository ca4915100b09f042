"""Which file stands for a model at a precision: conversion's graphs, and what quantising found worth using."""

from __future__ import annotations

from pathlib import Path

import pytest

from models import Store, files, graphs
from models.convert.artefact import Artefact, ArtefactFile, Manifest
from models.errors import PackCorruptError, PackMissingError
from models.quantize import QuantiseReport
from models.quantize.report import PartResult, ScoreRow, VariantResult

PARTS = ("flow", "vocoder")


def make_artefact(folder: Path, *names: tuple[str, str]) -> Artefact:
    folder.mkdir(parents=True)
    rows = []
    for part, precision in names:
        path = folder / f"{part}.{precision}.onnx"
        path.write_bytes(f"{part} {precision}".encode() * 1000)
        size, digest = path.stat().st_size, files.sha256_of(path)
        rows.append(ArtefactFile(part=part, precision=precision, name=path.name, size=size, sha256=digest))
    manifest = Manifest(
        pack="made", recipe_version=1, tools={}, inputs={}, files=tuple(rows), parameters={}, checks={}, seconds={}
    )
    return Artefact(folder, manifest)


def result(part: str, speed_up: float, *, passed: bool) -> VariantResult:
    row = PartResult(
        part=part,
        bytes=1,
        fp32_bytes=4,
        cpu_ms=10.0,
        fp32_cpu_ms=10.0 * speed_up,
        snr_db=30.0,
        sites=3,
        kept_float=(),
        sensitivity_db={},
    )
    return VariantResult(
        variant="int8-cpu-static",
        target="cpu",
        parts=(row,),
        score=ScoreRow(measure="made", value=0.0, items=1),
        passed=passed,
        why="made",
    )


def report(*results: VariantResult) -> QuantiseReport:
    return QuantiseReport(
        pack="made",
        group="made",
        machine="made",
        calibration="made",
        tolerance=0.01,
        fp32=ScoreRow(measure="made", value=0.0, items=1),
        variants=results,
        chosen={},
        why={},
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    converted = make_artefact(tmp_path / "converted", *((part, "fp32") for part in PARTS))
    monkeypatch.setattr(graphs, "open_artefact", lambda store, pack: converted)
    return Store(tmp_path / "store")


def quantised(monkeypatch: pytest.MonkeyPatch, folder: Path, *reports: QuantiseReport) -> None:
    artefact = make_artefact(folder, *((part, "int8-cpu-static") for part in PARTS))
    monkeypatch.setattr("models.quantize.open_quantised", lambda store, pack: (artefact, reports), raising=False)


def test_without_quantising_only_what_conversion_made_is_there(store: Store) -> None:
    (form,) = graphs.forms(store, "piper-en-us-joe", PARTS)
    assert (form.precision, form.scheme, form.passed) == ("fp32", None, True)
    assert {form.path(part).name for part in PARTS} == {"flow.fp32.onnx", "vocoder.fp32.onnx"}
    with pytest.raises(PackMissingError, match="wren models quantize"):
        graphs.form_of(store, "piper-en-us-joe", PARTS, "int8", "u8s8")


def test_a_part_for_which_fewer_bits_do_not_pay_stays_in_floats(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = report(result("flow", 1.8, passed=True)), report(result("vocoder", 1.1, passed=True))
    quantised(monkeypatch, tmp_path / "quantised", *reports)
    form = graphs.form_of(store, "piper-en-us-joe", PARTS, "int8", "u8s8")
    assert form.passed
    assert form.target == "cpu"
    assert form.path("flow").name == "flow.int8-cpu-static.onnx"
    assert form.path("vocoder").name == "vocoder.fp32.onnx"


def test_what_failed_the_gate_is_told_and_never_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = report(result("flow", 1.8, passed=False)), report(result("vocoder", 1.0, passed=True))
    quantised(monkeypatch, tmp_path / "quantised", *reports)
    form = graphs.form_of(store, "piper-en-us-joe", PARTS, "int8", "u8s8")
    assert not form.passed
    assert form.path("flow").name == "flow.fp32.onnx"


def test_a_damaged_graph_is_refused_when_it_is_asked_for(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantised(monkeypatch, tmp_path / "quantised", report(result("flow", 1.8, passed=True)))
    form = graphs.form_of(store, "piper-en-us-joe", PARTS, "int8", "u8s8")
    path = tmp_path / "quantised" / "flow.int8-cpu-static.onnx"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(PackCorruptError):
        form.path("flow")


def test_another_quantisation_has_another_key(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for name in ("one", "other"):
        quantised(monkeypatch, tmp_path / name, report(result("flow", 1.8, passed=True)))
        keys.add(graphs.form_of(store, "piper-en-us-joe", PARTS, "int8", "u8s8").key)
    assert len(keys) == 2
