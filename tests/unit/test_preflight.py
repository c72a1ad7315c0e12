"""The check before a plan is executed: what passes, what replaces what does not, and that it fails closed."""

import dataclasses
import math
from typing import ClassVar, NamedTuple
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxtyping import Array

from actsafe.agents import planner as planning_module
from actsafe.agents.base import Decision, Percept
from actsafe.agents.planner import EpisodeMemory, Planner, PlanningSettings
from actsafe.models.base import Model, Prediction
from actsafe.objectives.pessimism import Constraint, Objective
from actsafe.objectives.rewards import TaskReward
from actsafe.planning.icem import Found, ICEMSettings, Memory
from actsafe.problems.base import Problem

HORIZON = 2
SEARCH = ICEMSettings(horizon=HORIZON, num_candidates=8, num_elites=4, num_iterations=1, keep_fraction=0.5)
SETTINGS = PlanningSettings(search=SEARCH, preflight_particles=4, feedback_effort=None)


class Line(Problem):
    """A position that moves by what it is pushed; beyond `limit` it costs, and pushing to the right is paid."""

    name: ClassVar[str] = "line"
    state_names: ClassVar[tuple[str, ...]] = ("position",)
    action_names: ClassVar[tuple[str, ...]] = ("push",)
    state_scale: ClassVar[tuple[float, ...]] = (1.0,)
    change_scale: ClassVar[tuple[float, ...]] = (1.0,)

    budget: Array
    limit: float = 1.0
    num_decisions: int = eqx.field(default=6, static=True)
    action_repeat: int = eqx.field(default=1, static=True)
    process_noise_std: float = eqx.field(default=0.0, static=True)

    def reset(self, key):
        return jnp.zeros(1)

    def simulate(self, state, action):
        return state + action

    def cost(self, state, margin=0.0):
        return jnp.maximum(jnp.abs(state[0]) - (self.limit - margin), 0.0)

    def project(self, state):
        return state

    @property
    def tasks(self):
        return {"right": lambda state, action: action[0]}

    def is_goal(self, state):
        return state[0] > 0.5


class Doubtful(Model):
    """The line's own dynamics, with this much doubt; a push above `largest_known_push` leads nobody knows where."""

    std: Array
    largest_known_push: Array

    def predict(self, state, action):
        unknown = jnp.where(action[0] > self.largest_known_push, jnp.nan, 0.0)
        return Prediction(state + action + unknown, self.std[None], jnp.zeros(1))


STRICT = Constraint(margin=0.0)
LAX = Constraint(penalty=1e-9, margin=0.25)
"""The search hardly minds the cost, so that the check has something to do."""


def make_planner(
    constraint=STRICT, *, budget=0.0, std=0.0, known=9.0, multiplier=1.0, num_particles=3, planning=SETTINGS
):
    problem = Line(jnp.asarray(budget))
    objective = Objective(TaskReward(problem, "right"), num_particles, is_optimistic=True, constraint=constraint)
    model = Doubtful(jnp.asarray(std), jnp.asarray(known))
    return Planner(problem, model, objective, jnp.full((1,), multiplier), planning)


def as_plan(*actions):
    return jnp.asarray(actions, float)[:, None]


def memory_of(last_push):
    """A memory whose plan, shifted, repeats this push."""
    return Memory.empty(SEARCH, 1)._replace(best=as_plan(0.0, last_push))


@eqx.filter_jit
def plan_with(planner, position, memory, spent, key):
    return planner.plan(position[None], memory, spent, key)


@eqx.filter_jit
def check_prepared(planner, found, position, memory, spent):
    """The check of what a search is said to have found."""
    with mock.patch.object(planning_module, "search", lambda *_, **__: found):
        return planner.plan(position[None], memory, spent, jax.random.key(0))[0]


def check(planner, *, best, elites, safest, previous, position=0.0, spent=0.0):
    unknown = jnp.asarray(math.nan)
    memory = Memory(as_plan(*best), jnp.stack([as_plan(*elite) for elite in elites]))
    found = Found(as_plan(*best), unknown, unknown, as_plan(*safest), unknown, memory)
    return check_prepared(planner, found, jnp.asarray(position), memory_of(previous), jnp.asarray(spent))


def nominal_cost(plan, position, *, limit=1.0):
    """What a plan costs if nothing is doubtful: a running sum in NumPy."""
    positions = position + np.cumsum(np.asarray(plan)[:, 0])
    return float(np.sum(np.maximum(np.abs(positions) - limit, 0.0)))


# From 0, with a limit of 1 and no doubt, a plan (a, b) costs max(|a| - 1, 0) + max(|a + b| - 1, 0).
CANDIDATES = {
    "best": (1.0, 0.75),  # 0.75
    "elites": [(1.0, 0.5), (0.5, 0.75)],  # 0.5 and 0.25
    "safest": (0.5, 0.625),  # 0.125
    "previous": 0.53125,  # (0.53125, 0.53125) costs 0.0625
}


@pytest.mark.parametrize(
    ("budget", "executed", "cost"),
    [
        (0.75, (1.0, 0.75), 0.75),
        (0.7, (1.0, 0.5), 0.5),
        (0.4, (0.5, 0.75), 0.25),
        (0.2, (0.5, 0.625), 0.125),
        (0.1, (0.53125, 0.53125), 0.0625),
        (0.0, (0.0, 0.0), 0.0),
    ],
)
def test_the_first_plan_within_the_budget_is_executed(budget, executed, cost):
    """In the order: what the search chose, its elites, the safest it saw, the previous plan, no input."""
    checked = check(make_planner(budget=budget), **CANDIDATES)
    np.testing.assert_array_equal(checked.plan[:, 0], executed)
    assert checked.pessimistic_cost == cost
    assert bool(checked.is_fallback) == (executed != CANDIDATES["best"])
    assert bool(checked.is_certified)


@pytest.mark.parametrize(
    ("spent", "executed", "is_certified"),
    [
        (0.0, (1.0, 0.75), True),
        (0.25, (1.0, 0.5), True),
        (0.5, (0.5, 0.75), True),
        (0.75, (0.0, 0.0), True),
        # Over the budget already: nothing can be certified, and what costs least is done.
        (1.0, (0.0, 0.0), False),
        (math.inf, (0.0, 0.0), False),
        (math.nan, (0.0, 0.0), False),
    ],
)
def test_what_was_spent_is_not_there_any_more(spent, executed, is_certified):
    """Of a budget of 0.75."""
    checked = check(make_planner(budget=0.75), **CANDIDATES, spent=spent)
    np.testing.assert_array_equal(checked.plan[:, 0], executed)
    assert bool(checked.is_certified) == is_certified


def test_the_margin_tightens_the_check():
    """With a limit of 0.75 the costs are 0.25 + 1 = 1.25, 0.25 + 0.75 = 1, 0.5, 0.375, 0.3125 and 0."""
    checked = check(make_planner(LAX, budget=0.5), **CANDIDATES)
    np.testing.assert_array_equal(checked.plan[:, 0], (0.5, 0.75))
    assert checked.pessimistic_cost == 0.5


def test_where_nothing_is_within_the_budget_the_cheapest_is_executed():
    """From 1.5, in order: 0.25 + 0.125, 0.25 + 0, 0.125 + 0.1875, 0.5 + 0.625; staying costs 0.5 + 0.5."""
    candidates = {"best": (-0.25, -0.125), "elites": [(-0.25, -0.25), (-0.375, 0.0625)], "safest": (0.0, 0.125)}
    checked = check(make_planner(), **candidates, previous=0.0, position=1.5)
    np.testing.assert_array_equal(checked.plan[:, 0], (-0.25, -0.25))
    assert checked.pessimistic_cost == 0.25
    assert bool(checked.is_fallback)
    assert not bool(checked.is_certified)
    # The search's own choice is no fallback, but no more certified for that: from 1.53125 it costs 0.03125 + 0.
    candidates["best"] = (-0.5, -0.125)
    checked = check(make_planner(), **candidates, previous=0.0, position=1.53125)
    np.testing.assert_array_equal(checked.plan[:, 0], (-0.5, -0.125))
    assert checked.pessimistic_cost == 0.03125
    assert not bool(checked.is_fallback)
    assert not bool(checked.is_certified)


@pytest.mark.parametrize("budget", [0.0, 0.3, 10.0])
def test_without_a_constraint_there_is_no_fallback(budget):
    checked = check(make_planner(None, budget=budget), **CANDIDATES)
    np.testing.assert_array_equal(checked.plan[:, 0], CANDIDATES["best"])
    assert not bool(checked.is_fallback)
    assert bool(checked.is_certified) == (budget == 10.0), "the record still tells whether it was within the budget"
    unknown = check(make_planner(None, budget=budget, known=0.0), **CANDIDATES)
    np.testing.assert_array_equal(unknown.plan[:, 0], CANDIDATES["best"])
    assert not bool(unknown.is_certified)
    assert unknown.pessimistic_cost == math.inf


def test_a_cost_that_is_not_a_number_does_not_pass():
    """Pushes above 0.6 lead nobody knows where: of plans all within the budget the first that is known is executed."""
    checked = check(make_planner(budget=100.0, known=0.6), **CANDIDATES)
    np.testing.assert_array_equal(checked.plan[:, 0], (0.53125, 0.53125))
    assert bool(checked.is_fallback)
    assert bool(checked.is_certified)
    # Nor is it the cheapest where nothing is within the budget: from 2 doing nothing costs 2, which is known.
    checked = check(make_planner(known=0.1), **CANDIDATES, position=2.0)
    np.testing.assert_array_equal(checked.plan[:, 0], (0.0, 0.0))
    assert checked.pessimistic_cost == 2.0
    assert not bool(checked.is_certified)


@pytest.mark.parametrize("options", [{"known": -9.0}, {"std": math.nan}, {"std": math.inf}, {"multiplier": math.inf}])
def test_where_nothing_is_known_nothing_is_certified(options):
    """An infinite multiplier, too, says that nothing is known, even to a model that has hardly a doubt."""
    checked = check(make_planner(budget=100.0, **{"std": 1e-6, **options}), **CANDIDATES)
    assert not bool(checked.is_certified)
    assert checked.pessimistic_cost == math.inf
    np.testing.assert_array_equal(checked.plan[:, 0], (0.0, 0.0), err_msg="S_0 is what is left")
    assert bool(checked.is_fallback)


def test_an_infinite_budget_does_not_certify_the_unknown():
    checked = check(make_planner(budget=math.inf, known=-9.0), **CANDIDATES)
    assert checked.pessimistic_cost == math.inf
    assert not bool(checked.is_certified)


def test_doubt_makes_a_plan_cost_more():
    """The check's particles spread by the multiplier times the doubt; the mean model has one particle and none."""
    free = {"best": (0.9, 0.0), "elites": [(0.0, 0.0)] * 2, "safest": (0.0, 0.0), "previous": 0.0}
    sure = check(make_planner(std=0.0), **free)
    assert (sure.pessimistic_cost, bool(sure.is_fallback)) == (0.0, False)
    doubtful = check(make_planner(budget=100.0, std=0.4), **free)
    more_so = check(make_planner(budget=100.0, std=0.4, multiplier=3.0), **free)
    assert 0.0 < doubtful.pessimistic_cost < more_so.pessimistic_cost
    assert bool(check(make_planner(std=0.4), **free).is_fallback)
    mean = check(make_planner(std=0.4, num_particles=1), **free)
    assert (mean.pessimistic_cost, bool(mean.is_fallback)) == (0.0, False)


def test_the_check_has_particles_of_its_own():
    """As many as the settings say, whatever the search used: their maximum grows with their number."""
    free = {"best": (0.9, 0.0), "elites": [(0.0, 0.0)] * 2, "safest": (0.0, 0.0), "previous": 0.0}
    many = dataclasses.replace(SETTINGS, preflight_particles=500)
    few_cost, many_cost = (
        check(make_planner(budget=100.0, std=0.5, planning=planning), **free).pessimistic_cost
        for planning in (SETTINGS, many)
    )
    # Of 500 particles the luckiest at one step is about 3 sigma out: 0.9 + 1.5 - 1 for that step alone.
    assert many_cost > 1.4 > few_cost > 0.0


def test_feedback_makes_a_plan_cost_less():
    """Over eight steps particles that may answer to their deviation spread less than those that may not."""
    search, still = dataclasses.replace(SEARCH, horizon=8), jnp.zeros((8, 1))
    unknown, memory = jnp.asarray(math.nan), Memory(still, still[None])
    costs = []
    for effort in (None, 0.1):
        planning = PlanningSettings(search=search, preflight_particles=32, feedback_effort=effort)
        planner = make_planner(budget=100.0, std=0.4, planning=planning)
        found = Found(still, unknown, unknown, still, unknown, memory)
        costs.append(check_prepared(planner, found, jnp.zeros(()), memory, jnp.zeros(())).pessimistic_cost)
    assert 0.0 < costs[1] < 0.5 * costs[0]


def test_in_open_loop_there_is_nothing_to_steady():
    def search(*_, steady):
        assert steady is None
        still = jnp.zeros((HORIZON, 1))
        return Found(still, *[jnp.zeros(())] * 2, still, jnp.zeros(()), Memory(still, still[None]))

    with mock.patch.object(planning_module, "search", search):
        make_planner().plan(jnp.zeros(1), memory_of(0.25), jnp.zeros(()), jax.random.key(0))


def test_the_search_is_told_how_to_steady_a_plan():
    """By the feedback that holds the previous plan, (0.25, 0.25): it stays as it is, others are pulled towards it."""
    planner = make_planner(planning=dataclasses.replace(SETTINGS, feedback_effort=0.5))
    previous, other = as_plan(0.25, 0.25), as_plan(-0.5, 0.25)

    def steadied(planner):
        asked = []

        def search(*_, steady):
            asked.extend([steady(previous), steady(other)])
            return Found(previous, *[jnp.zeros(())] * 2, previous, jnp.zeros(()), Memory(previous, previous[None]))

        with mock.patch.object(planning_module, "search", search):
            planner.plan(jnp.zeros(1), memory_of(0.25), jnp.zeros(()), jax.random.key(0))
        return asked

    kept, pulled = eqx.filter_jit(steadied)(planner)
    np.testing.assert_allclose(kept, previous, rtol=0.0, atol=1e-12)
    # One step from the end, with s' = s + u and prices 1 and 0.5, the gain is -1 / (0.5 + 1) = -2/3. The first push
    # leaves the state 0.75 behind: 0.25 + 2/3 * 0.75 = 0.75.
    np.testing.assert_allclose(pulled[:, 0], (-0.5, 0.75), rtol=0.0, atol=1e-12)


@settings(max_examples=80)
@given(
    budget=st.floats(0.0, 3.0),
    spent=st.floats(0.0, 4.0),
    position=st.floats(-2.0, 2.0),
    std=st.sampled_from([0.0, 0.0, 0.05, 0.5, math.nan]),
    known=st.sampled_from([9.0, 0.3, 0.0]),
    multiplier=st.sampled_from([0.0, 1.0, 3.0, math.inf]),
    last_push=st.floats(-1.0, 1.0),
    seed=st.integers(0, 2**31 - 1),
)
@example(budget=0.0, spent=0.0, position=0.7, std=0.0, known=9.0, multiplier=1.0, last_push=0.0, seed=0)
def test_no_certified_plan_costs_more_than_the_budget(budget, spent, position, std, known, multiplier, last_push, seed):
    """With the real search, against the running sum in NumPy: the mean is one of the particles of the maximum."""
    planner = make_planner(LAX, budget=budget, std=std, known=known, multiplier=multiplier)
    checked, found = plan_with(
        planner, jnp.asarray(position), memory_of(last_push), jnp.asarray(spent), jax.random.key(seed)
    )
    plan, left = np.asarray(checked.plan), budget - spent
    limit = 1.0 - LAX.margin
    nominal = nominal_cost(plan, position, limit=limit)
    assert np.all(np.abs(plan) <= 1.0)
    if bool(checked.is_certified):
        assert float(checked.pessimistic_cost) <= left
        assert nominal <= left + 1e-9
        assert np.all(plan <= known)
    is_sure = std == 0.0 and multiplier < math.inf
    if np.isfinite(checked.pessimistic_cost):
        assert float(checked.pessimistic_cost) >= nominal - 1e-9
        if is_sure:
            np.testing.assert_allclose(checked.pessimistic_cost, nominal, rtol=0.0, atol=1e-9)
    if not bool(checked.is_fallback):
        np.testing.assert_array_equal(plan, found.best)
    if is_sure and not bool(checked.is_certified):
        # Then doing nothing was not within the budget either, nor cheaper than what is done.
        assert nominal_cost(np.zeros((HORIZON, 1)), position, limit=limit) >= max(left, nominal) - 1e-9


class Played(NamedTuple):
    """A decision of an episode and what it led to."""

    state: Array
    action: Array
    next_state: Array
    cost: Array
    decision: Decision


def percept(cost, *, is_first):
    """What one environment brings to a decision."""
    return Percept(jnp.zeros(1), jnp.asarray(cost).reshape(1, 1), jnp.asarray(is_first).reshape(1))


def play(planner, key, num_decisions):
    """An episode on the line, step by step, and the cost that the planner says was spent before the last of them."""

    def advance(under_way, number):
        state, cost, memory = under_way
        decision, memory = planner.act(memory, state[None], percept(cost, is_first=number == 0))
        action = decision.action[0]
        step = planner.problem.step(state, action, jax.random.key(0))
        played = Played(state, action, step.state, step.cost, jax.tree.map(lambda leaf: leaf[0], decision))
        return (step.state, step.cost, memory), played

    begun = planner.problem.reset(key), jnp.zeros(()), planner.begin(1, key)
    (_, _, memory), played = jax.lax.scan(advance, begun, jnp.arange(num_decisions))
    return played, memory.spent[0]


def test_an_episode_of_certified_decisions_keeps_its_budget():
    """The model is right, so that a certified decision never brings the cost so far above the budget."""
    planner = make_planner(LAX, budget=0.5)
    advance = eqx.filter_jit(lambda planner, key: play(planner, key, 6))
    num_fallbacks = 0
    for seed in range(5):
        played, known = advance(planner, jax.random.key(seed))
        spent, said = np.cumsum(played.cost), played.decision
        np.testing.assert_allclose(known, spent[-2], rtol=1e-12)
        assert np.all(spent[np.asarray(said.is_certified)] <= 0.5 + 1e-12)
        assert np.all(said.predicted_cost[np.asarray(said.is_certified)] <= 0.5 + 1e-12)
        # What the check compared is the cost so far and the plan's, whose first step is part of it.
        assert np.all(said.predicted_cost >= spent - 1e-12)
        np.testing.assert_allclose(played.next_state, played.state + played.action, rtol=0.0, atol=1e-12)
        np.testing.assert_array_equal(played.state[1:], played.next_state[:-1])
        np.testing.assert_array_equal(said.action, played.action)
        num_fallbacks += int(np.sum(said.is_fallback))
    assert num_fallbacks > 0, "a search that does not mind the cost must have been stopped at times"


def test_a_decision_by_hand():
    """With 0.5 of 0.75 spent the elite (0.5, 0.75), at 0.25, replaces the best; its first push is 0.5."""
    planner = make_planner(budget=0.75)
    elites = jnp.stack([as_plan(*elite) for elite in CANDIDATES["elites"]])
    best, value = as_plan(*CANDIDATES["best"]), jnp.asarray(7.0)
    found = Found(best, value, value, as_plan(*CANDIDATES["safest"]), value, Memory(best, elites))

    def decide(planner, found, is_first):
        memory = EpisodeMemory(memory_of(0.0), jnp.asarray(0.25), jax.random.key(0))
        with mock.patch.object(planning_module, "search", lambda *_, **__: found):
            # 0.25 before the last decision, and 0.25 by it.
            by_env = jax.tree.map(lambda leaf: leaf[None], memory)
            return planner.act(by_env, jnp.zeros((1, 1)), percept(0.25, is_first=is_first))

    decision, memory = eqx.filter_jit(decide)(planner, found, jnp.asarray(False))
    np.testing.assert_array_equal(decision.action, [[0.5]])
    assert (decision.predicted_cost[0], decision.value[0]) == (0.75, 7.0)
    assert bool(decision.is_fallback[0])
    assert bool(decision.is_certified[0])
    assert memory.spent[0] == 0.5
    # What was executed, not what the search preferred, is what the next decision starts from.
    np.testing.assert_array_equal(memory.search.best[0, :, 0], (0.5, 0.75))
    np.testing.assert_array_equal(memory.search.elites[0], elites)
    # With the first observation of another episode nothing is spent: the best is within the budget again.
    decision, memory = eqx.filter_jit(decide)(planner, found, jnp.asarray(True))
    np.testing.assert_array_equal(decision.action, [[1.0]])
    assert (decision.predicted_cost[0], memory.spent[0]) == (0.75, 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preflight_particles": 0}, "planning.preflight_particles must be at least 1, got 0"),
        ({"feedback_effort": 0.0}, "planning.feedback_effort must be positive or None, got 0.0"),
        ({"feedback_effort": math.nan}, "planning.feedback_effort must be positive or None, got nan"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named_with_what_was_expected(options, message):
    with pytest.raises(ValueError, match=message):
        PlanningSettings(**options)
