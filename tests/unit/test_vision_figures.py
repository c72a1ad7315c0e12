"""What the figures of runs with a world model show."""

import numpy as np
import pytest

from actsafe.figures import style
from actsafe.figures.vision import VisionRun, learning_curves, promises

PHASES = ("warm_up", "expansion", "exploitation")


@pytest.fixture
def run() -> VisionRun:
    """Three epochs of 100 steps; costs 4, 2, 1 under a budget of 3, predicted from the second on."""
    metrics = [
        {"phase": phase, "steps": 100 * n, "return": float(n), "costs": {"cost": 4.0 / 2 ** (n - 1)}, "epoch": n}
        for n, phase in enumerate(PHASES, 1)
    ]
    metrics[2] |= {"evaluation_return": 5.0, "evaluation_costs": {"cost": 0.5}}
    ledger = [
        {
            "epoch": row["epoch"],
            "constraint": "cost",
            "budget": 3.0,
            "realised_mean_cost": row["costs"]["cost"],
            "realised_max_cost": row["costs"]["cost"] + 1.0,
            "predicted_cost": None if n == 0 else 2.0,
            "predicted_pessimistic_cost": None if n == 0 else 2.5,
        }
        for n, row in enumerate(metrics)
    ]
    return VisionRun("actsafe", 0, metrics, ledger)


def line(axes, label):
    return next(each for each in axes.get_lines() if each.get_label() == label)


def test_curves_are_the_means_over_runs(run):
    other = run._replace(seed=1, metrics=[row | {"return": row["return"] + 2.0} for row in run.metrics])
    returns, costs = learning_curves([run, other]).axes
    drawn = line(returns, "ActSafe")
    np.testing.assert_array_equal(drawn.get_xdata(), [100, 200, 300])
    np.testing.assert_array_equal(drawn.get_ydata(), [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(line(costs, "ActSafe").get_ydata(), [4.0, 2.0, 1.0])
    np.testing.assert_array_equal(line(returns, "ActSafe, evaluated").get_ydata(), [5.0, 5.0])
    budget = next(each for each in costs.get_lines() if each.get_color() == style.DANGER)
    assert set(budget.get_ydata()) == {3.0}


def test_phases_are_named_where_they_are(run):
    returns, _ = learning_curves([run]).axes
    named = {text.get_text(): text.get_position()[0] for text in returns.texts}
    assert named == {"warm-up": 50.0, "expansion": 150.0, "exploitation": 250.0}


def test_a_phase_too_short_for_its_name_is_in_the_legend(run):
    late = [row | {"steps": 9_700 + row["steps"]} if row["epoch"] == 3 else row for row in run.metrics]
    figure = learning_curves([run._replace(metrics=late)])
    assert [text.get_text() for text in figure.axes[0].texts] == ["exploitation"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][-2:] == ["warm-up", "expansion"]


def test_promises_stand_beside_what_came(run):
    (axes,) = promises(run).axes
    np.testing.assert_array_equal(line(axes, "predicted, pessimistic").get_ydata(), [np.nan, 2.5, 2.5])
    np.testing.assert_array_equal(line(axes, "realised, mean").get_ydata(), [4.0, 2.0, 1.0])
    np.testing.assert_array_equal(line(axes, "realised, worst").get_ydata(), [5.0, 3.0, 2.0])


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="no epochs"):
        learning_curves([VisionRun("actsafe", 0, [], [])])
