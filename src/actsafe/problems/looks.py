"""How problems from state look to a camera: a scene that never changes, and the view of a state."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt8

from actsafe.problems.base import Problem, State
from actsafe.problems.cartpole_swingup import CartpoleSwingup
from actsafe.render.raycast import render
from actsafe.render.scene import Scene, View, cartpole_scene


class Look(NamedTuple):
    """A problem's scene, the view of one state, and the proportions in which it is seen."""

    scene: Scene
    view: View
    aspect: float
    """Width over height of what the camera takes in; a square picture of it is squeezed."""


@functools.singledispatch
def look(problem: Problem, state: State) -> Look:
    """How `state` looks. Register an implementation for a problem class to have pixels of it."""
    raise NotImplementedError(f"{problem.name} has no look, so that there are no pixels of it; observe its state.")


def has_look(problem: Problem) -> bool:
    return look.dispatch(type(problem)) is not look.dispatch(object)


def picture(problem: Problem, state: State, *, size: int, num_samples: int = 4) -> UInt8[Array, "{size} {size} 3"]:
    """A square picture of `state`. Pure; can be jitted and vmapped.

    The camera's field is rendered in its own proportions and stretched to a square, as the paper's agents see it.
    """
    scene, view, aspect = look(problem, state)
    height = max(1, round(size / aspect))
    frame = render(scene, view, width=size, height=height, samples=num_samples)
    if height == size:
        return frame
    stretched = jax.image.resize(frame.astype(jnp.float32), (size, size, 3), "linear", antialias=False)
    return jnp.round(stretched).astype(jnp.uint8)


RAIL_HEIGHT, RAIL_GAP, RAIL_RADIUS, RAIL_HALF_LENGTH = 1.0, 0.07, 0.02, 2.0
CART_HALF_SIZES = (0.2, 0.15, 0.1)
RAIL_COLOUR, BODY_COLOUR, BALANCED_COLOUR = (0.3, 0.5, 0.7, 1.0), (0.7, 0.5, 0.3, 1.0), (0.0, 0.5, 0.3, 1.0)
_ALONG_X = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (-1.0, 0.0, 0.0))
"""Turns a capsule, which lies along z, to lie along x."""


@look.register
def _(problem: CartpoleSwingup, state: State) -> Look:
    """Two rails, the cart and its pole, which turn green where the pole is balanced; seen from the front, 4 to 3."""
    position, cos, sin = state[0], state[1], state[2]
    half_length = problem.params.pole_length / 2.0
    rail = jnp.asarray([RAIL_RADIUS, RAIL_HALF_LENGTH, 0.0])
    pole_size = jnp.stack([jnp.asarray(size, float) for size in (problem.params.pole_radius, half_length, 0.0)])
    sizes = jnp.stack([rail, rail, jnp.asarray(CART_HALF_SIZES), pole_size]).astype(jnp.float32)
    scene = cartpole_scene(("capsule", "capsule", "box", "capsule"), sizes)
    zero, one, height = jnp.zeros_like(position), jnp.ones_like(position), RAIL_HEIGHT * jnp.ones_like(position)
    pole = jnp.stack([position + half_length * sin, zero, height + half_length * cos])
    positions = jnp.stack(
        [
            jnp.stack([zero, -RAIL_GAP * one, height]),
            jnp.stack([zero, RAIL_GAP * one, height]),
            jnp.stack([position, zero, height]),
            pole,
        ]
    )
    turn = jnp.stack([jnp.stack([cos, zero, sin]), jnp.stack([zero, one, zero]), jnp.stack([-sin, zero, cos])])
    along, still = jnp.asarray(_ALONG_X, state.dtype), jnp.eye(3, dtype=state.dtype)
    body = jnp.where(problem.is_balanced(state) > 0.0, jnp.asarray(BALANCED_COLOUR), jnp.asarray(BODY_COLOUR))
    steel = jnp.asarray(RAIL_COLOUR)
    view = View(
        positions=positions,
        rotations=jnp.stack([along, along, still, turn]),
        colours=jnp.stack([steel, steel, body, body]),
        camera_position=jnp.asarray([0.0, -4.0, 1.0]),
        camera_rotation=jnp.asarray([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]),
        fovy=jnp.asarray(45.0),
    )
    return Look(scene, view, 4.0 / 3.0)
