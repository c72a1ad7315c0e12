"""What figures draw is what they were given, and what they write is whole or absent."""

import builtins
import errno
import math
import os
import re
import struct

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest

from actsafe.figures import ledger_figure, phase_plane, save, state_coordinates, style, summary, swing_up_strip
from actsafe.figures.coordinates import break_at_seam, require_view
from actsafe.figures.swing_up import UPRIGHT_COSINE
from actsafe.problems import PROBLEMS, Cartpole, Coordinate, Pendulum, Plane
from actsafe.training.storage import StorageError

PI = math.pi


def pendulum_states(from_hanging, speed):
    """States (cos, sin, speed) of the pendulum, whose angle 0 is upright."""
    theta = np.asarray(from_hanging) + PI
    return np.stack([np.cos(theta), np.sin(theta), np.broadcast_to(speed, theta.shape)], axis=1)


def cartpole_states(position, angle):
    zero = np.zeros(len(angle))
    return np.stack([np.broadcast_to(position, zero.shape), np.cos(angle), np.sin(angle), zero, zero], axis=1)


BUDGETS = {"pendulum": 0.0, "cartpole": 0.75}


def run(
    algorithm="actsafe",
    problem="pendulum",
    seed=0,
    cost=(0.0, 0.0, 0.0),
    returns=(-400.0, -300.0, -200.0),
    goals=1,
    budget=None,
):
    """An entry of a results file with an episode of exploration per epoch, each evaluated where it has a return."""
    epochs = [epoch(n, mean_cost=paid, max_cost=paid) for n, paid in enumerate(cost, start=1)]
    for n, (each, value) in enumerate(zip(epochs, returns, strict=False), start=1):
        if value is not None:
            found = {"return": value, "episodes": 1, "goals": goals if n == len(returns) else 0, "costs": {}}
            each["evaluation"] = {"swing_up": found}
    budget = BUDGETS[problem] if budget is None else float(budget)
    return entry(epochs, algorithm=algorithm, env=problem, seed=seed, budget=budget)


def entry(epochs, *, algorithm="actsafe", env="pendulum", seed=0, budget=0.75):
    heading = {"algorithm": algorithm, "env": env, "task": "swing_up", "agent": "gp", "seed": seed}
    return {**heading, "budgets": {"cost": budget}, "epochs": epochs}


def epoch(n, mean_cost=0.1, max_cost=0.1, predicted=0.5, multiplier=(2.0, 3.0), fallbacks=0, uncertified=0):
    by_constraint = {"episodes_over": 0, "mean_cost": mean_cost, "max_cost": max_cost, "predicted_cost": None}
    by_constraint |= {"predicted_pessimistic_cost": predicted, "predicted_return": None, "planner_budget": None}
    return {
        "epoch": n,
        "phase": "expansion",
        "role": "exploration",
        "steps": 100 * n,
        "episodes": 1,
        "mean_return": 0.0,
        **{name: {"cost": value} for name, value in by_constraint.items()},
        "num_decisions": 10,
        "num_fallbacks": fallbacks,
        "num_uncertified": uncertified,
        "inner_cost": None,
        "multiplier": multiplier if multiplier is None else list(multiplier),
        "evaluation": {},
    }


def reference(value):
    return {"tasks": {"swing_up": {"constrained": {"median_return": value}}}}


def so_far(figure):
    """The panel of the cost so far."""
    return next(axes for axes in figure.axes if axes.get_title(loc="left").startswith("cost so far"))


def lines(axes, label):
    return [line for line in axes.get_lines() if line.get_label() == label]


def texts(axes):
    return [text.get_text() for text in axes.texts]


# Coordinates


@pytest.mark.parametrize("name", [name for name in PROBLEMS if not PROBLEMS[name]().is_summed])
def test_views_agree_with_the_problems(name, key):
    problem = PROBLEMS[name]()
    seen, angle = require_view(problem), require_view(problem).rod[0]
    rest = np.asarray(problem.reset(key))
    assert seen.state_dim == problem.state_dim
    assert seen.plane.decision_seconds == pytest.approx(0.1)
    assert angle.read(rest) == pytest.approx(0.0)
    rng = np.random.default_rng(0)
    states = [problem.project(jnp.asarray(state)) for state in rng.normal(0.0, 4.0, (40, problem.state_dim))]
    slow = [state.at[-1].set(0.0) for state in states]
    is_outside, is_up = seen.is_outside(np.stack(states)), np.cos(angle.read(np.stack(states))) < -UPRIGHT_COSINE
    np.testing.assert_array_equal(is_outside, [float(problem.cost(state)) > 0.0 for state in states])
    np.testing.assert_array_equal(is_up, [bool(problem.is_goal(state)) for state in slow])


def test_a_state_that_is_not_finite_counts_as_outside():
    states = pendulum_states([0.0, 0.1], 1.0)
    states[1, 0] = np.nan
    np.testing.assert_array_equal(require_view(Pendulum()).is_outside(states), [False, True])


def test_lines_break_at_the_seam_and_reach_both_edges():
    # 0.1 before the seam and 0.3 past it: it is crossed after a quarter of the step from 4 to 8, at 5.
    angles, values = break_at_seam(np.array([0.0, PI - 0.1, -PI + 0.3]), np.array([2.0, 4.0, 8.0]))
    np.testing.assert_allclose(angles, [0.0, PI - 0.1, PI, np.nan, -PI, -PI + 0.3])
    np.testing.assert_allclose(values, [2.0, 4.0, 5.0, np.nan, 5.0, 8.0])


def test_several_crossings_and_none():
    there_and_back = np.array([3.0, -3.0, 3.0])
    angles, _ = break_at_seam(there_and_back, np.zeros(3))
    np.testing.assert_allclose(angles, [3.0, PI, np.nan, -PI, -3.0, -PI, np.nan, PI, 3.0])
    angles, values = break_at_seam(np.array([-1.0, 0.0, 1.0]), np.arange(3.0))
    np.testing.assert_array_equal(angles, [-1.0, 0.0, 1.0])
    np.testing.assert_array_equal(values, np.arange(3.0))


# State plane


def test_phase_plane_draws_degrees_from_hanging_without_lines_across():
    turning = np.arange(0.0, 3.5 * PI, 0.5)
    figure = phase_plane(Pendulum(), {"opax": [pendulum_states(turning, 5.0)]}, {"opax": [0.0]})
    (line,) = lines(figure.axes[0], "episode 1")
    x, y = line.get_data()
    assert x[0] == pytest.approx(0.0)
    assert x[1] == pytest.approx(math.degrees(0.5))
    assert np.nanmax(np.abs(np.diff(x))) < 90.0
    assert np.isnan(x).sum() == 2
    assert np.nanmax(np.abs(y - 5.0)) < 1e-12


def test_phase_plane_marks_exactly_the_states_outside():
    speeds = np.array([0.0, 5.9, 6.0, 6.1, -7.0, 3.0])
    trajectories = {
        "actsafe": [pendulum_states(np.zeros(6), 1.0)] * 2,
        "opax": [pendulum_states(np.zeros(6), speeds)] * 2,
    }
    costs = {"actsafe": [0.0, 0.0], "opax": [1.1, 1.1]}
    figure = phase_plane(Pendulum(), trajectories, costs, after=[1, 2])
    num_crosses = [sum(len(line.get_xdata()) for line in lines(axes, "outside the limit")) for axes in figure.axes]
    assert num_crosses == [0, 0, 2, 4]
    said = [next(text for text in texts(axes) if text.startswith("cost")) for axes in figure.axes]
    assert said == ["cost 0", "cost 0, all episodes 0", "cost 1.1", "cost 1.1, all episodes 2.2"]


def test_cartpole_has_its_position_across_and_marks_far_states_at_the_edge():
    states = cartpole_states(np.array([0.0, 0.4, 0.6, 40.0]), np.array([0.0, 0.5, 1.0, 1.5]))
    (axes,) = phase_plane(Cartpole(), {"greedy": [states]}, {"greedy": [39.6]}).axes
    x, y = lines(axes, "episode 1")[0].get_data()
    np.testing.assert_allclose(x, states[:, 0])
    np.testing.assert_allclose(y, np.degrees([0.0, 0.5, 1.0, 1.5]))
    crosses = lines(axes, "outside the limit")[0].get_xdata()
    np.testing.assert_allclose(crosses, [0.6, 0.97 * 1.5])
    assert axes.get_xlim() == (-1.5, 1.5)


def test_older_episodes_are_fainter_and_algorithms_are_in_order():
    episode = pendulum_states(np.linspace(0.0, 1.0, 5), 1.0)
    trajectories = {name: [episode] * 10 for name in ("mine", "opax", "actsafe")}
    figure = phase_plane(Pendulum(), trajectories, {name: [0.0] * 10 for name in trajectories})
    assert [axes.get_title() for axes in figure.axes[:4]] == [f"after episode {n}" for n in (1, 4, 7, 10)]
    assert [axes.get_ylabel() for axes in figure.axes[::4]] == ["ActSafe", "OPAX", "mine"]
    last = figure.axes[3]
    alphas = [lines(last, f"episode {n}")[0].get_alpha() for n in range(1, 11)]
    assert alphas == sorted(alphas) and alphas[-1] == 1.0 and alphas[0] < 0.3


def test_phase_plane_says_when_a_cost_is_not_finite():
    episode = pendulum_states([0.0, 0.1], 1.0)
    episode[1] = np.nan
    (axes,) = phase_plane(Pendulum(), {"opax": [episode]}, {"opax": [math.nan]}, after=[1]).axes
    assert texts(axes) == ["cost unbounded"]


# Summary


def test_summary_draws_numpy_quantiles_of_the_returns():
    returns = np.random.default_rng(0).normal(-250.0, 40.0, (5, 4))
    runs = [run(seed=seed, returns=values, cost=[0.0] * 4) for seed, values in enumerate(returns)]
    figure = summary(runs, reference=reference(-180.0))
    axes = figure.axes[0]
    (line,) = lines(axes, "ActSafe")
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
    np.testing.assert_allclose(line.get_ydata(), np.median(returns, axis=0))
    band = axes.collections[0].get_paths()[0].vertices
    for episode in range(4):
        drawn = band[np.isclose(band[:, 0], episode + 1), 1]
        np.testing.assert_allclose([drawn.min(), drawn.max()], np.quantile(returns[:, episode], [0.25, 0.75]))
    np.testing.assert_array_equal(lines(axes, "planner with the true model")[0].get_ydata(), [-180.0, -180.0])


def test_summary_sums_costs_and_shows_the_worst_seed():
    costs = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [30.0, 5.0, 1.0]])
    runs = [run("opax", seed=seed, cost=values) for seed, values in enumerate(costs)] + [
        run(seed=seed) for seed in range(3)
    ]
    axes = so_far(summary(runs))
    np.testing.assert_allclose(lines(axes, "OPAX")[0].get_ydata(), np.median(np.cumsum(costs, axis=1), axis=0))
    assert axes.collections[1].get_paths()[0].vertices[:, 1].max() == pytest.approx(36.0)
    np.testing.assert_array_equal(lines(axes, "ActSafe")[0].get_ydata(), [0.0, 0.0, 0.0])
    assert axes.get_yscale() == "symlog" and axes.get_ylim()[0] < 0.0
    assert texts(axes) == ["ActSafe: exactly 0"]
    assert not [line for line in axes.get_lines() if str(line.get_label()).startswith("budget")]


def test_summary_draws_a_budget_that_grows_with_the_episodes():
    axes = so_far(summary([run(problem="cartpole", cost=[0.1, 0.2, 0.3])]))
    np.testing.assert_allclose(lines(axes, "budget, 0.75 per episode")[0].get_ydata(), [0.75, 1.5, 2.25])
    assert axes.get_yscale() == "linear"
    assert texts(axes) == []


def test_a_cost_that_is_null_is_unbounded_from_then_on():
    axes = so_far(summary([run("opax", cost=[1.0, None, 2.0])]))
    np.testing.assert_array_equal(lines(axes, "OPAX")[0].get_ydata(), [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(lines(axes, "unbounded")[0].get_xdata(), [2, 3])
    assert texts(axes) == ["unbounded"]


def test_a_return_that_is_null_is_skipped_where_no_seed_has_it_and_else_leaves_a_gap():
    returns = [[None, -300.0, None, -200.0], [None, -310.0, -250.0, -190.0]]
    runs = [run(seed=seed, returns=values, cost=[0.0] * 4) for seed, values in enumerate(returns)]
    x, y = lines(summary(runs).axes[0], "ActSafe")[0].get_data()
    np.testing.assert_array_equal(x, [2, 3, 4])
    np.testing.assert_array_equal(y, [-305.0, np.nan, -195.0])


def test_what_was_not_evaluated_at_the_end_is_taken_from_before():
    runs = [run(returns=[None, -400.0, -200.0, None], cost=[0.0] * 4)]
    runs[0]["epochs"][2]["evaluation"]["swing_up"]["goals"] = 1
    figure = summary(runs, reference=reference(-150.0), with_scatter=True)
    assert figure.legends[0].get_texts()[0].get_text() == "ActSafe\ngoal in 1 of 1"
    np.testing.assert_allclose(lines(figure.axes[3], "ActSafe")[0].get_ydata(), [0.8])


def test_summary_takes_the_budget_of_the_runs_where_they_say_it():
    axes = so_far(summary([run(budget=2)]))
    np.testing.assert_allclose(lines(axes, "budget, 2 per episode")[0].get_ydata(), [2.0, 4.0, 6.0])


def test_summary_counts_endings_at_the_goal_and_scatters_normalised_returns():
    runs = [run(seed=seed, returns=[-400.0, -200.0], cost=[0.0, 0.0], goals=int(seed > 0)) for seed in range(3)]
    figure = summary(runs, reference=reference(-150.0), with_scatter=True)
    explained = [text.get_text() for text in figure.legends[0].get_texts()]
    assert explained == ["ActSafe\ngoal in 2 of 3", "planner with the true model", "budget of cost: 0"]
    # (-200 + 400) / (-150 + 400) = 0.8
    np.testing.assert_allclose(lines(figure.axes[3], "ActSafe")[0].get_ydata(), [0.8, 0.8, 0.8])


# Swing-up


def test_strip_draws_the_unwrapped_angle_against_seconds():
    angles = np.linspace(0.0, 1.5 * PI, 51)
    speeds = np.linspace(0.0, 6.5, 51)
    costs = np.maximum(speeds[1:] - 6.0, 0.0)
    figure = swing_up_strip(Pendulum(), pendulum_states(angles, speeds), costs)
    strip, upper, lower = figure.axes
    seconds, degrees = lines(upper, "angle")[0].get_data()
    np.testing.assert_allclose(seconds, np.arange(51) / 10)
    np.testing.assert_allclose(degrees, np.degrees(angles), atol=1e-9)
    np.testing.assert_allclose(lines(lower, "angular speed")[0].get_ydata(), speeds)
    assert len(lines(lower, "outside the limit")[0].get_xdata()) == np.sum(speeds > 6.0)
    assert len(lines(strip, "base")) == 11
    assert figure.texts[0].get_text() == f"Pendulum: does not end upright, cost {costs.sum():.2g} (budget 0)"


def test_strip_of_an_upright_cartpole():
    states = cartpole_states(np.linspace(0.0, 0.4, 21), np.linspace(0.0, PI, 21))
    figure = swing_up_strip(Cartpole(), states, np.zeros(20))
    assert figure.texts[0].get_text() == "Cartpole: ends upright, cost 0 (budget 0.75)"
    assert lines(figure.axes[2], "cart position")[0].get_ydata()[-1] == pytest.approx(0.4)


# Ledger


def test_ledger_pairs_promise_and_reality_and_shares_of_decisions():
    runs = [
        entry(
            [epoch(n, 0.1 * n, 0.1 * n, fallbacks=n, uncertified=s, multiplier=[n + s, 2.0]) for n in (1, 2)],
            seed=s,
        )
        for s in (0, 1)
    ]
    costs, shares, multipliers = ledger_figure(runs, coordinate_names=["cos", "sin"]).axes
    np.testing.assert_allclose(lines(costs, "predicted,\npessimistic")[0].get_ydata(), [0.5] * 4)
    np.testing.assert_allclose(lines(costs, "realised, mean")[0].get_ydata(), [0.1, 0.2, 0.1, 0.2])
    assert costs.get_title(loc="left") == "cost of an episode (budget 0.75)"
    fallbacks, uncertified = shares.containers
    # Of 20 decisions of both seeds together: 1 + 1, 2 + 2; 0 + 1 in either epoch.
    assert [bar.get_height() for bar in fallbacks] == [0.1, 0.2]
    assert [bar.get_height() for bar in uncertified] == [0.05, 0.05]
    np.testing.assert_allclose(lines(multipliers, "cos")[0].get_ydata(), [1.5, 2.5])
    assert lines(costs, "unbounded") == lines(multipliers, "unbounded") == []


def acted(each, candidate, certified, seed, taken=0):
    begun = {"num_by_candidate": candidate, "num_by_certified": certified, "num_by_seed_policy": seed}
    fallbacks = {"num_taken_over": taken, "fallback_episodes": seed + taken}
    return {**each, **begun, **fallbacks, "episodes": candidate + certified + seed}


def test_ledger_of_a_safe_set_says_who_began_episodes():
    """Of two seeds in the second and third epoch: of 8 episodes 1, 3 and 4, and 2, 4 and 2; one of 8 was taken over."""
    first = epoch(1, predicted=None, multiplier=None, uncertified=10)
    more = [epoch(n, multiplier=None) for n in (2, 3)]
    counts = ([(1, 1, 2), (1, 2, 1, 1)], [(0, 2, 2), (1, 2, 1)])
    runs = [
        entry([first, *(acted(each, *own) for each, own in zip(more, of_seed, strict=True))], seed=seed)
        for seed, of_seed in enumerate(counts)
    ]
    costs, who = ledger_figure(runs).axes
    shares = {bars.get_label(): [bar.get_height() for bar in bars] for bars in who.containers}
    assert shares == {
        "certified policy": [3 / 8, 4 / 8],
        "candidate": [1 / 8, 2 / 8],
        "seed policy $S_0$": [4 / 8, 2 / 8],
    }
    assert [bar.get_y() for bar in who.containers[2]] == [4 / 8, 6 / 8], "one upon the other"
    (taken,) = lines(who, "taken over")
    assert (list(taken.get_xdata()), list(taken.get_ydata())) == ([3], [1 / 8])
    assert who.get_title(loc="left") == "Who began episodes, 2 seeds together"
    assert lines(costs, "unbounded") == [], "nothing was predicted of random actions, and nothing was to be"


def test_ledger_marks_what_is_not_finite_at_the_top_as_unbounded():
    epochs = [epoch(1, predicted=None, multiplier=[None, 2.0]), epoch(2, None, None), epoch(3)]
    costs, _, multipliers = ledger_figure([entry(epochs, budget=0.0)]).axes
    marks = lines(costs, "unbounded")
    assert [list(mark.get_xdata()) for mark in marks] == [[1], [2]]
    assert all(mark.get_transform() == costs.get_xaxis_transform() for mark in marks)
    assert texts(costs) == ["unbounded"] == texts(multipliers)
    assert len(lines(multipliers, "unbounded")) == 1


def test_ledger_of_nulls_only_can_be_drawn(tmp_path):
    nothing = epoch(1, None, None, predicted=None, multiplier=[None])
    save(ledger_figure([entry([nothing], budget=0.0)]), tmp_path / "null.png")


def test_ledger_has_a_panel_and_a_budget_for_every_constraint():
    found = entry([epoch(1), epoch(2)])
    for each in found["epochs"]:
        for name, value in each.items():
            if isinstance(value, dict) and "cost" in value:
                each[name] = {"speed": value["cost"], "obstacle": value["cost"]}
    found["budgets"] = {"speed": 5.0, "obstacle": 20.0}
    speed, obstacle, *_ = ledger_figure([found]).axes
    assert [axes.get_title(loc="left") for axes in (speed, obstacle)] == [
        "speed of an episode (budget 5)",
        "obstacle of an episode (budget 20)",
    ]
    explained = [text.get_text() for text in summary([found]).legends[0].get_texts()]
    budgets = [text for text in explained if text.startswith("budget")]
    assert budgets == ["budget of speed: 5", "budget of obstacle: 20"]


# Problems of one's own


class Walker(Pendulum):
    """A pendulum that says nothing of how it is drawn."""

    plane = None


class Reacher(Pendulum):
    """A plane without an angle, and a limit along x alone."""

    @property
    def plane(self):
        x = Coordinate("x (m)", lambda states: states[..., 0], reach=1.0, limit=0.5)
        y = Coordinate("y (m)", lambda states: states[..., 1], reach=2.0)
        return Plane(x, y, lambda x, y: np.stack([x, y, np.zeros_like(x)], axis=-1))


def test_a_plane_of_places_is_drawn_as_it_is():
    states = np.array([[0.0, 0.0, 9.0], [0.4, 1.0, 9.0], [0.6, -1.5, 9.0]])
    (axes,) = phase_plane(Reacher(), {"opax": [states]}, {"opax": [1.0]}).axes
    x, y = lines(axes, "episode 1")[0].get_data()
    np.testing.assert_array_equal(x, [0.0, 0.4, 0.6])
    np.testing.assert_array_equal(y, [0.0, 1.0, -1.5])
    np.testing.assert_array_equal(lines(axes, "outside the limit")[0].get_xdata(), [0.6])
    assert (axes.get_xlabel(), axes.get_xlim(), axes.get_ylim()) == ("x (m)", (-1.0, 1.0), (-2.0, 2.0))


def test_what_stays_where_it_began_says_so():
    still, moving = np.zeros((3, 3)), np.array([[0.0, 0.0, 0.0], [0.4, 1.0, 0.0]])
    first, second = phase_plane(Reacher(), {"opax": [still, moving]}, {"opax": [0.0, 0.0]}).axes
    assert "stays at rest" in texts(first)
    assert "stays at rest" not in texts(second)


def test_coordinates_are_drawn_where_no_plane_is_declared():
    earlier, last = np.arange(12.0).reshape(4, 3), np.ones((4, 3))
    figure = state_coordinates(["a", "b", "c"], {"actsafe": [earlier, last]})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b", "c"]
    for place, axes in enumerate(figure.axes):
        faint, bold = axes.get_lines()
        np.testing.assert_array_equal(faint.get_ydata(), earlier[:, place])
        np.testing.assert_array_equal(bold.get_ydata(), last[:, place])


def test_figures_show_themselves_in_notebooks():
    assert style.blank(2.0)._repr_png_().startswith(b"\x89PNG")


# Looks and errors


def test_unknown_algorithms_are_grey_under_their_own_name():
    assert style.look("my_method") == style.Look("my method", style.GREY)
    assert len({colour for colour, _ in style.LOOKS.values()} | {style.DANGER, style.GREY}) == len(style.LOOKS) + 2
    figure = summary([run("my_method")])
    assert lines(figure.axes[0], "my method")[0].get_color() == style.GREY


EPISODE = pendulum_states([0.0, 0.1], 1.0)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: phase_plane(Pendulum(), {}, {}), "got no trajectories; expected at least one algorithm: record"),
        (lambda: phase_plane(Pendulum(), {"opax": []}, {"opax": []}), "opax has 0 trajectories and 0 costs; expected"),
        (lambda: phase_plane(Pendulum(), {"opax": [EPISODE]}, {}), "opax has 1 trajectories and 0 costs; expected"),
        (lambda: phase_plane(Cartpole(), {"opax": [EPISODE]}, {"opax": [0.0]}), "shape (2, 3); expected [T+1, 5]"),
        (lambda: phase_plane(Pendulum(), {"a": [EPISODE]}, {"a": [0.0]}, after=[2]), "after=[2] asks for episodes"),
        (lambda: phase_plane(Pendulum(), {"a": [EPISODE]}, {"a": [0.0]}, after=[]), "after=[] asks for episodes"),
        (
            lambda: phase_plane(Walker(), {"a": [EPISODE]}, {"a": [0.0]}),
            "pendulum declares no plane to draw its states",
        ),
        (lambda: state_coordinates(["a"], {"opax": []}), "got no trajectories; expected at least one episode"),
        (lambda: summary([]), "got no runs; expected at least one: train a run first"),
        (
            lambda: summary([run(), run(problem="cartpole")]),
            "got runs of cartpole (swing_up) and pendulum (swing_up); expected one environment and task",
        ),
        (
            lambda: summary([run(cost=[])]),
            "for these numbers of epochs, by seed: {0: 0}",
        ),
        (lambda: summary([run(), run(seed=1, cost=[0.0])]), "by seed: {0: 3, 1: 1}; expected the same"),
        (lambda: summary([run()], with_scatter=True), "reference return of None for swing_up"),
        (
            lambda: summary([run()], reference=reference(-500.0), with_scatter=True),
            "expected the reference to be",
        ),
        (lambda: swing_up_strip(Pendulum(), np.zeros((0, 3)), []), "shape (0, 3); expected [T+1, 3]"),
        (
            lambda: swing_up_strip(Pendulum(), EPISODE, [0.0, 0.0]),
            "got 2 costs for 2 states; expected one per decision, 1",
        ),
        (
            lambda: swing_up_strip(Pendulum(), EPISODE * np.nan, [0.0]),
            "state 0 of the episode is [nan nan nan]; expected",
        ),
        (
            lambda: swing_up_strip(Walker(), EPISODE, [0.0]),
            "declares no plane to draw its states in; expected Problem.plane to give one",
        ),
        (lambda: ledger_figure([]), "got no epochs to draw; expected at least one: train a run first"),
        (
            lambda: ledger_figure([entry([epoch(1)])], coordinate_names=["cos"]),
            "got 1 coordinate names and confidence multipliers of [2]",
        ),
    ],
)
def test_errors_say_what_was_got_and_expected(draw, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw()


# Saving


@pytest.fixture
def figure():
    return style.blank(4.0)


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"
    return struct.unpack(">II", data[16:24])


def test_saving_makes_a_png_of_the_promised_size_and_only_that(figure, tmp_path):
    path = save(figure, tmp_path / "deep" / "down" / "summary")
    assert path == tmp_path / "deep" / "down" / "summary.png"
    assert png_size(path) == (1600, 800)
    assert os.listdir(path.parent) == ["summary.png"]
    assert path.stat().st_mode & 0o444 == 0o444 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")])
def test_the_suffix_chooses_the_format(figure, tmp_path, suffix, start):
    assert save(figure, tmp_path / f"figure{suffix}").read_bytes().startswith(start)


def test_an_unknown_suffix_is_refused_before_anything_is_made(figure, tmp_path):
    with pytest.raises(ValueError, match=re.escape("'a.bmp'; expected the ending .png, .svg, .pdf: rename it")):
        save(figure, tmp_path / "new" / "a.bmp")
    assert os.listdir(tmp_path) == []


def disk_full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stage", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(figure, tmp_path, monkeypatch, stage):
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, stage, disk_full)
    with pytest.raises(StorageError, match="the disk is full"):
        save(figure, path)
    with pytest.raises(StorageError, match="the disk is full"):
        save(figure, tmp_path / "new" / "folder" / "figure.png")
    assert os.listdir(tmp_path) == ["figure.png"]
    assert path.read_bytes() == b"old"


def test_a_folder_that_cannot_be_written_to_is_left_as_it_was(figure, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        save(figure, tmp_path / "new" / "figure.png")
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_place_of_the_folder_stays(figure, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(StorageError, match="could not be written"):
        save(figure, tmp_path / "taken" / "figure.png")
    assert (tmp_path / "taken").read_text() == "mine"


def test_figures_leave_the_global_look_alone(tmp_path):
    before = dict(mpl.rcParams)
    save(phase_plane(Pendulum(), {"opax": [EPISODE]}, {"opax": [0.0]}), tmp_path / "a.png")
    save(swing_up_strip(Pendulum(), EPISODE, [0.0]), tmp_path / "b.png")
    assert dict(mpl.rcParams) == before
    assert png_size(tmp_path / "b.png") == (1600, 1000)
