"""Dreams: trajectories of a policy in a latent model.

a_t ~ π(a_t | s_t),   s_{t+1} ~ f^i(s_t, a_t),  i ~ U{1 … M}  (TS1)

Paper, appendix B.2 "Vision Control Experiments".
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.actor_critic.actor import Actor
from actsafe.models.base import Draws, Latent, LatentModel


class DreamNoise(NamedTuple):
    """The random numbers of dreams, drawn in advance."""

    action: Float[Array, "time row action"]
    model: Draws

    @classmethod
    def draw(cls, model: LatentModel, num_rows: int, num_actions: int, horizon: int, key: PRNGKeyArray) -> "DreamNoise":
        """Of `horizon` steps from `num_rows` states."""
        action_key, *model_keys = jax.random.split(key, 3)
        action = jax.random.normal(action_key, (horizon, num_rows, num_actions), jnp.float32)
        return cls(action, model.draw(num_rows, horizon, model_keys))


class Dream(NamedTuple):
    """What was dreamt from each starting state."""

    states: Latent
    """Passed through, the first included: (time and one, row)."""
    actions: Float[Array, "time row action"]


def dream(model: LatentModel, actor: Actor, start: Latent, noise: DreamNoise) -> Dream:
    """Dreams from every row of `start`.

    The policy is differentiated through the actions' effects, but not through what it sees of them.
    """

    def step(state: Latent, noise: DreamNoise) -> tuple[Latent, tuple[Latent, Array]]:
        action = actor(jax.lax.stop_gradient(model.features(state))).sample(noise.action)
        state = model.imagine(state, action, noise.model)
        return state, (state, action)

    _, (states, actions) = jax.lax.scan(step, start, noise)
    return Dream(jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states), actions)
