"""The report that lies beside the quantised graphs: everything that was tried, what was chosen, and why."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

__all__ = ["REPORT", "PartResult", "QuantiseReport", "ScoreRow", "VariantResult"]

REPORT = "report.json"


class _Row(BaseModel):
    # Infinite ratios are written as words, which JSON has none for.
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class ScoreRow(_Row):
    """See `models.quantize.gate.Score`."""

    measure: str
    value: float
    items: int
    details: dict[str, float] = {}


class PartResult(_Row):
    """One graph in one variant."""

    part: str
    bytes: int
    fp32_bytes: int
    cpu_ms: float
    fp32_cpu_ms: float
    """Of the same run."""
    snr_db: float
    sites: int
    """Products with constants that the variant may quantise."""
    kept_float: tuple[str, ...]
    """Those that stayed in float, by the sweep."""
    sensitivity_db: dict[str, float]
    """Site (or its layer) -> signal to noise with it alone in 8 bits; empty where no sweep was needed."""

    @property
    def speed_up(self) -> float:
        """How many times as fast as FP32 on one core."""
        return self.fp32_cpu_ms / max(self.cpu_ms, 1e-9)


class VariantResult(_Row):
    """One variant of the whole group of graphs."""

    variant: str
    target: str
    parts: tuple[PartResult, ...]
    score: ScoreRow | None
    """None where it was not made or not run."""
    passed: bool
    why: str

    @property
    def speed_up(self) -> float:
        """Of all parts together."""
        return sum(p.fp32_cpu_ms for p in self.parts) / max(sum(p.cpu_ms for p in self.parts), 1e-9)


class QuantiseReport(_Row):
    """`report.json` of one group of graphs that are judged together."""

    pack: str
    group: str
    machine: str
    calibration: str
    """What the ranges were found on."""
    tolerance: float
    fp32: ScoreRow
    variants: tuple[VariantResult, ...]
    chosen: dict[str, str]
    """Target (`cpu`, `tensorrt`) -> variant, `fp32` where nothing else pays."""
    why: dict[str, str]

    def save(self, folder: Path) -> None:
        """Write it."""
        (folder / f"{self.group}.{REPORT}").write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> QuantiseReport:
        """Read it. Raises pydantic's `ValidationError` on a file that is none."""
        return cls.model_validate_json(path.read_bytes())
