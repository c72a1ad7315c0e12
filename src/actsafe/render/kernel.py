"""The whole picture in one kernel for NVIDIA's devices: a program per tile of pixels keeps all it needs in registers.

A program goes through the geoms whose windows touch its tile, for the mirror, where the tile may show the floor, and
for the camera. Rays against shapes and the light on them are those of the other ways to draw.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int, UInt8

from actsafe.render.backdrop import floor_light, floor_sign, floor_tone, sky_share, sky_tone
from actsafe.render.eye import SAMPLES, Eye, Lens, Pixels, eyes_of, lens_of
from actsafe.render.geoms import Geoms, Group, arrange, see
from actsafe.render.layers import NOTHING, Keys, Look
from actsafe.render.scene import Scene, View
from actsafe.render.tiles import Stored, Tile

try:
    from jax.experimental.pallas import triton
except ImportError:
    triton = None

IS_AVAILABLE = hasattr(triton, "CompilerParams")
"""Whether this JAX can compile the kernel. Its Triton backend is deprecated since 0.11 and may go."""

TILE = (8, 16)
"""Rows and columns of a tile."""

NUM_WARPS = 4
"""Threads of a program, in groups of 32: one per pixel of a tile, so that all samples of a pixel meet in one thread."""

Colours = tuple[Array, ...]
"""Red, green and blue, each per sample of a tile, or once for all samples of a pixel."""

Layers = tuple[Colours, Colours, Array]
"""The picture after the first round of blending, what the second adds to it, and what the layers so far let through."""


class Canvas(NamedTuple):
    """A tile while it is drawn."""

    keys: Keys
    colours: Colours


def frame(
    scene: Scene, view: View, *, width: int, height: int, samples: int, interpret: bool = False
) -> UInt8[Array, "{height} {width} 3"]:
    """One frame, seen with 1 or 4 samples per pixel. `interpret` runs the kernel, slowly, where there is no GPU."""
    down, across = -(-height // TILE[0]), -(-width // TILE[1])
    shape = down * TILE[0], across * TILE[1]
    lens = lens_of(jnp.asarray(view.fovy), height, width, shape)
    stored = _store(scene, view, lens)

    def program(stored: Stored, image: Any) -> None:
        number = pl.program_id(0)
        tile = Tile(number // across * TILE[0], number % across * TILE[1], TILE)
        own = lens._replace(pixels=tile.pixels(height, width, stored.side[()]))
        image[tile.slices] = _draw(scene, own, samples, stored, tile)

    words = pl.pallas_call(
        program,
        jax.ShapeDtypeStruct(shape, jnp.int32),
        grid=(down * across,),
        compiler_params=None if triton is None else triton.CompilerParams(num_warps=NUM_WARPS),
        interpret=interpret,
        name="draw_tile",
    )(stored)
    channels = [words[:height, :width] >> (8 * channel) for channel in range(3)]
    return jnp.stack(channels, axis=-1).astype(jnp.uint8)


def _store(scene: Scene, view: View, lens: Lens) -> Stored:
    """What the programs read."""
    eyes = eyes_of(scene, view)
    every = jax.tree.map(lambda *leaves: jnp.stack(leaves), *eyes)
    order, _, transparent = arrange(scene)
    geoms, turns = None, None
    if order:
        geoms = jax.vmap(lambda eye: see(scene, view, eye, lens, order))(every)
    if geoms is not None and transparent:
        turns = jax.vmap(_near_to_far)(geoms.nearness[:, transparent[0].start :])
    backdrop = _backdrop(scene, eyes[-1], lens.pixels)
    return Stored(lens.pixels.side, every.position, every.axes, geoms, turns, backdrop)


def _near_to_far(nearness: Float[Array, " geom"]) -> Int[Array, " geom"]:
    """The order of the geoms, found by counting how many come before each: for ten of them faster than sorting."""
    number = jnp.arange(len(nearness), dtype=jnp.int32)
    is_tie = (nearness[None, :] == nearness[:, None]) & (number[None, :] < number[:, None])
    rank = jnp.sum((nearness[None, :] < nearness[:, None]) | is_tie, axis=1, dtype=jnp.int32)
    order = jnp.sum(jnp.where(rank[None, :] == number[:, None], number[None, :], 0), axis=1, dtype=jnp.int32)
    # Numbers that are not finite have no rank; whatever then comes out must be a geom.
    return jnp.minimum(order, len(nearness) - 1)


def _backdrop(scene: Scene, eye: Eye, pixels: Pixels) -> tuple[Float[Array, "height width"], ...]:
    """What the colours of sky and floor are made of, wherever they are seen."""
    if scene.floor is None:
        return (sky_share(eye, pixels),)
    light = floor_light(scene, scene.floor, eye, pixels)
    parts = sky_share(eye, pixels), floor_sign(scene.floor, eye, pixels)
    return parts if light is None else (*parts, light)


def _backdrop_colours(scene: Scene, backdrop: list[Array]) -> tuple[Colours, Colours]:
    """The colours of sky and floor, wherever they are seen."""
    share, *floor = backdrop
    facts = zip(scene.sky.nadir, scene.sky.zenith, scene.sky.offset, strict=True)
    sky = tuple(sky_tone(*fact, share) for fact in facts)
    if scene.floor is None:
        return sky, sky
    tones = (floor_tone(*pair, floor[0]) for pair in zip(*scene.floor.colours, strict=True))
    return sky, tuple(tone * floor[1] if floor[1:] else tone for tone in tones)


def _draw(scene: Scene, lens: Lens, samples: int, stored: Stored, tile: Tile) -> Int[Array, "row column"]:
    """The pixels of one tile, a byte per channel: what the camera sees, and on the floor what the mirror shows."""
    backdrop = _backdrop_colours(scene, [array[tile.slices][None] for array in stored.backdrop])

    def look_of(eye: Array) -> Look:
        return Look(scene, stored.eye(eye), lens, SAMPLES[samples])

    def one_eye(eye: Array, mirror: Colours) -> Colours:
        return _picture(look_of(eye), stored, eye, tile, backdrop, mirror)

    camera = jnp.int32(stored.camera)
    look = look_of(camera)
    keys = look.backdrop()
    is_floor = jnp.max(look.is_nearest(look.floor_number, keys).astype(jnp.int32)) > 0
    first = jnp.where(is_floor, jnp.int32(0), camera)
    word = jnp.zeros(tile.shape, jnp.int32)
    for channel, colour in enumerate(jax.lax.fori_loop(first, camera + 1, one_eye, _black(keys))):
        word |= _byte(jnp.sum(colour, axis=0) / samples) << (8 * channel)
    return word


def _byte(brightness: Array) -> Array:
    """A number from 0 to 255, rounded; ties go to the even one, as in `jnp.round`, which Triton lacks."""
    level = 255.0 * jnp.clip(brightness, 0.0, 1.0)
    below = level.astype(jnp.int32)
    rest = level - below.astype(jnp.float32)
    is_up = (rest > 0.5) | ((rest == 0.5) & (below & 1 == 1))
    return jnp.where(is_up, below + 1, below)


def _black(keys: Keys) -> Colours:
    return (jnp.zeros_like(keys, jnp.float32),) * 3


def _picture(
    look: Look, stored: Stored, eye: Array, tile: Tile, backdrop: tuple[Colours, Colours], mirror: Colours
) -> Colours:
    """What an eye sees at every sample. The mirror's picture is added to the floor; a mirror itself is black."""
    _, opaque, transparent = arrange(look.scene)
    keys = look.backdrop()
    canvas = Canvas(keys, _black(keys))
    for group in opaque:
        one_geom = functools.partial(_paint, look, stored, eye, tile, group.kind)
        canvas = jax.lax.fori_loop(jnp.int32(group.start), jnp.int32(group.stop), one_geom, canvas)
    is_floor = look.is_nearest(look.floor_number, canvas.keys)
    is_sky = (canvas.keys == NOTHING) & ~look.eye.is_mirrored
    colours = tuple(
        jnp.where(is_floor, jnp.minimum(floor + mirror, 1.0), jnp.where(is_sky, sky, other))
        for sky, floor, mirror, other in zip(*backdrop, mirror, canvas.colours, strict=True)
    )
    canvas = canvas._replace(colours=colours)
    return _blend(look, stored, eye, tile, transparent, canvas) if transparent else colours


def _paint(look: Look, stored: Stored, eye: Array, tile: Tile, kind: str, number: Array, canvas: Canvas) -> Canvas:
    """`canvas` with one opaque geom where it is nearer than what is there."""

    def near(canvas: Canvas) -> Canvas:
        geom = stored.geom(eye, number)
        keys = look.hits(kind, geom, look.lens.pixels)
        pairs = zip(_colours(look, kind, geom), canvas.colours, strict=True)
        colours = tuple(jnp.where(keys < canvas.keys, new, old) for new, old in pairs)
        return Canvas(jnp.minimum(keys, canvas.keys), colours)

    return jax.lax.cond(tile.meets(stored.place(eye, number)), near, lambda canvas: canvas, canvas)


def _blend(look: Look, stored: Stored, eye: Array, tile: Tile, groups: tuple[Group, ...], canvas: Canvas) -> Colours:
    """The colours behind the transparent geoms, blended near to far and then far to near.

    Both rounds are one pass, near to far. Layer i of cover c and colour k turns the first round's image a into
    a + c (k - a); to the second round it adds b + t c k, where t is what the layers before it let through, and that
    round ends as b + t a.
    """

    def near(kind: str, number: Array, layers: Layers) -> Layers:
        image, added, through = layers
        geom = stored.geom(eye, number)
        cover = look.cover(kind, geom, look.lens.pixels, canvas.keys)
        colours = _colours(look, kind, geom)
        image = tuple(old + cover * (new - old) for new, old in zip(colours, image, strict=True))
        added = tuple(old + through * cover * new for new, old in zip(colours, added, strict=True))
        return image, added, through * (1.0 - cover)

    def one_geom(turn: Array, layers: Layers) -> Layers:
        number = groups[0].start + stored.turns[eye, turn]
        is_near = tile.meets(stored.place(eye, number))
        for group in groups:
            is_one = is_near & (number >= group.start) & (number < group.stop)
            draw = functools.partial(near, group.kind, number)
            layers = jax.lax.cond(is_one, draw, lambda layers: layers, layers)
        return layers

    layers = canvas.colours, _black(canvas.keys), jnp.ones_like(canvas.keys, jnp.float32)
    count = jnp.int32(groups[-1].stop - groups[0].start)
    image, added, through = jax.lax.fori_loop(jnp.int32(0), count, one_geom, layers)
    return tuple(new + through * old for new, old in zip(added, image, strict=True))


def _colours(look: Look, kind: str, geom: Geoms) -> Colours:
    """The colour of one geom at every sample, or once for all of a pixel."""
    light = look.light(kind, geom, look.lens.pixels)
    return tuple(jnp.clip(geom.colour[channel] * light.scattered + light.mirrored, 0.0, 1.0) for channel in range(3))
