"""iCEM against steps worked by hand, and what a search must find."""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actsafe.planning import icem
from actsafe.planning.icem import Evaluation, ICEMSettings, Memory, Plan, search, shift

SMALL = ICEMSettings(horizon=3, num_candidates=12, num_elites=3, num_iterations=2)


def memory_of(best, elites=()):
    """A memory whose plans are given as nested lists of one-dimensional actions."""
    best = jnp.asarray(best, float)[:, None]
    return Memory(best, jnp.asarray(elites, float).reshape(len(elites), *best.shape))


class Task(NamedTuple):
    """One plan is worth and costs one thing, all others another, less `curvature` times their squared distance."""

    target: Plan
    value: float = 1.0
    cost: float = 0.0
    other_value: float = 0.0
    other_cost: float = 1.0
    curvature: float = 0.0

    def __call__(self, plans):
        is_target = jnp.all(plans == self.target[None], axis=(1, 2))
        other = self.other_value - self.curvature * jnp.sum((plans - self.target[None]) ** 2, axis=(1, 2))
        return Evaluation(jnp.where(is_target, self.value, other), jnp.where(is_target, self.cost, self.other_cost))


@functools.cache
def finder(settings):
    """The compiled search for tasks, which are data: one compilation serves them all."""
    return jax.jit(lambda task, memory, key: search(task, memory, key, settings))


def ask(answers, memory, key, settings, **options):
    """(found, what was asked) of a compiled search that is given the prepared rows as answers, one per iteration."""

    def run(answers, memory, key):
        asked = []

        def evaluate(plans):
            asked.append(plans)
            return answers[len(asked) - 1]

        return search(evaluate, memory, key, settings, **options), asked

    found, asked = jax.jit(run)([Evaluation(*map(jnp.asarray, rows)) for rows in answers], memory, key)
    return found, [np.asarray(plans)[..., 0] for plans in asked]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # 96 / 1.25^i = 96, 76.8, 61.44, 49.152, 39.3216, 31.45728, 25.165824, 20.1326592; never fewer than 2 * 12.
        ({"num_candidates": 96, "num_elites": 12}, [96, 76, 61, 49, 39, 31, 25, 24, 24]),
        # The published defaults: 40 / 1.25^i = 40, 32, 25.6, 20.48, 16.384; never fewer than 2 * 10.
        ({"num_candidates": 40, "num_elites": 10}, [40, 32, 25, 20, 20]),
        ({"num_candidates": 40, "num_elites": 10, "population_decay": 1.0}, [40, 40, 40]),
        # Twice the elites would be more than the candidates there are.
        ({"num_candidates": 10, "num_elites": 8, "population_decay": 2.0}, [10, 10, 10]),
        ({"num_candidates": 100, "num_elites": 5, "population_decay": 2.0}, [100, 50, 25, 12, 10]),
    ],
    ids=str,
)
def test_population_decays_to_twice_the_elites(options, expected):
    settings = ICEMSettings(**options)
    assert [settings.population(i) for i in range(len(expected))] == expected


@pytest.mark.parametrize(
    ("keep_fraction", "num_elites", "expected"), [(0.3, 10, 3), (0.3, 12, 4), (0.01, 10, 1), (0.0, 10, 0), (1.0, 7, 7)]
)
def test_number_of_kept_elites(keep_fraction, num_elites, expected):
    assert ICEMSettings(keep_fraction=keep_fraction, num_elites=num_elites).num_kept == expected


def test_shift_repeats_the_last_action():
    plan = jnp.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    np.testing.assert_array_equal(shift(plan), [[2.0, 20.0], [3.0, 30.0], [3.0, 30.0]])
    np.testing.assert_array_equal(shift(plan[:1]), plan[:1])


def test_an_empty_memory_is_zero_input():
    memory = Memory.empty(ICEMSettings(horizon=4, num_elites=10, keep_fraction=0.3), 2)
    np.testing.assert_array_equal(memory.best, np.zeros((4, 2)))
    np.testing.assert_array_equal(memory.elites, np.zeros((3, 4, 2)))


# A worked example: two actions ahead, four candidates, two elites, one of them kept, a quarter of the old distribution.
WORKED = ICEMSettings(
    horizon=2,
    num_candidates=4,
    num_elites=2,
    num_iterations=3,
    population_decay=1.0,
    init_std=0.5,
    smoothing=0.25,
    keep_fraction=0.5,
    colour_exponent=0.7,
)
WORKED_MEMORY = memory_of([0.4, 0.2], elites=[[0.9, 0.6]])
NOISE = [
    [[1.0, 0.0], [-1.0, 1.0], [4.0, -4.0], [0.0, 0.4]],
    [[1.0, 1.0], [-1.0, 0.0], [0.0, 2.0], [1.0, -1.0]],
    [[9.0, 9.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]],
]


@pytest.fixture
def known_noise(monkeypatch):
    """Coloured noise from the table above; the list returned tells what was asked for."""
    asked = []

    def prepared(key, num_samples, length, num_channels, exponent):
        asked.append((num_samples, length, num_channels, exponent))
        return jnp.asarray(NOISE[len(asked) - 1])[..., None]

    monkeypatch.setattr(icem, "coloured_noise", prepared)
    return asked


def test_three_iterations_by_hand(known_noise, key):
    """Every number below is worked out from the settings and the noise above."""
    values = [[4.0, 5.0, 1.0, 2.0, 0.0, -1.0, -2.0], [1.0, 2.0, 6.0, 0.0], [3.0, 4.0, 2.0, 1.0]]
    costs = [[0.5, 0.4, 0.3, 0.2, 0.6, 0.7, 0.8], [0.9, 0.1, 0.9, 0.9], [0.3, 0.2, 0.4, 0.5]]
    found, asked = ask(zip(values, costs, strict=True), WORKED_MEMORY, key, WORKED)
    assert known_noise == [(4, 2, 1, 0.7)] * 3

    # Iteration 0. The mean is the old best shifted, (0.2, 0.2), the std 0.5; the third sample, (2.2, -1.8), is clipped.
    first = asked[0]
    np.testing.assert_allclose(first[:4], [[0.7, 0.2], [-0.3, 0.7], [1.0, -1.0], [0.2, 0.4]], rtol=0.0, atol=1e-15)
    # Then the shifted old best, the zero plan, and the old elite shifted, with a fresh end.
    np.testing.assert_allclose(first[4:6], [[0.2, 0.2], [0.0, 0.0]], rtol=0.0, atol=1e-15)
    assert first.shape == (7, 2)
    assert first[6, 0] == 0.6
    assert first[6, 1] not in (0.6, 0.9, 0.2)

    # Elites (-0.3, 0.7) and (0.7, 0.2): mean (0.2, 0.45), std (0.5, 0.25). Smoothed:
    # mean 0.25 (0.2, 0.2) + 0.75 (0.2, 0.45) = (0.2, 0.3875), std 0.25 * 0.5 + 0.75 (0.5, 0.25) = (0.5, 0.3125).
    # Iteration 1. The third sample's end, 0.3875 + 2 * 0.3125 = 1.0125, is clipped.
    expected = [[0.7, 0.7], [-0.3, 0.3875], [0.2, 1.0], [0.7, 0.075]]
    np.testing.assert_allclose(asked[1], expected, rtol=0.0, atol=1e-15)

    # The kept elite (-0.3, 0.7), still worth 5, stands beside these: elites (0.2, 1.0), worth 6, and the kept one:
    # mean (-0.05, 0.85), std (0.25, 0.15). Smoothed: mean 0.25 (0.2, 0.3875) + 0.75 (-0.05, 0.85) = (0.0125, 0.734375),
    # std 0.25 (0.5, 0.3125) + 0.75 (0.25, 0.15) = (0.3125, 0.190625).
    # Iteration 2, the last: the mean itself takes the place of the first sample.
    expected = [[0.0125, 0.734375], [0.325, 0.925], [-0.3, 0.54375], [0.0125, 0.734375]]
    np.testing.assert_allclose(asked[2], expected, rtol=0.0, atol=1e-15)

    # The best was met in iteration 1, at a cost of 0.9; the safest in iteration 1 too, at 0.1.
    np.testing.assert_allclose(found.best[:, 0], [0.2, 1.0], rtol=0.0, atol=1e-15)
    assert (found.best_value, found.best_cost) == (6.0, 0.9)
    np.testing.assert_allclose(found.safest[:, 0], [-0.3, 0.3875], rtol=0.0, atol=1e-15)
    assert found.safest_cost == 0.1
    # The elite kept from iteration 1, worth 6, beats the last iteration's and is what the next decision inherits.
    np.testing.assert_allclose(found.memory.elites[..., 0], [[0.2, 1.0]], rtol=0.0, atol=1e-15)
    np.testing.assert_array_equal(found.memory.best, found.best)


def test_the_best_of_the_first_iteration_is_not_forgotten(known_noise, key):
    """Nothing later is worth as much, and without kept elites no later iteration even sees it."""
    values = [[4.0, 5.0, 1.0, 2.0, 0.0, -1.0], [1.0, 2.0, 3.0, 0.0], [3.0, 4.0, 2.0, 1.0]]
    settings = dataclasses.replace(WORKED, keep_fraction=0.0)
    found, asked = ask([(row, [0.0] * len(row)) for row in values], memory_of([0.4, 0.2]), key, settings)
    assert [len(plans) for plans in asked] == [6, 4, 4]
    np.testing.assert_allclose(found.best[:, 0], [-0.3, 0.7], rtol=0.0, atol=1e-15)
    assert found.best_value == 5.0
    # On a tie, here of the costs, the earlier plan stays.
    np.testing.assert_allclose(found.safest[:, 0], [0.7, 0.2], rtol=0.0, atol=1e-15)
    assert found.memory.elites.shape == (0, 2, 1)


def test_every_second_draw_is_steadied(known_noise, key):
    """Here a steady plan is half of what was drawn; the mean and what else is appended are left as they are."""
    settings = dataclasses.replace(WORKED, num_iterations=2)
    values = [[4.0, 5.0, 1.0, 2.0, 0.0, -1.0, -2.0], [1.0, 2.0, 6.0, 0.0]]
    answers = [(row, [0.0] * len(row)) for row in values]
    _, asked = ask(answers, WORKED_MEMORY, key, settings, steady=lambda plan: 0.5 * plan)
    # As in the example above, but for (0.7, 0.2) / 2 and, after the clip, (1, -1) / 2.
    expected = [[0.35, 0.1], [-0.3, 0.7], [0.5, -0.5], [0.2, 0.4], [0.2, 0.2], [0.0, 0.0]]
    np.testing.assert_allclose(asked[0][:6], expected, rtol=0.0, atol=1e-15)
    assert asked[0][6, 0] == 0.6
    # Elites (-0.3, 0.7), (0.35, 0.1): mean (0.025, 0.4), std (0.325, 0.3); smoothed (0.06875, 0.35), (0.36875, 0.35).
    # The last iteration's first draw is the mean; its third, (0.06875, 0.35 + 0.7 > 1), is halved.
    expected = [[0.06875, 0.35], [-0.3, 0.35], [0.034375, 0.5], [0.4375, 0.0]]
    np.testing.assert_allclose(asked[1], expected, rtol=0.0, atol=1e-15)


def test_what_cannot_be_steadied_stays_as_drawn(known_noise, key):
    """Where steadying one plan ends in something that is not a number, that plan alone is left as it was drawn."""
    settings = dataclasses.replace(WORKED, num_iterations=1)

    def steady(plan):
        return jnp.where(plan[0] > 0.9, jnp.nan, 0.5 * plan)

    # In the only iteration, which is also the last, the mean (0.2, 0.2) takes the place of the first draw.
    _, asked = ask([([0.0] * 7, [0.0] * 7)], WORKED_MEMORY, key, settings, steady=steady)
    expected = [[0.2, 0.2], [-0.3, 0.7], [1.0, -1.0], [0.2, 0.4]]
    np.testing.assert_allclose(asked[0][:4], expected, rtol=0.0, atol=1e-15)


def test_the_first_draws_come_in_several_sizes(known_noise, key):
    """Factors from 1 down to 1/8, each half of the one before, on the noise of the first iteration alone."""
    settings = dataclasses.replace(WORKED, num_iterations=2, amplitude_floor=0.125)
    values = [[0.0, 0.0, 0.0, 0.0, 5.0, 4.0, 0.0], [0.0] * 4]
    _, asked = ask([(row, [0.0] * len(row)) for row in values], WORKED_MEMORY, key, settings)
    # Of (0.5, 0), (-0.5, 0.5), (2, -2) and (0, 0.2) around (0.2, 0.2): all, half, a quarter and an eighth.
    expected = [[0.7, 0.2], [-0.05, 0.45], [0.7, -0.3], [0.2, 0.225]]
    np.testing.assert_allclose(asked[0][:4], expected, rtol=0.0, atol=1e-15)
    # Elites (0.2, 0.2) and (0, 0): mean (0.1, 0.1), std (0.1, 0.1); smoothed (0.125, 0.125) and (0.2, 0.2).
    np.testing.assert_allclose(asked[1][1], np.clip(0.125 + 0.2 * np.asarray(NOISE[1][1]), -1.0, 1.0), atol=1e-15)


def test_kept_elites_are_not_evaluated_again(key):
    """20 samples, the previous plan, the zero plan and three old elites; then 20/1.25 and 20/1.25^2 samples alone."""
    settings = ICEMSettings(horizon=2, num_candidates=20, num_elites=5, num_iterations=3, keep_fraction=0.6)
    asked = []

    def evaluate(plans):
        asked.append(plans.shape)
        return Evaluation(plans[:, 0, 0], plans[:, 0, 0])

    jax.eval_shape(lambda: search(evaluate, Memory.empty(settings, 1), key, settings))
    assert asked == [(25, 2, 1), (16, 2, 1), (12, 2, 1)]


def test_old_elites_end_in_a_fresh_action(key):
    """N(mean, std) at the last step, clipped: half the draws of these 400 lie below the mean, each its own."""
    settings = ICEMSettings(horizon=2, num_candidates=400, num_elites=400, num_iterations=1, keep_fraction=1.0)
    memory = Memory(jnp.full((2, 1), 0.2), jnp.broadcast_to(jnp.array([[0.9], [0.6]]), (400, 2, 1)))
    _, asked = ask([(np.zeros(802), np.zeros(802))], memory, key, settings)
    first, last = asked[0][-400:].T
    np.testing.assert_array_equal(first, 0.6)
    # Of N(0.2, 0.5) a share Phi(-1.6) = 0.055 is clipped at 1; five standard errors.
    assert abs(np.mean(last < 0.2) - 0.5) < 5 * math.sqrt(0.25 / 400)
    assert abs(np.mean(last == 1.0) - 0.055) < 5 * math.sqrt(0.055 * 0.945 / 400)
    inside = last[np.abs(last) < 1.0]
    assert len(np.unique(inside)) == len(inside)


ZERO = jnp.zeros((3, 1))
SHIFTED = jnp.array([[-0.37], [0.81], [0.81]])
PREVIOUS = memory_of([0.5, -0.37, 0.81], elites=[[0.1, 0.2, 0.3]])
NOWHERE = jnp.array([[math.nan]] * 3)


@pytest.mark.parametrize("target", [ZERO, SHIFTED], ids=["zero plan", "shifted previous plan"])
@pytest.mark.parametrize("other_value", [0.0, math.nan, math.inf, -math.inf, -1e300])
@pytest.mark.parametrize("num_iterations", [1, 2])
def test_the_zero_plan_and_the_shifted_plan_are_candidates(target, other_value, num_iterations, key):
    """An objective that likes one of them alone finds exactly it, even where all others are not numbers."""
    find = finder(dataclasses.replace(SMALL, num_iterations=num_iterations))
    found = find(Task(target, other_value=other_value), PREVIOUS, key)
    np.testing.assert_array_equal(found.best, target)
    np.testing.assert_array_equal(found.safest, target)
    assert (found.best_value, found.best_cost, found.safest_cost) == (1.0, 0.0, 0.0)
    np.testing.assert_array_equal(found.memory.best, target)
    np.testing.assert_array_equal(found.memory.elites[0], target)
    assert np.all(np.isfinite(found.memory.elites))


@pytest.mark.parametrize(
    ("value", "cost"), [(math.nan, 0.0), (math.inf, 0.0), (5.0, math.nan), (5.0, math.inf), (5.0, -math.inf)], ids=str
)
def test_what_is_not_finite_never_wins(value, cost, key):
    """The zero plan alone has a finite value and cost, both the worst there are."""
    found = finder(SMALL)(Task(ZERO, value=-1e9, cost=1e9, other_value=value, other_cost=cost), PREVIOUS, key)
    np.testing.assert_array_equal(found.best, ZERO)
    assert (found.best_value, found.best_cost) == (-1e9, 1e9)
    if not math.isfinite(cost):
        np.testing.assert_array_equal(found.safest, ZERO)
        assert found.safest_cost == 1e9


@pytest.mark.parametrize(
    ("value", "cost"), [(math.nan, math.nan), (math.inf, math.nan), (-math.inf, math.inf), (0.0, math.nan)], ids=str
)
def test_where_nothing_is_finite_the_shifted_plan_comes_back_unrecommended(value, cost, key):
    found = finder(SMALL)(Task(NOWHERE, other_value=value, other_cost=cost), PREVIOUS, key)
    np.testing.assert_array_equal(found.best, SHIFTED)
    np.testing.assert_array_equal(found.safest, SHIFTED)
    assert (found.best_value, found.best_cost, found.safest_cost) == (-math.inf, math.inf, math.inf)
    assert np.all(np.abs(found.memory.elites) <= 1.0)


@functools.cache
def lookup(settings, *compiler_options):
    """A compiled search whose answers are data, and the number of plans that it asks about."""
    counts = [settings.population(i) for i in range(settings.num_iterations)]
    counts[0] += 2 + settings.num_kept

    def run(values, costs, key):
        asked = []

        def evaluate(plans):
            start = sum(len(each) for each in asked)
            asked.append(plans)
            return Evaluation(values[start : start + len(plans)], costs[start : start + len(plans)])

        return search(evaluate, Memory.empty(settings, 1), key, settings), jnp.concatenate(asked)

    return jax.jit(run, compiler_options=dict(compiler_options) or None), sum(counts)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**31 - 1),
    bad_share=st.sampled_from([0.0, 0.5, 0.9]),
)
def test_the_best_and_the_safest_are_those_of_all_that_was_evaluated(compiled_as_in_use, seed, bad_share):
    """By looking through everything the search asked about a random objective, some of it not a number."""
    run, num_asked = lookup(
        ICEMSettings(horizon=2, num_candidates=6, num_elites=2, num_iterations=3, keep_fraction=0.5),
        *(compiled_as_in_use or {}).items(),
    )
    rng = np.random.default_rng(seed)
    values, costs = np.where(rng.uniform(size=(2, num_asked)) < bad_share, math.nan, rng.normal(size=(2, num_asked)))
    found, plans = run(values, costs, jax.random.key(seed))
    assert len(plans) == num_asked
    assert np.all(np.abs(plans) <= 1.0)
    is_fine = np.isfinite(values) & np.isfinite(costs)
    if np.any(is_fine):
        best = np.argmax(np.where(is_fine, values, -math.inf))
        assert (found.best_value, found.best_cost) == (values[best], costs[best])
        np.testing.assert_array_equal(found.best, plans[best])
    if np.any(np.isfinite(costs)):
        safest = np.nanargmin(costs)
        assert found.safest_cost == costs[safest]
        np.testing.assert_array_equal(found.safest, plans[safest])


THOROUGH = ICEMSettings(horizon=3, num_candidates=150, num_elites=10, num_iterations=5, colour_exponent=0.5)


def regret(target, found):
    """How much closer to `target` a plan in the box could be, squared, and the check that the value says so."""
    distance = np.sum((np.asarray(found.best) - target) ** 2)
    np.testing.assert_allclose(found.best_value, -distance, rtol=1e-9)
    return distance - np.sum((np.clip(target, -1.0, 1.0) - target) ** 2)


def test_finds_an_optimum_inside_the_box(key):
    target = np.array([[0.3], [-0.4], [0.7]])
    task = Task(jnp.asarray(target), curvature=1.0)
    found = finder(THOROUGH)(task, Memory.empty(THOROUGH, 1), key)
    assert regret(target, found) < 1e-3


@pytest.mark.parametrize("target", [[[1.7], [-2.0], [0.2]], [[-1.4], [-1.2], [3.0]]], ids=str)
def test_finds_an_optimum_outside_the_box_at_its_edge(target, key):
    found = finder(THOROUGH)(Task(jnp.array(target), curvature=1.0), Memory.empty(THOROUGH, 1), key)
    assert regret(np.array(target), found) < 0.05
    assert np.all(np.abs(found.best) <= 1.0)
    assert np.any(np.abs(found.best) == 1.0)


def test_seeds_are_a_batch_axis(key):
    keys = jax.random.split(key, 3)
    task = Task(ZERO + 0.3, curvature=1.0)
    memories = Memory(jax.random.uniform(key, (3, 3, 1)), jax.random.uniform(key, (3, SMALL.num_kept, 3, 1)))
    together = jax.jit(jax.vmap(lambda m, k: search(task, m, k, SMALL)))(memories, keys)
    for i in range(3):
        alone = finder(SMALL)(task, jax.tree.map(lambda leaf, i=i: leaf[i], memories), keys[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=0.0, atol=1e-12), together, alone)
    assert len(np.unique(together.best_value)) == 3


def test_a_key_fixes_the_outcome(key):
    task = Task(ZERO + 0.3, curvature=1.0)
    once, again, other = (finder(SMALL)(task, PREVIOUS, k) for k in (key, key, jax.random.key(1)))
    jax.tree.map(np.testing.assert_array_equal, once, again)
    assert not np.any(once.best == other.best)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "search.horizon must be at least 1, got 0"),
        ({"num_candidates": 0}, "search.num_candidates must be at least 1, got 0"),
        ({"num_elites": 0}, "search.num_elites must be at least 1, got 0"),
        ({"num_iterations": 0}, "search.num_iterations must be at least 1, got 0"),
        ({"num_elites": 97}, r"search.num_elites \(97\) must not exceed search.num_candidates \(96\)"),
        ({"population_decay": 0.9}, "search.population_decay must be finite and at least 1, got 0.9"),
        ({"population_decay": math.nan}, "search.population_decay must be finite and at least 1, got nan"),
        ({"colour_exponent": math.inf}, "search.colour_exponent must be finite, got inf"),
        ({"amplitude_floor": 0.0}, r"search.amplitude_floor must lie in \(0, 1\], got 0.0"),
        ({"amplitude_floor": math.nan}, r"search.amplitude_floor must lie in \(0, 1\], got nan"),
        ({"smoothing": 1.0}, r"search.smoothing must lie in \[0, 1\), got 1.0"),
        ({"smoothing": -0.1}, r"search.smoothing must lie in \[0, 1\), got -0.1"),
        ({"keep_fraction": 1.1}, r"search.keep_fraction must lie in \[0, 1\], got 1.1"),
        ({"init_std": 0.0}, "search.init_std must be positive, got 0.0"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_named_with_what_was_expected(options, message):
    with pytest.raises(ValueError, match=message):
        ICEMSettings(**options)
