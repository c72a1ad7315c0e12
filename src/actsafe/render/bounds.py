"""Which part of the image a geom can touch, in windows of a fixed size."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from actsafe.render.eye import Lens

WINDOW = (8, 16)
"""Rows and columns of a window."""

NEAR = 1e-3
"""Corners nearer than this, or behind the eye, have no place in the image."""

MARGIN = 1e-3
"""In pixels: more than rounding can move an outline."""


class Rectangle(NamedTuple):
    """The first pixel of a block of windows, and how many there are, downwards and to the right."""

    row: Int[Array, " *geom"]
    column: Int[Array, " *geom"]
    rows: Int[Array, " *geom"]
    columns: Int[Array, " *geom"]


def padded(height: int, width: int) -> tuple[int, int]:
    """The least shape of an image that windows can tile."""
    return -(-height // WINDOW[0]) * WINDOW[0], -(-width // WINDOW[1]) * WINDOW[1]


def rectangle(
    lens: Lens,
    is_drawn: Bool[Array, ""],
    centre: Float[Array, "3"],
    edges: Float[Array, "3 3"],
    radius: Float[Array, ""],
) -> Rectangle:
    """Windows that hold all pixels which may show a part of a geom; they do not overlap. None if it is not drawn.

    The geom lies in a box, of which `edges` are the half edges as columns, and in a ball, both around `centre` in the
    eye's axes. The box decides if all its corners are in front of the eye, and the ball in any case.
    """
    signs = np.stack(np.meshgrid(*[np.asarray([-1.0, 1.0], np.float32)] * 3), axis=-1).reshape(8, 1, 3)
    corners = jnp.sum(edges[None] * signs, axis=2) + centre[None]
    depth = -corners[:, 2]
    slopes = corners[:, :2] / jnp.maximum(depth, NEAR)[:, None]
    is_front = jnp.all(depth > NEAR)
    low, high = _ball_outline(centre, radius)
    low = jnp.where(is_front, jnp.maximum(low, jnp.min(slopes, axis=0)), low) / lens.pixels.side
    high = jnp.where(is_front, jnp.minimum(high, jnp.max(slopes, axis=0)), high) / lens.pixels.side
    is_seen = is_drawn & (centre[2] < radius)
    column, columns = _windows(low[0], high[0], lens.width, WINDOW[1])
    row, rows = _windows(-high[1], -low[1], lens.height, WINDOW[0])
    return Rectangle(row, column, jnp.where(is_seen, rows, 0), columns)


def _ball_outline(centre: Float[Array, "3"], radius: Float[Array, ""]) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
    """The least and the greatest slope, to the right and upwards, at which a ball can be seen."""
    across, depth = centre[:2], -centre[2]
    distance = jnp.sqrt(across**2 + depth**2)
    is_outside = distance > 1.001 * radius
    middle = jnp.arctan2(across, depth)
    spread = jnp.arcsin(jnp.where(is_outside, radius / jnp.maximum(distance, NEAR), 0.0))
    # A tangent beyond a right angle, or nearly, never meets the image: the ball goes on to the edge.
    limit = 0.5 * np.pi - 1e-3
    low, high = middle - spread, middle + spread
    return (
        jnp.where(is_outside & (low > -limit), jnp.tan(jnp.clip(low, -limit, limit)), -jnp.inf),
        jnp.where(is_outside & (high < limit), jnp.tan(jnp.clip(high, -limit, limit)), jnp.inf),
    )


def _windows(low: Array, high: Array, length: int, size: int) -> tuple[Array, Array]:
    """The first pixel and the number of windows from `low` to `high`, which are counted from the image's middle."""
    first = jnp.clip(jnp.floor(low + length / 2 - MARGIN), 0, length).astype(jnp.int32)
    last = jnp.clip(jnp.ceil(high + length / 2 + MARGIN), 0, length).astype(jnp.int32)
    number = -(-jnp.maximum(last - first, 0) // size)
    return jnp.clip(first, 0, -(-length // size) * size - number * size), number
