"""The response time as a picture: a bar a percentile, its steps side by side. SVG without scripts or fonts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from appliance.bench.run import Split
from appliance.bench.summary import STEPS

__all__ = ["Bars", "response_svg"]

_WIDTH: Final = 760
_LEFT: Final = 60
_RIGHT: Final = 80
_ROW: Final = 22
_BAR: Final = 15
_TITLE: Final = 26
_TOP: Final = 62
_COLOURS: Final = {
    "endpoint": "#4c78a8",
    "recognition": "#f2a541",
    "intent": "#8f6bb3",
    "synthesis": "#4fa36c",
    "device": "#8a8f98",
}
"""Told apart on white and on black, and by most who do not see red and green apart."""
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;fill:#24292f}.g{stroke:#8a8f98;"
    "stroke-opacity:.35}@media(prefers-color-scheme:dark){text{fill:#adbac7}.t{fill:#e6edf3}}"
)
_NICE: Final = (1.0, 2.0, 5.0, 10.0)
_TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class Bars:
    """One system: a bar for each percentile that is known."""

    title: str
    splits: tuple[tuple[str, Split], ...]
    """(name of the percentile, the split of the clip that is there)."""


def response_svg(title: str, systems: Sequence[Bars]) -> str:
    """An SVG picture; times in ms from the end of speech to the first sample of the reply."""
    longest = max((split.total or 0.0 for bars in systems for _, split in bars.splits), default=0.0)
    step = _nice_step(max(longest, 1.0) / _TICKS)
    end = math.ceil(max(longest, 1.0) / step) * step
    scale = (_WIDTH - _LEFT - _RIGHT) / end
    height = _TOP + sum(_TITLE + _ROW * len(bars.splits) for bars in systems) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f"role={quoteattr('img')} aria-label={quoteattr(title)}>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        _text(0, 16, title, "t"),
        *_legend(),
        *_axis(end, step, scale, height),
    ]
    top = _TOP
    for bars in systems:
        lines.append(_text(0, top + 17, bars.title, "t"))
        top += _TITLE
        for name, split in bars.splits:
            lines += _bar(name, split, top, scale)
            top += _ROW
    return "\n".join([*lines, "</svg>", ""])


def _legend() -> Iterator[str]:
    for number, name in enumerate(STEPS):
        x = number * 110
        yield f'<rect x="{x}" y="28" width="12" height="12" fill="{_COLOURS[name]}"/>' + _text(x + 18, 39, name)


def _axis(end: float, step: float, scale: float, height: int) -> Iterator[str]:
    for number in range(round(end / step) + 1):
        x = _LEFT + number * step * scale
        yield f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - 24}"/>'
        unit = " ms" if number == round(end / step) else ""
        yield _text(x, height - 8, f"{number * step:.0f}{unit}", anchor="middle")


def _bar(name: str, split: Split, top: float, scale: float) -> Iterator[str]:
    yield _text(_LEFT - 8, top + 13, name, anchor="end")
    x = float(_LEFT)
    for step in STEPS:
        value = getattr(split, step)
        # An endpoint before the true end of speech has a negative time: nothing to draw.
        width = max(0.0, value or 0.0) * scale
        if width:
            yield (
                f'<rect x="{x:.1f}" y="{top + 1}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[step]}">'
                f"<title>{escape(f'{name}, {step}: {value:.0f} ms')}</title></rect>"
            )
        x += width
    yield _text(x + 6, top + 13, "-" if split.total is None else f"{split.total:.0f} ms")


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    kind = f" class={quoteattr(style)}" if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _nice_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in _NICE if factor * power >= least * (1.0 - 1e-9))
