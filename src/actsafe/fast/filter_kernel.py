"""The filter's chain of steps by kernels, as a function that JAX can differentiate."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array

from actsafe.fast.filter_backward import backward, backward_workspace
from actsafe.fast.filter_forward import (
    FilterInputs,
    FilterResult,
    FilterSizes,
    FilterWeights,
    forward,
    forward_workspace,
)
from actsafe.fast.hoisting import weight_gradient
from actsafe.models.rssm.states import State

_NO_GRADIENT: Any = None
"""Of whole numbers."""


class FilterWorkspace(NamedTuple):
    """Memory that the kernels work in; what is in it does not matter."""

    forward: Any
    back: Any

    @classmethod
    def of(cls, sizes: FilterSizes, dtype: DTypeLike) -> "FilterWorkspace":
        """Unused so far."""
        return cls(forward_workspace(sizes, dtype), backward_workspace(sizes, dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def filter_states(
    weights: FilterWeights, inputs: FilterInputs, workspace: FilterWorkspace, interpret: bool = False
) -> FilterResult:
    """The states of sequences from their beginning, in the precision of `weights`. Plain: `filter_sequences`."""
    return _with_trace(weights, inputs, workspace, interpret)[0]


def _with_trace(
    weights: FilterWeights, inputs: FilterInputs, workspace: FilterWorkspace, interpret: bool
) -> tuple[FilterResult, Any]:
    trace = forward(weights, inputs, workspace.forward, interpret)
    filtered_states = FilterResult(State(trace.deterministic[1:], trace.stochastic[1:]), trace.outputs)
    return filtered_states, (weights, inputs, trace, workspace.back)


def _pull_back(interpret: bool, residuals: Any, cotangents: FilterResult) -> tuple[Any, ...]:
    weights, inputs, trace, workspace = residuals
    errors = backward(weights, inputs, trace, cotangents, workspace, interpret)
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
