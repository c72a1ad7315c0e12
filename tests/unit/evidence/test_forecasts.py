"""Forecasts of processes that are known: a model that is right is found to be, one that is not is found out."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.reliability import LEVELS, Verdict, assess
from actsafe.models.base import Model, Prediction
from actsafe.models.gp.kernels import SquaredExponential
from actsafe.models.gp.posterior import Posterior, condition
from actsafe.objectives.forecasts import forecast_scores, moments, windows_of
from actsafe.problems.base import Problem

LENGTHSCALE, NOISE_STD = 0.7, 0.1
NUM_FUNCTIONS, NUM_DATA = 400, 8


class Line(Problem):
    """A position, and a push that moves it."""

    name: ClassVar[str] = "line"
    state_names: ClassVar[tuple[str, ...]] = ("position",)
    action_names: ClassVar[tuple[str, ...]] = ("push",)
    state_scale: ClassVar[tuple[float, ...]] = (1.0,)
    change_scale: ClassVar[tuple[float, ...]] = (1.0,)

    num_decisions: int = 6
    action_repeat: int = 1
    budget: float = 0.0
    process_noise_std: float = 0.0

    def reset(self, key):
        return jnp.zeros(1)

    def simulate(self, state, action):
        return state + action

    def cost(self, state, margin=0.0):
        return jnp.zeros(())

    def project(self, state):
        return state

    @property
    def tasks(self):
        return {}

    def is_goal(self, state):
        return jnp.asarray(False)


class Linear(Model):
    """s' = slope s + a, with doubt and noise that are the same everywhere."""

    slope: float
    epistemic_std: float
    noise_std: float

    def predict(self, state, action):
        everywhere = jnp.ones_like(state)
        return Prediction(self.slope * state + action, self.epistemic_std * everywhere, self.noise_std * everywhere)


class Process(Model):
    """A Gaussian process for the next position."""

    posterior: Posterior
    noise_std: Array

    def predict(self, state, action):
        found = self.posterior(jnp.concatenate([state, action]))
        return Prediction(found.mean[None], found.std[None], self.noise_std[None])


def scores_of(model, states, actions, *, horizon, multiplier=1.0, num_particles=64):
    """Of an episode cut into windows of `horizon` decisions."""
    is_first = np.arange(len(states))[None] == 0
    firsts = np.array([first for _, first in windows_of(is_first, horizon + 1, horizon)])
    return forecast_scores(
        Line(),
        model,
        jnp.asarray(states)[firsts[:, None] + np.arange(horizon + 1)],
        jnp.asarray(actions)[firsts[:, None] + np.arange(horizon)],
        num_particles=num_particles,
        multiplier=jnp.full(1, multiplier),
        key=jax.random.key(0),
    )


def test_one_step_ahead_by_hand():
    """From 1 with push 0.5 and slope 2 the mean is 2.5; std^2 = (3 * 0.1)^2 + 0.4^2 = 0.25, and (3 - 2.5) / 0.5 = 1."""
    scores = scores_of(Linear(2.0, 0.1, 0.4), [[1.0], [3.0]], [[0.5]], horizon=1, multiplier=3.0)
    assert scores.shape == (1, 1, 1)
    assert float(scores[0, 0, 0]) == pytest.approx(1.0)


def test_windows_do_not_overlap_and_start_from_the_truth():
    """Seven decisions have two windows of three. Without error in the truth all scores vanish one step ahead."""
    states = 2.0 ** np.arange(8.0)[:, None]
    scores = scores_of(Linear(2.0, 0.1, 0.1), states, np.zeros((7, 1)), horizon=3)
    assert scores.shape == (2, 3, 1)
    np.testing.assert_allclose(scores[:, 0], 0.0, atol=1e-12)


def test_further_ahead_doubt_adds_up_as_in_the_linear_process():
    """Std after h steps of s' = s/2 + e, e of std 0.1: 0.1 sqrt(1 + 1/4 + 1/16) = 0.114564 after three.

    The truth is 1 off there. 20 000 particles give a std to 1/200 of itself.
    """
    states = [[0.0], [0.0], [0.0], [1.0]]
    scores = scores_of(Linear(0.5, 0.06, 0.08), states, np.zeros((3, 1)), horizon=3, num_particles=20_000)
    assert float(scores[0, 2, 0]) == pytest.approx(1.0 / 0.114564, rel=0.02)


def test_moments_are_those_of_one_more_draw():
    """Of 1 and 3: mean 2, variance 2, and of a third draw about their mean (1 + 1/2) * 2 = 3."""
    mean, std = moments(jnp.array([[1.0], [3.0]]))
    assert (float(mean[0]), float(std[0])) == pytest.approx((2.0, math.sqrt(3.0)))


def test_what_is_not_finite_counts_against_the_model():
    scores = scores_of(Linear(math.nan, 0.1, 0.1), np.zeros((61, 1)), np.zeros((60, 1)), horizon=2)
    assert assess(np.asarray(scores[:, 0])).verdict is Verdict.OVERCONFIDENT


def test_a_noisy_walk_is_forecast_as_it_comes():
    """Truth and model are the same random process: calibrated at every distance, and not if noise is understated."""
    rng = np.random.default_rng(0)
    noise = rng.normal(scale=0.1, size=600)
    states = np.concatenate([[0.0], np.zeros(600)])
    for t in range(600):
        states[t + 1] = 0.9 * states[t] + noise[t]
    right, bold = (
        np.asarray(scores_of(Linear(0.9, 0.0, std), states[:, None], np.zeros((600, 1)), horizon=4))
        for std in (0.1, 0.01)
    )
    for step in range(4):
        assert assess(right[:, step]).verdict is Verdict.CALIBRATED
        assert assess(bold[:, step]).verdict is Verdict.OVERCONFIDENT


def gp_scores(seed, understated=1.0):
    """Scores of one held-out transition of each of many functions, drawn from the kernel that the model has."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(NUM_FUNCTIONS, NUM_DATA + 1, 2))
    squares = np.sum((inputs[:, :, None] - inputs[:, None]) ** 2, axis=-1)
    factors = np.linalg.cholesky(np.exp(-squares / (2 * LENGTHSCALE**2)) + 1e-10 * np.eye(NUM_DATA + 1))
    values = np.einsum("fij,fj->fi", factors, rng.normal(size=inputs.shape[:2]))
    targets = values + NOISE_STD * rng.normal(size=values.shape)
    kernel = SquaredExponential(jnp.full(2, math.log(LENGTHSCALE)), jnp.zeros(()))
    noise_std = jnp.asarray(NOISE_STD / understated)

    @jax.jit
    @jax.vmap
    def one(inputs, targets):
        posterior = condition(
            kernel,
            inputs[:-1],
            targets[:-1],
            jnp.ones(NUM_DATA, bool),
            noise_std=noise_std,
            subset_size=None,
            is_mean_exact=True,
        )
        states = jnp.stack([inputs[-1, :1], targets[-1:]])
        return scores_of(Process(posterior, noise_std), states, inputs[-1:, 1:], horizon=1)[0]

    return np.asarray(one(jnp.asarray(inputs), jnp.asarray(targets)))[:, 0]


def test_a_process_with_the_right_kernel_covers_what_it_claims():
    found = assess(gp_scores(seed=0))
    assert found.verdict is Verdict.CALIBRATED
    for level, share in zip(LEVELS, found.coverage[0], strict=True):
        low, high = clopper_pearson(round(share * NUM_FUNCTIONS), NUM_FUNCTIONS, confidence=0.999)
        assert low <= level <= high


def test_a_process_that_understates_its_noise_is_found_out_and_mended():
    found = assess(gp_scores(seed=0, understated=10.0))
    assert found.verdict is Verdict.OVERCONFIDENT
    fresh = gp_scores(seed=1, understated=10.0)
    assert assess(fresh).verdict is Verdict.OVERCONFIDENT
    assert assess(fresh / found.multiplier).verdict in (Verdict.CALIBRATED, Verdict.UNDERCONFIDENT)
    for number, level in enumerate(LEVELS):
        share = np.mean(np.abs(fresh / (found.conformal[0, number] * _width(level))) <= 1.0)
        low, high = clopper_pearson(round(share * NUM_FUNCTIONS), NUM_FUNCTIONS, confidence=0.999)
        assert low <= level <= high


def _width(level):
    return math.sqrt(2.0) * float(jax.scipy.special.erfinv(level))
