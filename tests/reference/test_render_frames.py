"""Our pixels against frames that MuJoCo's OpenGL renderer drew of the same geoms from the same camera.

safety_gym_frames.npz: 48 frames of 64 x 64 pixels, eight of each of six tasks, with the poses, sizes and colours of all
geoms and the camera. The bounds are on the mean absolute error of a frame, in grey levels from 0 to 255.
"""

import functools
from pathlib import Path

import numpy as np
import pytest

from actsafe.render.raycast import render_batch
from actsafe.render.scene import Scene, View

FRAMES = Path(__file__).parent / "data" / "safety_gym_frames.npz"
KINDS = {2: "sphere", 3: "capsule", 5: "cylinder", 6: "box"}


@functools.cache
def frames_of(task):
    """(scene, views, images) of one task; the first geom is the floor."""
    with np.load(FRAMES) as file:
        data = {name: file[name][file["task"] == task] for name in file.files}
    geoms = slice(1, int(data["ngeom"][0]))
    colours = data["geom_rgba"][:, geoms]
    scene = Scene(
        kinds=tuple(KINDS[int(kind)] for kind in data["geom_type"][0, geoms]),
        sizes=data["geom_size"][0, geoms],
        transparent=tuple(bool(flag) for flag in np.any(colours[..., 3] < 1.0, axis=0)),
    )
    views = View(
        data["geom_pos"][:, geoms],
        data["geom_mat"][:, geoms],
        colours,
        data["cam_pos"],
        data["cam_mat"],
        data["fovy"],
    )
    return scene, views, data["image"]


@functools.cache
def drawn(task, samples):
    scene, views, _ = frames_of(task)
    return np.asarray(render_batch(scene, views, width=64, height=64, samples=samples))


def errors(images, others):
    """The mean absolute error of every frame."""
    return np.mean(np.abs(images.astype(float) - others.astype(float)), axis=(1, 2, 3))


@pytest.mark.parametrize("task", ["point/push_box", "doggo/press_buttons"])
def test_four_samples_are_within_one_grey_level(task):
    # Measured over all 48 frames: 0.48, worst 0.83.
    error = errors(drawn(task, 4), frames_of(task)[2])
    assert error.mean() < 0.65, error
    assert error.max() < 1.0, error


def test_one_sample_is_within_two_and_a_half_grey_levels():
    # Measured over all 48 frames: 2.26, worst 3.92; only edges differ from four samples.
    task = "point/push_box"
    error = errors(drawn(task, 1), frames_of(task)[2])
    assert error.mean() < 2.5, error
    assert error.max() < 3.5, error
    assert np.median(np.abs(drawn(task, 1).astype(int) - frames_of(task)[2].astype(int))) <= 1


@pytest.mark.parametrize("task", ["point/push_box", "doggo/press_buttons"])
def test_few_pixels_are_far_off(task):
    difference = np.abs(drawn(task, 4).astype(int) - frames_of(task)[2].astype(int)).max(axis=-1)
    assert np.mean(difference > 10) < 0.02
    assert np.mean(difference <= 2) > 0.90


def test_the_measure_tells_frames_apart():
    task = "point/push_box"
    images = frames_of(task)[2]
    assert errors(drawn(task, 4), np.roll(images, 1, axis=0)).min() > 5.0
    assert errors(np.roll(drawn(task, 4), 1, axis=2), images).min() > 1.5
