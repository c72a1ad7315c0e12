"""Where a ray enters a shape, and the normal there, in the shape's own frame.

A ray is origin + depth * direction; the direction need not have length one. Vectors are triples of arrays rather than
arrays of triples: every operation then runs along contiguous pixels.

Just outside a shape's outline there is no hit, but depth and normal go on smoothly from those inside. So a pixel whose
centre is missed while a sample nearby is hit can still be shaded at its centre, as multisampling does.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Scalars = Float[Array, "..."]
"""One number per ray; shapes broadcast, so that what all rays share is stored once."""

Vector = tuple[Scalars, Scalars, Scalars]

Triple = Float[Array, "3 *ray"] | Vector
"""A vector that may also be an array of its components; `vector[0]` is the first in both."""

ROUNDNESS = (1.0 + math.cos(math.pi / 28.0)) / 2.0
"""MuJoCo draws round shapes as inscribed polyhedra of 28 slices; a radius that much smaller has about their outline."""

TINY = 1e-9
"""Directions are kept this far from zero where they divide."""


class Hit(NamedTuple):
    """Where a ray enters."""

    is_hit: Bool[Array, "..."]
    """Whether it enters at all, in front of its origin. From inside a shape, nothing of it is seen."""
    depth: Scalars
    normal: Vector


def intersect(kind: str, size: Triple, origin: Vector, direction: Vector) -> Hit:
    """The hit of a ray on a shape of this kind, its size as in MuJoCo."""
    return {"sphere": _sphere, "capsule": _capsule, "cylinder": _cylinder, "box": _box}[kind](size, origin, direction)


def half_extents(kind: str, size: Float[Array, "3"]) -> Float[Array, "3"]:
    """Half the sides of the shape's bounding box in its own frame."""
    radius, length = size[0], size[1]
    if kind == "sphere":
        return jnp.stack([radius, radius, radius])
    if kind == "capsule":
        return jnp.stack([radius, radius, radius + length])
    if kind == "cylinder":
        return jnp.stack([radius, radius, length])
    return size


def dot(a: Vector, b: Vector) -> Scalars:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def along(origin: Vector, direction: Vector, depth: Scalars) -> Vector:
    """The point at this depth of the ray."""
    return (origin[0] + depth * direction[0], origin[1] + depth * direction[1], origin[2] + depth * direction[2])


def unit(vector: Vector) -> Vector:
    """`vector` at length one; zero stays zero."""
    scale = jax.lax.rsqrt(jnp.maximum(dot(vector, vector), TINY * TINY))
    return vector[0] * scale, vector[1] * scale, vector[2] * scale


def _sphere(size: Triple, origin: Vector, direction: Vector) -> Hit:
    radius = ROUNDNESS * size[0]
    enter, _, discriminant = _roots(
        dot(direction, direction), dot(origin, direction), dot(origin, origin) - radius * radius
    )
    return Hit((discriminant >= 0.0) & (enter > 0.0), enter, unit(along(origin, direction, enter)))


def _capsule(size: Triple, origin: Vector, direction: Vector) -> Hit:
    """Enters through the side where that lies between the ends, else through the ball at the end it lies beyond."""
    radius, length = ROUNDNESS * size[0], size[1]
    side, _, outside = _tube(radius, origin, direction)
    height = origin[2] + side * direction[2]
    end = jnp.clip(height, -length, length)
    from_end = (origin[0], origin[1], origin[2] - end)
    cap, _, beside = _roots(
        dot(direction, direction), dot(from_end, direction), dot(from_end, from_end) - radius * radius
    )
    is_side = height == end
    depth = jnp.where(is_side, side, cap)
    is_hit = (jnp.where(is_side, outside, jnp.minimum(outside, beside)) >= 0.0) & (depth > 0.0)
    x, y, z = along(origin, direction, depth)
    return Hit(is_hit, depth, unit((x, y, z - jnp.clip(z, -length, length))))


def _cylinder(size: Triple, origin: Vector, direction: Vector) -> Hit:
    """Enters where it is first inside both the tube and the slab between the ends."""
    side, side_leave, outside = _tube(ROUNDNESS * size[0], origin, direction)
    end, end_leave, end_normal = _slab(size[1], origin[2], direction[2])
    is_end = end > side
    depth = jnp.where(is_end, end, side)
    is_hit = (outside >= 0.0) & (depth <= jnp.minimum(side_leave, end_leave)) & (depth > 0.0)
    x, y, _ = along(origin, direction, depth)
    scale = jax.lax.rsqrt(jnp.maximum(x * x + y * y, TINY * TINY))
    normal = (
        jnp.where(is_end, 0.0, x * scale),
        jnp.where(is_end, 0.0, y * scale),
        jnp.where(is_end, end_normal, 0.0),
    )
    return Hit(is_hit, depth, normal)


def _box(size: Triple, origin: Vector, direction: Vector) -> Hit:
    """Enters where it is first inside all three slabs."""
    slabs = [_slab(size[axis], origin[axis], direction[axis]) for axis in range(3)]
    depth = jnp.maximum(jnp.maximum(slabs[0][0], slabs[1][0]), slabs[2][0])
    leave = jnp.minimum(jnp.minimum(slabs[0][1], slabs[1][1]), slabs[2][1])
    is_x = slabs[0][0] == depth
    is_y = (slabs[1][0] == depth) & ~is_x
    normal = (
        jnp.where(is_x, slabs[0][2], 0.0),
        jnp.where(is_y, slabs[1][2], 0.0),
        jnp.where(is_x | is_y, 0.0, slabs[2][2]),
    )
    return Hit((depth <= leave) & (depth > 0.0), depth, normal)


def _roots(a: Scalars, b: Scalars, c: Scalars) -> tuple[Scalars, Scalars, Scalars]:
    """Both solutions of a d² + 2 b d + c = 0 and the discriminant; where that is negative, the vertex twice."""
    discriminant = b * b - a * c
    root = jnp.sqrt(jnp.maximum(discriminant, 0.0))
    inverse = 1.0 / a
    return (-b - root) * inverse, (-b + root) * inverse, discriminant


def _tube(radius: Scalars, origin: Vector, direction: Vector) -> tuple[Scalars, Scalars, Scalars]:
    """Where the ray enters and leaves an endless cylinder around z, and whether it does: not negative."""
    across = direction[0] * direction[0] + direction[1] * direction[1]
    return _roots(
        jnp.maximum(across, TINY),
        origin[0] * direction[0] + origin[1] * direction[1],
        origin[0] * origin[0] + origin[1] * origin[1] - radius * radius,
    )


def _slab(half: Scalars, origin: Scalars, direction: Scalars) -> tuple[Scalars, Scalars, Scalars]:
    """Where the ray enters and leaves |coordinate| <= half, and the normal of the face that it enters through."""
    safe = jnp.where(jnp.abs(direction) < TINY, TINY, direction)
    inverse = 1.0 / safe
    middle, reach = -origin * inverse, half * jnp.abs(inverse)
    return middle - reach, middle + reach, jnp.where(safe > 0.0, jnp.float32(-1.0), jnp.float32(1.0))
