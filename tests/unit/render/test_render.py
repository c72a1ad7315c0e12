"""Rays against shapes worked by hand, and what every picture must keep to."""

import functools
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.render import raycast, windows
from actsafe.render.intersect import ROUNDNESS, intersect
from actsafe.render.mujoco import scene_of, viewer_of
from actsafe.render.raycast import render, render_batch
from actsafe.render.scene import Floor, Headlight, Light, Scene, Sky, View, cartpole_scene

sys.path.insert(0, str(Path(__file__).parent))
import dense_drawing

UNIT = 1.0 / ROUNDNESS
"""The radius that is drawn as 1."""

SIZES = {
    "sphere": (UNIT, 0.0, 0.0),
    "capsule": (UNIT, 1.0, 0.0),
    "cylinder": (UNIT, 0.5, 0.0),
    "box": (1.0, 2.0, 3.0),
}

FLAT = {"floor": None, "headlight": Headlight(ambient=1.0, diffuse=0.0, specular=0.0), "lights": ()}
"""A scene in which geoms have their own colour, whatever their pose."""


def meet(kind, origin, direction):
    """The hit of one ray, as plain numbers."""
    size = jnp.asarray(SIZES[kind], jnp.float32)
    origin, direction = (tuple(jnp.asarray([part], jnp.float32) for part in vector) for vector in (origin, direction))
    hit = intersect(kind, size, origin, direction)
    return bool(hit.is_hit[0]), float(hit.depth[0]), [float(part[0]) for part in hit.normal]


@pytest.mark.parametrize(
    ("kind", "origin", "direction", "depth", "normal"),
    [
        ("sphere", (0, 0, 3), (0, 0, -1), 2.0, (0, 0, 1)),
        # At x = 0.6 the surface is at height 0.8.
        ("sphere", (0.6, 0, 3), (0, 0, -1), 2.2, (0.6, 0, 0.8)),
        # Depth counts in lengths of the direction.
        ("sphere", (0, 0, 3), (0, 0, -2), 1.0, (0, 0, 1)),
        ("sphere", (0.9999, 0, 3), (0, 0, -1), 3.0 - np.sqrt(1 - 0.9999**2), (0.9999, 0, np.sqrt(1 - 0.9999**2))),
        ("capsule", (3, 0, 0.5), (-1, 0, 0), 2.0, (1, 0, 0)),
        ("capsule", (0, 0, 5), (0, 0, -1), 3.0, (0, 0, 1)),
        ("capsule", (0.6, 0, 5), (0, 0, -1), 3.2, (0.6, 0, 0.8)),
        # At z = 1.6 it meets the ball around z = 1, at x = 0.8.
        ("capsule", (3, 0, 1.6), (-1, 0, 0), 2.2, (0.8, 0, 0.6)),
        ("capsule", (0, -3, -1.6), (0, 1, 0), 2.2, (0, -0.8, -0.6)),
        ("cylinder", (3, 0, 0.25), (-1, 0, 0), 2.0, (1, 0, 0)),
        ("cylinder", (0.5, 0, 4), (0, 0, -1), 3.5, (0, 0, 1)),
        ("cylinder", (0.5, 0, -4), (0, 0, 1), 3.5, (0, 0, -1)),
        # Inside the tube from depth 1, between the ends from depth 1.5.
        ("cylinder", (2, 0, 2), (-1, 0, -1), 1.5, (0, 0, 1)),
        # Between the ends from depth 1.5 to 2.5, inside the tube from depth 2.
        ("cylinder", (3, 0, 2), (-1, 0, -1), 2.0, (1, 0, 0)),
        ("box", (5, 0, 0), (-1, 0, 0), 4.0, (1, 0, 0)),
        # Inside |y| <= 2 from depth 2, inside |x| <= 1 from depth 3.
        ("box", (4, 4, 0), (-1, -1, 0), 3.0, (1, 0, 0)),
        ("box", (0.5, 1, -5), (0, 0, 2), 1.0, (0, 0, -1)),
    ],
)
def test_a_ray_enters_where_it_should(kind, origin, direction, depth, normal):
    is_hit, got_depth, got_normal = meet(kind, origin, direction)
    assert is_hit
    assert got_depth == pytest.approx(depth, abs=1e-3)
    assert got_normal == pytest.approx(normal, abs=2e-3)


@pytest.mark.parametrize(
    ("kind", "origin", "direction"),
    [
        ("sphere", (1.001, 0, 3), (0, 0, -1)),
        ("sphere", (0, 0, -3), (0, 0, -1)),
        ("sphere", (0.1, 0, 0), (0, 0, -1)),
        ("capsule", (3, 0, 2.5), (-1, 0, 0)),
        ("capsule", (1.2, 0, 5), (0, 0, -1)),
        ("capsule", (0, 0, 1.5), (0, 0, 1)),
        ("cylinder", (3, 0, 0.6), (-1, 0, 0)),
        ("cylinder", (1.2, 0, 4), (0, 0, -1)),
        ("cylinder", (0, 0, 0), (1, 0, 1)),
        # Inside |z| <= 0.5 until depth 2.5, inside the tube only from depth 2.6.
        ("cylinder", (3.6, 0, 2), (-1, 0, -1)),
        ("box", (4, 0, 0), (-1, -1, 0)),
        ("box", (0.5, 0, 0), (1, 0, 0)),
        ("box", (-5, 0, 0), (-1, 0, 0)),
    ],
)
def test_a_ray_misses_past_behind_and_from_inside(kind, origin, direction):
    is_hit, depth, normal = meet(kind, origin, direction)
    assert not is_hit
    assert np.all(np.isfinite([depth, *normal]))


@pytest.mark.parametrize("kind", SIZES)
def test_the_outline_has_no_seam(kind):
    """Just outside, depth and normal go on from just inside: a pixel's centre may be there."""
    inside, outside = (meet(kind, (1.0 + step, 0.01, 6), (0, 0, -1)) for step in (-1e-3, 1e-3))
    assert inside[0] and not outside[0]
    assert outside[1] == pytest.approx(inside[1], abs=0.1)
    assert outside[2] == pytest.approx(inside[2], abs=0.1)


def looking_along_y(positions, colours, *, camera=(0.0, -4.0, 0.5), fovy=60.0):
    """A view from `camera` along +y, with all geoms upright."""
    number = len(positions)
    return View(
        np.asarray(positions, np.float32),
        np.broadcast_to(np.eye(3, dtype=np.float32), (number, 3, 3)),
        np.asarray(colours, np.float32),
        np.float32(camera),
        np.float32([[1, 0, 0], [0, 0, -1], [0, 1, 0]]),
        np.float32(fovy),
    )


def draw(scene, view, **size):
    return np.asarray(render_batch(scene, jax.tree.map(lambda array: np.asarray(array)[None], view), **size)[0])


RED, GREEN, BLUE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def test_transparent_geoms_are_blended_near_to_far_and_back():
    # Blue behind green behind red, alpha 1/4. After red, green, green, red:
    # red 1/4 (3/4)³ + 1/4, green 1/4 (3/4)² + 1/4 (3/4), blue (3/4)⁴.
    expected = np.round(255 * np.array([0.25 * 0.75**3 + 0.25, 0.25 * 0.75**2 + 0.25 * 0.75, 0.75**4]))
    sizes = np.float32([[3, 0.1, 3]] * 3)
    scene = Scene(("box",) * 3, sizes, (True, True, False), **FLAT)
    near, far, back = (0.0, 0.0, 0.5), (0.0, 1.0, 0.5), (0.0, 2.0, 0.5)
    in_order = looking_along_y([near, far, back], [(*RED, 0.25), (*GREEN, 0.25), (*BLUE, 1.0)])
    reversed_order = looking_along_y([far, near, back], [(*GREEN, 0.25), (*RED, 0.25), (*BLUE, 1.0)])
    hidden = looking_along_y([near, (0.0, 3.0, 0.5), back], [(*RED, 0.25), (*GREEN, 0.25), (*BLUE, 1.0)])
    for view in (in_order, reversed_order):
        np.testing.assert_allclose(draw(scene, view, width=16, height=8, samples=1)[4, 8], expected, atol=1)
    # What is behind something opaque tints nothing: 1 - (3/4)² of red, the rest blue.
    pixel = draw(scene, hidden, width=16, height=8, samples=1)[4, 8]
    np.testing.assert_allclose(pixel, np.round(255 * np.array([0.4375, 0.0, 0.5625])), atol=1)


def test_the_nearer_geom_shows():
    scene = Scene(("sphere", "box"), np.float32([[0.5, 0, 0], [0.5, 0.1, 0.5]]), (False, False), **FLAT)
    colours = [(*RED, 1.0), (*GREEN, 1.0)]
    red_first = looking_along_y([(0, 0, 0.5), (0, 2, 0.5)], colours)
    green_first = looking_along_y([(0, 2, 0.5), (0, 0, 0.5)], colours)
    np.testing.assert_array_equal(draw(scene, red_first, width=16, height=16, samples=1)[8, 8], [255, 0, 0])
    np.testing.assert_array_equal(draw(scene, green_first, width=16, height=16, samples=1)[8, 8], [0, 255, 0])


ALL_KINDS = ("sphere", "capsule", "cylinder", "box") * 2
ALL_SIZES = np.float32([[0.3, 0, 0], [0.1, 0.3, 0], [0.3, 0.1, 0], [0.2, 0.1, 0.3]] * 2)


@functools.cache
def crowd(floor=True):
    return Scene(ALL_KINDS, ALL_SIZES, (False,) * 4 + (True,) * 4, floor=Floor() if floor else None)


def random_views(seed, number):
    """Geoms and cameras anywhere: behind, beside, inside each other."""
    random = np.random.default_rng(seed)
    rotations = np.linalg.qr(random.normal(size=(number, 9, 3, 3)))[0].astype(np.float32)
    rotations[..., 0] *= np.linalg.det(rotations)[..., None]
    colours = random.uniform(size=(number, 8, 4)).astype(np.float32)
    return View(
        random.uniform(-1.5, 1.5, size=(number, 8, 3)).astype(np.float32) * np.float32([1, 1, 0.5]),
        rotations[:, :8],
        colours,
        random.uniform([-1, -1, 0.1], [1, 1, 1.5], size=(number, 3)).astype(np.float32),
        rotations[:, 8],
        random.uniform(40, 100, size=number).astype(np.float32),
    )


def test_windows_leave_nothing_out():
    """What the processor draws, near geoms only, is what comes out when every geom is held against every pixel."""
    views = jax.tree.map(jnp.asarray, random_views(0, 20))

    def frames(how):
        def one(view):
            return raycast._frame(crowd(), view, width=24, height=18, samples=4, how=how)

        return np.asarray(jax.jit(lambda views: jax.lax.map(one, views))(views)).astype(int)

    difference = np.abs(frames(windows) - frames(dense_drawing)).max(axis=-1)
    # Rounding may turn a sample at an edge.
    assert np.mean(difference > 1) < 1e-3
    assert np.all(np.mean(difference > 1, axis=(1, 2)) < 0.02)


def test_a_batch_is_a_loop_and_repeats_itself():
    views, scene = random_views(1, 3), crowd()
    size = {"width": 24, "height": 18, "samples": 1}
    batch = np.asarray(render_batch(scene, views, **size))
    np.testing.assert_array_equal(batch, np.asarray(render_batch(scene, views, **size)))
    single = eqx.filter_jit(lambda view: render(scene, view, **size))
    for number in range(3):
        view = jax.tree.map(lambda array: jnp.asarray(array[number]), views)  # noqa: B023
        np.testing.assert_array_equal(batch[number], np.asarray(single(view)))
    assert len({frame.tobytes() for frame in batch}) == 3


def test_what_is_not_finite_or_clear_is_not_drawn():
    size = {"width": 24, "height": 18, "samples": 4}
    views = random_views(2, 1)
    back = views.camera_rotation[0, :, 2]
    # An opaque ball, before it a transparent capsule, nothing else near.
    views.positions[0] = views.camera_position[0] + 9.0 * back
    views.positions[0, 0], views.positions[0, 5] = (views.camera_position[0] - depth * back for depth in (1.5, 1.0))
    whole = np.asarray(render_batch(crowd(floor=False), views, **size))
    for geom in (0, 5):
        expected = views._replace(positions=views.positions.copy())
        expected.positions[0, geom] = views.positions[0, 1]
        expected = np.asarray(render_batch(crowd(floor=False), expected, **size))
        assert not np.array_equal(expected, whole)
        for field, value in (("positions", np.nan), ("rotations", np.inf), ("colours", np.nan), ("colours", 0.0)):
            broken = views._replace(**{field: getattr(views, field).copy()})
            getattr(broken, field)[0, geom] = value
            np.testing.assert_array_equal(np.asarray(render_batch(crowd(floor=False), broken, **size)), expected)


def test_pixels_are_square_in_any_shape_of_image():
    scene = Scene(("sphere",), np.float32([[0.5, 0, 0]]), (False,), **FLAT)
    view = looking_along_y([(0, 0, 0.5)], [(*RED, 1.0)])
    for width, height in ((40, 30), (30, 40), (31, 17)):
        image = draw(scene, view, width=width, height=height, samples=1)
        assert image.shape == (height, width, 3)
        assert image.dtype == np.uint8
        is_red = image[..., 0] == 255
        assert is_red.any(axis=0).sum() == pytest.approx(is_red.any(axis=1).sum(), abs=1)
        # Its angle is 2 asin(0.5 / 4); the image is as high as 2 tan(30°).
        across = 2 * np.tan(np.arcsin(0.125)) / (2 * np.tan(np.pi / 6)) * height
        assert is_red.any(axis=1).sum() == pytest.approx(across, abs=1)


def looking_down(x, y, height):
    return View(
        np.zeros((1, 3), np.float32),
        np.eye(3, dtype=np.float32)[None],
        np.zeros((1, 4), np.float32),
        np.float32([x, y, height]),
        np.eye(3, dtype=np.float32),
        np.float32(1.0),
    )


def test_the_floor_is_a_checker_that_blurs_and_ends():
    scene = Scene(("sphere",), np.ones((1, 3), np.float32), (False,))

    def middle(x, y, height):
        return draw(scene, looking_down(x, y, height), width=4, height=4, samples=1)[2, 2].tolist()

    assert middle(0.1, 0.1, 1.0) == middle(-0.1, -0.1, 1.0) == [204] * 3
    assert middle(-0.1, 0.1, 1.0) == middle(0.1, -0.1, 1.0) == [178] * 3
    # From so far away a pixel holds many squares.
    assert middle(0.1, 0.1, 500.0) == [191] * 3
    # Straight down beyond the floor's edge, or from below it, there is the sky's lowest colour.
    nadir = np.round(255 * np.array([0.1, 0.1, 0.35]) + [0.28, 0.33, 0.33]).tolist()
    assert middle(3.6, 0.0, 1.0) == nadir
    assert middle(0.1, 0.1, -1.0) == nadir


def test_the_floor_mirrors_what_stands_on_it():
    box = Scene(("box",), np.float32([[0.3, 0.3, 0.3]]), (False,))
    matt = Scene(box.kinds, box.sizes, box.transparent, floor=Floor(reflectance=0.0))
    view = looking_along_y([(0, 0, 0.4)], [(*RED, 1.0)], camera=(0.0, -2.0, 0.4))
    shining, dull = (draw(scene, view, width=32, height=32, samples=1).astype(int) for scene in (box, matt))
    changed = np.argwhere(np.any(shining != dull, axis=-1))
    # Only on the floor, below the box, and brighter.
    assert len(changed) > 10
    assert changed[:, 0].min() > 20
    assert np.all(shining >= dull)


def test_cartpole_looks_like_cartpole():
    scene = cartpole_scene(("capsule", "box", "capsule"), np.float32([[0.02, 2, 0], [0.2, 0.15, 0.1], [0.045, 0.5, 0]]))
    view = looking_along_y(
        [(0, 0.07, 1.0), (0.3, 0, 1.0), (0.3, 0, 1.5)],
        [(0.3, 0.5, 0.7, 1.0), (0.7, 0.5, 0.3, 1.0), (0.7, 0.5, 0.3, 1.0)],
        camera=(0.0, -4.0, 1.0),
        fovy=45.0,
    )
    image = draw(scene, view, width=64, height=48, samples=4).astype(int)
    floor, sky, cart = image[46, 4], image[2, 4], image[24, 32 + 4]
    assert floor[0] < floor[1] < floor[2] < 110
    assert sky[0] < sky[1] < sky[2]
    assert cart[0] > cart[1] > cart[2] > 50


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="samples must be one of 1, 4, got 2"):
        render(crowd(), jax.tree.map(lambda array: array[0], random_views(0, 1)), samples=2)
    with pytest.raises(ValueError, match="got mesh"):
        Scene(("mesh",), np.ones((1, 3), np.float32), (False,))
    with pytest.raises(ValueError, match="1 kinds but 2 flags"):
        Scene(("box",), np.ones((1, 3), np.float32), (False, True))


MODEL = """
<mujoco>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.527 0.582 0.906" rgb2="0.1 0.1 0.35" width="64"
      height="64"/>
    <texture name="floor" type="2d" builtin="checker" rgb1="0.7 0.7 0.7" rgb2="0.8 0.8 0.8" width="100" height="100"/>
    <material name="floor" texture="floor" texrepeat="10 10" reflectance="0.1"/>
    <material name="own" rgba="0.1 0.2 0.3 1"/>
  </asset>
  <worldbody>
    <geom type="plane" size="3.5 3.5 0.1" material="floor"/>
    <light directional="true" dir="0 0 -1" diffuse="1 1 1" specular="0 0 0"/>
    <camera name="eye" pos="0 -2 1" xyaxes="1 0 0 0 0 1" fovy="70"/>
    <geom type="sphere" size="0.1" rgba="1 0 0 0"/>
    <geom type="box" size="0.1 0.2 0.3" pos="1 2 3" rgba="0 1 0 0.25"/>
    <geom type="capsule" size="0.1 0.2" material="own" euler="0 90 0"/>
    <geom type="{last}" size="0.1 0.2 0.3" group="{group}"/>
  </worldbody>
</mujoco>"""


def test_a_model_gives_its_scene_and_views():
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(MODEL.format(last="ellipsoid", group=3))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    scene, view = scene_of(model), viewer_of(model).view(data, "eye")
    # What is clear or of a hidden group is left out; the surroundings are Safety-Gym's, the defaults.
    assert scene.kinds == ("box", "capsule")
    assert scene.transparent == (True, False)
    for part, default in ((scene.floor, Floor()), (scene.headlight, Headlight()), (scene.lights, (Light(),))):
        for got, expected in zip(jax.tree.leaves(vars_of(part)), jax.tree.leaves(vars_of(default)), strict=True):
            assert got == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(scene.sky.zenith, Sky().zenith, atol=0.003)
    np.testing.assert_allclose(scene.sky.nadir, Sky().nadir, atol=0.003)
    np.testing.assert_allclose(view.positions, [[1, 2, 3], [0, 0, 0]])
    np.testing.assert_allclose(view.colours, [[0, 1, 0, 0.25], [0.1, 0.2, 0.3, 1]], atol=1e-6)
    np.testing.assert_allclose(view.rotations[1] @ [0, 0, 1], [1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(view.camera_rotation @ [0, 0, -1], [0, 1, 0], atol=1e-6)
    assert view.fovy == 70.0


def test_a_model_with_shapes_that_cannot_be_drawn_is_refused():
    mujoco = pytest.importorskip("mujoco")
    with pytest.raises(ValueError, match="cannot be drawn"):
        scene_of(mujoco.MjModel.from_xml_string(MODEL.format(last="ellipsoid", group=0)))


def vars_of(part):
    """The fields of a module, and of modules in a tuple, as plain values."""
    return [vars_of(one) for one in part] if isinstance(part, tuple) else dict(vars(part))
