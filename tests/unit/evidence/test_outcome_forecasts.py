"""Forecasts of rewards and costs by a world model whose head is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.data.rows import Rows
from actsafe.models.rssm.world_model import WorldModel, WorldModelSettings
from actsafe.objectives.forecasts import windows_of
from actsafe.objectives.outcome_forecasts import outcome_errors

SIZES = WorldModelSettings(deterministic=6, stochastic=4, hidden=6, num_members=3, head_width=6, head_depth=1)
NUM_SEEN, NUM_STEPS = 2, 3


@pytest.fixture(scope="module")
def model():
    return eqx.filter_jit(lambda key: WorldModel.create((5,), 1, 2, SIZES, key))(jax.random.key(0))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    lead = (4, NUM_SEEN + NUM_STEPS)
    draw = lambda *shape: jnp.asarray(rng.normal(size=(*lead, *shape)), jnp.float32)  # noqa: E731
    return Rows(draw(5), draw(1), draw(), jnp.abs(draw(2)), jnp.zeros(lead, bool))


def scores_of(model, rows, noise_std, key=0, num_particles=8):
    error, std = eqx.filter_jit(outcome_errors)(
        model, rows, num_seen=NUM_SEEN, num_particles=num_particles, key=jax.random.key(key)
    )
    return np.asarray(error) / np.hypot(std, noise_std)


def test_a_head_that_always_says_the_same_is_off_by_what_came(model, rows):
    """It expects a reward of 0.5 and costs of softplus(0) = 0.693147, without doubt: std is the noise's alone, 2."""
    last = model.head.layers[-1]
    constant = eqx.tree_at(
        lambda m: (m.head.layers[-1].weight, m.head.layers[-1].bias),
        model,
        (jnp.zeros_like(last.weight), jnp.array([0.5, 0.0, 0.0], jnp.float32)),
    )
    scores = scores_of(constant, rows, noise_std=2.0)
    assert scores.shape == (4, NUM_STEPS, 3)
    np.testing.assert_allclose(scores[..., 0], (rows.reward[:, NUM_SEEN:] - 0.5) / 2.0, rtol=1e-5)
    np.testing.assert_allclose(scores[..., 1:], (rows.costs[:, NUM_SEEN:] - 0.693147) / 2.0, rtol=1e-4, atol=1e-5)


def test_what_is_forecast_is_not_looked_at(model, rows):
    """With other observations and rewards after those that are seen, only the errors of rewards are others."""
    after = jnp.arange(NUM_SEEN + NUM_STEPS) >= NUM_SEEN
    others = rows._replace(
        observation=jnp.where(after[None, :, None], 9.0, rows.observation),
        reward=rows.reward + jnp.where(after, 1.0, 0.0)[None],
    )
    shift = scores_of(model, others, 1.0) - scores_of(model, rows, 1.0)
    assert np.all(shift[..., 0] > 0.5)
    assert np.all(shift[..., 1:] == 0.0)


def test_dreams_spread_and_noise_adds_to_it(model, rows):
    """Errors in units of a std that has noise in it are smaller; draws of other particles move them a little."""
    alone, noisy = scores_of(model, rows, 0.0), scores_of(model, rows, 1.0)
    assert np.all(np.isfinite(alone))
    assert np.all(np.abs(noisy) < np.abs(alone))
    assert not np.array_equal(alone, scores_of(model, rows, 0.0, key=1))


def test_windows_stay_within_episodes():
    """Seven ticks of which the 0th and 4th begin episodes: four and three rows, so with length two 0, 2 and 4."""
    is_first = np.zeros((2, 7), bool)
    is_first[:, 0] = is_first[0, 4] = True
    assert list(windows_of(is_first, 2)) == [(0, 0), (0, 2), (0, 4), (1, 0), (1, 2), (1, 4)]
    assert list(windows_of(is_first, 4)) == [(0, 0), (1, 0)]
    # Of three rows, the last of which is the next one's first: 0, 2, 4 of seven rows, 0 and 4 where an episode begins.
    assert list(windows_of(is_first, 3, 2)) == [(0, 0), (0, 4), (1, 0), (1, 2), (1, 4)]
