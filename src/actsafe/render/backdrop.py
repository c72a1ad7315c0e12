"""What is behind all geoms: the checkered floor and the sky, once per pixel."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.render.eye import CENTRE, Eye, Pixels, depth_of_plane
from actsafe.render.geoms import seen
from actsafe.render.intersect import Hit
from actsafe.render.scene import Floor, Scene, Sky
from actsafe.render.shade import light_on

Tone = Array | float
"""A colour, as an array that broadcasts over pixels, or one channel of it."""


def sky_colour(sky: Sky, eye: Eye, pixels: Pixels) -> Float[Array, "3 height width"]:
    """The colour of the sky, wherever it is seen."""
    low, high, offset = (
        jnp.asarray(colour, jnp.float32)[:, None, None] for colour in (sky.nadir, sky.zenith, sky.offset)
    )
    return sky_tone(low, high, offset, sky_share(eye, pixels)[None])


def sky_tone(nadir: Tone, zenith: Tone, offset: Tone, share: Array) -> Array:
    """The colour, or one channel of it, for this share of the zenith."""
    return nadir + offset + (zenith - nadir) * share


def sky_share(eye: Eye, pixels: Pixels) -> Float[Array, "height width"]:
    """The zenith's share in a gradient over the elevation e, in right angles: (1 + √2 e / √(1 + e²)) / 2.

    MuJoCo paints this gradient on a cube around the world.
    """
    rise = eye.ray(pixels.x, pixels.y)[2]
    length = jnp.sqrt(1.0 + pixels.x * pixels.x + pixels.y * pixels.y)
    elevation = (2.0 / math.pi) * _arcsin(rise / length)
    return jnp.clip((1.0 + math.sqrt(2.0) * elevation / jnp.sqrt(1.0 + elevation * elevation)) / 2.0, 0.0, 1.0)


def _arcsin(sine: Array) -> Array:
    """The arcsine to 7e-5, by formula 4.4.45 of Abramowitz and Stegun: faster than the exact one, and exact enough."""
    size = jnp.minimum(jnp.abs(sine), 1.0)
    series = 1.5707288 + size * (-0.2121144 + size * (0.0742610 - size * 0.0187293))
    return jnp.sign(sine) * (0.5 * math.pi - jnp.sqrt(1.0 - size) * series)


def floor_colour(scene: Scene, floor: Floor, eye: Eye, pixels: Pixels) -> Float[Array, "3 height width"]:
    """The colour of the floor, wherever it is seen."""
    first, second = (jnp.asarray(colour, jnp.float32)[:, None, None] for colour in floor.colours)
    light = floor_light(scene, floor, eye, pixels)
    tone = floor_tone(first, second, floor_sign(floor, eye, pixels)[None])
    return tone if light is None else tone * light[None]


def floor_tone(first: Tone, second: Tone, sign: Array) -> Array:
    """The colour, or one channel of it, of a white-lit checker: the first colour at 1, the second at -1."""
    return (first + second) / 2.0 + (first - second) / 2.0 * sign


def floor_sign(floor: Floor, eye: Eye, pixels: Pixels) -> Float[Array, "height width"]:
    """The checker where the ray meets the plane of the floor, filtered as by a pyramid of ever smaller textures.

    Between the pixel's level of detail and the next it is interpolated: trilinear filtering.
    """
    x, y = pixels.x, pixels.y
    depth = _floor_depth(floor, eye, pixels)
    east, north, rise = eye.ray(x, y)
    slope = -depth / jnp.where(depth > 0.0, rise, -1.0)
    # How far the point moves per unit of slope, to the right (0) and upwards (1), squared.
    strides = [
        (depth * eye.axes[0, axis] + slope * eye.axes[2, axis] * east) ** 2
        + (depth * eye.axes[1, axis] + slope * eye.axes[2, axis] * north) ** 2
        for axis in (0, 1)
    ]
    period = 2.0 * floor.square
    stride = jnp.maximum(jnp.maximum(*strides) * (pixels.side * floor.texels / period) ** 2, 1.0)
    detail = 0.5 * jnp.log2(stride)
    level = jnp.floor(detail)
    across, along = (eye.position[0] + depth * east) / period, (eye.position[1] + depth * north) / period
    texels = jnp.floor(floor.texels * jnp.exp2(-level))
    fine = _checker(across, along, texels)
    coarse = _checker(across, along, jnp.floor(0.5 * texels))
    return fine + (detail - level) * (coarse - fine)


def _floor_depth(floor: Floor, eye: Eye, pixels: Pixels) -> Float[Array, "height width"]:
    """The depth of the floor's plane; 0 where it is never met."""
    depth = depth_of_plane(eye, floor.height, pixels.x, pixels.y)
    return jnp.where(jnp.isfinite(depth), depth, 0.0)


def _checker(across: Array, along: Array, texels: Array) -> Array:
    """1 on squares of the first colour, -1 on those of the second, at this many texels per period; 0 when only one."""
    return jnp.where(texels > 1.0, _wave(across, texels) * _wave(along, texels), 0.0)


def _wave(phase: Array, texels: Array) -> Array:
    """A square wave, 1 on the first half of its period, as linear interpolation between texels makes it.

    Its jumps are ramps of one texel; but an odd number of texels has one in the middle, where both colours meet, and
    there the ramp takes two. The middle of the texture lies at phase 0.
    """
    offset = phase - jnp.round(phase)
    distance = jnp.abs(offset)
    is_odd = texels > 2.0 * jnp.floor(0.5 * texels)
    rise = jnp.where(is_odd, texels, 2.0 * texels) * distance
    return jnp.sign(offset) * jnp.minimum(jnp.minimum(rise, 2.0 * texels * (0.5 - distance)), 1.0)


def _is_saturated(scene: Scene) -> bool:
    """Whether a white floor is fully lit wherever it is seen from."""
    far = [light for light in scene.lights if light.position is None]
    return scene.headlight.ambient + sum(light.ambient - light.diffuse * light.direction[2] for light in far) >= 1.0


def floor_light(scene: Scene, floor: Floor, eye: Eye, pixels: Pixels) -> Float[Array, "height width"] | None:
    """What the lights make of a white floor; None where they make it fully white."""
    if _is_saturated(scene):
        return None
    depth = _floor_depth(floor, eye, pixels)
    ones, zeros = jnp.ones(4, jnp.float32), jnp.zeros(3, jnp.float32)
    white = seen(scene, eye, jnp.eye(3, dtype=jnp.float32), jnp.float32([0.0, 0.0, floor.height]), ones, zeros)
    flat = jnp.zeros_like(depth)[None]
    hit = Hit(flat == 0.0, depth[None], (flat, flat, flat + 1.0))
    return light_on(scene, white, hit, *pixels.at(CENTRE)).on(white.colour[:3])[0, 0]
