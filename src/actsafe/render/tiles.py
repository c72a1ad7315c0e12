"""What one program of the kernel has: a tile of pixels, and numbers in memory that it reads one by one.

Pallas on Triton keeps arrays in registers, where they cannot be indexed. So a vector is a tuple of numbers here, and
code that takes `vector[0]` of an array takes it of a tuple as well.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Bool, Float, Int

from actsafe.render.bounds import WINDOW, Rectangle
from actsafe.render.eye import Eye, Offsets, Pixels
from actsafe.render.geoms import Geoms


class OwnPixels(Pixels):
    """Pixels with slopes of their own rather than those of their row and column."""

    def at(self, offsets: Offsets) -> tuple[Float[Array, "place height width"], Float[Array, "place height width"]]:
        """The slopes at these places in every pixel. Chosen by comparing: a kernel holds no constant arrays."""
        place = jax.lax.broadcasted_iota(jnp.int32, (len(offsets), *self.x.shape), 0)
        right, down = jnp.zeros_like(place, jnp.float32), jnp.zeros_like(place, jnp.float32)
        for number, offset in enumerate(offsets):
            right = jnp.where(place == number, offset[0] - 0.5, right)
            down = jnp.where(place == number, offset[1] - 0.5, down)
        return self.x[None] + right * self.side, self.y[None] - down * self.side


class Tile(NamedTuple):
    """A rectangle of the image: its first pixel, and its rows and columns, which are powers of two."""

    row: Int[Array, ""]
    column: Int[Array, ""]
    shape: tuple[int, int]

    @property
    def slices(self) -> tuple[Any, Any]:
        return pl.ds(self.row, self.shape[0]), pl.ds(self.column, self.shape[1])

    def pixels(self, height: int, width: int, side: Float[Array, ""]) -> OwnPixels:
        """Its pixels in an image of this size, as `lens_of` places them."""
        right = (jax.lax.broadcasted_iota(jnp.int32, self.shape, 1) + self.column).astype(jnp.float32)
        down = (jax.lax.broadcasted_iota(jnp.int32, self.shape, 0) + self.row).astype(jnp.float32)
        return OwnPixels((right + (0.5 - width / 2)) * side, (down + (0.5 - height / 2)) * -side, side)

    def meets(self, place: Rectangle) -> Bool[Array, ""]:
        """Whether windows at this place touch it."""
        is_above = place.row + place.rows * WINDOW[0] <= self.row
        is_below = place.row >= self.row + self.shape[0]
        is_left = place.column + place.columns * WINDOW[1] <= self.column
        is_right = place.column >= self.column + self.shape[1]
        return (place.rows > 0) & ~(is_above | is_below | is_left | is_right)


class Stored(NamedTuple):
    """What the programs of a frame read: arrays and, inside of them, references. The camera's eye is the last."""

    side: Any
    """The side of a pixel, as a slope."""
    positions: Any
    """Of the eyes: [eye, 3]; their axes: [eye, 3, 3]."""
    axes: Any
    geoms: Any
    """`Geoms` as every eye sees them: [eye, geom, ...]; None if there are none."""
    turns: Any
    """The transparent geoms from near to far: [eye, geom]; None if there are none."""
    backdrop: tuple[Any, ...]
    """The zenith's share in the sky, the sign of the floor's checker, the light on the floor; what there is of them."""

    @property
    def camera(self) -> int:
        """The number of the camera's eye."""
        return self.positions.shape[0] - 1

    def eye(self, eye: Array) -> Eye:
        """An eye as far as rays need it."""
        unused: Any = None
        return Eye(_read(self.positions, eye), _read(self.axes, eye), unused, eye < self.camera, unused)

    def place(self, eye: Array, number: Array) -> Rectangle:
        """Where in the image a geom is; nowhere if it is not drawn."""
        return jax.tree.map(lambda leaf: _read(leaf, eye, number), self.geoms.place)

    def geom(self, eye: Array, number: Array) -> Geoms:
        """A geom that is drawn, as far as rays and light need it."""
        needed = self.geoms._replace(is_drawn=None, nearness=None)
        geom = jax.tree.map(lambda leaf: _read(leaf, eye, number), needed)
        return geom._replace(is_drawn=jnp.asarray(True), nearness=jnp.float32(0.0))


def _read(reference: Any, *index: Any) -> Any:
    """What is stored at this index: one number, or tuples of tuples of them."""
    if len(index) == len(reference.shape):
        return reference[index]
    return tuple(_read(reference, *index, place) for place in range(reference.shape[len(index)]))
