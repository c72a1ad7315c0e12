"""The colour of a lit surface, as OpenGL's fixed pipeline computes it, once per pixel."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.render.geoms import Geoms, triple
from actsafe.render.intersect import Hit, Scalars, Vector, along, dot, unit
from actsafe.render.scene import Scene


class Lit(NamedTuple):
    """The light that a surface throws back."""

    scattered: Scalars
    """Multiplies the surface's colour."""
    mirrored: Scalars
    """White, added to it."""

    def on(self, colour: Float[Array, "3"]) -> Float[Array, "3 ..."]:
        """The colour in which a surface of this colour appears, clamped to [0, 1]."""
        tone = colour.reshape(3, *(1,) * self.scattered.ndim)
        return jnp.clip(tone * self.scattered[None] + self.mirrored[None], 0.0, 1.0)


def light_on(scene: Scene, geom: Geoms, hit: Hit, x: Scalars, y: Scalars) -> Lit:
    """The light on one geom where rays of the slopes x and y meet it.

    Scattered: ambient + Σ diffuse max(0, N·L). Mirrored: Σ specular [N·L > 0] max(0, N·H)^(128 shininess). N is the
    normal, L the direction to a light, and H half-way between L and the direction to the eye.
    """
    ray = geom.ray(x, y)
    shrink = jax.lax.rsqrt(dot(ray, ray))
    to_eye = (-ray[0] * shrink, -ray[1] * shrink, -ray[2] * shrink)
    lamp = triple(geom.headlight)
    facing = dot(hit.normal, lamp)
    diffuse = scene.headlight.diffuse * jnp.maximum(facing, 0.0)
    diffuse += scene.headlight.ambient + sum(light.ambient for light in scene.lights)
    highlight = _highlight(scene, scene.headlight.specular, hit.normal, lamp, to_eye, facing)
    for number, light in enumerate(scene.lights):
        lamp, strength = triple(geom.lamps[number]), 1.0
        if light.position is not None:
            point = along(triple(geom.origin), ray, hit.depth)
            lamp = unit((lamp[0] - point[0], lamp[1] - point[1], lamp[2] - point[2]))
            cosine = -dot(lamp, triple(geom.beams[number]))
            strength = jnp.where(cosine >= math.cos(math.radians(light.cutoff)), 1.0, 0.0)
            if light.exponent:
                strength *= jnp.maximum(cosine, 0.0) ** light.exponent
        facing = dot(hit.normal, lamp)
        diffuse += strength * light.diffuse * jnp.maximum(facing, 0.0)
        if light.specular:
            highlight += strength * _highlight(scene, light.specular, hit.normal, lamp, to_eye, facing)
    return Lit(diffuse, highlight)


def _highlight(scene: Scene, strength: float, normal: Vector, lamp: Vector, to_eye: Vector, facing: Scalars) -> Scalars:
    """The white reflection of a light. Of two directions of length one, |L + V|² = 2 + 2 L·V."""
    length = jnp.sqrt(jnp.maximum(2.0 + 2.0 * dot(lamp, to_eye), 1e-12))
    cosine = jnp.maximum(facing + dot(normal, to_eye), 0.0) / length
    return jnp.where(facing > 0.0, strength * scene.specular * _power(cosine, 128.0 * scene.shininess), 0.0)


def _power(base: Scalars, exponent: float) -> Scalars:
    """`base` to the power of `exponent`, by repeated squaring where that is exact."""
    return jax.lax.integer_pow(base, int(exponent)) if exponent == int(exponent) else base**exponent
