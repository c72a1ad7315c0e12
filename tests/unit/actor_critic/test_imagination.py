"""Dreams: who believes whom, and gradients against plain differentiation of the whole thing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.imagination import DreamNoise, exchange
from actsafe.actor_critic.lambda_return import lambda_returns
from actsafe.actor_critic.learning import ActorCriticSettings, Aim, Learner
from actsafe.constrained.descent import flat
from actsafe.constrained.lbsgd import LBSGD
from actsafe.models.rssm.cell import State
from actsafe.models.rssm.world_model import WorldModel, WorldModelSettings
from actsafe.objectives.doubt import Disagreement, EpistemicNorm

MODEL = WorldModelSettings(deterministic=6, stochastic=3, hidden=5, num_members=3, head_width=6, head_depth=1)
SETTINGS = ActorCriticSettings(horizon=3, actor_width=6, actor_depth=1, critic_width=6, critic_depth=1, initial_std=1.0)
AIM = Aim(*(jnp.asarray(value, jnp.float32) for value in (1.0, 0.5, 2.0)))


@eqx.filter_jit
def make_model(key):
    return WorldModel.create((4,), 2, 1, MODEL, key)


def starts(key, rows):
    return State(jax.random.normal(key, (rows, 6), jnp.float32), jax.random.normal(key, (rows, 3), jnp.float32))


@pytest.mark.parametrize("num_rows", [6, 7])
def test_every_row_has_one_slot_and_members_have_equally_many(num_rows, key):
    noise = DreamNoise.draw(make_model(key).cell, num_rows, 2, 40, key)
    num_slots = -(-num_rows // 3) * 3
    assert noise.believers.shape == (40, num_slots)
    for believers, slots in zip(noise.believers, noise.slots, strict=True):
        np.testing.assert_array_equal(believers[slots], np.arange(num_rows))
        assert len(set(slots.tolist())) == num_rows
    members = np.asarray(noise.slots) // (num_slots // 3)
    # 40 draws of each row: about 13 of every member.
    counts = np.stack([(members == member).sum(axis=0) for member in range(3)])
    assert counts.min() >= 4
    assert counts.max() <= 25


@pytest.mark.parametrize("num_rows", [6, 7])
def test_exchange_there_and_back_has_the_gradient_of_plain_indexing(num_rows, key):
    noise = jax.tree.map(lambda leaf: leaf[0], DreamNoise.draw(make_model(key).cell, num_rows, 2, 1, key))
    x = jax.random.normal(key, (num_rows, 2))
    weight = jax.random.normal(jax.random.fold_in(key, 1), (noise.believers.size, 2))

    def there_and_back(x, move):
        moved = jnp.tanh(move(x, noise.believers, noise.slots)) * weight
        return jnp.sum(move(moved, noise.slots, noise.believers) ** 2)

    value, ours = jax.value_and_grad(there_and_back)(x, exchange)
    expected_value, expected = jax.value_and_grad(there_and_back)(x, lambda x, to_new, _: x[to_new])
    assert value == expected_value
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def plainly(learner, model, critics, start, noise, actor):
    """Loss and cost return by a loop over steps in which all members predict and the believed one is picked."""
    state, features, rewards, costs = start, [start.features], [], []
    for t in range(3):
        action = actor(jax.lax.stop_gradient(state.features)).sample(noise.action[t])
        deterministic, priors = model.cell.predict(state, action)
        doubt = EpistemicNorm()(Disagreement.among(priors.mean, priors.std, axis=0))
        rows = jnp.arange(start.stochastic.shape[0])
        member = noise.slots[t] // (noise.believers.shape[1] // 3)
        everyone = State(deterministic, priors.mean + priors.std * noise.state[t][None])
        state = jax.tree.map(lambda leaf, member=member, rows=rows: leaf[member, rows], everyone)
        outcome = model.outcome(everyone.features if learner.is_outcome_averaged else state.features)
        if learner.is_outcome_averaged:
            outcome = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), outcome)
        bonus = doubt if learner.is_doubt_differentiated else jax.lax.stop_gradient(doubt)
        rewards.append(AIM.task * outcome.reward + AIM.doubt * bonus)
        costs.append(outcome.costs[:, 0] + AIM.pessimism * doubt)
        features.append(state.features)
    values = [critics(f[None])[..., 0] for f in features]
    of_reward = lambda_returns(jnp.stack(rewards), jnp.stack([v[0] for v in values]), discount=0.99, trace=0.95)
    of_cost = lambda_returns(jnp.stack(costs), jnp.stack([v[1] for v in values]), discount=0.99, trace=0.95)
    weights = jnp.asarray([1.0, 0.99, 0.99**2])[:, None]
    return jnp.stack([-jnp.mean(weights * of_reward), jnp.mean(of_cost)])


@pytest.mark.parametrize(("is_averaged", "is_differentiated"), [(False, False), (True, False), (False, True)])
def test_actor_gradients_equal_plain_differentiation(is_averaged, is_differentiated, key):
    model = make_model(key)
    learner = Learner(
        SETTINGS,
        LBSGD(),
        EpistemicNorm(),
        (5.0,),
        is_outcome_averaged=is_averaged,
        is_doubt_differentiated=is_differentiated,
    )
    learned = learner.init(9, 2, key)
    start = starts(key, 7)
    noise = DreamNoise.draw(model.cell, 7, 2, 3, key)

    @jax.jit
    def ours():
        imagined, wishes = learner._imagine(learned.actor, learned.critics, model, start, noise, AIM)
        gradients = learner._actor_gradients(learned.actor, imagined.dream.features[:-1], noise.action, wishes)
        return jnp.concatenate([imagined.loss[None], imagined.cost_returns]), gradients

    weights, rest = eqx.partition(learned.actor, eqx.is_array)

    @jax.jit
    def expected():
        def outputs(weights):
            return plainly(learner, model, learned.critics, start, noise, eqx.combine(weights, rest))

        return outputs(weights), jax.vmap(flat)(jax.jacrev(outputs)(weights))

    (values, gradients), (expected_values, expected_gradients) = ours(), expected()
    np.testing.assert_allclose(values, expected_values, rtol=1e-4)
    scale = np.abs(expected_gradients).max(axis=1, keepdims=True)
    assert np.all(scale > 1e-4)
    np.testing.assert_allclose(gradients / scale, expected_gradients / scale, atol=2e-4)


def test_learning_raises_the_imagined_return_and_keeps_the_margin(key):
    model = make_model(key)
    learner = Learner(SETTINGS, LBSGD(), EpistemicNorm(), (50.0,))
    aim = AIM._replace(doubt=jnp.zeros(()), pessimism=jnp.asarray(1e-3))

    @jax.jit
    def train(learned):
        def one(learned, key):
            learned, info = learner.improve(learned, model, starts(key, 12), aim, key)
            return learned, (info["reward"], info["margin_0"], info["is_skipped"])

        return jax.lax.scan(one, learned, jax.random.split(key, 300))[1]

    reward, margin, is_skipped = train(learner.init(9, 2, key))
    assert np.mean(reward[-30:]) > np.mean(reward[:30]) + 0.005
    assert np.all(margin > 0)
    assert not np.any(is_skipped)
