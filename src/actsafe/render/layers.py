"""What is asked of every geom: what it hides, and what colour it lends to a sample.

What is nearest is kept as one integer per sample, its key: the bits of the depth, which order like positive floats,
with the geom's number in the lowest ones. The least key says both how far and who.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from actsafe.render.eye import CENTRE, Eye, Lens, Offsets, Pixels, depth_of_plane
from actsafe.render.geoms import Geoms
from actsafe.render.scene import Scene
from actsafe.render.shade import Lit, light_on

Keys = Int[Array, "sample height width"]
Image = Float[Array, "3 sample height width"]

NOTHING = np.int32(2**31 - 1)
"""The key of a ray that meets nothing: the sky."""

EDGED = ("cylinder", "box")
"""Shapes whose colour jumps at an edge. Multisampling shades each face once per pixel; we shade them at every sample,
and round shapes once, at the pixel's centre."""


class Look(NamedTuple):
    """What one eye has before it."""

    scene: Scene
    eye: Eye
    lens: Lens
    offsets: Offsets
    """Where in a pixel the samples lie."""

    @property
    def mask(self) -> np.int32:
        """The bits of a key that number the geoms, the floor, and nothing."""
        return np.int32(2 ** math.ceil(math.log2(self.scene.num_geoms + 2)) - 1)

    @property
    def floor_number(self) -> int:
        return self.scene.num_geoms

    def key(self, depth: Array, number: Array | int) -> Array:
        return (jax.lax.bitcast_convert_type(depth, jnp.int32) & ~self.mask) | jnp.int32(number)

    def is_nearest(self, number: Array | int, keys: Keys) -> Array:
        return keys & self.mask == number

    def backdrop(self) -> Keys:
        """The keys of the floor and of the sky; in the mirror, of nothing."""
        x, y = self.lens.pixels.at(self.offsets)
        floor = self.scene.floor
        if floor is None:
            return jnp.full(jnp.broadcast_shapes(x.shape, y.shape), NOTHING)
        depth = depth_of_plane(self.eye, floor.height, x, y)
        ray = self.eye.ray(x, y)
        east, north = (jnp.abs(self.eye.position[axis] + depth * ray[axis]) for axis in (0, 1))
        is_floor = (self.eye.position[2] > floor.height) & (jnp.maximum(east, north) <= floor.half_size)
        return jnp.where(is_floor & ~self.eye.is_mirrored, self.key(depth, self.floor_number), NOTHING)

    def hits(self, kind: str, geom: Geoms, pixels: Pixels) -> Keys:
        """The key of one geom at every sample."""
        x, y = pixels.at(self.offsets)
        hit = geom.meet(kind, x, y)
        is_hit = hit.is_hit & geom.is_drawn
        if self.scene.floor is not None:
            is_beyond = hit.depth > depth_of_plane(self.eye, self.scene.floor.height, x, y)
            is_hit &= is_beyond | ~self.eye.is_mirrored
        return jnp.where(is_hit, self.key(hit.depth, geom.number), NOTHING)

    def light(self, kind: str, geom: Geoms, pixels: Pixels) -> Lit:
        """The light on one geom at every sample, or once for all of a pixel."""
        x, y = pixels.at(self.offsets if kind in EDGED else CENTRE)
        return light_on(self.scene, geom, geom.meet(kind, x, y), x, y)

    def colour(self, kind: str, geom: Geoms, pixels: Pixels) -> Float[Array, "3 place height width"]:
        """The colour of one geom at every sample, or once for all of a pixel."""
        return self.light(kind, geom, pixels).on(geom.colour[:3])

    def cover(self, kind: str, geom: Geoms, pixels: Pixels, keys: Keys) -> Float[Array, "sample height width"]:
        """The alpha of one transparent geom where nothing opaque hides it, else 0."""
        return jnp.where(self.hits(kind, geom, pixels) < keys, geom.colour[3], 0.0)
