"""Do intervals hold what they claim? Seeds are fixed, draws are many, and a model that is wrong must be found out."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from actsafe.data.transitions import Transitions
from actsafe.models.gp.dynamics import GPSettings, fit_kernels, learn
from actsafe.models.gp.fit import FitSettings
from actsafe.models.gp.kernels import Matern52, SquaredExponential
from actsafe.models.gp.posterior import condition
from actsafe.objectives.scores import conformal_quantile, coverage, normal_coverage, standard_scores
from actsafe.problems import Pendulum

LEVELS = np.array([0.50, 0.80, 0.90, 0.95, 0.99])
NUM_FUNCTIONS, NUM_POINTS, NUM_INPUTS = 4000, 10, 2
LENGTHSCALES, SIGNAL_STD, NOISE_STD = np.array([0.8, 1.6]), 1.3, 0.2
NUM_ERRORS = 4.0
"""Standard errors that a share may be off: of five shares one is by chance once in 3000 times."""


def standard_errors_off(is_inside, share):
    """How far the share of True lies from `share`, in binomial standard errors."""
    return (np.mean(is_inside, axis=0) - share) / np.sqrt(share * (1.0 - share) / len(is_inside))


def draw_functions(kernel_type):
    """(inputs, noisy targets, a new input, the function's value there), one row per function, all in NumPy.

    One held-out point per function, so that the errors are independent and their count is binomial.
    """
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(NUM_FUNCTIONS, NUM_POINTS + 1, NUM_INPUTS))
    r = np.linalg.norm((inputs[:, :, None] - inputs[:, None]) / LENGTHSCALES, axis=-1)
    if kernel_type is SquaredExponential:
        correlation = np.exp(-(r**2) / 2)
    else:
        correlation = (1 + math.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-math.sqrt(5) * r)
    factor = np.linalg.cholesky(SIGNAL_STD**2 * correlation + 1e-10 * np.eye(NUM_POINTS + 1))
    values = np.einsum("fij,fj->fi", factor, rng.normal(size=(NUM_FUNCTIONS, NUM_POINTS + 1)))
    targets = values[:, :-1] + NOISE_STD * rng.normal(size=(NUM_FUNCTIONS, NUM_POINTS))
    return inputs[:, :-1], targets, inputs[:, -1], values[:, -1]


@functools.partial(jax.jit, static_argnames="subset_size")
def predict_all(kernel, noise_std, inputs, targets, queries, subset_size=None):
    def one(inputs, targets, query):
        is_data = jnp.ones(NUM_POINTS, bool)
        return condition(kernel, inputs, targets, is_data, noise_std=noise_std, subset_size=subset_size)(query)

    return jax.vmap(one)(inputs, targets, queries)


def errors_off(kernel_type, *, lengthscale_factor=1.0, noise_factor=1.0, signal_factor=1.0, subset_size=None):
    """Standard errors that the coverage at each level is off, for a process with these hyper-parameters wrong."""
    inputs, targets, queries, values = draw_functions(kernel_type)
    kernel = kernel_type(
        jnp.log(jnp.asarray(lengthscale_factor * LENGTHSCALES)), jnp.log(jnp.asarray(signal_factor * SIGNAL_STD))
    )
    moments = predict_all(kernel, jnp.asarray(noise_factor * NOISE_STD), inputs, targets, queries, subset_size)
    scores = np.abs(values - moments.mean) / np.asarray(moments.std)
    return standard_errors_off(scores[:, None] <= scipy.stats.norm.ppf(0.5 + LEVELS / 2), LEVELS)


@pytest.mark.parametrize("kernel_type", [SquaredExponential, Matern52])
def test_intervals_of_the_right_process_hold_what_they_claim(kernel_type):
    off = errors_off(kernel_type)
    assert np.all(np.abs(off) < NUM_ERRORS), dict(zip(LEVELS, off, strict=True))


@pytest.mark.parametrize(
    ("wrong", "is_bold"),
    [
        ({"noise_factor": 0.25}, True),
        ({"noise_factor": 4.0}, False),
        ({"lengthscale_factor": 2.0}, True),
        ({"lengthscale_factor": 0.5}, False),
        ({"signal_factor": 0.5}, True),
    ],
    ids=str,
)
def test_a_wrong_process_is_found_out(wrong, is_bold):
    """The same check fails at most levels: too bold a process covers too little, too timid a one too much."""
    off = errors_off(SquaredExponential, **wrong)
    assert np.sum(np.abs(off) > NUM_ERRORS) >= 3
    assert np.all(off < -NUM_ERRORS) if is_bold else np.all(off > 0.0)


def test_intervals_from_a_subset_are_wider_not_wrong():
    """The exact mean with the variance of four of the ten points covers at least what it claims, and more."""
    off = errors_off(SquaredExponential, subset_size=4)
    assert np.all(off > NUM_ERRORS)


@pytest.mark.parametrize(("count", "share"), [(50, 0.9), (99, 0.99), (20, 0.5)])
def test_conformal_quantile_covers_fresh_scores(count, share):
    """Of n scores and a fresh one, all alike, the fresh one lies below the k-th smallest with chance k / (n + 1).

    k = ceil((n + 1) share), so that this is at least `share`. The scores need no distribution in particular.
    """
    num_trials = 20_000
    rng = np.random.default_rng(1)
    scores = rng.standard_cauchy((num_trials, count + 1)) ** 2
    is_evidence = jnp.ones(count, bool)
    quantiles = jax.jit(jax.vmap(lambda s: conformal_quantile(s, is_evidence, share)))(scores[:, :-1])
    is_covered = scores[:, -1] <= quantiles
    chance = math.ceil((count + 1) * share) / (count + 1)
    assert chance >= share
    assert standard_errors_off(is_covered, share) > -NUM_ERRORS
    assert abs(standard_errors_off(is_covered, chance)) < NUM_ERRORS
    # Power: the score of one rank lower would have been told from it, or else the ranks lie too close to matter.
    assert 1.0 / (count + 1) > 4.0 * math.sqrt(chance * (1.0 - chance) / num_trials)


def test_scores_of_a_calibrated_model_have_the_normals_coverage():
    """`coverage` at each multiplier is the normal's share within it, for errors drawn from what is claimed."""
    scores = jnp.abs(jax.random.normal(jax.random.key(0), (20_000,)))
    is_evidence = jnp.arange(20_000) % 2 == 0
    for multiplier in (0.5, 1.0, 2.0, 3.0):
        share = normal_coverage(multiplier)
        error = math.sqrt(share * (1.0 - share) / 10_000)
        assert abs(float(coverage(scores, is_evidence, jnp.asarray(multiplier))) - share) < NUM_ERRORS * error


def random_transitions(problem, num, seed):
    rng = np.random.default_rng(seed)
    theta, speed, action = rng.uniform([[-np.pi], [-6.0], [-1.0]], [[np.pi], [6.0], [1.0]], (3, num))
    states, actions = np.stack([np.cos(theta), np.sin(theta), speed], axis=-1), action[:, None]
    step = jax.jit(jax.vmap(lambda s, a: problem.step(s, a, jax.random.key(0)).state))
    return tuple(map(jnp.asarray, (states, actions, step(states, actions))))


def test_a_fitted_pendulum_model_covers_held_out_transitions():
    """At least 99 % of 1000 new transitions lie within three standard deviations, in every coordinate."""
    problem = Pendulum()
    settings = GPSettings(subset_size=None, fit=FitSettings(num_steps=30))
    states, actions, next_states = random_transitions(problem, 60, seed=0)
    data = Transitions.empty(64, 3, 1).append(states, actions, next_states - states)
    held_out = random_transitions(problem, 1000, seed=1)

    def kernels_of(lengthscale):
        return jax.vmap(SquaredExponential)(jnp.full((3, 4), math.log(lengthscale)), jnp.zeros(3))

    @jax.jit
    def judge(kernels):
        model = learn(problem, data, kernels, settings)
        return *standard_scores(model, *held_out), jax.vmap(model.predict)(*held_out[:2]).epistemic_std

    fitted = jax.jit(lambda start: fit_kernels(problem, data, start, settings))(kernels_of(3.0))
    scores, is_evidence, epistemic_std = judge(fitted)
    assert np.all(np.mean(scores <= 3.0, axis=0) >= 0.99)
    # Not because the model knows nothing, nor because noise is all that is left.
    changes = np.std(held_out[2] - held_out[0], axis=0)
    assert np.all(np.mean(epistemic_std, axis=0) < 0.05 * changes)
    assert np.all(np.mean(is_evidence, axis=0) > 0.3)
    # A process that takes the dynamics for smoother than they are would not pass.
    scores, _, _ = judge(kernels_of(12.0))
    assert np.any(np.mean(scores <= 3.0, axis=0) < 0.9)
