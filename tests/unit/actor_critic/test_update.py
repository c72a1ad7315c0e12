"""Dreams, and updates of actors and critics from them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.dream import DreamNoise, dream
from actsafe.actor_critic.losses import ImaginedObjective
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.actor_critic.update import Learner
from actsafe.constrained.lbsgd import LBSGD, Barrier
from actsafe.models.packing import flat
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel, WorldModelSettings, block_size
from actsafe.objectives.uncertainty import EpistemicNorm
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
def test_blocks_divide_the_rows_and_follow_all_members_equally_often(num_rows, size, key):
    assert block_size(num_rows) == size
    members = DreamNoise.draw(make_model(key), num_rows, 2, 600, key).model.members
    assert members.shape == (600, num_rows // size)
    # Of 600 steps a third, 200, follow each member; the std of such a count is 11.5.
    counts = np.stack([(np.asarray(members) == member).sum(axis=0) for member in range(3)])
    assert np.abs(counts - 200).max() < 60


def test_dreams_follow_the_drawn_members(key):
    """Of 32 rows the first 16 follow one member, the others another: each as if there were no other."""
    model, start = make_model(key), starts(key, 32)
    actor = Actor.create(9, 2, width=6, depth=1, initial_std=1.0, key=key)
    noise = DreamNoise.draw(model, 32, 2, 1, key)
    noise = noise._replace(model=noise.model._replace(members=jnp.asarray([[2, 0]])))
    dreamt = dream(model, actor, start, noise)
    np.testing.assert_allclose(dreamt.actions[0], actor(start.features).sample(noise.action[0]), rtol=1e-5)
    for rows, member in ((slice(16), 2), (slice(16, 32), 0)):
        alone = jax.tree.map(lambda leaf, member=member: leaf[member], model.cell.priors)
        before = jax.tree.map(lambda leaf, rows=rows: leaf[rows], start)
        deterministic, prior = alone(before, dreamt.actions[0, rows])
        np.testing.assert_allclose(dreamt.states.deterministic[1, rows], deterministic, rtol=1e-4, atol=1e-6)
        expected = prior.mean + prior.std * noise.model.noise[0, rows]
        np.testing.assert_allclose(dreamt.states.stochastic[1, rows], expected, rtol=1e-4, atol=1e-6)


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


def test_saturation_is_half_the_square_of_what_lies_beyond_three(key):
    actor = Actor.create(9, 2, width=6, depth=1, initial_std=1.0, key=key)
    # Two decisions of two actions, means first: 4 is 1 too far and -5 is 2 too far; spreads do not count.
    outputs = jnp.asarray([[4.0, -1.0, 9.0, 9.0], [-5.0, 3.0, 9.0, 9.0]], jnp.float32)
    assert actor.saturation(outputs) == 1.25  # (1 / 2 + 4 / 2) / 2
    # Half of each excess, as there are two decisions.
    np.testing.assert_allclose(jax.grad(actor.saturation)(outputs), [[0.5, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]])


def saturated(learner, key, mean):
    """An actor-critic whose actions all have nearly this mean before squashing."""
    learned = learner.init(9, 2, key)
    last = learned.actor.tree.layers.layers[-1]
    bias = last.bias.at[:2].set(mean)
    actor = eqx.tree_at(lambda actor: actor.layers.layers[-1].bias, learned.actor.tree, bias)
    packed = dataclasses.replace(learned.actor, vector=flat(actor))
    return dataclasses.replace(learned, actor=packed)


def test_loss_and_costs_are_charged_for_saturation_and_so_are_their_gradients(key):
    model, start = make_model(key), starts(key, 34)
    free, charged = (
        Learner(
            ImaginedObjective(dataclasses.replace(SETTINGS, saturation_penalty=price), EpistemicNorm()), LBSGD(), (5.0,)
        )
        for price in (0.0, 0.25)
    )
    learned = saturated(free, key, 7.0)

    noise = free.draw(learned, model, start, key)

    @jax.jit
    def taught():
        found = []
        for learner in (free, charged):
            gradients = learner.gradients(learned, model, start, noise, WEIGHTS)
            found.append((learner.apply(learned, gradients, WEIGHTS)[1], gradients.actor))
        features = dream(model, learned.actor.tree, start, noise).states.features[:-1].reshape(-1, 9)
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


def test_a_saturated_policy_recovers_only_where_it_is_charged(key):
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
            saturated(learner, key, 40.0)
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


def learned_with(key, **choices):
    """An actor-critic before and after an update."""
    learner = Learner(
        ImaginedObjective(dataclasses.replace(SETTINGS, actor_rate=1e-2, critic_rate=1e-2, **choices), EpistemicNorm()),
        LBSGD(unit_step=1e-2),
        (50.0,),
    )
    before = learner.init(9, 2, key)
    noise = learner.draw(before, make_model(key), starts(key, 34), key)

    def update(learned):
        taught = learner.gradients(learned, make_model(key), starts(key, 34), noise, WEIGHTS)
        return learner.apply(learned, taught, WEIGHTS)[0], taught

    return before, eqx.filter_jit(update)


def test_returns_end_in_slow_copies_and_newest_critics_learn(key):
    before, update = learned_with(key, critic_average=0.75)
    plain_before, plain_update = learned_with(key)
    # Copies begin as the critics do: the first update is that of an agent without any.
    (after, _), (plain_after, _) = update(before), plain_update(plain_before)
    np.testing.assert_allclose(after.critics.vector, plain_after.critics.vector, rtol=1e-6, atol=1e-7)
    moved = after.slow_critics.vector - before.critics.vector
    np.testing.assert_allclose(moved, 0.25 * (after.critics.vector - before.critics.vector), rtol=1e-3, atol=1e-6)
    assert np.abs(moved).max() > 1e-3

    # With critics that promise otherwise returns are as before, and with copies that do they are not.
    def returns(**changed):
        return update(dataclasses.replace(before, **changed))[1].imagined.returns

    far = dataclasses.replace(before.critics, vector=before.critics.vector + 0.5)
    np.testing.assert_array_equal(returns(critics=far), returns())
    assert np.mean(np.abs(returns(slow_critics=far) - returns()) > 0.1) > 0.8
    assert plain_before.slow_critics is None


def test_the_average_of_actors_is_deployed(key):
    before, update = learned_with(key, actor_average=0.75)
    after, _ = update(before)
    moved = after.actor.vector - before.actor.vector
    assert np.abs(moved).max() > 1e-3
    np.testing.assert_allclose(after.deployed.vector - before.actor.vector, 0.25 * moved, rtol=1e-3, atol=1e-6)
    # The next average is of that one: 0.75 · average + 0.25 · newest.
    later, _ = update(after)
    expected = 0.75 * after.deployed.vector + 0.25 * later.actor.vector
    np.testing.assert_allclose(later.deployed.vector, expected, rtol=1e-5, atol=1e-7)
    without, update = learned_with(key)
    np.testing.assert_array_equal(update(without)[0].deployed.vector, update(without)[0].actor.vector)
