"""The filter's chain of steps by kernels, as a function that JAX can differentiate."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from actsafe.models.rssm.filter_backward import backward, backward_room
from actsafe.models.rssm.filter_forward import (
    FilterInputs,
    FilterSizes,
    FilterWeights,
    forward,
    forward_room,
)
from actsafe.models.rssm.hoisting import weight_gradient
from actsafe.models.rssm.states import State, Walked

_NO_GRADIENT: Any = None
"""Of whole numbers."""


class FilterRoom(NamedTuple):
    """Memory that the kernels work in; what is in it does not matter."""

    forward: Any
    back: Any

    @classmethod
    def of(cls, sizes: FilterSizes, dtype: DTypeLike) -> "FilterRoom":
        """Unused so far."""
        return cls(forward_room(sizes, dtype), backward_room(sizes, dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def filter_states(weights: FilterWeights, inputs: FilterInputs, room: FilterRoom, interpret: bool = False) -> Walked:
    """The states of sequences from their beginning, in the precision of `weights`."""
    return _with_trace(weights, inputs, room, interpret)[0]


def _with_trace(weights: FilterWeights, inputs: FilterInputs, room: FilterRoom, interpret: bool) -> tuple[Walked, Any]:
    trace = forward(weights, inputs, room.forward, interpret)
    walked = Walked(State(trace.deterministic[1:], trace.stochastic[1:]), trace.outputs)
    return walked, (weights, inputs, trace, room.back)


def _pull_back(interpret: bool, residuals: Any, cotangents: Walked) -> tuple[Any, ...]:
    weights, inputs, trace, room = residuals
    errors = backward(weights, inputs, trace, cotangents, room, interpret)
    dtype, size = weights.entry.dtype, weights.posterior.shape[0]
    goes_on = inputs.goes_on[..., None].astype(dtype)
    d_entry_gates = errors.gates[..., : 3 * size]
    d_state_gates = jnp.concatenate([errors.gates[..., : 2 * size], errors.gates[..., 3 * size :]], axis=-1)

    def gradient(x: Array, errors: Array, weight: Array) -> Array:
        return weight_gradient(x, errors, inputs.members, weight.shape)

    d_weights = FilterWeights(
        gradient(trace.stochastic[:-1] * goes_on, errors.entered, weights.entry),
        gradient(trace.entered, d_entry_gates, weights.gates_from_entry),
        gradient(trace.deterministic[:-1] * goes_on, d_state_gates, weights.gates_from_state),
        gradient(trace.deterministic[1:], errors.hidden, weights.posterior),
        gradient(trace.hidden, errors.outputs, weights.out),
    )
    d_inputs = FilterInputs(
        errors.entered,
        errors.hidden,
        jnp.sum(d_entry_gates, axis=1),
        jnp.sum(errors.gates[..., 3 * size :], axis=1),
        jnp.sum(errors.outputs, axis=(0, 1)),
        jnp.zeros_like(inputs.noise),
        jnp.zeros_like(inputs.goes_on),
        members=_NO_GRADIENT,
    )
    return d_weights, d_inputs, None


filter_states.defvjp(_with_trace, _pull_back)
