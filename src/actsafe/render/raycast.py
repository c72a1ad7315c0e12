"""Pixels from a scene and a view, by ray casting: no OpenGL, no display, the same function on any device."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt8

from actsafe.render import kernel, windows
from actsafe.render.backdrop import floor_colour, sky_colour
from actsafe.render.bounds import padded
from actsafe.render.eye import SAMPLES, Eye, eyes_of, lens_of
from actsafe.render.geoms import arrange, see
from actsafe.render.layers import Image, Look
from actsafe.render.scene import Scene, View


def render(
    scene: Scene, view: View, *, width: int = 64, height: int = 64, samples: int = 4
) -> UInt8[Array, "{height} {width} 3"]:
    """One frame, seen with 1 or 4 samples per pixel. Pure; can be jitted and vmapped.

    The work follows what is seen: on NVIDIA's devices tile by tile in one kernel, elsewhere window by window, and the
    frames of a batch one after the other. Both give the same picture up to rounding.
    """
    if samples not in SAMPLES:
        raise ValueError(f"samples must be one of {', '.join(map(str, SAMPLES))}, got {samples}")
    if width < 1 or height < 1:
        raise ValueError(f"width and height must be positive, got {width} and {height}")
    view = jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), view)
    size = {"width": width, "height": height, "samples": samples}
    one_by_one = jax.custom_batching.sequential_vmap(functools.partial(_frame, **size))
    if not kernel.IS_AVAILABLE:
        return one_by_one(scene, view)
    return jax.lax.platform_dependent(scene, view, cuda=functools.partial(kernel.frame, **size), default=one_by_one)


@functools.partial(eqx.filter_jit, donate="none")
def render_batch(
    scene: Scene, views: View, *, width: int = 64, height: int = 64, samples: int = 4
) -> UInt8[Array, "view {height} {width} 3"]:
    """A frame for every view, compiled once per scene, size and number of views."""
    return jax.vmap(lambda view: render(scene, view, width=width, height=height, samples=samples))(views)


def _frame(scene: Scene, view: View, *, width: int, height: int, samples: int, how: Any = windows) -> Array:
    """One frame: the picture in the mirror first, then the one that shows it. `how` draws geoms, as `windows` does."""
    lens = lens_of(jnp.asarray(view.fovy), height, width, padded(height, width))
    eyes = eyes_of(scene, view)
    colours = _backdrop_colours(scene, Look(scene, eyes[-1], lens, SAMPLES[samples]))

    def one_eye(mirror: Image, eye: Eye) -> tuple[Image, None]:
        return _picture(Look(scene, eye, lens, SAMPLES[samples]), view, colours, mirror, how), None

    black = jnp.zeros((3, samples, *padded(height, width)), jnp.float32)
    image, _ = jax.lax.scan(one_eye, black, jax.tree.map(lambda *leaves: jnp.stack(leaves), *eyes))
    # Added one by one: jaxlib 0.10.2 gets some large sums along an axis wrong on the CPU (jax issue 39103).
    mean = sum((image[:, sample] for sample in range(1, samples)), image[:, 0]) / samples
    mean = mean[:, :height, :width]
    return jnp.moveaxis(jnp.round(255.0 * jnp.clip(mean, 0.0, 1.0)).astype(jnp.uint8), 0, 2)


def _backdrop_colours(scene: Scene, look: Look) -> tuple[Array, Array]:
    sky = sky_colour(scene.sky, look.eye, look.lens.pixels)
    return sky, sky if scene.floor is None else floor_colour(scene, scene.floor, look.eye, look.lens.pixels)


def _picture(look: Look, view: View, colours: tuple[Array, Array], mirror: Image, how: Any) -> Image:
    """What an eye sees at every sample. The mirror's picture is added to the floor; a mirror itself is black."""
    order, opaque, transparent = arrange(look.scene)
    keys = look.backdrop()
    geoms = see(look.scene, view, look.eye, look.lens, order) if order else None
    for group in opaque:
        keys = how.nearest(look, group, geoms, keys)
    sky, floor = (jnp.where(look.eye.is_mirrored, 0.0, colour)[:, None] for colour in colours)
    image = jnp.where(look.is_nearest(look.floor_number, keys)[None], jnp.minimum(floor + mirror, 1.0), sky)
    for group in opaque:
        image = how.paint(look, group, geoms, keys, image)
    return how.blend(look, transparent, geoms, keys, image) if transparent else image
