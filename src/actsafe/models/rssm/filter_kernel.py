"""The filter's chain of steps by kernels, as a function that JAX can differentiate."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from actsafe.models.rssm.filter_backward import backward
from actsafe.models.rssm.filter_forward import FilterInputs, FilterStates, FilterWeights, forward
from actsafe.models.rssm.hoisting import weight_gradient

_NO_GRADIENT: Any = None
"""Of whole numbers."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def filter_states(weights: FilterWeights, inputs: FilterInputs, interpret: bool = False) -> FilterStates:
    """The states of sequences from their beginning, in the precision of `weights`."""
    return _with_trace(weights, inputs, interpret)[0]


def _with_trace(weights: FilterWeights, inputs: FilterInputs, interpret: bool) -> tuple[FilterStates, Any]:
    trace = forward(weights, inputs, interpret)
    states = FilterStates(trace.deterministic[1:], trace.stochastic[1:], trace.outputs)
    return states, (weights, inputs, trace)


def _pull_back(interpret: bool, residuals: Any, cotangents: FilterStates) -> tuple[FilterWeights, FilterInputs]:
    weights, inputs, trace = residuals
    errors = backward(weights, inputs, trace, cotangents, interpret)
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
    return d_weights, d_inputs


filter_states.defvjp(_with_trace, _pull_back)
