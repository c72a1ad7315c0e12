"""The kernel, interpreted, dreams what the loop dreams; whether it compiles for a GPU only a GPU can say."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.dream_forward import Draws, Sizes
from actsafe.actor_critic.dream_kernel import DreamWorkspace, dream_states
from actsafe.actor_critic.imagination import DreamNoise, dream
from actsafe.models.networks import cast
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.states import State

STEPS, ROWS = 3, 32


def make(key, *, deterministic, stochastic, hidden, width):
    keys = jax.random.split(key, 5)
    sizes = {"deterministic": deterministic, "stochastic": stochastic, "hidden": hidden}
    cell = Cell.create(**sizes, embedding=4, action=2, num_members=3, member_noise=1.0, key=keys[0])
    actor = Actor.create(deterministic + stochastic, 2, width=width, depth=2, initial_std=1.0, key=keys[1])
    start = State(*(jax.random.normal(keys[2], (ROWS, size), jnp.float32) for size in (deterministic, stochastic)))
    return cell, actor, start, DreamNoise.draw(cell, ROWS, 2, STEPS, keys[3])


@pytest.mark.parametrize("num_cotangents", [1, 2, 3])
def test_states_actions_and_gradients_are_those_of_the_loop(num_cotangents, key):
    """Of two actors at once, as agents that explore have them; 3 cotangents are no power of 2, and go one by one."""
    # Sizes that are no powers of 2 either, so that pieces have ends that count nothing.
    cell, actor, start, noise = make(key, deterministic=37, stochastic=5, hidden=37, width=19)
    actors = jax.tree.map(lambda leaf: jnp.stack([leaf, 2.0 * leaf]), actor)
    noises = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), noise)

    def both(run):
        def one(actor, noise):
            result, pull_back = jax.vjp(functools.partial(run, actor, noise), jnp.zeros((STEPS, ROWS, 2), jnp.float32))
            several = jax.tree.map(
                lambda leaf: jnp.stack([jnp.sin(n + 3 * leaf) for n in range(num_cotangents)], axis=2), result
            )
            return result, jax.vmap(pull_back, in_axes=2, out_axes=2)(several)[0]

        return eqx.filter_jit(eqx.filter_vmap(one))(actors, noises)

    looped = both(lambda actor, noise, action_offsets: tuple(dream(cell, actor, start, noise, action_offsets)))
    workspace = DreamWorkspace.of(Sizes(STEPS, ROWS, 2, 37, 5, 37), 19, 2, jnp.float32)
    ours = both(
        lambda actor, noise, action_offsets: dream_states(
            action_offsets, workspace, cell.priors, actor, start, Draws(*noise), True
        )
    )
    for one, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(looped), strict=True):
        assert np.abs(expected).max() > 0.01
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)


def test_the_kernel_lowers_for_cuda(key):
    everything = cast(make(key, deterministic=200, stochastic=60, hidden=200, width=400)[:3], jnp.bfloat16)
    noise = DreamNoise.draw(everything[0], ROWS, 2, STEPS, key)
    workspace = DreamWorkspace.of(Sizes(STEPS, ROWS, 2, 200, 60, 200), 400, 1, jnp.bfloat16)
    arrays, rest = eqx.partition((*everything, noise), eqx.is_array)

    def run(arrays):
        cell, actor, start, noise = eqx.combine(arrays, rest)
        action_offsets = jnp.zeros((STEPS, ROWS, 2), jnp.float32)
        result, pull_back = jax.vjp(
            lambda action_offsets: dream_states(
                action_offsets, workspace, cell.priors, actor, start, Draws(*noise), False
            ),
            action_offsets,
        )
        return pull_back(result)

    text = jax.jit(run).trace(arrays).lower(lowering_platforms=("cuda",)).as_text()
    assert "dream_back" in text
