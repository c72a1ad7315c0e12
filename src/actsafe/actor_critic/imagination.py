"""Dreams: trajectories of a policy in the world model, by trajectory sampling (TS1).

At every step each particle believes one member of the ensemble, drawn anew. What the others would have said is asked
afterwards, of all steps at once: only the believed ones are in the chain of steps that has to wait for each other.
Particles draw in blocks, so that a block needs the weights of one member only.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.dream_forward import Draws, Sizes
from actsafe.actor_critic.dream_kernel import DreamWorkspace, dream_states
from actsafe.models.rssm import blocks
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.states import State


class DreamNoise(NamedTuple):
    """The random numbers of dreams, drawn in advance."""

    action: Float[Array, "time row action"]
    state: Float[Array, "time row stochastic"]
    members: Int[Array, "time block"]
    """The member that each block of neighbouring rows believes."""

    @classmethod
    def draw(cls, cell: Cell, num_rows: int, num_actions: int, horizon: int, key: PRNGKeyArray) -> "DreamNoise":
        """Every row believes every member with the same chance, independently at each step."""
        action_key, state_key, member_key = jax.random.split(key, 3)
        num_blocks = num_rows // block_size(num_rows)
        return cls(
            jax.random.normal(action_key, (horizon, num_rows, num_actions), jnp.float32),
            jax.random.normal(state_key, (horizon, num_rows, cell.stochastic_size), jnp.float32),
            jax.random.randint(member_key, (horizon, num_blocks), 0, cell.num_members),
        )


def block_size(num_rows: int) -> int:
    """Rows that believe the same: 16, or the largest smaller number that divides all."""
    return next(size for size in range(blocks.BLOCK, 0, -1) if num_rows % size == 0)


class Dream(NamedTuple):
    """What was dreamt from each starting state."""

    states: State
    """Passed through, the first included: (time and one, row, ...)."""
    actions: Float[Array, "time row action"]
    """In the precision of the model."""

    @property
    def features(self) -> Float[Array, "time_and_one row feature"]:
        return self.states.features


def dream_workspace(cell: Cell, actor: Actor, noise: DreamNoise, num_cotangents: int) -> DreamWorkspace | tuple[()]:
    """For `dream`, to be gone back with so many cotangents: memory to work in, if it is a kernel that dreams."""
    num_steps, num_rows, num_actions = noise.action.shape
    dtype = cell.priors.entry.weight.dtype
    if not blocks.is_usable(num_rows, dtype):
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
    workspace: DreamWorkspace | tuple[()] | None = None,
    *,
    unroll: int | bool = 1,
) -> Dream:
    """Dreams from every row of `start`; `workspace` is for whoever orders a program (see `blocks.call`).

    The actor neither sees gradients of its inputs nor hands any to its weights here: ∂/∂`action_offsets`, which are
    added to its actions and are zero, says what a change of each action would bring. The loop's backward pass then
    runs through the model alone, and the actor's own follows in one batch over all steps (see `Learner.improve`).
    """
    dtype = cell.priors.entry.weight.dtype
    start = jax.tree.map(lambda leaf: leaf.astype(dtype), start)
    workspace = dream_workspace(cell, actor, noise, 1) if workspace is None else workspace
    if workspace:
        dreamt: Any = dream_states(action_offsets, workspace, cell.priors, actor, start, Draws(*noise), False)
        return Dream(*dreamt)
    size = block_size(start.stochastic.shape[0])

    def advance(state: State, inputs: tuple[DreamNoise, Array]) -> tuple[State, tuple[State, Array]]:
        noise, offset = inputs
        features = jax.lax.stop_gradient(state.features)
        action = jax.lax.stop_gradient(actor(features).sample(noise.action)) + offset
        believed = eqx.tree_at(lambda cell: cell.priors, cell, jax.tree.map(lambda x: x[noise.members], cell.priors))
        grouped, doing = jax.tree.map(lambda x: x.reshape(-1, size, x.shape[-1]), (state, action.astype(dtype)))
        deterministic, priors = believed.predict_each(grouped, doing)
        sampled = priors.sample(noise.state.reshape(priors.mean.shape)).astype(dtype)
        state = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), State(deterministic, sampled))
        return state, (state, action)

    # Kept for the way back are products of matrices alone; what lies between is cheaper to compute than to remember.
    step = jax.checkpoint(advance, prevent_cse=False, policy=jax.checkpoint_policies.dots_saveable)
    _, (states, actions) = jax.lax.scan(step, start, (noise, action_offsets), unroll=unroll)
    states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states)
    return Dream(states, actions.astype(dtype))
