"""The gated recurrent unit, between its products of matrices.

r = σ(x_r + h_r),   z = σ(x_z + h_z),   n = tanh(x_n + r h_n),   h' = n + z (h − n)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def gated(
    reset_and_update: Float[Array, "*lead both"],
    from_entry: Float[Array, "*lead deterministic"],
    from_state: Float[Array, "*lead deterministic"],
    previous: Float[Array, "*lead deterministic"],
) -> Float[Array, "*lead deterministic"]:
    """h' from x_r + h_r and x_z + h_z, x_n, h_n, and h."""
    reset, update = jnp.split(jax.nn.sigmoid(reset_and_update), 2, axis=-1)
    candidate = jnp.tanh(from_entry + reset * from_state)
    return candidate + update * (previous - candidate)


@jax.custom_vjp
def gru(
    x: Float[Array, "*lead gates"], h: Float[Array, "*lead gates"], previous: Float[Array, "*lead deterministic"]
) -> Float[Array, "*lead deterministic"]:
    """h' from (x_r, x_z, x_n), (h_r, h_z, h_n) and h, in the precision of `x` and computed in single precision.

    The way back starts from these inputs again and writes each gradient in one piece. Left to itself it keeps what lies
    between, in single precision, and puts the gradients together from slices: several times as much traffic.
    """
    return _forward(x, h, previous)[0]


def _forward(x: Array, h: Array, previous: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    size = previous.shape[-1]
    wide_x, wide_h = x.astype(jnp.float32), h.astype(jnp.float32)
    both = wide_x[..., : 2 * size] + wide_h[..., : 2 * size]
    following = gated(both, wide_x[..., 2 * size :], wide_h[..., 2 * size :], previous.astype(jnp.float32))
    return following.astype(x.dtype), (x, h, previous)


def _backward(residuals: tuple[Array, Array, Array], cotangent: Array) -> tuple[Array, Array, Array]:
    x, h, previous = residuals
    wide = cotangent.astype(jnp.float32)
    x_r, x_z, x_n = jnp.split(x.astype(jnp.float32), 3, axis=-1)
    h_r, h_z, h_n = jnp.split(h.astype(jnp.float32), 3, axis=-1)
    reset, update = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
    candidate = jnp.tanh(x_n + reset * h_n)
    d_candidate = wide * (1.0 - update) * (1.0 - candidate**2)
    d_reset = d_candidate * h_n * reset * (1.0 - reset)
    d_update = wide * (previous.astype(jnp.float32) - candidate) * update * (1.0 - update)
    d_x = jnp.concatenate([d_reset, d_update, d_candidate], axis=-1)
    d_h = jnp.concatenate([d_reset, d_update, d_candidate * reset], axis=-1)
    return d_x.astype(x.dtype), d_h.astype(h.dtype), (wide * update).astype(previous.dtype)


gru.defvjp(_forward, _backward)
