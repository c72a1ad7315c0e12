"""Geoms as an eye sees them, each in its own frame, where intersections are simple."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from actsafe.render.bounds import Rectangle, rectangle
from actsafe.render.eye import Eye, Lens, combine
from actsafe.render.intersect import Hit, Triple, Vector, half_extents, intersect
from actsafe.render.scene import KINDS, Light, Scene, View


class Geoms(NamedTuple):
    """One geom, or several with one more axis in front of every field. Vectors are in the geom's frame."""

    number: Int[Array, " *geom"]
    """Who it is. Counted from the last one: of two equally near the later shows, as in MuJoCo's frames."""
    size: Float[Array, "*geom 3"]
    colour: Float[Array, "*geom 4"]
    is_drawn: Bool[Array, " *geom"]
    origin: Float[Array, "*geom 3"]
    """Where the eye is: the origin of all rays."""
    axes: Float[Array, "*geom 3 3"]
    """The eye's axes, as columns."""
    headlight: Float[Array, "*geom 3"]
    lamps: Float[Array, "*geom light 3"]
    """The place of every light, or the direction towards it if it is infinitely far."""
    beams: Float[Array, "*geom light 3"]
    """Where every light shines to."""
    nearness: Float[Array, " *geom"]
    """Distance from the eye to the ball around it: what transparent geoms are sorted by."""
    place: Rectangle
    """Where in the image it is."""

    def ray(self, x: Array, y: Array) -> Vector:
        """Directions of the rays of these slopes."""
        return combine(self.axes, x, y)

    def meet(self, kind: str, x: Array, y: Array) -> Hit:
        """Where the rays of these slopes enter it."""
        return intersect(kind, self.size, triple(self.origin), self.ray(x, y))


class Group(NamedTuple):
    """Geoms of one kind that follow each other."""

    kind: str
    start: int
    stop: int


def arrange(scene: Scene) -> tuple[list[int], tuple[Group, ...], tuple[Group, ...]]:
    """An order of the geoms in which the opaque ones come first, by kind, then the transparent ones; and the groups."""
    order, groups = [], ([], [])
    for is_transparent in (False, True):
        for kind in KINDS:
            facts = zip(scene.kinds, scene.transparent, strict=True)
            members = [number for number, fact in enumerate(facts) if fact == (kind, is_transparent)]
            if members:
                groups[is_transparent].append(Group(kind, len(order), len(order) + len(members)))
                order += members
    return order, tuple(groups[False]), tuple(groups[True])


def see(scene: Scene, view: View, eye: Eye, lens: Lens, order: list[int]) -> Geoms:
    """The geoms of the scene in this order. What is not finite, or of alpha 0, is somewhere but not drawn."""
    chosen = np.asarray(order, np.int32)
    size = jnp.asarray(scene.sizes, jnp.float32)
    half = jnp.stack([half_extents(kind, size[number]) for number, kind in enumerate(scene.kinds)])
    is_ball = np.asarray([kind == "sphere" for kind in scene.kinds])
    radius = jnp.where(is_ball, half[:, 0], jnp.sqrt(jnp.sum(half**2, axis=1)))

    def one(number, rotation, position, colour, size, half, radius) -> Geoms:
        is_finite = [jnp.all(jnp.isfinite(array)) for array in (rotation, position, colour)]
        is_drawn = is_finite[0] & is_finite[1] & is_finite[2] & (colour[3] > 0.0)
        rotation = jnp.where(is_drawn, rotation, jnp.eye(3, dtype=jnp.float32))
        position, colour = jnp.where(is_drawn, position, 0.0), jnp.where(is_drawn, colour, 0.0)
        geom = seen(scene, eye, rotation, position, colour, size)
        centre = -jnp.sum(geom.axes * geom.origin[:, None], axis=0)
        return geom._replace(
            number=number,
            is_drawn=is_drawn,
            nearness=jnp.sqrt(jnp.sum(centre**2)) - radius,
            place=rectangle(lens, is_drawn, centre, geom.axes.T * half[None], radius),
        )

    facts = (view.rotations, view.positions, view.colours, size, half, radius)
    return jax.vmap(one)(jnp.asarray(scene.num_geoms - 1 - chosen), *(fact[chosen] for fact in facts))


def seen(
    scene: Scene,
    eye: Eye,
    rotation: Float[Array, "3 3"],
    position: Float[Array, "3"],
    colour: Float[Array, "4"],
    size: Float[Array, "3"],
) -> Geoms:
    """One thing as seen by `eye`; who and where in the image it is stays open."""

    def into(vectors: Float[Array, "*vector 3"]) -> Float[Array, "*vector 3"]:
        """World vectors in the thing's frame."""
        return jnp.sum(rotation.reshape(*(1,) * (vectors.ndim - 1), 3, 3) * vectors[..., :, None], axis=-2)

    is_near = np.asarray([light.position is not None for light in scene.lights], bool)[:, None]
    lamps = np.asarray([_lamp(light) for light in scene.lights], np.float32).reshape(-1, 3)
    beams = np.asarray([light.direction for light in scene.lights], np.float32).reshape(-1, 3)
    zero = jnp.int32(0)
    return Geoms(
        number=zero,
        size=size,
        colour=colour * jnp.where(np.arange(4) < 3, eye.brightness, 1.0),
        is_drawn=jnp.asarray(True),
        origin=into(eye.position - position),
        axes=into(eye.axes.T).T,
        headlight=into(eye.headlight),
        lamps=into(jnp.where(is_near, lamps - position[None], lamps)),
        beams=into(jnp.asarray(beams)),
        nearness=jnp.float32(0.0),
        place=Rectangle(zero, zero, zero, zero),
    )


def triple(vector: Triple) -> Vector:
    """The components, as intersections take them."""
    return vector[0], vector[1], vector[2]


def _lamp(light: Light) -> tuple[float, ...]:
    return light.position if light.position is not None else tuple(-part for part in light.direction)
