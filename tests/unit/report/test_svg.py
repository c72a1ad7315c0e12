"""Figures as a part of the page."""

import re

import pytest
from matplotlib.figure import Figure

from actsafe.figures import style
from actsafe.report.svg import DARK, inline, variables


@pytest.fixture
def figure() -> Figure:
    """A line, a hatched and a clipped patch, and a text; colours of the palette and one of its own."""
    figure = Figure(figsize=(4.0, 3.0))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=style.BLUE, marker="o", label="a < b")
    axes.axhspan(0.5, 1.0, facecolor=style.DANGER_SHADE, edgecolor=style.DANGER, hatch=style.HATCH)
    axes.plot([0, 1], [1, 0], color="#123456")
    axes.set_title("Cost & return")
    axes.legend(frameon=False)
    return figure


def identities(drawing: str) -> set[str]:
    return set(re.findall(r' id="([^"]+)"', drawing))


def mentions(drawing: str) -> set[str]:
    return set(re.findall(r"(?:url\(|href=\"|labelledby=\")#?([\w-]+)", drawing))


def test_colours_follow_the_page(figure):
    drawing = inline(figure, "f1", "a line")
    left = set(re.findall(r"#[0-9a-fA-F]{6}\b", drawing))
    assert left == {"#123456"}
    assert "stroke: var(--fig-0072b2)" in drawing
    assert "var(--fig-ffffff)" in drawing


def test_every_colour_has_a_light_and_a_dark_value(figure):
    used = set(re.findall(r"var\((--fig-\w+)\)", inline(figure, "f1", "x")))
    assert used
    for is_dark in (False, True):
        declared = dict(re.findall(r"(--fig-\w+):(#\w+);", variables(is_dark=is_dark)))
        assert used <= declared.keys()
        assert len(set(declared.values())) == len(DARK)


def test_text_stays_text(figure):
    drawing = inline(figure, "f1", "x")
    assert "Cost &amp; return</text>" in drawing
    assert "a &lt; b</text>" in drawing
    assert "DejaVu" not in drawing


def test_identities_are_the_figures_own(figure):
    first, second = inline(figure, "f1", "x"), inline(figure, "f2", "x")
    assert identities(first)
    assert not identities(first) & identities(second)
    for drawing in (first, second):
        assert mentions(drawing) == identities(drawing)


def test_nothing_is_fetched_and_the_size_is_free(figure):
    drawing = inline(figure, "f1", "x")
    assert "http" not in drawing
    assert drawing.startswith('<svg viewBox="0 0 288 216" role="img"')
    assert "<style" not in drawing


def test_titles_are_escaped(figure):
    assert "<script>" not in inline(figure, "f1", "<script>")


def test_the_same_figure_is_the_same_text(figure):
    assert inline(figure, "f1", "x") == inline(figure, "f1", "x")
