"""A scan that learns outside its loop.

The gradient of a weight that is used at every step of a loop is a sum over steps. Differentiated as it stands, the loop
adds to it step by step: a product and a pass over the weights each time, in a chain of small operations whose length is
what the loop's time is made of. Here the backward loop only carries the error signals δ_t, and ∂W = Σ_t x_tᵀ δ_t
is one large product after it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

Layers = Callable[[str, Array], Array]
"""The linear layers of a step: `layers(name, x)` is x W_name."""

Step = Callable[[Layers, PyTree, PyTree, PyTree], tuple[PyTree, PyTree]]
"""(layers, carry, differentiable inputs, other inputs) -> (carry, outputs); each layer is used once."""


def hoisted_scan(
    step: Step,
    weights: Mapping[str, Array],
    carry: PyTree,
    inputs: PyTree,
    others: PyTree,
    members: Int[Array, " time"],
    *,
    unroll: int = 1,
) -> tuple[PyTree, PyTree]:
    """Plain: `jax.lax.scan` of `step`, with the same gradients for `weights`, `carry` and `inputs`.

    A layer takes rows (row, in). A weight is (in, out), or (member, in, out): then each step uses the one that
    `members` names. `others` (random numbers, flags) get no gradient.
    """

    @jax.custom_vjp
    def run(weights: Mapping[str, Array], carry: PyTree, inputs: PyTree, others: PyTree) -> Any:
        return _loop(step, weights, carry, inputs, others, None, unroll)[0]

    def forward(weights: Mapping[str, Array], carry: PyTree, inputs: PyTree, others: PyTree) -> Any:
        _, seen = jax.eval_shape(lambda: _loop(step, weights, carry, inputs, others, None, unroll))
        offsets = {
            name: jnp.zeros((*x.shape[:-1], weights[name].shape[-1]), jnp.result_type(x.dtype, weights[name].dtype))
            for name, x in seen.items()
        }

        def with_offsets(carry: PyTree, inputs: PyTree, offsets: Any) -> Any:
            return _loop(step, weights, carry, inputs, others, offsets, unroll)

        result, pull_back, seen = jax.vjp(with_offsets, carry, inputs, offsets, has_aux=True)
        return result, (pull_back, seen, others[0])

    def backward(residuals: Any, cotangents: Any) -> Any:
        pull_back, seen, members = residuals
        d_carry, d_inputs, errors = pull_back(cotangents)
        d_weights = {name: weight_gradient(x, errors[name], members, weights[name].shape) for name, x in seen.items()}
        return d_weights, d_carry, d_inputs, None

    run.defvjp(forward, backward)
    return run(dict(weights), carry, inputs, (members, others))


_WITH_MEMBERS = 3
"""Axes of a weight that each member has its own of."""


def _loop(
    step: Step, weights: Mapping[str, Array], carry: PyTree, inputs: PyTree, others: Any, offsets: Any, unroll: int
) -> tuple[tuple[PyTree, PyTree], dict[str, Array]]:
    """The scan's result, and the inputs of all layers at all steps; `offsets` are added to what layers give."""

    def body(carry: PyTree, now: Any) -> Any:
        inputs, (member, others), offsets = now
        seen: dict[str, Array] = {}

        def layers(name: str, x: Array) -> Array:
            seen[name] = x
            weight = weights[name]
            if weight.ndim == _WITH_MEMBERS:
                weight = jax.lax.dynamic_index_in_dim(weight, member, keepdims=False)
            product = x @ weight
            return product if offsets is None else product + offsets[name]

        carry, outputs = step(layers, carry, inputs, others)
        # Each state is computed once: where steps are in one piece, a compiler would rather compute the chain of
        # cheap operations behind a state again, from step to step a longer one, than write it down.
        return jax.lax.optimization_barrier(carry), (outputs, seen)

    # Products are kept for the backward pass; what lies between them is cheaper to compute again.
    body = jax.checkpoint(body, prevent_cse=False, policy=jax.checkpoint_policies.dots_saveable)
    carry, (outputs, seen) = jax.lax.scan(body, carry, (inputs, others, offsets), unroll=unroll)
    return (carry, outputs), seen


def weight_gradient(
    x: Float[Array, "time row in"],
    errors: Float[Array, "time row out"],
    members: Int[Array, " time"],
    shape: tuple[int, ...],
) -> Float[Array, "*member in out"]:
    """Σ_t x_tᵀ δ_t for a weight of this shape; a member's over the steps at which it was used."""
    if len(shape) < _WITH_MEMBERS:
        return jnp.einsum("tri,tro->io", x, errors)
    is_used = jax.nn.one_hot(members, shape[0], dtype=x.dtype)
    return jnp.einsum("etri,tro->eio", jnp.einsum("te,tri->etri", is_used, x), errors)
