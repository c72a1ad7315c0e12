"""Dreams by kernels, as a function that JAX can differentiate."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.dream_backward import backward
from actsafe.actor_critic.dream_forward import Draws, forward
from actsafe.models.rssm.cell import Priors
from actsafe.models.rssm.states import State


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def dream_states(
    pushes: Float[Array, "time row action"], priors: Priors, actor: Actor, start: State, draws: Draws, interpret: bool
) -> tuple[State, Float[Array, "time row action"]]:
    """States, the first included, and actions; ∂/∂`pushes`, which are zero, is the only gradient that there is."""
    trace = forward(priors, actor, start, draws, interpret)
    return trace.states, trace.actions


def _with_trace(pushes: Any, priors: Any, actor: Any, start: Any, draws: Any, interpret: bool) -> tuple[Any, Any]:
    trace = forward(priors, actor, start, draws, interpret)
    return (trace.states, trace.actions), (priors, draws, trace)


def _pull_back(interpret: bool, residuals: Any, cotangents: Any) -> tuple[Any, ...]:
    return _together(interpret)(*residuals, cotangents), None, None, None, None


@functools.cache
def _together(interpret: bool) -> Callable[..., Any]:
    """The way back; several cotangents of one dream, which is what mapping over cotangents alone asks for, share its
    programs, as these take most of their time to read weights."""

    @jax.custom_batching.custom_vmap
    def back(priors: Any, draws: Any, trace: Any, cotangents: Any) -> Any:
        return backward(priors, draws, trace, cotangents, 1, interpret)

    @back.def_vmap
    def several(size: int, is_mapped: Any, priors: Any, draws: Any, trace: Any, cotangents: Any) -> Any:
        if any(jax.tree.leaves(is_mapped[:3])) or not all(jax.tree.leaves(is_mapped[3])) or size & (size - 1):
            axes = jax.tree.map(lambda mapped: 0 if mapped else None, tuple(is_mapped))
            one = functools.partial(backward, copies=1, interpret=interpret)
            return jax.vmap(one, in_axes=axes)(priors, draws, trace, cotangents), True
        beside = jax.tree.map(_beside, cotangents)
        wishes = backward(priors, draws, trace, beside, size, interpret)
        steps, _, num_actions = wishes.shape
        return jnp.moveaxis(wishes.reshape(steps, -1, size, num_actions), 2, 0), True

    return back


def _beside(cotangent: Float[Array, "copy time row feature"]) -> Float[Array, "time rows feature"]:
    """All copies of a row one next to the other."""
    moved = jnp.moveaxis(cotangent, 0, 2)
    return moved.reshape(moved.shape[0], -1, moved.shape[-1])


dream_states.defvjp(_with_trace, _pull_back)
