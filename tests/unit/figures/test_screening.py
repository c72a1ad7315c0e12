"""The screen's scores beside what came, drawn from numbers by hand."""

import numpy as np

from actsafe.figures import style
from actsafe.figures.screening import WENT_WELL, WENT_WRONG, score_against_outcome


def deployment(score, cost, over=0, level="candidate"):
    came = {level: {"episodes": 2, "over": over, "taken_over": 0, "costs": [0.5, cost]}}
    return {"score": [0.0, score], "came": came}


def test_scores_and_costs_are_of_one_constraint_and_of_candidates():
    told = [
        deployment(2.0, 3.0),
        deployment(None, 1.0),
        deployment(4.0, 30.0, over=1),
        deployment(9.0, 9.0, level="seed"),
    ]
    (axes,) = score_against_outcome(told, 1, 10.0, "far").axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    # 1.05 times the largest number is where the axes end, and where a score lies that is not known.
    np.testing.assert_allclose(lines[WENT_WELL].get_xdata(), [2.0, 31.5])
    np.testing.assert_allclose(lines[WENT_WELL].get_ydata(), [3.0, 1.0])
    np.testing.assert_allclose(lines[WENT_WRONG].get_xdata(), [4.0])
    np.testing.assert_allclose(lines[WENT_WRONG].get_ydata(), [30.0])
    assert lines[WENT_WRONG].get_color() == style.DANGER
    assert set(lines["budget 10"].get_ydata()) == {10.0}
    assert axes.get_title(loc="left") == "far: scored and paid"


def test_where_nothing_went_wrong_nothing_is_said_to():
    (axes,) = score_against_outcome([deployment(2.0, 3.0)], 1, 10.0, "far").axes
    assert WENT_WRONG not in [line.get_label() for line in axes.get_lines()]
