"""Dreams of `actor_critic.dream`, whose backward pass runs through the model alone.

Only the members that are followed are in the chain of steps, which has to wait for itself. What the others would have
expected is computed afterwards, for all steps at once (see `objective`).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.dream import Dream, DreamNoise
from actsafe.fast import blocks
from actsafe.fast.cell import predict_each
from actsafe.fast.dream_forward import Draws, Sizes
from actsafe.fast.dream_kernel import DreamWorkspace, dream_states
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import block_size


def workspace(cell: Cell, actor: Actor, noise: DreamNoise, num_cotangents: int) -> DreamWorkspace | tuple[()]:
    """Memory for `dream` and its backward pass of `num_cotangents`, if it is a kernel that dreams.

    No kernel knows a normalised cell.
    """
    num_steps, num_rows, num_actions = noise.action.shape
    dtype = cell.priors.entry.weight.dtype
    if cell.is_normalised or not blocks.is_usable(num_rows, dtype):
        return ()
    hidden = cell.priors.entry.weight.shape[-1]
    sizes = Sizes(num_steps, num_rows, num_actions, cell.deterministic_size, cell.stochastic_size, hidden)
    return DreamWorkspace.of(sizes, actor.layers.layers[0].weight.shape[-1], num_cotangents, dtype)


def dream(
    cell: Cell,
    actor: Actor,
    start: State,
    noise: DreamNoise,
    action_offsets: Float[Array, "time row action"],
    memory: DreamWorkspace | tuple[()] | None = None,
    *,
    unroll: int | bool = 1,
) -> Dream:
    """Dreams from every row of `start`. Plain: `actor_critic.dream.dream`.

    `memory` is for callers that order a program (see `blocks.call`). The actor neither sees gradients of its inputs nor
    hands any to its weights here: ∂/∂`action_offsets`, which are added to its actions and are zero, says what a change
    of each action would bring. The actor's own backward pass follows in one batch over all steps (see `learning`).
    """
    dtype = cell.priors.entry.weight.dtype
    start = jax.tree.map(lambda leaf: leaf.astype(dtype), start)
    memory = workspace(cell, actor, noise, 1) if memory is None else memory
    if memory:
        draws = Draws(noise.action, *noise.model)
        dreamt: Any = dream_states(action_offsets, memory, cell.priors, actor, start, draws, False)
        return Dream(*dreamt)
    size = block_size(start.stochastic.shape[0])

    def advance(state: State, inputs: tuple[DreamNoise, Array]) -> tuple[State, tuple[State, Array]]:
        (action_noise, (state_noise, members)), offset = inputs
        features = jax.lax.stop_gradient(state.features)
        action = jax.lax.stop_gradient(actor(features).sample(action_noise)) + offset
        followed = jax.tree.map(lambda x: x[members], cell.priors)
        grouped, doing = jax.tree.map(lambda x: x.reshape(-1, size, x.shape[-1]), (state, action.astype(dtype)))
        deterministic, priors = predict_each(followed, grouped, doing)
        sampled = priors.sample(state_noise.reshape(priors.mean.shape)).astype(dtype)
        state = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), State(deterministic, sampled))
        return state, (state, action)

    # Products of matrices are kept for the backward pass; what lies between them is cheaper to compute again.
    step = jax.checkpoint(advance, prevent_cse=False, policy=jax.checkpoint_policies.dots_saveable)
    _, (states, actions) = jax.lax.scan(step, start, (noise, action_offsets), unroll=unroll)
    states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states)
    return Dream(states, actions.astype(dtype))
