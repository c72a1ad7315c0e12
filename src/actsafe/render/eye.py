"""From where an image is seen: the rays through its pixels, and the eye they start from.

Rays are written (x, y, -1) in the eye's axes, so that depth is measured along the gaze and x, y are slopes. A floor
that mirrors is seen through a second eye, the first one reflected in it.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from actsafe.render.intersect import Vector
from actsafe.render.scene import Scene, View

Offsets = tuple[tuple[float, float], ...]
"""Places in a pixel: how far to the right, how far down."""

CENTRE: Offsets = ((0.5, 0.5),)
MULTISAMPLE: Offsets = ((0.375, 0.875), (0.875, 0.625), (0.125, 0.375), (0.625, 0.125))
"""Where OpenGL's multisampling looks."""

SAMPLES = {1: CENTRE, 4: MULTISAMPLE}
"""Where the rays of a pixel go, by their number."""

Axes = Float[Array, "3 3 *ray"] | tuple[Vector, Vector, Vector]
"""Three axes as columns: `axes[1][0]` is the second component of the first."""


class Pixels(NamedTuple):
    """A rectangle of pixels: the slopes of the rays through their centres."""

    x: Float[Array, "1 width"]
    y: Float[Array, "height 1"]
    side: Float[Array, ""]
    """The side of a pixel, as a slope."""

    def at(self, offsets: Offsets) -> tuple[Float[Array, "place 1 width"], Float[Array, "place height 1"]]:
        """The slopes at these places in every pixel."""
        right, down = np.asarray(offsets, np.float32).T[:, :, None, None] - np.float32(0.5)
        return self.x[None] + right * self.side, self.y[None] - down * self.side


class Lens(NamedTuple):
    """The pixels of an image; rows and columns beyond its edge may follow, so that windows fit."""

    height: int
    width: int
    pixels: Pixels

    def window(self, row: Array, column: Array, shape: tuple[int, int]) -> Pixels:
        """The rectangle of this shape that begins at this row and column."""
        x = jax.lax.dynamic_slice_in_dim(self.pixels.x, column, shape[1], axis=1)
        y = jax.lax.dynamic_slice_in_dim(self.pixels.y, row, shape[0], axis=0)
        return Pixels(x, y, self.pixels.side)


def lens_of(fovy: Float[Array, ""], height: int, width: int, shape: tuple[int, int]) -> Lens:
    """The lens of an image with this vertical field of view in degrees, padded to `shape`."""
    side = 2.0 * jnp.tan(jnp.float32(math.pi / 360.0) * fovy) / height
    # Constants rather than jnp.arange: counting in a fused loop keeps the compiler from using vector instructions.
    right = np.arange(shape[1], dtype=np.float32)[None, :] + np.float32(0.5 - width / 2)
    down = np.arange(shape[0], dtype=np.float32)[:, None] + np.float32(0.5 - height / 2)
    return Lens(height, width, Pixels(jnp.asarray(right) * side, jnp.asarray(-down) * side, side))


class Eye(NamedTuple):
    """A place to look from."""

    position: Float[Array, "3"]
    axes: Float[Array, "3 3"]
    """Columns: right, up and back, in the world. Left-handed in the mirror."""
    headlight: Float[Array, "3"]
    """Towards the headlight. In the mirror still the true one: things are lit once."""
    is_mirrored: Bool[Array, ""]
    """Whether it sees only what is beyond the plane of the floor."""
    brightness: Float[Array, ""]
    """The share of their colour in which things appear."""

    def ray(self, x: Array, y: Array) -> Vector:
        """Directions of the rays of these slopes in the world."""
        return combine(self.axes, x, y)


def eyes_of(scene: Scene, view: View) -> list[Eye]:
    """The eyes whose pictures make the frame, in the order in which they are needed: the mirror's, the camera's."""
    axes = jnp.asarray(view.camera_rotation)
    eye = Eye(jnp.asarray(view.camera_position), axes, axes[:, 2], jnp.asarray(False), jnp.float32(1.0))
    if scene.floor is None or not scene.floor.reflectance:
        return [eye]
    return [mirrored(eye, scene.floor.height, scene.floor.reflectance), eye]


def mirrored(eye: Eye, height: float, reflectance: float) -> Eye:
    """The eye below a horizontal mirror, which sees on the same pixel what the mirror shows."""
    flip = jnp.float32([1.0, 1.0, -1.0])
    position = eye.position * flip + jnp.float32([0.0, 0.0, 2.0 * height])
    return Eye(position, eye.axes * flip[:, None], eye.headlight, jnp.asarray(True), jnp.float32(reflectance))


def combine(axes: Axes, x: Array, y: Array) -> Vector:
    """The vectors (x, y, -1) of a frame with these axes as columns."""
    rows = axes[0], axes[1], axes[2]
    first, second, third = (row[0] * x + (row[1] * y - row[2]) for row in rows)
    return first, second, third


def depth_of_plane(eye: Eye, height: float, x: Array, y: Array) -> Array:
    """The depth at which rays meet the horizontal plane at this height; infinite where they never do."""
    above, fall = eye.position[2] - height, -eye.ray(x, y)[2]
    is_met = above * fall > 0.0
    return jnp.where(is_met, above / jnp.where(is_met, fall, 1.0), jnp.inf)
