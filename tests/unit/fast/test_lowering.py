"""Kernels lower for CUDA; that they compute what the plain functions do is tests/contract/test_plain_and_fast.py's."""

import equinox as eqx
import jax
import jax.numpy as jnp

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.dream import DreamNoise
from actsafe.fast.dream_forward import Draws, Sizes
from actsafe.fast.dream_kernel import DreamWorkspace, dream_states
from actsafe.fast.filter import filter_by_kernel, prepare
from actsafe.fast.filter_forward import FilterSizes
from actsafe.fast.filter_kernel import FilterWorkspace
from actsafe.models.networks import cast
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import ImaginationDraws

STEPS, ROWS = 3, 32


def make_cell(key):
    sizes = {"deterministic": 200, "stochastic": 60, "hidden": 200}
    return cast(Cell.create(**sizes, embedding=6, action=2, num_members=3, member_noise=1.0, key=key), jnp.bfloat16)


def lowered(function, arrays):
    return jax.jit(function).trace(arrays).lower(lowering_platforms=("cuda",)).as_text()


def test_dreams(key):
    actor = cast(Actor.create(260, 2, width=400, depth=2, initial_std=1.0, key=key), jnp.bfloat16)
    start = State(*(jnp.zeros((ROWS, size), jnp.bfloat16) for size in (200, 60)))
    noise = DreamNoise(
        jnp.zeros((STEPS, ROWS, 2), jnp.float32),
        ImaginationDraws(jnp.zeros((STEPS, ROWS, 60), jnp.float32), jnp.zeros((STEPS, 2), jnp.int32)),
    )
    memory = DreamWorkspace.of(Sizes(STEPS, ROWS, 2, 200, 60, 200), 400, 1, jnp.bfloat16)
    arrays, rest = eqx.partition((make_cell(key), actor, start, noise), eqx.is_array)

    def run(arrays):
        cell, actor, start, noise = eqx.combine(arrays, rest)
        draws = Draws(noise.action, *noise.model)
        result, pull_back = jax.vjp(
            lambda offsets: dream_states(offsets, memory, cell.priors, actor, start, draws, False),
            jnp.zeros((STEPS, ROWS, 2), jnp.float32),
        )
        return pull_back(result)

    assert "dream_back" in lowered(run, arrays)


def test_the_filter(key):
    embeddings, actions = jnp.zeros((16, STEPS, 6), jnp.bfloat16), jnp.zeros((16, STEPS, 2), jnp.float32)
    memory = FilterWorkspace.of(FilterSizes(STEPS, 16, 200, 60, 200), jnp.bfloat16)

    def run(cell):
        def run_filter(cell):
            steps, draws = prepare(cell, embeddings, actions, jnp.zeros((16, STEPS), bool), key)
            return filter_by_kernel(cell, steps, draws, memory)

        result, pull_back = jax.vjp(run_filter, cell)
        return pull_back(result)

    text = lowered(run, make_cell(key))
    assert "filter_forward" in text
    assert "filter_back" in text
