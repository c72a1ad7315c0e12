"""Every geom against the pixels near it: how a processor likes it.

Loops over geoms and their windows read and write pieces of the image in place: the work follows what is seen.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from actsafe.render.bounds import WINDOW
from actsafe.render.eye import Lens, Pixels
from actsafe.render.geoms import Geoms, Group
from actsafe.render.layers import Image, Keys, Look

Images = tuple[Array, ...]
Body = Callable[[Geoms, Pixels, Images], Images]
"""What one geom does to the same window of several images; those it only reads it hands back as they are."""


def nearest(look: Look, group: Group, geoms: Geoms, keys: Keys) -> Keys:
    """`keys`, or those of nearer geoms of the group."""

    def body(geom: Geoms, pixels: Pixels, images: Images) -> Images:
        return (jnp.minimum(images[0], look.hits(group.kind, geom, pixels)),)

    return _all_geoms(look.lens, group, geoms, body, (keys,))[0]


def paint(look: Look, group: Group, geoms: Geoms, keys: Keys, image: Image) -> Image:
    """`image` with the geoms of the group where they are nearest."""

    def body(geom: Geoms, pixels: Pixels, images: Images) -> Images:
        keys, image = images
        is_nearest = look.is_nearest(geom.number, keys)[None]
        return keys, jnp.where(is_nearest, look.colour(group.kind, geom, pixels), image)

    return _all_geoms(look.lens, group, geoms, body, (keys, image))[1]


def blend(look: Look, groups: tuple[Group, ...], geoms: Geoms, keys: Keys, image: Image) -> Image:
    """`image` behind the transparent geoms, blended near to far and then far to near."""

    def body_of(kind: str) -> Body:
        def body(geom: Geoms, pixels: Pixels, images: Images) -> Images:
            keys, image = images
            cover = look.cover(kind, geom, pixels, keys)[None]
            return keys, image + cover * (look.colour(kind, geom, pixels) - image)

        return body

    start = groups[0].start
    order = jnp.argsort(geoms.nearness[start:]).astype(jnp.int32)
    order = jnp.concatenate([order, order[::-1]])
    kinds = np.repeat(np.arange(len(groups), dtype=np.int32), [group.stop - group.start for group in groups])
    bodies = [body_of(group.kind) for group in groups]

    def one_geom(turn: Array, images: Images) -> Images:
        geom = _row(geoms, start + order[turn])
        branches = [lambda images, body=body: _all_windows(look.lens, geom, body, images) for body in bodies]
        return jax.lax.switch(jnp.asarray(kinds)[order[turn]], branches, images)

    return jax.lax.fori_loop(jnp.int32(0), jnp.int32(len(order)), one_geom, (keys, image))[1]


def _all_geoms(lens: Lens, group: Group, geoms: Geoms, body: Body, images: Images) -> Images:
    def one_geom(number: Array, images: Images) -> Images:
        return _all_windows(lens, _row(geoms, number), body, images)

    return jax.lax.fori_loop(jnp.int32(group.start), jnp.int32(group.stop), one_geom, images)


def _all_windows(lens: Lens, geom: Geoms, body: Body, images: Images) -> Images:
    """`images` after `body` has seen every window of the geom."""
    place = geom.place

    def one_window(window: Array, images: Images) -> Images:
        row = place.row + window // place.columns * WINDOW[0]
        column = place.column + window % place.columns * WINDOW[1]
        old = tuple(_cut(image, row, column) for image in images)
        new = body(geom, lens.window(row, column, WINDOW), old)
        return tuple(
            image if after is before else _paste(image, after, row, column)
            for image, before, after in zip(images, old, new, strict=True)
        )

    return jax.lax.fori_loop(jnp.int32(0), place.rows * place.columns, one_window, images)


def _row(geoms: Geoms, number: Array) -> Geoms:
    return jax.tree.map(lambda leaf: leaf[number], geoms)


def _cut(image: Array, row: Array, column: Array) -> Array:
    start = (*(jnp.int32(0),) * (image.ndim - 2), row, column)
    return jax.lax.dynamic_slice(image, start, (*image.shape[:-2], *WINDOW))


def _paste(image: Array, piece: Array, row: Array, column: Array) -> Array:
    return jax.lax.dynamic_update_slice(image, piece, (*(jnp.int32(0),) * (image.ndim - 2), row, column))
