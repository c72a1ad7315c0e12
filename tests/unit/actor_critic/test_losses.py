"""λ-returns against hand-worked numbers and the recursion that defines them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.losses import discount_weights, lambda_returns


def test_two_steps_by_hand():
    # Discount 0.5, trace 0.5, r = (1, 2), V = (-, 4, 8).
    # R_1 = 2 + 0.5 · 8 = 6;  R_0 = 1 + 0.5 (0.5 · 4 + 0.5 · 6) = 3.5.
    returns = lambda_returns(jnp.array([1.0, 2.0]), jnp.array([100.0, 4.0, 8.0]), discount=0.5, trace=0.5)
    np.testing.assert_allclose(returns, [3.5, 6.0], rtol=1e-6)


@pytest.mark.parametrize(("discount", "trace"), [(0.99, 0.95), (0.9, 0.0), (0.7, 0.999)])
def test_equals_the_recursion(discount, trace, key):
    reward_key, value_key = jax.random.split(key)
    rewards = jax.random.normal(reward_key, (15, 4))
    values = jax.random.normal(value_key, (16, 4))
    expected, following = [], values[-1]
    for reward, value in zip(rewards[::-1], values[:0:-1], strict=True):
        following = reward + discount * ((1 - trace) * value + trace * following)
        expected.append(following)
    returns = lambda_returns(rewards, values, discount=discount, trace=trace)
    np.testing.assert_allclose(returns, jnp.stack(expected[::-1]), rtol=2e-5, atol=1e-5)


def test_a_trace_of_zero_looks_one_step_ahead():
    returns = lambda_returns(jnp.ones(3), jnp.array([0.0, 1.0, 2.0, 3.0]), discount=0.5, trace=0.0)
    np.testing.assert_allclose(returns, [1.5, 2.0, 2.5])


def test_discount_weights():
    np.testing.assert_allclose(discount_weights(0.5, 4), [1.0, 0.5, 0.25, 0.125])
