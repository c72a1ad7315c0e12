"""The ways to draw, run on the CPU, against every geom held against every pixel."""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.render import kernel, raycast
from actsafe.render.scene import Floor, Light, Scene, View

sys.path.insert(0, str(Path(__file__).parent))
import dense_drawing

SIZE = {"width": 20, "height": 18}
"""Neither is a whole number of tiles."""

SIZES = {"sphere": (0.3, 0, 0), "capsule": (0.1, 0.3, 0), "cylinder": (0.3, 0.1, 0), "box": (0.2, 0.1, 0.3)}


def crowd(kinds, num_transparent, **surroundings):
    """Geoms of these kinds, of which the last are transparent."""
    flags = tuple(number >= len(kinds) - num_transparent for number in range(len(kinds)))
    return Scene(kinds, np.asarray([SIZES[kind] for kind in kinds], np.float32).reshape(-1, 3), flags, **surroundings)


LAMP = Light(position=(0.0, 0.0, 3.0), diffuse=0.7, specular=0.3, exponent=2.0, cutoff=60.0)

SCENES = {
    "blended": crowd(("sphere", "capsule", "cylinder", "box", "box", "cylinder", "box"), 3),
    "lamp, no mirror": crowd(("sphere", "box"), 1, floor=Floor(reflectance=0.0), lights=(LAMP,)),
    "bare": crowd((), 0),
    "no floor": crowd(("sphere",), 0, floor=None),
}

WAYS = {
    "dense": functools.partial(raycast._frame, how=dense_drawing),
    "windows": raycast._frame,
    "kernel": functools.partial(kernel.frame, interpret=True),
}


def random_views(scene, number):
    """Geoms near the middle, a little below the floor too; all but the last camera look there."""
    random = np.random.default_rng(0)
    count = scene.num_geoms
    rotations = np.linalg.qr(random.normal(size=(number, count + 1, 3, 3)))[0]
    rotations[..., 0] *= np.linalg.det(rotations)[..., None]
    camera = random.uniform([-2, -2, 0.3], [2, 2, 1.5], size=(number, 3))
    cameras = rotations[:, count].copy()
    for view in range(number - 1):
        back = camera[view] / np.linalg.norm(camera[view])
        right = np.cross([0, 0, 1], back)
        right /= np.linalg.norm(right)
        cameras[view] = np.stack([right, np.cross(back, right), back], axis=1)
    colours, fovy = random.uniform(size=(number, count, 4)), random.uniform(40, 100, size=number)
    positions = random.uniform([-1, -1, -0.1], [1, 1, 0.6], size=(number, count, 3))
    views = View(positions, rotations[:, :count], colours, camera, cameras, fovy)
    return jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), views)


@functools.cache
def painter(way, scene, samples):
    """Compiled once: a function from views to frames."""
    return jax.jit(jax.vmap(functools.partial(WAYS[way], SCENES[scene], **SIZE, samples=samples)))


def frames(way, scene, samples, views):
    return np.asarray(painter(way, scene, samples)(views)).astype(int)


@pytest.mark.parametrize(
    ("way", "scene", "samples"),
    [
        ("kernel", "blended", 4),
        ("kernel", "lamp, no mirror", 1),
        ("kernel", "no floor", 1),
        ("windows", "blended", 1),
    ],
)
def test_all_ways_draw_the_same_pictures(way, scene, samples):
    views = random_views(SCENES[scene], 4)
    got, expected = frames(way, scene, samples, views), frames("dense", scene, samples, views)
    difference = np.abs(got - expected).max(axis=-1)
    assert np.all(expected.std(axis=(1, 2)).max(axis=-1) > 5)
    assert np.mean(difference > 0) < 1e-2
    # Rounding may turn a sample at an edge.
    assert np.mean(difference > 1) < 2e-3


def test_what_is_not_finite_is_not_drawn():
    views = random_views(SCENES["blended"], 4)
    surroundings = frames("kernel", "bare", 4, views)
    np.testing.assert_array_equal(surroundings, frames("dense", "bare", 4, views))
    assert not np.array_equal(frames("kernel", "blended", 4, views), surroundings)
    for broken in (jnp.nan, jnp.inf):
        gone = views._replace(positions=jnp.full_like(views.positions, broken))
        np.testing.assert_array_equal(frames("kernel", "blended", 4, gone), surroundings)


def test_the_order_is_near_to_far_and_always_one_of_geoms():
    nearness = jnp.asarray([2.0, -1.0, 2.0, 0.5, -1.0], jnp.float32)
    # -1 (second and last), 0.5 (fourth), 2 (first and third); of equals the first comes first.
    assert kernel._near_to_far(nearness).tolist() == [1, 4, 3, 0, 2]
    lost = np.asarray(kernel._near_to_far(jnp.full(5, jnp.nan, jnp.float32)))
    assert np.all((lost >= 0) & (lost < 5))


def test_bytes_are_rounded_to_even():
    # 0.5 / 255, 1.5 / 255 and 2.5 / 255 are half-way; what is beyond 0 and 1 is cut.
    brightness = jnp.asarray([0.5, 1.5, 2.5, 2.6, 254.4, -3.0, 300.0], jnp.float32) / 255.0
    assert kernel._byte(brightness).tolist() == np.round(np.clip(255.0 * brightness, 0, 255)).tolist()
    assert kernel._byte(brightness).tolist()[:3] == [0, 2, 2]


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
def test_the_kernel_lowers_for_cuda():
    if not kernel.IS_AVAILABLE:
        pytest.skip("this JAX has no Pallas on Triton")
    scene = SCENES["lamp, no mirror"]
    draw = jax.jit(jax.vmap(functools.partial(raycast.render, scene, **SIZE)))
    try:
        lowered = draw.trace(random_views(scene, 2)).lower(lowering_platforms=("cuda",))
    except RuntimeError as problem:
        # JAX 0.11 and later lower for a device that is there, or is described.
        pytest.skip(str(problem))
    assert lowered.as_text().count("__gpu$xla.gpu.triton") == 1
