"""Options of the world model's learning: rows of the members' own, and outcomes some steps ahead, against loops."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.data.rows import Rows
from actsafe.models.rssm.bootstrap import draw_owners, owners_of
from actsafe.models.rssm.filter import filter_sequences
from actsafe.models.rssm.open_loop import Ahead, open_loop_losses
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel, WorldModelSettings

SMALL = WorldModelSettings(deterministic=6, stochastic=3, hidden=5, num_members=3, head_width=6, head_depth=1)
BATCH, STEPS = 2, 6


def make_model(key, **options):
    return eqx.filter_jit(lambda k: WorldModel.create((4,), 2, 2, dataclasses.replace(SMALL, **options), k))(key)


def make_rows(key, batch=BATCH, steps=STEPS):
    observation_key, action_key, reward_key = jax.random.split(key, 3)
    return Rows(
        jax.random.normal(observation_key, (batch, steps, 4), jnp.float32),
        jax.random.uniform(action_key, (batch, steps, 2), jnp.float32, -1, 1),
        jax.random.normal(reward_key, (batch, steps), jnp.float32),
        jnp.abs(jax.random.normal(reward_key, (batch, steps, 2), jnp.float32)),
        jnp.zeros((batch, steps), bool).at[:, 0].set(True).at[1, 3].set(True),
    )


@pytest.mark.parametrize(("num_members", "share"), [(1, 1), (2, 1), (5, 3)])
def test_every_row_belongs_to_half_of_the_members(num_members, share, key):
    owners = np.asarray(owners_of(make_rows(key, 20, 100), num_members))
    np.testing.assert_array_equal(owners.sum(axis=-1), share)
    # 2000 rows: a share's std is at most 0.011.
    np.testing.assert_allclose(owners.mean(axis=(0, 1)), share / num_members, atol=0.05)


def test_a_rows_members_are_always_the_same(key):
    """Wherever in a window it lies; and they depend on the observation and on the action."""
    rows = make_rows(key, 2, 40)
    owners = owners_of(rows, 5)
    later = owners_of(jax.tree.map(lambda leaf: leaf[1:, 7:], rows), 5)
    np.testing.assert_array_equal(later, owners[1:, 7:])
    for change in ({"observation": rows.observation.at[..., -1].add(0.01)}, {"action": -rows.action}):
        is_same = np.all(np.asarray(owners_of(rows._replace(**change), 5)) == owners, axis=-1)
        # 1 of 10 ways to choose 3 of 5.
        assert 0.0 < is_same.mean() < 0.3


def test_images_have_members_too(key):
    """Frames that differ in one pixel of one channel, and nothing was done."""
    images = jnp.zeros((1, 64, 8, 8, 3), jnp.uint8).at[0, jnp.arange(64), 2, 3, 1].set(jnp.arange(64, dtype=jnp.uint8))
    still = make_rows(key, 1, 64)._replace(action=jnp.zeros((1, 64, 2), jnp.float32))
    share = np.mean(owners_of(still._replace(observation=images), 2), axis=(0, 1))
    assert 0.25 < share[0] < 0.75


def test_owners_are_drawn_alike(key):
    owners = jnp.broadcast_to(jnp.asarray([True, False, True]), (3000, 3))
    drawn = np.bincount(draw_owners(owners, key), minlength=3)
    assert drawn[1] == 0
    assert abs(drawn[0] / 3000 - 0.5) < 0.04


def one_owner(members):
    """The rows' only owners."""
    return jnp.arange(3)[None, None] == members[..., None]


MEMBERS = jnp.asarray([[0, 2, 1, 1, 0, 2], [2, 2, 0, 1, 2, 0]])


def test_each_row_is_filtered_by_a_member_of_its_own(key):
    cell, rows = make_model(key).cell, make_rows(key)
    embeddings = jax.random.normal(key, (BATCH, STEPS, 6), jnp.float32)
    found = jax.jit(
        lambda cell: filter_sequences(cell, embeddings, rows.action, rows.is_first, key, one_owner(MEMBERS))
    )(cell)
    noise = jax.random.normal(jax.random.split(key)[1], (STEPS, BATCH, 3), jnp.float32)
    for row in range(BATCH):
        state = cell.begin(1)
        for t in range(STEPS):
            goes_on = 1.0 - rows.is_first[row, t]
            own = jax.tree.map(lambda leaf, i=int(MEMBERS[row, t]): leaf[i], cell.priors)
            before = jax.tree.map(lambda leaf, factor=goes_on: leaf * factor, state)
            deterministic, prior = own(before, rows.action[row, t][None] * goes_on)
            posterior = cell.posterior(deterministic, embeddings[row, t][None])
            state = State(deterministic, posterior.sample(noise[t, row][None]))
            np.testing.assert_allclose(found.state.stochastic[row, t], state.stochastic[0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found.prior.mean[row, t], prior.mean[0], rtol=1e-4, atol=1e-5)


def test_a_member_that_owns_no_row_learns_nothing(key, monkeypatch):
    """Of the whole loss, steps ahead included; the same rows teach the others."""
    model, rows = make_model(key, is_bootstrapped=True, open_loop_steps=2, free_nats=0.0), make_rows(key)
    without_1 = jnp.broadcast_to(jnp.asarray([True, False, True]), (BATCH, STEPS, 3))
    monkeypatch.setattr(WorldModel, "owners", lambda self, rows: without_1)
    gradient = jax.jit(jax.grad(lambda m: m.loss(rows, key)[0]))(model).cell.priors
    for leaf in jax.tree.leaves(gradient):
        assert not np.any(leaf[1])
        assert np.any(leaf[0]) and np.any(leaf[2])


def test_members_of_a_bootstrap_learn_from_different_rows(key):
    """The loss follows owners of each row, by its own hash: with other keys never a member that does not own it."""
    model, rows = make_model(key, is_bootstrapped=True), make_rows(key)
    owners = owners_of(rows, 3)
    assert np.array_equal(model.owners(rows), owners)
    assert make_model(key).owners(rows) is None
    filtered = jax.jit(lambda model: jax.vmap(lambda k: model.filter(rows, k))(jax.random.split(key, 8)))(model)
    everyone = jax.jit(lambda model: model.cell.priors.belief(filtered.state.deterministic.reshape(1, -1, 6)))(model)
    means = everyone.mean.reshape(3, 8, BATCH, STEPS, 3)
    is_followed = np.all(np.abs(means - filtered.prior.mean[None]) < 1e-4, axis=-1)
    assert np.all(is_followed.sum(axis=0) == 1)
    np.testing.assert_array_equal(is_followed.any(axis=1), np.moveaxis(owners, -1, 0))


def test_outcomes_ahead_by_a_loop(key):
    """From rows 0, 2 and 4 of 6, two steps: none beyond the last row, none past an episode's beginning."""
    model, rows = make_model(key), make_rows(key)
    states = State(*(jax.random.normal(key, (BATCH, STEPS, size), jnp.float32) for size in (6, 3)))
    found = jax.jit(
        lambda model: open_loop_losses(model.cell, model.outcome, states, rows, one_owner(MEMBERS), 2, key)
    )(model)
    noise = jax.random.normal(jax.random.split(key)[1], (2, BATCH * 3, 3), jnp.float32)
    errors, places = [], set()
    for row in range(BATCH):
        for number, start in enumerate((0, 2, 4)):
            state = jax.tree.map(lambda leaf, row=row, start=start: leaf[row, start][None], states)
            for j in (1, 2):
                t = start + j
                if t >= STEPS or rows.is_first[row, t]:
                    break
                own = jax.tree.map(lambda leaf, i=int(MEMBERS[row, t]): leaf[i], model.cell.priors)
                deterministic, prior = own(state, rows.action[row, t][None])
                state = State(deterministic, prior.sample(noise[j - 1, row * 3 + number][None]))
                outcome = model.outcome(state.features)
                cost_errors = np.square(outcome.costs[0] - rows.costs[row, t])
                errors.append((0.5 * (outcome.reward[0] - rows.reward[row, t]) ** 2, 0.5 * cost_errors.sum()))
                places.add((row, t))
    # All rows but the first, without row 3 of the second sequence, where an episode begins, and row 4 behind it.
    assert len(places) == 2 * 5 - 2
    np.testing.assert_allclose(found, np.mean(errors, axis=0), rtol=1e-4)


def test_rows_ahead_of_more_steps_than_there_are():
    ahead = Ahead.of(jnp.zeros((1, 3), bool), 4)
    np.testing.assert_array_equal(ahead.counts[:, 0, 0], [1.0, 1.0, 0.0, 0.0])
    assert Ahead.of(jnp.zeros((1, 1), bool), 4).counts.size == 0


def test_outcomes_ahead_teach_the_head_and_the_priors(key):
    model, rows = make_model(key, open_loop_steps=3, open_loop_weight=0.5), make_rows(key)
    without = dataclasses.replace(model, settings=SMALL)

    @jax.jit
    def values(model, without):
        losses = model.loss(rows, key), without.loss(rows, key)
        states = model.observe(rows, key)
        return losses, jax.grad(lambda m: sum(m.open_loop_losses(rows, states, key).values()))(model)

    ((loss, (_, parts)), (plain, (_, plain_parts))), gradient = values(model, without)
    added = parts["open_loop_reward_loss"] + parts["open_loop_cost_loss"]
    assert float(added) > 0.1
    assert float(loss) == pytest.approx(float(plain + 0.5 * added), rel=1e-5)
    assert set(parts) - set(plain_parts) == {"open_loop_reward_loss", "open_loop_cost_loss"}
    for leaf in jax.tree.leaves((gradient.head, gradient.cell.priors)):
        assert np.any(leaf)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((gradient.decoder, gradient.cell.posterior)))
