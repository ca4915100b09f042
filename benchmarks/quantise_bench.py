"""Every variant of every graph: size, CPU time beside FP32's of the same run, nearness, and what it is for.

    .venv/bin/python benchmarks/quantise_bench.py [PACK …] [--speech DIR] [--repeats N] [--reports]

Makes the variants anew (minutes; `--reports`: prints what was found before) and prints Markdown. A time is this
process's CPU time on one core, the median of the repeats, FP32 and the variant taking turns. The recogniser's word
error rate is of the recordings in --speech (../shared/speech by default, where it is there): commands and reading.
"""

from __future__ import annotations

import argparse
import os
import platform
from importlib.metadata import version
from pathlib import Path

from appliance.evaluation import evaluations, load_material
from models import Store, TerminalProgress
from models.quantize import Options, QuantiseReport, VariantResult, open_quantised, quantisable, quantise

SPEECH = Path(__file__).resolve().parent.parent.parent / "shared" / "speech"
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", nargs="*", default=list(quantisable()))
    parser.add_argument("--speech", type=Path, default=SPEECH if SPEECH.is_dir() else None)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--reports", action="store_true", help="print the reports in the store, measure nothing")
    arguments = parser.parse_args()
    store = Store()
    print(f"{_cpu()}; Python {platform.python_version()}, onnxruntime {version('onnxruntime')}; one thread; ", end="")
    print(f"load {os.getloadavg()[0]:.1f}\n")
    if arguments.reports:
        reports = [r for pack_id in arguments.pack for r in open_quantised(store, pack_id)[1]]
    else:
        judges, material = evaluations(store, arguments.speech), load_material(arguments.speech)
        options = Options(repeats=arguments.repeats)
        reports = [
            report
            for pack_id in arguments.pack
            for report in quantise(store, pack_id, judges, material, TerminalProgress(), options)
        ]
    for report in reports:
        _print(report)


def _print(report: QuantiseReport) -> None:
    groups = list(report.fp32.details)
    print(f"### {report.pack}: {report.group}\n\nCalibrated with {report.calibration}.\n")
    head = ["variant", "graph", "MB", "CPU ms", "FP32 ms", "times as fast", "SNR dB", "in float", report.fp32.measure]
    print(f"| {' | '.join([*head, *groups, 'gate'])} |\n|{'---|' * (len(head) + len(groups) + 1)}")
    blank = [""] * 7
    print(f"| {' | '.join(['fp32', *blank, *_scores(report.fp32.value, report.fp32.details, groups), ''])} |")
    for variant in report.variants:
        for row in _rows(variant, groups):
            print(f"| {' | '.join(row)} |")
    print()
    for target, why in report.why.items():
        print(f"- **{target}: {report.chosen[target]}**: {why}.")
    print()


def _rows(variant: VariantResult, groups: list[str]) -> list[list[str]]:
    gate = "passed" if variant.passed else variant.why
    if not variant.parts or variant.score is None:
        return [[variant.variant, *[""] * (8 + len(groups)), gate]]
    rows = []
    for part in variant.parts:
        size = f"{part.bytes / 1e6:.1f} (of {part.fp32_bytes / 1e6:.1f})"
        times = [f"{part.cpu_ms:.1f}", f"{part.fp32_cpu_ms:.1f}", f"{part.speed_up:.2f}"]
        kept = f"{len(part.kept_float)} of {part.sites}"
        rows.append([variant.variant, part.part, size, *times, f"{part.snr_db:.1f}", kept])
    if len(rows) > 1:
        ours, fp32 = (sum(getattr(p, name) for p in variant.parts) for name in ("cpu_ms", "fp32_cpu_ms"))
        rows.append(
            [variant.variant, "**together**", "", f"{ours:.1f}", f"{fp32:.1f}", f"**{variant.speed_up:.2f}**", "", ""]
        )
    scored = _scores(variant.score.value, variant.score.details, groups)
    return [*([*row, *[""] * (len(groups) + 2)] for row in rows[:-1]), [*rows[-1], *scored, gate]]


def _scores(value: float, details: dict[str, float], groups: list[str]) -> list[str]:
    return [f"{value:.2%}", *(f"{details.get(group, 0):.2%}" for group in groups)]


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    facts = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    flags = facts.get("flags", facts.get("Features", "")).split()
    return f"{facts.get('model name', 'CPU')} ({', '.join(f for f in _FLAGS if f in flags)})"


if __name__ == "__main__":
    main()
