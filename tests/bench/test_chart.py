from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.bench.chart import Bars, response_svg
from appliance.bench.run import Split

SVG = "{http://www.w3.org/2000/svg}"
times = st.one_of(st.none(), st.floats(-500.0, 20_000.0))


def _bars(picture: str) -> list[tuple[float, float]]:
    """(x, width) of the drawn steps; the legend's squares are not among them."""
    root = ElementTree.fromstring(picture)
    return [
        (float(rect.attrib["x"]), float(rect.attrib["width"]))
        for rect in root.iter(f"{SVG}rect")
        if rect.find(f"{SVG}title") is not None
    ]


def test_steps_lie_side_by_side_and_to_scale() -> None:
    one = Split(
        endpoint=200.0, recognition=100.0, intent=0.0, synthesis=100.0, device=0.0, total=400.0, after_endpoint=200.0
    )
    picture = response_svg("t", [Bars("Wren", (("p50", one),))])
    (x0, w0), (x1, w1), (x2, w2) = _bars(picture)
    assert w0 == pytest.approx(2 * w1, abs=0.11)
    assert w1 == pytest.approx(w2, abs=0.11)
    assert x1 == pytest.approx(x0 + w0, abs=0.11)
    assert x2 == pytest.approx(x1 + w1, abs=0.11)
    assert "400 ms" in picture


@given(rows=st.lists(st.lists(times, min_size=7, max_size=7), max_size=6), title=st.text(max_size=30))
def test_whatever_was_measured_the_picture_is_well_formed_and_holds_its_bars(
    rows: list[list[float | None]], title: str
) -> None:
    title = "".join(c for c in title if c.isprintable()) + '<&">'
    picture = response_svg(title, [Bars(title, tuple((f"p{n}", Split(*row)) for n, row in enumerate(rows)))])
    root = ElementTree.fromstring(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {width:.0f} {height:.0f}"
    assert all(w >= 0.0 and x >= 0.0 for x, w in _bars(picture))
    labels = [text.text for text in root.iter(f"{SVG}text")]
    assert labels.count(title) == 2
    assert all(float(text.attrib["y"]) <= height for text in root.iter(f"{SVG}text"))


def test_nothing_is_fetched_and_nothing_runs() -> None:
    picture = response_svg("t", [])
    for word in ("script", "href", "url(", "@import", "@font-face"):
        assert word not in picture


def test_bars_that_add_up_fit_the_axis() -> None:
    long = Split(5_000.0, 700.0, 10.0, 300.0, 0.0, 6_010.0, 1_010.0)
    picture = response_svg("t", [Bars("Baseline", (("p95", long),))])
    x, width = _bars(picture)[-1]
    axis = [float(line.attrib["x1"]) for line in ElementTree.fromstring(picture).iter(f"{SVG}line")]
    assert x + width <= max(axis) + 0.2
