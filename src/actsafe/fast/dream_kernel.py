"""Dreams by kernels, as a function that JAX can differentiate."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from actsafe.actor_critic.actor import Actor
from actsafe.fast.dream_backward import backward, backward_workspace
from actsafe.fast.dream_forward import Draws, Sizes, forward, forward_workspace, sizes_of
from actsafe.models.rssm.cell import Priors
from actsafe.models.rssm.states import State


class DreamWorkspace(NamedTuple):
    """Memory that the kernels work in; what is in it does not matter."""

    forward: Any
    back: Any

    @classmethod
    def of(cls, sizes: Sizes, width: int, copies: int, dtype: DTypeLike) -> "DreamWorkspace":
        """For an actor of this width, and `copies` cotangents at a time."""
        return cls(forward_workspace(sizes, width, dtype), backward_workspace(sizes, copies, dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def dream_states(
    action_offsets: Float[Array, "time row action"],
    workspace: DreamWorkspace,
    priors: Priors,
    actor: Actor,
    start: State,
    draws: Draws,
    interpret: bool,
) -> tuple[State, Float[Array, "time row action"]]:
    """States, the first included, and actions; ∂/∂`action_offsets`, which are zero, is the only gradient there is.

    Plain: `actor_critic.dream.dream`.
    """
    return _with_trace(action_offsets, workspace, priors, actor, start, draws, interpret)[0]


def _with_trace(
    action_offsets: Any, workspace: Any, priors: Any, actor: Any, start: Any, draws: Any, interpret: bool
) -> tuple[Any, Any]:
    trace = forward(priors, actor, start, draws, workspace.forward, interpret)
    return (trace.states, trace.actions), (priors, draws, trace, workspace.back)


def _pull_back(interpret: bool, residuals: Any, cotangents: Any) -> tuple[Any, ...]:
    return _together(interpret)(*residuals, cotangents), None, None, None, None, None


@functools.cache
def _together(interpret: bool) -> Callable[..., Any]:
    """The backward pass; several cotangents of one dream, which is what mapping over cotangents alone gives, share its
    programs, as these take most of their time to read weights."""

    def alone(priors: Any, draws: Any, trace: Any, cotangents: Any) -> Any:
        workspace = backward_workspace(sizes_of(priors, draws), 1, priors.entry.weight.dtype)
        return backward(priors, draws, trace, cotangents, workspace, 1, interpret)

    @jax.custom_batching.custom_vmap
    def back(priors: Any, draws: Any, trace: Any, workspace: Any, cotangents: Any) -> Any:
        return alone(priors, draws, trace, cotangents)

    @back.def_vmap
    def several(
        size: int, is_mapped: Any, priors: Any, draws: Any, trace: Any, workspace: Any, cotangents: Any
    ) -> tuple[Any, bool]:
        is_one_dream = not any(jax.tree.leaves(is_mapped[:4])) and all(jax.tree.leaves(is_mapped[4]))
        if not is_one_dream or size & (size - 1):
            axes = jax.tree.map(lambda mapped: 0 if mapped else None, (*is_mapped[:3], is_mapped[4]))
            return jax.vmap(alone, in_axes=axes)(priors, draws, trace, cotangents), True
        beside = jax.tree.map(_beside, cotangents)
        if workspace[0].shape[1] != sizes_of(priors, draws).rows * size:
            workspace = backward_workspace(sizes_of(priors, draws), size, priors.entry.weight.dtype)
        action_gradients = backward(priors, draws, trace, beside, workspace, size, interpret)
        steps, _, num_actions = action_gradients.shape
        return jnp.moveaxis(action_gradients.reshape(steps, -1, size, num_actions), 2, 0), True

    return back


def _beside(cotangent: Float[Array, "copy time row feature"]) -> Float[Array, "time rows feature"]:
    """All copies of a row one next to the other."""
    moved = jnp.moveaxis(cotangent, 0, 2)
    return moved.reshape(moved.shape[0], -1, moved.shape[-1])


dream_states.defvjp(_with_trace, _pull_back)
