"""The layers of `models.networks`, with gradients that keep a device busy."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.models.networks import MLP, Dense, aligned


def dense(layer: Dense, x: Float[Array, "*lead in"]) -> Float[Array, "*members_and_lead out"]:
    """Plain: `Dense.__call__`."""
    return shifted(x @ layer.weight, layer.bias)


def mlp(network: MLP, x: Float[Array, "*lead in"]) -> Float[Array, "*members_and_lead out"]:
    """Plain: `MLP.__call__`."""
    x = x.astype(network.dtype)
    for layer in network.layers[:-1]:
        x = elu(dense(layer, x))
    return dense(network.layers[-1], x)


def trace(network: MLP, x: Float[Array, "row in"]) -> tuple[Float[Array, "row out"], list[Array]]:
    """`MLP.__call__`, and what each layer was given, which is what `gradients` needs."""
    seen = [x]
    for layer in network.layers[:-1]:
        seen.append(elu(dense(layer, seen[-1])))
    return dense(network.layers[-1], seen[-1]), seen


def gradients(network: MLP, seen: list[Array], errors: Float[Array, "row objective out"]) -> MLP:
    """∂/∂weights of several objectives, along the leading axis, from their ∂/∂outputs at every row.

    Plain: `jax.vjp` of `MLP.__call__`. Rows and objectives together are the rows of larger products: of as many as
    differentiating one objective takes. Weights' gradients are in single precision.
    """
    found = []
    for layer, x in zip(reversed(network.layers), reversed(seen), strict=True):
        _, num_objectives, num_out = errors.shape
        weight = summed(x, errors.reshape(-1, num_objectives * num_out)).reshape(-1, num_objectives, num_out)
        found.append(Dense(jnp.moveaxis(weight, 1, 0), jnp.sum(errors, axis=0, dtype=jnp.float32)))
        if x is not seen[0]:
            errors = through_elu(x[:, None], jnp.einsum("roj,ij->roi", errors, layer.weight))
    return MLP(tuple(reversed(found)))


@jax.custom_vjp
def product(x: Float[Array, "*lead in"], weight: Float[Array, "in out"]) -> Float[Array, "*lead out"]:
    """x W, of so many rows that the weights' gradient is best `summed`. Plain: `x @ weight`."""
    return x @ weight


def _product_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _product_backward(kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    x, weight = kept
    rows, errors = (each.reshape(-1, each.shape[-1]) for each in (x, cotangent))
    return cotangent @ weight.T, summed(rows, errors).astype(weight.dtype)


product.defvjp(_product_forward, _product_backward)


def summed(x: Float[Array, "row in"], y: Float[Array, "row out"]) -> Float[Array, "in out"]:
    """Σ xᵀ y over rows, in single precision, as weights' gradients are. Plain: `x.T @ y`.

    A product of few columns and many rows leaves most of a device idle, unless the rows are cut into pieces, whose
    products can be made side by side. XLA would do that too, but into pieces of its own, for which it first copies all
    rows to fill up the last. Here pieces are equal.
    """
    num_rows = x.shape[0]
    num_pieces = next(n for n in range(max(1, num_rows // ROWS_OF_A_PIECE), 0, -1) if num_rows % n == 0)
    pieces = (each.reshape(num_pieces, -1, each.shape[-1]) for each in (x, y))
    return jnp.sum(jnp.einsum("pri,prj->pij", *pieces, preferred_element_type=jnp.float32), axis=0)


ROWS_OF_A_PIECE = 2000
"""At least."""


@jax.custom_vjp
def shifted(x: Float[Array, "*lead out"], bias: Float[Array, "*members out"]) -> Float[Array, "*lead out"]:
    """x + b; the members of an ensemble meet the axis before the last two of `x`. Plain: `Dense.__call__`'s sum."""
    return x + aligned(bias, x.ndim)


def _shifted_forward(x: Array, bias: Array) -> tuple[Array, Array]:
    return shifted(x, bias), bias


def _shifted_backward(bias: Array, errors: Array) -> tuple[Array, Array]:
    members, size = bias.shape[:-1], bias.shape[-1]
    if members:
        rest = (*range(errors.ndim - 2 - len(members)), errors.ndim - 2)
        return errors, jnp.sum(errors, axis=rest).astype(bias.dtype)
    return errors, column_sums(errors.reshape(-1, size)).astype(bias.dtype)


shifted.defvjp(_shifted_forward, _shifted_backward)


def column_sums(x: Float[Array, "row column"]) -> Float[Array, " column"]:
    """Sums over rows; devices add up many columns at a time, so that of few several rows are taken for one.

    Plain: `jnp.sum(x, axis=0)`.
    """
    num_rows, num_columns = x.shape
    fitting = (n for n in (32, 16, 8, 4, 2) if num_rows % n == 0 and n * num_columns <= MOST_COLUMNS)
    side_by_side = next(fitting, 1)
    if side_by_side == 1:
        return jnp.sum(x, axis=0)
    wide = jnp.sum(x.reshape(-1, side_by_side * num_columns), axis=0, dtype=jnp.float32)
    # A compiler would make one sum of both, the slow one.
    return jnp.sum(jax.lax.optimization_barrier(wide).reshape(side_by_side, num_columns), axis=0)


MOST_COLUMNS = 512


@jax.custom_vjp
def elu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x where positive, else eˣ − 1. Plain: `jax.nn.elu`.

    Its slope is 1 or y + 1, so that the output, which the next layer keeps anyway, is all that the backward pass needs.
    """
    return jax.nn.elu(x)


def _elu_forward(x: Array) -> tuple[Array, Array]:
    y = jax.nn.elu(x)
    return y, y


def through_elu(y: Float[Array, "..."], errors: Float[Array, "..."]) -> Float[Array, "..."]:
    """∂/∂x from ∂/∂y, y = elu(x)."""
    return jnp.where(y > 0, errors, errors * (y + 1))


elu.defvjp(_elu_forward, lambda y, errors: (through_elu(y, errors),))
