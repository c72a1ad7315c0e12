"""Dreams: who believes whom, and gradients against plain differentiation of the whole thing."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.imagination import DreamNoise, block_size
from actsafe.actor_critic.judging import ImaginedObjective
from actsafe.actor_critic.lambda_return import lambda_returns
from actsafe.actor_critic.learning import Learner
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.constrained.lbsgd import LBSGD, Barrier
from actsafe.models.packing import flat
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel, WorldModelSettings
from actsafe.objectives.uncertainty import Disagreement, EpistemicNorm
from actsafe.objectives.weights import ObjectiveWeights

MODEL = WorldModelSettings(deterministic=6, stochastic=3, hidden=5, num_members=3, head_width=6, head_depth=1)
SETTINGS = ActorCriticSettings(horizon=3, actor_width=6, actor_depth=1, critic_width=6, critic_depth=1, initial_std=1.0)
WEIGHTS = ObjectiveWeights(*(jnp.asarray(value, jnp.float32) for value in (1.0, 0.5, 2.0)))


@eqx.filter_jit
def make_model(key):
    return WorldModel.create((4,), 2, 1, MODEL, key)


def starts(key, rows):
    return State(jax.random.normal(key, (rows, 6), jnp.float32), jax.random.normal(key, (rows, 3), jnp.float32))


@pytest.mark.parametrize(("num_rows", "size"), [(6, 6), (32, 16), (34, 2), (48, 16)])
def test_blocks_divide_the_rows_and_believe_all_members_equally_often(num_rows, size, key):
    assert block_size(num_rows) == size
    members = DreamNoise.draw(make_model(key).cell, num_rows, 2, 600, key).members
    assert members.shape == (600, num_rows // size)
    # Of 600 steps a third, 200, believe each member; the std of such a count is 11.5.
    counts = np.stack([(np.asarray(members) == member).sum(axis=0) for member in range(3)])
    assert np.abs(counts - 200).max() < 60


def plainly(learner, model, critics, start, noise, actor):
    """Loss and cost return by a loop over steps in which all members predict and the believed one is picked."""
    state, features, rewards, costs = start, [start.features], [], []
    for t in range(3):
        action = actor(jax.lax.stop_gradient(state.features)).sample(noise.action[t])
        deterministic, priors = model.cell.predict(state, action)
        uncertainty = EpistemicNorm()(Disagreement.among(priors.mean, priors.std, axis=0))
        rows = jnp.arange(start.stochastic.shape[0])
        member = jnp.repeat(noise.members[t], rows.size // noise.members.shape[1])
        everyone = State(deterministic, priors.mean + priors.std * noise.state[t][None])
        state = jax.tree.map(lambda leaf, member=member, rows=rows: leaf[member, rows], everyone)
        outcome = model.outcome(everyone.features if learner.objective.is_outcome_averaged else state.features)
        if learner.objective.is_outcome_averaged:
            outcome = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), outcome)
        bonus = uncertainty if learner.objective.is_uncertainty_differentiated else jax.lax.stop_gradient(uncertainty)
        rewards.append(WEIGHTS.task * outcome.reward + WEIGHTS.uncertainty * bonus)
        costs.append(outcome.costs[:, 0] + WEIGHTS.pessimism * uncertainty)
        features.append(state.features)
    values = [critics(f[None])[..., 0] for f in features]
    of_reward = lambda_returns(jnp.stack(rewards), jnp.stack([v[0] for v in values]), discount=0.99, trace=0.95)
    of_cost = lambda_returns(jnp.stack(costs), jnp.stack([v[1] for v in values]), discount=0.99, trace=0.95)
    discounts = jnp.asarray([1.0, 0.99, 0.99**2])[:, None]
    counting = np.flatnonzero(np.tile(learner.objective.is_counted, rows.size // len(learner.objective.is_counted)))
    return jnp.stack([-jnp.mean(discounts * of_reward), jnp.mean(of_cost[:, counting])])


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"is_outcome_averaged": True},
        {"is_uncertainty_differentiated": True},
        {"is_counted": (True, False)},
    ],
)
def test_actor_gradients_equal_plain_differentiation(choices, key):
    model = make_model(key)
    objective = ImaginedObjective(SETTINGS, EpistemicNorm(), **choices)
    learner = Learner(objective, LBSGD(), (5.0,))
    learned = learner.init(9, 2, key)
    actor, critics = learned.actor.tree, learned.critics.tree
    start = starts(key, 34)
    noise = DreamNoise.draw(model.cell, 34, 2, 3, key)

    @jax.jit
    def ours():
        dreamt, to_offsets = learner.dream(learner.ready(learned), model, start, noise)
        taught = learner.objective(critics, model, dreamt, noise, WEIGHTS)
        action_gradients = learner.action_gradients(to_offsets, taught)
        gradients = learner._actor_gradients(actor, learner.recall(learned, dreamt), noise.action, action_gradients)
        return jnp.concatenate([taught.imagined.loss[None], taught.imagined.cost_returns]), gradients

    weights, rest = eqx.partition(actor, eqx.is_array)

    @jax.jit
    def expected():
        def outputs(weights):
            return plainly(learner, model, critics, start, noise, eqx.combine(weights, rest))

        return outputs(weights), jax.vmap(flat)(jax.jacrev(outputs)(weights))

    (values, gradients), (expected_values, expected_gradients) = ours(), expected()
    np.testing.assert_allclose(values, expected_values, rtol=1e-4)
    scale = np.abs(expected_gradients).max(axis=1, keepdims=True)
    assert np.all(scale > 1e-4)
    np.testing.assert_allclose(gradients / scale, expected_gradients / scale, atol=2e-4)


def test_learning_raises_the_imagined_reward_and_keeps_the_margin(key):
    """In the same dreams again and again: what is gained there is the policy's, and not chance."""
    model = make_model(key)
    settings = dataclasses.replace(SETTINGS, actor_rate=3e-3)
    learner = Learner(ImaginedObjective(settings, EpistemicNorm()), LBSGD(unit_step=3e-3), (50.0,))
    weights = WEIGHTS._replace(uncertainty=jnp.zeros(()), pessimism=jnp.asarray(1e-3))

    @jax.jit
    def train(learned):
        def one(learned, _):
            learned, info = learner.improve(learned, model, starts(key, 96), weights, key)
            return learned, (info["reward"], info["margin_0"], info["is_skipped"])

        return jax.lax.scan(one, learned, length=300)[1]

    reward, margin, is_skipped = train(learner.init(9, 2, key))
    assert reward[-1] > reward[0] + 0.002
    assert np.mean(np.diff(reward) > 0) > 0.7
    assert np.all(margin > 0)
    assert not np.any(is_skipped)


def test_windup_is_half_the_square_of_what_lies_beyond_three(key):
    actor = Actor.create(9, 2, width=6, depth=1, initial_std=1.0, key=key)
    # Two decisions of two actions, means first: 4 is 1 too far and -5 is 2 too far; spreads do not count.
    outputs = jnp.asarray([[4.0, -1.0, 9.0, 9.0], [-5.0, 3.0, 9.0, 9.0]], jnp.float32)
    assert actor.saturation(outputs) == 1.25  # (1 / 2 + 4 / 2) / 2
    # Half of each excess, as there are two decisions.
    np.testing.assert_allclose(jax.grad(actor.saturation)(outputs), [[0.5, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]])


def wound_up(learner, key, mean):
    """An actor-critic whose actions all have nearly this mean before squashing."""
    learned = learner.init(9, 2, key)
    last = learned.actor.tree.layers.layers[-1]
    bias = last.bias.at[:2].set(mean)
    actor = eqx.tree_at(lambda actor: actor.layers.layers[-1].bias, learned.actor.tree, bias)
    packed = dataclasses.replace(learned.actor, vector=flat(actor))
    return dataclasses.replace(learned, actor=packed)


def test_loss_and_costs_are_charged_for_windup_and_so_are_their_gradients(key):
    model, start = make_model(key), starts(key, 34)
    free, charged = (
        Learner(
            ImaginedObjective(dataclasses.replace(SETTINGS, saturation_penalty=price), EpistemicNorm()), LBSGD(), (5.0,)
        )
        for price in (0.0, 0.25)
    )
    learned = wound_up(free, key, 7.0)
    noise = DreamNoise.draw(model.cell, 34, 2, 3, key)

    @jax.jit
    def taught():
        dreamt, to_offsets = free.dream(free.ready(learned), model, start, noise)
        taught = free.objective(learned.critics.tree, model, dreamt, noise, WEIGHTS)
        recalled, action_gradients = free.recall(learned, dreamt), free.action_gradients(to_offsets, taught)
        found = [
            (each.learn(learned, recalled, noise, taught, action_gradients, WEIGHTS)[1],
             each._actor_gradients(learned.actor.tree, recalled, noise.action, action_gradients))
            for each in (free, charged)
        ]  # fmt: skip
        features = dreamt.features[:-1].reshape(-1, 9)
        saturation, slope = jax.value_and_grad(lambda actor: actor.saturation(actor.layers(features)))(
            learned.actor.tree
        )
        return found, saturation, flat(slope)

    ((info, gradients), (dearer, steeper)), saturation, slope = taught()
    # Every mean is near 7, 4 too far: 2 actions x 16 / 2.
    assert saturation == pytest.approx(16.0, rel=0.02)
    assert info["saturation"] == pytest.approx(float(saturation)) == dearer["saturation"]
    for name, sign in (("loss", 1), ("cost_return_0", 1), ("margin_0", -1)):
        np.testing.assert_allclose(dearer[name] - info[name], sign * 0.25 * saturation, rtol=1e-4)
    for without, with_charge in zip(gradients, steeper, strict=True):
        np.testing.assert_allclose(with_charge - without, 0.25 * slope, rtol=1e-3, atol=1e-5)


def test_a_policy_that_is_wound_up_recovers_only_where_it_is_charged(key):
    """Its means are at 40: through tanh(5 tanh(40 / 5)) comes a slope of 2 · 10^-4 times 5 · 10^-7, and Adam stands."""
    model = make_model(key)

    def after_recovery(saturation_penalty):
        settings = dataclasses.replace(SETTINGS, actor_rate=0.05, saturation_penalty=saturation_penalty)
        step = LBSGD(Barrier(recovery_step=1.0), unit_step=0.05)
        learner = Learner(ImaginedObjective(settings, EpistemicNorm()), step, (1e-3,))

        def one(learned, _):
            learned, info = learner.improve(learned, model, starts(key, 96), WEIGHTS, key)
            return learned, info["is_feasible"]

        learned, is_feasible = jax.jit(lambda learned: jax.lax.scan(one, learned, length=1000))(
            wound_up(learner, key, 40.0)
        )
        assert not np.any(is_feasible)
        return np.abs(learned.actor.tree.layers(starts(key, 96).features)[:, :2]).max()

    assert after_recovery(0.0) > 38.0
    assert after_recovery(0.1) < 4.0


def test_critics_of_costs_learn_at_their_own_rate(key):
    """Adam's first step is as long as its rate, in every weight whose gradient is far above eps."""
    settings = dataclasses.replace(SETTINGS, critic_rate=1e-3, safety_critic_rate=4e-3)
    learner = Learner(ImaginedObjective(settings, EpistemicNorm()), LBSGD(), (5.0,))
    before = learner.init(9, 2, key)
    after, _ = jax.jit(lambda: learner.improve(before, make_model(key), starts(key, 34), WEIGHTS, key))()
    steps = np.abs(after.critics.vector - before.critics.vector).max(axis=1)
    np.testing.assert_allclose(steps, [1e-3, 4e-3], rtol=0.02)
