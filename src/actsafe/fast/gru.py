"""The gated recurrent unit of `Priors.__call__`, between its products of matrices.

r = σ(x_r + h_r),   z = σ(x_z + h_z),   n = tanh(x_n + r h_n),   h' = n + z (h − n)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.fast.networks import through_elu


class Gates(NamedTuple):
    """What is between the products and h', and what the backward pass needs."""

    reset: Float[Array, "*lead deterministic"]
    """r"""
    update: Float[Array, "*lead deterministic"]
    """z"""
    candidate: Float[Array, "*lead deterministic"]
    """n"""
    from_state: Float[Array, "*lead deterministic"]
    """h_n"""

    @classmethod
    def of(
        cls,
        reset_and_update: Float[Array, "*lead both"],
        from_entry: Float[Array, "*lead deterministic"],
        from_state: Float[Array, "*lead deterministic"],
    ) -> "Gates":
        """From x_r + h_r and x_z + h_z, x_n, and h_n."""
        reset, update = jnp.split(jax.nn.sigmoid(reset_and_update), 2, axis=-1)
        return cls(reset, update, jnp.tanh(from_entry + reset * from_state), from_state)

    def following(self, previous: Float[Array, "*lead deterministic"]) -> Float[Array, "*lead deterministic"]:
        """h' after h."""
        return self.candidate + self.update * (previous - self.candidate)


def gate_errors(gates: Gates, previous: Array, cotangent: Array) -> tuple[Array, Array, Array, Array]:
    """∂/∂(x_r, x_z, x_n, h_n) from ∂/∂h'; those of h_r and h_z are the same as of x_r and x_z."""
    reset, update, candidate, from_state = gates
    d_candidate = cotangent * (1.0 - update) * (1.0 - candidate * candidate)
    d_reset = d_candidate * from_state * reset * (1.0 - reset)
    d_update = cotangent * (previous - candidate) * update * (1.0 - update)
    return d_reset, d_update, d_candidate, d_candidate * reset


@jax.custom_vjp
def gru(
    gates: Float[Array, "*lead gates"], previous: Float[Array, "*lead deterministic"]
) -> Float[Array, "*lead deterministic"]:
    """h' from (x_r + h_r, x_z + h_z, x_n, h_n) and h, in the precision of `gates` and computed in single precision.

    Plain: `Priors.__call__`. The backward pass keeps r, z, n and h_n in the precision of `gates` and writes its
    gradient in one piece. Left to itself it keeps more, in single precision, and puts the gradient together from
    slices: several times as much traffic.
    """
    return _forward(gates, previous)[0]


def _forward(gates: Array, previous: Array) -> tuple[Array, tuple[Gates, Array]]:
    size, dtype = previous.shape[-1], gates.dtype
    wide = gates.astype(jnp.float32)
    opened = Gates.of(wide[..., : 2 * size], wide[..., 2 * size : 3 * size], wide[..., 3 * size :])
    following = opened.following(previous.astype(jnp.float32))
    kept = jax.tree.map(lambda part: part.astype(dtype), opened)
    # Written down as they are: a compiler would rather keep them in the precision in which they were computed.
    return following.astype(dtype), (jax.lax.optimization_barrier(kept), previous)


def _backward(residuals: tuple[Gates, Array], cotangent: Array) -> tuple[Array, Array]:
    dtype = cotangent.dtype
    gates, previous, cotangent = jax.tree.map(lambda part: part.astype(jnp.float32), (*residuals, cotangent))
    errors = jnp.concatenate(gate_errors(gates, previous, cotangent), axis=-1)
    return errors.astype(dtype), (cotangent * gates.update).astype(dtype)


gru.defvjp(_forward, _backward)


@jax.custom_vjp
def beside(x: Float[Array, "*lead hidden"], h: Float[Array, "*lead deterministic"]) -> Float[Array, "*lead both"]:
    """[elu(x), h], of which nothing else is kept for the backward pass: left to itself elu(x) is written twice.

    Plain: `jnp.concatenate([elu(x), h], axis=-1)`.
    """
    return _beside_forward(x, h)[0]


def _beside_forward(x: Array, h: Array) -> tuple[Array, tuple[Array, Array]]:
    # A compiler knows where a part of it came from, and would keep that.
    both = jax.lax.optimization_barrier(jnp.concatenate([jax.nn.elu(x), h], axis=-1))
    return both, (both, jnp.zeros(x.shape[-1:], x.dtype))


def _beside_backward(kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    both, like_x = kept
    ends = like_x.shape[-1]
    return through_elu(both[..., :ends], cotangent[..., :ends]), cotangent[..., ends:]


beside.defvjp(_beside_forward, _beside_backward)
