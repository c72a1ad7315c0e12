"""Dreams: trajectories of a policy in the world model, by trajectory sampling (TS1).

At every step each particle believes one member of the ensemble, drawn anew. What the others would have said is asked
afterwards, of all steps at once: only the believed ones are in the chain of steps that has to wait for each other.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from actsafe.actor_critic.actor import Actor
from actsafe.models.rssm.cell import Cell, State


class DreamNoise(NamedTuple):
    """The random numbers of dreams, drawn in advance."""

    action: Float[Array, "time row action"]
    state: Float[Array, "time row stochastic"]
    believers: Int[Array, "time slot"]
    """The row in each slot; the first slots are the first member's, and so on."""
    slots: Int[Array, "time row"]
    """The slot of each row."""

    @classmethod
    def draw(cls, cell: Cell, num_rows: int, num_actions: int, horizon: int, key: PRNGKeyArray) -> "DreamNoise":
        """Every row believes every member with the same chance; at each step all have as many believers.

        Slots beyond the number of rows, if that is no multiple of the number of members, repeat rows and count nothing.
        """
        action_key, state_key, order_key = jax.random.split(key, 3)
        num_slots = -(-num_rows // cell.num_members) * cell.num_members
        order = jnp.argsort(jax.random.uniform(order_key, (horizon, num_slots), jnp.float32), axis=-1)
        return cls(
            jax.random.normal(action_key, (horizon, num_rows, num_actions), jnp.float32),
            jax.random.normal(state_key, (horizon, num_rows, cell.stochastic_size), jnp.float32),
            order % num_rows,
            jnp.argsort(order, axis=-1)[:, :num_rows],
        )


class Dream(NamedTuple):
    """What was dreamt from each starting state."""

    states: State
    """Passed through, the first included: (time and one, row, ...)."""
    actions: Float[Array, "time row action"]

    @property
    def features(self) -> Float[Array, "time_and_one row feature"]:
        return self.states.features


def dream(
    cell: Cell,
    actor: Actor,
    start: State,
    noise: DreamNoise,
    pushes: Float[Array, "time row action"],
    *,
    unroll: int | bool = 1,
) -> Dream:
    """Dreams from every row of `start`.

    The actor neither sees gradients of its inputs nor hands any to its weights here: ∂/∂`pushes`, which are added to
    its actions and are zero, says what a change of each action would bring. The loop's backward pass then runs
    through the model alone, and the actor's own follows in one batch over all steps (see `Learner.improve`).
    """
    dtype = cell.priors.entry.weight.dtype
    size, members = cell.deterministic_size, cell.num_members

    def advance(state: State, inputs: tuple[DreamNoise, Array]) -> tuple[State, tuple[State, Array]]:
        noise, push = inputs
        features = jax.lax.stop_gradient(state.features)
        action = jax.lax.stop_gradient(actor(features).sample(noise.action)) + push
        everything = jnp.concatenate([state.features, action.astype(dtype)], axis=-1)
        grouped = exchange(everything, noise.believers, noise.slots).reshape(members, -1, everything.shape[-1])
        before = State(grouped[..., :size], grouped[..., size : size + cell.stochastic_size])
        deterministic, priors = cell.predict_each(before, grouped[..., size + cell.stochastic_size :])
        outputs = jnp.concatenate([deterministic, priors.mean.astype(dtype), priors.std.astype(dtype)], axis=-1)
        back = exchange(outputs.reshape(-1, outputs.shape[-1]), noise.slots, noise.believers)
        mean, std = jnp.split(back[:, size:], 2, axis=-1)
        state = State(back[:, :size], mean + std * noise.state.astype(dtype))
        return state, (state, action)

    # Kept for the way back are products of matrices alone; what lies between is cheaper to compute than to remember.
    step = jax.checkpoint(advance, prevent_cse=False, policy=jax.checkpoint_policies.dots_saveable)
    start = jax.tree.map(lambda leaf: leaf.astype(dtype), start)
    _, (states, actions) = jax.lax.scan(step, start, (noise, pushes), unroll=unroll)
    return Dream(jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states), actions)


@jax.custom_vjp
def exchange(
    x: Float[Array, "old feature"], to_new: Int[Array, " new"], to_old: Int[Array, " old_or_more"]
) -> Float[Array, "new feature"]:
    """x[to_new], where `to_old` leads back: the way back is a gather too, and no scatter."""
    return x[to_new]


def _exchange_forward(x: Array, to_new: Array, to_old: Array) -> tuple[Array, tuple[Array, Array]]:
    return x[to_new], (to_new, to_old)


def _exchange_backward(residuals: tuple[Array, Array], cotangent: Array) -> tuple[Array, None, None]:
    to_new, to_old = residuals
    returned = cotangent[to_old]
    if to_old.shape[0] > to_new.shape[0]:
        # Slots that repeat a row were dropped on the way there, and get nothing on the way back.
        is_kept = to_new[to_old] == jnp.arange(to_old.shape[0])
        returned = jnp.where(is_kept[:, None], returned, 0)
    return returned, None, None


exchange.defvjp(_exchange_forward, _exchange_backward)
