"""The theorem on a few draws, what a run keeps to in every episode, and that all of it can fail."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.theory import idealised
from actsafe.theory.idealised import TheoremSettings, judge, rollout, run
from actsafe.theory.plausible_models import is_empty
from actsafe.theory.small_world import World, WorldSettings
from actsafe.theory.verdict import Tally, bound_on_episodes, sizes

EPISODES = 70
"""Enough for the safe set to contain what is reachable, not for it to be known to epsilon."""
SETTINGS = TheoremSettings(max_episodes=EPISODES, epsilon=0.25)
NUM_DRAWS = 20


@functools.cache
def world():
    return World.create(WorldSettings(most_seed_cost=0.12))


@pytest.fixture(scope="module")
def outcomes():
    """All runs of this file in one program: as the theorem has them, with other multipliers, and with less of D.

    Blind runs do not notice that no model is left.
    """
    kinds = {
        "theorem": (NUM_DRAWS, 1.0, 1.0, False),
        "bold": (1, 1.0, 0.02, False),
        "nearer": (2, 0.25, 1.0, True),
        "nearer and bold": (12, 0.25, 0.02, True),
        "tight": (3, 0.0, 1.0, False),
    }

    known = world()

    def one(key, distance_scale, multiplier_scale, is_blind):
        pairs = zip(known.distances, known.tightened.distances, strict=True)
        distances = tuple(jnp.where(distance_scale > 0.0, distance_scale * far, near) for far, near in pairs)
        nearer = dataclasses.replace(known, distances=distances)
        multiplier = idealised.confidence_multiplier
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(idealised, "is_empty", lambda models: ~is_blind & is_empty(models))
            patch.setattr(idealised, "confidence_multiplier", lambda *a, **b: multiplier_scale * multiplier(*a, **b))
            return run(nearer, SETTINGS, key)

    rows = [row for num, *row in kinds.values() for _ in range(num)]
    keys = [key for num, *_ in kinds.values() for key in jax.random.split(jax.random.key(7), num)]
    columns = [jnp.asarray(column) for column in zip(*rows, strict=True)]
    # Optimised, unlike the other programs of the tests: it runs for long.
    program = jax.jit(jax.vmap(one), compiler_options={"xla_backend_optimization_level": 3})
    everything = program(jnp.stack(keys), *columns)
    ends = np.cumsum([num for num, *_ in kinds.values()])
    return {
        kind: jax.tree.map(lambda leaf, end=end, num=num: leaf[end - num : end], everything)
        for (kind, (num, *_)), end in zip(kinds.items(), ends, strict=True)
    }


@pytest.fixture(scope="module")
def runs(outcomes):
    return outcomes["theorem"]


def test_the_theorem_holds_on_a_few_draws(runs):
    tally = Tally.count(runs, SETTINGS.epsilon)
    assert tally.runs == NUM_DRAWS
    assert tally.violating_runs <= 0.1 * NUM_DRAWS
    assert tally.shrinking_runs == 0
    assert tally.runs_with_seed == NUM_DRAWS
    assert tally.runs_with_reachable_set >= 0.9 * NUM_DRAWS
    assert tally.epsilon_optimal_runs >= 0.9 * NUM_DRAWS


def test_the_statement_is_not_empty(runs):
    """S_0 is a few policies, what is reachable many more, what is safe more still, and not all."""
    found = sizes(runs, world())
    assert found["policies_in_seed"] == 9
    assert found["runs_with_reachable_set_beyond_seed"] >= 0.9 * NUM_DRAWS
    assert found["median_share_reachable"] * found["policies"] > 100
    assert found["median_share_reachable"] < found["median_share_truly_safe"] < 1.0
    assert np.all(jnp.any(runs.truth.most_cost > world().settings.budget, axis=(1, 2)))


def test_pessimism_covers_the_truth_where_the_models_do(runs):
    progress = runs.progress
    assert np.mean(progress.is_calibrated) >= 0.9
    is_covered = jnp.all(progress.bounds.most_cost >= runs.truth.most_cost, axis=(1, 2))
    assert np.all(is_covered | ~progress.is_calibrated)


def test_policies_are_tried_only_once_they_are_known_to_be_safe(runs):
    """The policy of episode n + 1 was in S_n; and the record of who joined when is that of the set."""
    joined = np.asarray(runs.progress.joined)
    np.testing.assert_array_equal(joined >= 0, runs.progress.is_safe)
    for deployed, entry in zip(np.asarray(runs.progress.deployed), joined.reshape(NUM_DRAWS, -1), strict=True):
        tried = deployed[deployed >= 0]
        assert len(tried) == EPISODES
        assert np.all((entry[tried] >= 0) & (entry[tried] <= np.arange(EPISODES)))


def test_a_rollout_follows_the_plan():
    """Policy 2 * 61 + 5 takes actions 2 and 5, then 0; what f does not explain of the states is the noise."""
    truth = world().kernel.draw_function(jax.random.key(1), norm=1.0, num_centres=4, span=1.5)
    inputs, states = rollout(world(), truth, jnp.asarray(2 * 61 + 5), jax.random.key(0))
    actions = world().lattice.actions
    np.testing.assert_allclose(inputs, [actions[2], states[0] + actions[5], states[1]], rtol=1e-12)
    noise = 0.15 * jax.random.normal(jax.random.key(0), (3,))
    np.testing.assert_allclose(states - world().kernel.features(inputs) @ truth, noise, atol=1e-12)


def test_expansion_goes_on_while_the_safe_set_is_not_known(runs):
    widths = jnp.where(runs.progress.is_safe, runs.progress.bounds.width, 0.0)
    assert np.all(jnp.max(widths, axis=(1, 2)) > SETTINGS.epsilon)
    assert not np.any(runs.progress.is_done)


def test_a_multiplier_far_too_small_is_noticed(outcomes):
    """The models contradict each other, none is left, and nothing joins any more."""
    progress = outcomes["bold"].progress
    assert not np.any(progress.is_calibrated)
    assert np.all(jnp.isinf(progress.bounds.most_cost))
    assert not np.any(progress.is_done)


@pytest.mark.parametrize(("kind", "is_safe"), [("nearer", True), ("nearer and bold", False)])
def test_without_pessimism_there_are_violations(outcomes, kind, is_safe):
    """D is nine times what neighbours really differ by, and hides a wrong multiplier. With a quarter of it, still
    enough for neighbours, and blind to contradictions, what keeps the budget is the multiplier alone."""
    tally = Tally.count(outcomes[kind], SETTINGS.epsilon)
    assert (tally.violating_runs == 0) is is_safe
    assert any("breaks the budget" in failure for failure in tally.failures(0.1)) is not is_safe


def test_the_mean_alone_violates_where_the_distance_is_tight(outcomes):
    """D is valid in every run, on which the multiplier alone keeps the budget. The same systems for both."""
    careful = Tally.count(outcomes["tight"], SETTINGS.epsilon)
    keys = jax.random.split(jax.random.key(7), careful.runs)
    settings = TheoremSettings(max_episodes=20, is_mean_trusted=True)
    trusting = Tally.count(jax.jit(jax.vmap(lambda key: run(world().tightened, settings, key)))(keys), settings.epsilon)
    assert careful.runs_with_valid_distance == trusting.runs_with_valid_distance == careful.runs
    assert careful.violating_runs == 0
    assert trusting.violating_runs == careful.runs


def test_what_the_grid_cannot_tell_counts_against_the_algorithm(runs):
    """A true cost that may exceed the budget, or is not a number, is a violation once its policy was tried."""
    progress = jax.tree.map(lambda leaf: leaf[0], runs.progress)
    truth = jax.tree.map(lambda leaf: leaf[0], runs.truth)
    known = world()
    verdict = jax.jit(lambda truth: judge(known, SETTINGS, truth, progress))
    assert not verdict(truth).is_violating
    tried = jnp.unravel_index(progress.deployed[3], truth.most_cost.shape)
    for bad in (0.5001, jnp.nan):
        worse = truth._replace(most_cost=truth.most_cost.at[tried].set(bad))
        assert verdict(worse).is_violating
    best = truth._replace(most_reward=truth.most_reward + 1.0)
    assert verdict(best).reward_gap > SETTINGS.epsilon


def test_failures_are_counted_against_delta():
    good = Tally(100, 10, 0, 100, 90, 90, 90, 90, 100)
    assert good.failures(0.1) == []
    assert len(dataclasses.replace(good, violating_runs=11).failures(0.1)) == 1
    bad = Tally(100, 11, 1, 99, 89, 89, 89, 89, 100)
    assert len(bad.failures(0.1)) == 6


def test_the_bound_on_episodes_is_finite_and_far_off():
    bound = bound_on_episodes(world(), TheoremSettings())
    assert 1e12 < bound < 1e30
    assert bound_on_episodes(world(), TheoremSettings(epsilon=0.5)) < bound


@pytest.mark.parametrize(
    ("options", "message"),
    [({"delta": 1.0}, "delta must lie"), ({"epsilon": 0.0}, "epsilon must be"), ({"max_episodes": 0}, "max_episodes")],
)
def test_a_wrong_setting_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TheoremSettings(**options)
