"""Small figures for a page."""

import numpy as np
import pytest

from actsafe.figures import panels, style


def line(figure, label):
    (axes,) = figure.axes
    return next(each for each in axes.get_lines() if each.get_label() == label)


def test_curves_have_a_budget_and_phases():
    x = np.array([1.0, 2.0, 3.0])
    curve = panels.Curve("cost", x, np.array([1.0, np.inf, 2.0]), np.zeros(3), np.full(3, 4.0))
    spans = [panels.Span("expansion", 0.5, 2.5), panels.Span("exploitation", 2.5, 3.5)]
    figure = panels.curves("Cost", [curve], xlabel="episode", spans=spans, budget=3.0, is_cost=True)
    np.testing.assert_array_equal(line(figure, "cost").get_ydata(), [1.0, np.nan, 2.0])
    assert set(line(figure, "budget 3").get_ydata()) == {3.0}
    (axes,) = figure.axes
    named = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert (named["expansion"], named["exploitation"]) == pytest.approx((1.5, 3.0))
    np.testing.assert_array_equal(line(figure, style.UNBOUNDED).get_xdata(), [2.0])
    # A fortieth of three episodes on either side.
    assert axes.get_xlim() == pytest.approx((0.425, 3.575))
    # The axis reaches above what the band reaches.
    assert axes.get_ylim()[1] > 4.0


def test_names_of_short_phases_are_left_away():
    spans = [panels.Span("warm_up", 0, 5), panels.Span("exploitation", 5, 100)]
    curve = panels.Curve("return", np.array([5.0, 100.0]), np.zeros(2))
    (axes,) = panels.curves("Return", [curve], xlabel="steps", spans=spans).axes
    assert [text.get_text() for text in axes.texts] == ["exploitation"]


def test_long_lines_are_thinned_to_their_ends():
    kept = panels.thinned(10_000, 400)
    assert len(kept) == 400
    assert (kept[0], kept[-1]) == (0, 9999)
    np.testing.assert_array_equal(panels.thinned(3), [0, 1, 2])


def test_numbers_on_axes_are_short():
    assert [panels.short(value) for value in (0, 20, 1500, 2_500_000)] == ["0", "20", "1.5k", "2.5M"]


def test_a_point_by_itself_is_seen():
    alone = panels.Curve("return", np.array([4.0]), np.array([2.0]), np.array([1.0]), np.array([3.0]))
    figure = panels.curves("Return", [alone], xlabel="episode")
    assert line(figure, "return").get_marker() == "o"
    (bar,) = figure.axes[0].collections[0].get_segments()
    np.testing.assert_array_equal(bar, [[4.0, 1.0], [4.0, 3.0]])


def test_nothing_known_can_be_drawn():
    curve = panels.Curve("cost", np.array([1.0]), np.array([np.nan]), colour=style.GREEN)
    assert panels.curves("Cost", [curve], xlabel="episode", is_cost=True).axes
