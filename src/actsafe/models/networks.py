"""Layers on arrays with any leading axes; weights are (in, out), with leading axes for ensembles."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


class Dense(eqx.Module):
    """x W + b."""

    weight: Float[Array, "*members in out"]
    bias: Float[Array, "*members out"]

    @classmethod
    def create(cls, num_in: int, num_out: int, key: PRNGKeyArray, *, scale: float = 1.0) -> "Dense":
        """Weights and biases uniform in ±`scale` / √num_in."""
        bound = scale / math.sqrt(num_in)
        weight_key, bias_key = jax.random.split(key)
        return cls(
            jax.random.uniform(weight_key, (num_in, num_out), jnp.float32, -bound, bound),
            jax.random.uniform(bias_key, (num_out,), jnp.float32, -bound, bound),
        )

    def __call__(self, x: Float[Array, "*lead in"]) -> Float[Array, "*members_and_lead out"]:
        """The layer at every point; the members of an ensemble meet the axis before the last two of `x`."""
        y = x @ self.weight
        return y + aligned(self.bias, y.ndim)


class MLP(eqx.Module):
    """Layers with ELU between them."""

    layers: tuple[Dense, ...]

    @classmethod
    def create(
        cls, num_in: int, num_out: int, width: int, depth: int, key: PRNGKeyArray, *, last_scale: float = 1.0
    ) -> "MLP":
        """`depth` hidden layers of `width`."""
        sizes = [num_in, *[width] * depth, num_out]
        keys = jax.random.split(key, len(sizes) - 1)
        scales = [1.0] * depth + [last_scale]
        pairs = zip(sizes[:-1], sizes[1:], keys, scales, strict=True)
        return cls(tuple(Dense.create(a, b, k, scale=scale) for a, b, k, scale in pairs))

    @property
    def dtype(self) -> Any:
        """The precision of its weights."""
        return self.layers[0].weight.dtype

    def __call__(self, x: Float[Array, "*lead in"]) -> Float[Array, "*members_and_lead out"]:
        """The network at every point, in the precision of its weights."""
        x = x.astype(self.dtype)
        for layer in self.layers[:-1]:
            x = jax.nn.elu(layer(x))
        return self.layers[-1](x)


NORM_EPSILON = 1e-3
"""Added to variances by `dense_normalised`, as Dreamer's cells have it."""


def dense_normalised(
    layer: Dense, x: Float[Array, "*lead in"], scale: Float[Array, "*members out"]
) -> Float[Array, "*members_and_lead out"]:
    """LN(x W) · scale + b,  LN(y) = (y − mean(y)) / √(var(y) + ε) over the outputs of each row, in single precision.

    The layer's bias is the offset of the normalisation (Ba et al., 2016, "Layer Normalization").
    """
    y = normalised(x @ layer.weight, scale)
    return y + aligned(layer.bias, y.ndim)


def normalised(y: Float[Array, "... out"], scale: Float[Array, "*members out"]) -> Float[Array, "... out"]:
    """LN(y) · scale, in the precision of `y`."""
    wide = y.astype(jnp.float32)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    normal = centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + NORM_EPSILON)
    return normal.astype(y.dtype) * aligned(scale, y.ndim)


def aligned(bias: Float[Array, "*members out"], num_axes: int) -> Float[Array, "*members_and_lead out"]:
    """`bias` with axes of length 1, to be added to an array with `num_axes` axes."""
    members, size = bias.shape[:-1], bias.shape[-1]
    shape = (*members, 1, size) if members else (size,)
    return bias.reshape(*(1,) * (num_axes - len(shape)), *shape)


def cast(tree: PyTree, dtype: DTypeLike) -> PyTree:
    """`tree` with its floating-point arrays in another precision."""

    def convert(leaf: Any) -> Any:
        return leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(convert, tree)
