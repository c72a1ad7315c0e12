"""What the summary shows of runs of several phases, in simulator steps."""

import copy

import numpy as np
import pytest

from actsafe.figures import ledger_figure, style, summary
from actsafe.figures.drawing import figures_of_results
from actsafe.training import results
from actsafe.training.storage import StorageError

PHASES = ("warm_up", "expansion", "exploitation")
ROLES = ("uniform", "exploration", "task")


@pytest.fixture
def run():
    """Three epochs of 100 steps; costs 4, 2, 1 under a budget of 3, predicted from the second on."""
    epochs = []
    for n, (phase, role) in enumerate(zip(PHASES, ROLES, strict=True), 1):
        cost = 4.0 / 2 ** (n - 1)
        by_constraint = {
            "episodes_over": int(cost > 3.0),
            "mean_cost": cost,
            "max_cost": cost + 1.0,
            "predicted_cost": None if n == 1 else 2.0,
            "predicted_pessimistic_cost": None if n == 1 else 2.5,
            "predicted_return": None,
            "planner_budget": None,
        }
        epochs.append(
            {
                "epoch": n,
                "phase": phase,
                "role": role,
                "steps": 100 * n,
                "updates": n,
                "episodes": 2,
                "mean_return": float(n),
                **{name: {"cost": value} for name, value in by_constraint.items()},
                "num_decisions": 50,
                "num_fallbacks": 0,
                "num_uncertified": None,
                "inner_cost": None,
                "multiplier": None,
                "evaluation": {},
            }
        )
    found = {"return": 5.0, "costs": {"cost": 0.5}, "episodes": 2, "goals": None, "over": 0}
    epochs[2]["evaluation"] = {"reach": {**found, "fallbacks": 0, "uncertified": None}}
    heading = {"algorithm": "actsafe", "env": "somewhere", "task": "reach", "agent": "rssm", "seed": 0, "settings": {}}
    timing = {"steps": 300, "seconds": 1.0, "wall_seconds": None}
    return {**heading, **timing, "budgets": {"cost": 3.0}, "epochs": epochs}


def line(axes, label):
    return next(each for each in axes.get_lines() if each.get_label() == label)


def test_curves_are_the_means_over_runs(run):
    other = copy.deepcopy(run) | {"seed": 1}
    for epoch in other["epochs"]:
        epoch["mean_return"] += 2.0
    returns, costs, so_far, _ = summary([run, other]).axes
    drawn = line(returns, "ActSafe, in training")
    np.testing.assert_array_equal(drawn.get_xdata(), [100, 200, 300])
    np.testing.assert_array_equal(drawn.get_ydata(), [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(line(costs, "ActSafe").get_ydata(), [4.0, 2.0, 1.0])
    np.testing.assert_array_equal(line(returns, "ActSafe").get_xdata(), [300])
    np.testing.assert_array_equal(line(returns, "ActSafe").get_ydata(), [5.0])
    np.testing.assert_array_equal(line(costs, "ActSafe, evaluated").get_ydata(), [0.5, 0.5])
    budget = next(each for each in costs.get_lines() if each.get_color() == style.DANGER)
    assert set(budget.get_ydata()) == {3.0}
    # The warm-up is not held against it; two episodes an epoch after that.
    np.testing.assert_array_equal(line(so_far, "ActSafe").get_ydata(), [0.0, 4.0, 6.0])
    np.testing.assert_array_equal(line(so_far, "budget, 3 per episode").get_ydata(), [0.0, 6.0, 12.0])


def test_phases_are_named_where_they_are(run):
    returns = summary([run]).axes[0]
    named = {text.get_text(): text.get_position()[0] for text in returns.texts}
    assert named == {"warm-up": 50.0, "expansion": 150.0, "exploitation": 250.0}


def test_a_phase_too_short_for_its_name_is_in_the_legend(run):
    run["epochs"][2]["steps"] += 9_700
    figure = summary([run])
    assert [text.get_text() for text in figure.axes[0].texts] == ["exploitation"]
    (legend,) = figure.legends
    assert {"warm-up", "expansion"} < {text.get_text() for text in legend.get_texts()}


def test_promises_stand_beside_what_came(run):
    (axes,) = ledger_figure([run]).axes
    np.testing.assert_array_equal(line(axes, "predicted,\npessimistic").get_ydata(), [np.nan, 2.5, 2.5])
    np.testing.assert_array_equal(line(axes, "predicted, mean").get_ydata(), [np.nan, 2.0, 2.0])
    np.testing.assert_array_equal(line(axes, "realised, mean").get_ydata(), [4.0, 2.0, 1.0])
    np.testing.assert_array_equal(line(axes, "realised, worst").get_ydata(), [5.0, 3.0, 2.0])
    assert "unbounded" not in [each.get_label() for each in axes.get_lines()], "nothing was predicted of random actions"
    names = axes.xaxis.get_major_formatter()
    assert [names(value, 0) for value in (1.0, 3.0, 4.0)] == ["100", "300", ""]


def test_a_results_file_is_drawn_without_its_runs(run, tmp_path):
    path = tmp_path / "results.json"
    short = copy.deepcopy(run) | {"seed": 1, "algorithm": "opax"}
    ahead = copy.deepcopy(run) | {"seed": 2, "algorithm": "opax"}
    del short["epochs"][2:]
    results.merge(path, [run, short, ahead], command="")
    figures = figures_of_results(path)
    assert set(figures) == {"summary", "ledger_actsafe", "ledger_opax"}
    # Seeds are compared as far as both have come.
    np.testing.assert_array_equal(line(figures["summary"].axes[1], "OPAX").get_xdata(), [100, 200])


def test_a_results_file_of_runs_that_have_not_begun_is_refused(run, tmp_path):
    path = tmp_path / "results.json"
    results.merge(path, [{**run, "epochs": []}], command="")
    with pytest.raises(StorageError, match="has no epoch to draw"):
        figures_of_results(path)


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="got no runs"):
        summary([])
