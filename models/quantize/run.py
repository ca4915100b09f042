"""Quantising a pack: every variant made, measured and judged; the best kept, with the report of it all."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from models import files
from models.convert.artefact import MANIFEST, ArtefactFile, Manifest
from models.engines.base import Engine, StateTensor
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import ConversionError, EngineError, QuantisationRefusedError
from models.progress import Progress, silent
from models.quantize.gate import DEFAULT_TOLERANCE, Evaluate, Score, passes
from models.quantize.kept import VERSION, folder_of, tools
from models.quantize.measure import cpu_ms, run_all, snr_db
from models.quantize.parts import Group, Part, groups_of
from models.quantize.report import PartResult, QuantiseReport, ScoreRow, VariantResult
from models.quantize.sensitivity import Sweep, find_keep_float, sweep
from models.quantize.sites import load
from models.quantize.sound import Material
from models.quantize.table import VARIANTS, WORTH_IT, Variant
from models.quantize.variants import Source
from models.store import Store

__all__ = ["Options", "quantise"]

_TARGETS_DB = (20.0, 25.0, 30.0)
"""Signal to noise of a part's outputs asked for at first, and after each failed gate."""
_ROOM = 600_000_000
"""Bytes for all variants of the largest pack."""


@dataclass(frozen=True, slots=True)
class Options:
    """How thorough to be."""

    tolerance: float = DEFAULT_TOLERANCE
    repeats: int = 7
    variants: tuple[Variant, ...] = VARIANTS


DEFAULTS = Options()


def quantise(
    store: Store,
    pack_id: str,
    evaluate: Mapping[str, Evaluate],
    material: Material,
    progress: Progress = silent,
    options: Options = DEFAULTS,
) -> tuple[QuantiseReport, ...]:
    """Try every variant of every group of the pack and keep what passes; one report a group.

    `evaluate` maps each group's name (`asr`, `frontend`, `flow`, `vocoder`, `vad`) to its judge. The pack and the
    voice (whose speech calibrates the others) must be in the store, converted. Raises what `Store.open` raises.
    """
    target = folder_of(store, pack_id)
    with (
        store.locked(f"{pack_id}-quantised", pack_id, progress),
        files.disk_errors_named(store.root, _ROOM, f"quantising {pack_id}"),
        store.scratch(f"{pack_id}-quantised") as work,
    ):
        store.make_room(_ROOM // 2, f"quantising {pack_id}", progress)
        result = work / "quantised"
        result.mkdir()
        rows: list[ArtefactFile] = []
        reports = []
        for group in groups_of(store, pack_id, material):
            report, made = _Run(group, evaluate[group.name], material, progress, options, work).run()
            reports.append(report)
            report.save(result)
            for (part, variant), path in made.items():
                final = result / f"{part}.{variant}.onnx"
                path.replace(final)
                size, sha256 = final.stat().st_size, files.sha256_of(final)
                rows.append(ArtefactFile(part=part, precision=variant, name=final.name, size=size, sha256=sha256))
        inputs = {f.name: f.sha256 for f in store.catalogue.get(pack_id).files}
        manifest = Manifest(
            pack=pack_id,
            recipe_version=VERSION,
            tools=tools(),
            inputs=inputs,
            files=tuple(rows),
            parameters={},
            checks={},
            seconds={},
        )
        (result / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        files.publish(result, target)
    return tuple(reports)


@dataclass(slots=True)
class _Made:
    """One part in one variant, written and measured."""

    path: Path
    result: PartResult
    model_states: tuple[StateTensor, ...]


class _Run:
    """One group."""

    def __init__(
        self, group: Group, evaluate: Evaluate, material: Material, progress: Progress, options: Options, work: Path
    ) -> None:
        self._group = group
        self._evaluate = evaluate
        self._material = material
        self._progress = progress
        self._options = options
        self._work = work
        self._sources = {p.name: Source(load(p.path), p.calibration, p.half_edges) for p in group.parts}
        self._fp32 = {p.name: OrtCpuEngine(p.path) for p in group.parts}
        self._reference = {p.name: run_all(self._fp32[p.name], p.probes, p.signal) for p in group.parts}
        self._sweeps: dict[tuple[str, str], Sweep] = {}

    def run(self) -> tuple[QuantiseReport, dict[tuple[str, str], Path]]:
        """The report, and the files worth keeping: (part, variant) -> path."""
        fp32 = self._score({p.name: (p.path, p.states) for p in self._group.parts})
        results: list[VariantResult] = []
        kept: dict[tuple[str, str], Path] = {}
        for variant in self._options.variants:
            result, made = self._try(variant, fp32)
            results.append(result)
            if result.passed:
                kept |= {(name, variant.name): m.path for name, m in made.items()}
        chosen, why = _choose(results)
        report = QuantiseReport(
            pack=self._group.pack,
            group=self._group.name,
            machine=_machine(),
            calibration=self._material.description if self._group.hears else "sentences as homes say them",
            tolerance=self._options.tolerance,
            fp32=_row(fp32),
            variants=tuple(results),
            chosen=chosen,
            why=why,
        )
        return report, kept

    def _try(self, variant: Variant, fp32: Score) -> tuple[VariantResult, dict[str, _Made]]:
        """The variant of all parts; where the gate says no, again with more left in float."""
        made: dict[str, _Made] = {}
        score: Score | None = None
        for target_db in _TARGETS_DB:
            try:
                before = {name: m.result.kept_float for name, m in made.items()}
                made = {p.name: self._make(variant, p, target_db) for p in self._group.parts}
                if score is None or {name: m.result.kept_float for name, m in made.items()} != before:
                    score = self._score(
                        {name: (m.path, m.model_states) for name, m in made.items()}, variant.target == "cpu"
                    )
            except (ConversionError, QuantisationRefusedError, EngineError) as error:
                return self._result(variant, {}, None, False, f"not made: {error}"), {}
            if passes(score, fp32, self._options.tolerance):
                return self._result(variant, made, score, True, f"within {self._options.tolerance:.0%} of FP32"), made
            if variant.precision == "fp16" or all(len(m.result.kept_float) == m.result.sites for m in made.values()):
                break
        return self._result(
            variant, made, score, False, f"worse than FP32 by more than {self._options.tolerance:.0%}"
        ), {}

    @staticmethod
    def _result(
        variant: Variant, made: Mapping[str, _Made], score: Score | None, passed: bool, why: str
    ) -> VariantResult:
        parts = tuple(m.result for m in made.values())
        row = None if score is None else _row(score)
        return VariantResult(
            variant=variant.name, target=variant.target, parts=parts, score=row, passed=passed, why=why
        )

    def _make(self, variant: Variant, part: Part, target_db: float) -> _Made:
        source = self._sources[part.name]
        path = self._work / f"{part.name}.{variant.name}.onnx"
        stage = f"{self._group.name} {part.name} {variant.name}"
        self._progress(stage, 0, None)
        sites = source.sites(variant)

        def measure(keep_float: Collection[str]) -> float:
            model = source.make(variant, keep_float)
            trial = self._work / f"trial.{part.name}.onnx"
            onnx.save(model, trial)
            return self._snr(part, OrtCpuEngine(trial, fuse_pairs=variant.target == "cpu"))

        keep: tuple[str, ...] = ()
        ranking = self._sweeps.get((variant.name, part.name), Sweep({}))
        if variant.precision == "int8" and measure(()) < target_db:
            if not ranking.snr_db:
                ranking = sweep(sites, measure, lambda done, of: self._progress(f"{stage}: sensitivity", done, of))
                self._sweeps[variant.name, part.name] = ranking
            keep, _ = find_keep_float(ranking, measure, target_db)
        onnx.save(source.make(variant, keep), path)
        engine = OrtCpuEngine(path, fuse_pairs=variant.target == "cpu")
        ours, fp32_ms = cpu_ms([engine, self._fp32[part.name]], part.work, self._options.repeats)
        result = PartResult(
            part=part.name,
            bytes=path.stat().st_size,
            fp32_bytes=part.path.stat().st_size,
            cpu_ms=round(ours, 3),
            fp32_cpu_ms=round(fp32_ms, 3),
            snr_db=round(self._snr(part, engine), 1),
            sites=len(sites),
            kept_float=keep,
            sensitivity_db={name: round(db, 1) for name, db in ranking.snr_db.items()},
        )
        states = tuple(StateTensor(s.input, s.output, s.shape, engine.inputs[s.input].dtype.name) for s in part.states)
        return _Made(path, result, states)

    def _snr(self, part: Part, engine: OrtCpuEngine) -> float:
        made = run_all(engine, part.probes, part.signal)
        return snr_db(self._reference[part.name], made, centred=part.centred)

    def _score(self, parts: Mapping[str, tuple[Path, tuple[StateTensor, ...]]], fuse_pairs: bool = True) -> Score:
        self._progress(f"{self._group.name}: evaluation", 0, None)
        engines: dict[str, Engine] = {
            name: OrtCpuEngine(path, states, fuse_pairs=fuse_pairs)
            for name, (path, states) in {**self._group.others, **parts}.items()
        }
        try:
            return self._evaluate(engines)
        finally:
            for engine in engines.values():
                engine.close()


def _row(score: Score) -> ScoreRow:
    return ScoreRow(measure=score.measure, value=round(score.value, 5), items=score.items, details=dict(score.details))


def _choose(results: list[VariantResult]) -> tuple[dict[str, str], dict[str, str]]:
    """For the CPU the fastest that passed, if that is worth it; for TensorRT all that passed, for a board to time."""
    cpu = [r for r in results if r.target == "cpu" and r.passed]
    best = max(cpu, key=lambda r: r.speed_up, default=None)
    chosen, why = {}, {}
    if best is not None and best.speed_up >= WORTH_IT:
        chosen["cpu"], why["cpu"] = best.variant, f"{best.speed_up:.2f} times as fast as FP32, accuracy {best.why}"
    else:
        fastest = "none passed" if best is None else f"the best, {best.variant}, is {best.speed_up:.2f} times as fast"
        chosen["cpu"], why["cpu"] = "fp32", f"INT8 does not pay: {fastest}"
    passed = [r.variant for r in results if r.target == "tensorrt" and r.passed]
    chosen["tensorrt"] = passed[-1] if passed else "fp32"
    why["tensorrt"] = (
        f"passed the gate and TensorRT's rules: {', '.join(passed) or 'none'}; speed is for the board to measure"
    )
    return chosen, why


def _machine() -> str:
    return f"{platform.machine()}, onnxruntime {importlib.metadata.version('onnxruntime')}, one thread"
