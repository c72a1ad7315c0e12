"""Every geom held against every pixel: the plain way to draw, which `windows` and the kernel are compared with."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from actsafe.render.geoms import Geoms, Group
from actsafe.render.layers import Image, Keys, Look
from actsafe.render.shade import Lit


def members(group: Group, geoms: Geoms) -> Geoms:
    """The geoms of a group."""
    return jax.tree.map(lambda leaf: leaf[group.start : group.stop], geoms)


def nearest(look: Look, group: Group, geoms: Geoms, keys: Keys) -> Keys:
    """`keys`, or those of nearer geoms of the group."""
    hits = jax.vmap(lambda geom: look.hits(group.kind, geom, look.lens.pixels))(members(group, geoms))
    return jnp.minimum(keys, jnp.min(hits, axis=0))


def paint(look: Look, group: Group, geoms: Geoms, keys: Keys, image: Image) -> Image:
    """`image` with the geoms of the group where they are nearest."""

    def part(geom: Geoms) -> tuple[Array, Array, Array, Array]:
        is_nearest = look.is_nearest(geom.number, keys)
        light = look.light(group.kind, geom, look.lens.pixels)
        tone = jnp.where(is_nearest[None], geom.colour[:3, None, None, None], 0.0)
        scattered, white = (jnp.where(is_nearest, part, 0.0) for part in light)
        return is_nearest, tone, scattered, white

    # At most one is nearest: sums choose. Light and colour apart, so that light is not computed once per channel.
    is_nearest, tone, scattered, white = jax.vmap(part)(members(group, geoms))
    colour = tone.sum(axis=0) * scattered.sum(axis=0)[None] + white.sum(axis=0)[None]
    return jnp.where(jnp.any(is_nearest, axis=0)[None], jnp.clip(colour, 0.0, 1.0), image)


def blend(look: Look, groups: tuple[Group, ...], geoms: Geoms, keys: Keys, image: Image) -> Image:
    """`image` behind the transparent geoms, blended near to far and then far to near.

    In closed form, so that nothing waits for its turn. A layer is dimmed by those blended after it: in the second round
    by those before it, in the first round by those behind it and then by all.
    """
    layers = []
    for group in groups:

        def layer(geom: Geoms, kind: str = group.kind) -> tuple[Array, Array, Array]:
            cover = look.cover(kind, geom, look.lens.pixels, keys)
            light = look.light(kind, geom, look.lens.pixels)
            scattered, white = (jnp.broadcast_to(part, cover.shape) for part in light)
            return cover, scattered, white

        layers.append(jax.vmap(layer)(members(group, geoms)))
    cover, *light = (jnp.concatenate(parts) for parts in zip(*layers, strict=True))
    first = groups[0].start
    colour = jax.vmap(lambda tone, *light: Lit(*light).on(tone))(geoms.colour[first:, :3], *light)
    rank = jnp.argsort(jnp.argsort(geoms.nearness[first:]))
    is_before = (rank[:, None] < rank[None, :])[:, :, None, None, None]
    passed = 1.0 - cover
    before = jnp.prod(jnp.where(is_before, passed[:, None], 1.0), axis=0)
    behind = jnp.prod(jnp.where(jnp.swapaxes(is_before, 0, 1), passed[:, None], 1.0), axis=0)
    through = jnp.prod(passed, axis=0)
    weight = cover * (before + behind * through[None])
    return through[None] ** 2 * image + jnp.sum(weight[:, None] * colour, axis=0)
