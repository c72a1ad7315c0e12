"""Bounds over all plausible models against direct integration, and the kernel that the models come from."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.theory.circle_kernel import CircleKernel, Evidence
from actsafe.theory.information_gain import information_gain
from actsafe.theory.plausible_models import Band
from actsafe.theory.safe_set import is_valid_distance
from actsafe.theory.small_world import World, WorldSettings
from actsafe.theory.worst_case import Lattice, _largest_between


@functools.cache
def world():
    return World.create(WorldSettings(num_actions=7, action_step=0.05))


@functools.cache
def bounds_program():
    known = world()
    return jax.jit(lambda models: known.bounds(models, jnp.zeros_like(models.lower)))


def bounds_of(models):
    return bounds_program()(models)


def draw(seed):
    return world().kernel.draw_function(jax.random.key(seed), norm=1.0, num_centres=4, span=1.5)


def integrated(world, truth, payoff):
    """E[payoff(s_0) + payoff(s_1) + payoff(s_2)] for every plan, the noise integrated over 2001 points by NumPy."""
    sigma = world.settings.noise_std
    noise = np.linspace(-7.0 * sigma, 7.0 * sigma, 2001)
    density = np.exp(-0.5 * (noise / sigma) ** 2)
    density /= density.sum()

    def dynamics(x):
        return np.asarray(world.kernel.features(jnp.asarray(x)) @ truth)

    actions = np.asarray(world.lattice.actions)
    means = np.linspace(-1.1, 1.1, 1001)
    expected = np.asarray(payoff(jnp.asarray(means[:, None] + noise[None]))) @ density
    total = np.empty((len(actions), len(actions)))
    for i, first in enumerate(actions):
        states = float(dynamics(np.array(first))) + noise
        for j, second in enumerate(actions):
            later = np.interp(dynamics(states + second), means, expected)
            total[i, j] = float(payoff(jnp.asarray(0.0))) + density @ (np.asarray(payoff(jnp.asarray(states))) + later)
    return total


def test_the_truth_lies_between_its_bounds():
    values = world().features @ draw(0)
    bounds = bounds_of(Band(values, values))
    cost, reward = (integrated(world(), draw(0), payoff) for payoff in (world().cost, world().reward))
    assert np.all((bounds.least_cost <= cost) & (cost <= bounds.most_cost))
    assert np.all((bounds.least_reward <= reward) & (reward <= bounds.most_reward))
    # What the grid leaves open: about two cells' width of cost, 0.05 each.
    assert float(jnp.max(bounds.width)) < 0.15


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pessimism_covers_every_model_of_the_band(seed):
    """The band between two functions, and neither they nor their mean are outside the bounds."""
    one, other = draw(seed), draw(seed + 10)
    first, second = world().features @ one, world().features @ other
    models = Band(jnp.minimum(first, second), jnp.maximum(first, second))
    bounds = bounds_of(models)
    for truth in (one, other, 0.5 * (one + other)):
        cost = integrated(world(), truth, world().cost)
        assert np.all(bounds.least_cost <= cost)
        assert np.all(cost <= bounds.most_cost)
    wider = bounds_of(Band(models.lower - 0.1, models.upper + 0.2))
    assert np.all(wider.most_cost >= bounds.most_cost)
    assert np.all(wider.least_cost <= bounds.least_cost)


def test_pessimism_is_not_larger_than_it_must_be():
    """f anywhere in [-1, 1]: the worst is f = 1 always, from the second state on the whole cost, and no more."""
    everything = jnp.ones_like(world().lattice.inputs)
    bounds = bounds_of(Band(-everything, everything))
    # E c(1 + w) = 0.4 twice: 0.05 + 0.4 is more than three standard deviations below 1.
    np.testing.assert_allclose(bounds.most_cost, 0.8, atol=0.03)
    np.testing.assert_allclose(bounds.least_cost, 0.0, atol=0.03)


def test_policy_distance_bounds_the_difference_of_costs():
    """The lemma "Comparing safety costs of policies", for all pairs of plans."""
    for seed in range(3):
        cost = integrated(world(), draw(seed), world().cost)
        for known in (world(), world().tightened):
            first, second = map(np.asarray, known.distances)
            pairs = first[:, None, :, None] + second[None, :, None, :]
            assert np.all(cost[:, :, None, None] - cost[None, None] <= pairs + 1e-9)
            given = jnp.asarray(cost)
            assert is_valid_distance(given, given, known.distances)
            assert not is_valid_distance(100.0 * given, 100.0 * given, known.distances)


def test_a_world_too_coarse_to_expand_is_warned_about():
    """Neighbours 0.1 apart: 0.1 + 3 * 0.4 * 0.5 * 0.1 / 0.15 = 0.5 by D, of 0.5 - 0.15 that S_0 may leave."""
    with pytest.warns(UserWarning, match=r"may never grow: neighbouring policies are 0\.5 apart by D.*leaves 0\.35 of"):
        World.create(WorldSettings(num_actions=7, action_step=0.1))


def test_largest_between_is_the_maximum_of_every_range():
    values = jax.random.normal(jax.random.key(0), (2, 11))
    low, high = jnp.asarray([(i, j) for i in range(11) for j in range(11)]).T
    found = _largest_between(values, low, high)
    for place, (i, j) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        expected = np.max(values[:, i : j + 1], axis=1) if i <= j else np.full(2, -np.inf)
        np.testing.assert_array_equal(found[:, place], expected)


def test_a_lattice_without_a_middle_is_refused():
    with pytest.raises(ValueError, match=r"num_actions must be odd and at least 3.*got 4"):
        Lattice.create(
            num_actions=4,
            action_step=0.1,
            actions_per_cell=1,
            reach=1.0,
            dynamics_slope=1.0,
            noise_std=0.1,
            num_decisions=3,
        )


def test_features_make_the_kernel():
    """k(x, y) = (1/2 + e^-(a/2) cos(w d)) / (1/2 + e^-(a/2)) with one wave of w = 2 pi / 4 and a = w^2."""
    kernel = CircleKernel.create(lengthscale=1.0, circumference=4.0, num_waves=1)
    x, y = jnp.array([0.3, -1.0]), jnp.array([1.1, 0.0])
    wave = 2.0 * np.pi / 4.0
    share = 2.0 * np.exp(-0.5 * wave**2)
    expected = (1.0 + share * np.cos(wave * (x[:, None] - y[None]))) / (1.0 + share)
    np.testing.assert_allclose(kernel.features(x) @ kernel.features(y).T, expected, rtol=1e-12)
    assert kernel.features(x).shape[-1] == kernel.rank == 3


def test_drawn_functions_have_the_norm_and_the_slope_that_is_claimed():
    kernel, inputs = world().kernel, jnp.linspace(-3.0, 3.0, 400)
    for seed in range(5):
        weights = kernel.draw_function(jax.random.key(seed), norm=2.5, num_centres=3, span=1.0)
        np.testing.assert_allclose(jnp.linalg.norm(weights), 2.5, rtol=1e-12)
        values = kernel.features(inputs) @ weights
        assert float(jnp.max(jnp.abs(values))) <= 2.5
        steepest = float(jnp.max(jnp.abs(jnp.diff(values)))) / float(inputs[1] - inputs[0])
        assert steepest <= 2.5 * float(kernel.slope)


def test_evidence_is_the_posterior_of_the_kernel_matrix():
    kernel, noise_std = world().kernel, 0.3
    inputs, targets = jnp.array([-0.5, 0.1, 0.1, 1.4]), jnp.array([0.2, -0.3, -0.1, 0.5])
    asked = jnp.array([0.0, 2.0])
    rows, points = kernel.features(inputs), kernel.features(asked)
    evidence = Evidence.none(kernel.rank).add(rows[:1], targets[:1], noise_std).add(rows[1:], targets[1:], noise_std)
    mean, std = evidence.moments(points)
    noisy, cross = rows @ rows.T + noise_std**2 * jnp.eye(4), points @ rows.T
    np.testing.assert_allclose(mean, cross @ jnp.linalg.solve(noisy, targets), rtol=1e-9)
    variance = 1.0 - jnp.sum(cross * jnp.linalg.solve(noisy, cross.T).T, axis=1)
    np.testing.assert_allclose(std**2, variance, rtol=1e-9)
    np.testing.assert_allclose(evidence.gain, information_gain(rows @ rows.T, noise_std), rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"num_decisions": 1}, "num_decisions must be at least 2"), ({"most_seed_cost": 0.6}, "most_seed_cost must lie")],
)
def test_a_wrong_world_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        WorldSettings(**options)
