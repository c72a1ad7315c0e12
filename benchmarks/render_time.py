"""Milliseconds per frame of 64 x 64 pixels, with one sample and with four, against MuJoCo's own renderer."""

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from timing import arguments, emit, machine, measure, progress

from actsafe.render.raycast import render_batch
from actsafe.render.scene import Scene, View

CLAIM = "A 64 x 64 frame takes at most 1 ms with one sample and 3 ms with four on one CPU core; 5 and 15 us on a GPU."

METHOD = {
    "frame": "render_batch: views in, bytes out, compiled ahead; ms_per_frame is the time of a batch over its frames",
    "one_core": "taskset -c N and XLA_FLAGS=--xla_cpu_multi_thread_eigen=false; machine.cores says how many were given",
    "reference": "mujoco.Renderer on a model with the same kinds of geoms, update_scene and render, frame by frame",
    "growth": "time per frame against the side of the image, at the first batch size",
}

FRAMES = Path(__file__).parents[1] / "tests" / "reference" / "data" / "safety_gym_frames.npz"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "render_comparison.png"
KINDS = {2: "sphere", 3: "capsule", 5: "cylinder", 6: "box"}


def main() -> None:
    options = parse()
    if options.picture:
        compare_pictures(options.picture)
        return
    points = [
        point(task, samples, batch, options.side, options)
        for task in options.tasks
        for samples in options.samples
        for batch in options.batches
    ]
    growth = [point(options.tasks[0], 4, options.batches[0], side, options) for side in options.sides]
    result = {
        "benchmark": "render_time",
        "claim": CLAIM,
        "method": METHOD,
        "machine": machine() | {"precision": "float32"},
        "is_quick": options.quick,
        "points": points,
        "growth": growth,
        "reference": reference(options.side, points, options),
        "mean_absolute_error": frame_errors(options) if options.frames else None,
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=15)
    parser.add_argument("--tasks", nargs="+", default=["point/go_to_goal", "doggo/go_to_goal"])
    parser.add_argument("--samples", nargs="+", type=int, default=[1, 4], choices=[1, 4])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--side", type=int, default=64, help="pixels along a side")
    parser.add_argument("--sides", nargs="*", type=int, default=[128, 256], help="larger images, to see the growth")
    parser.add_argument("--frames", action="store_true", help="also the error on the reference frames")
    parser.add_argument("--picture", nargs="?", type=Path, const=PICTURE, help="only draw the comparison, to this file")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.samples, options.batches, options.sides = options.tasks[:1], [1], [2], []
        options.side, options.repeats = 16, 2
    return options


def load(task: str) -> tuple[Scene, View, np.ndarray]:
    """The scene, views and reference images of a task; the first geom is the floor."""
    with np.load(FRAMES) as file:
        data = {name: file[name][file["task"] == task] for name in file.files}
    geoms = slice(1, int(data["ngeom"][0]))
    colours = data["geom_rgba"][:, geoms]
    is_transparent = tuple(bool(flag) for flag in np.any(colours[..., 3] < 1.0, axis=0))
    kinds = tuple(KINDS[int(kind)] for kind in data["geom_type"][0, geoms])
    camera = (data["cam_pos"], data["cam_mat"], data["fovy"])
    views = View(data["geom_pos"][:, geoms], data["geom_mat"][:, geoms], colours, *camera)
    return Scene(kinds, data["geom_size"][0, geoms], is_transparent), views, data["image"]


def point(task: str, samples: int, batch: int, side: int, options: argparse.Namespace) -> dict[str, Any]:
    """Times of one task, number of samples, batch and size of image."""
    scene, views, _ = load(task)
    views = jax.tree.map(lambda array: jnp.asarray(np.resize(array, (batch, *array.shape[1:]))), views)
    progress(f"{task}, {samples} samples, batch {batch}, {side} pixels")

    def draw(views: View) -> jax.Array:
        return render_batch(scene, views, width=side, height=side, samples=samples)

    times = measure(draw, views, repeats=options.repeats)
    per_frame = {"ms_per_frame": times["median_ms"] / batch, "min_ms_per_frame": times["min_ms"] / batch}
    about = {"task": task, "num_geoms": scene.num_geoms, "samples": samples, "batch": batch, "side": side}
    return about | times | per_frame


def reference(side: int, points: list[dict[str, Any]], options: argparse.Namespace) -> Mapping[str, Any]:
    """MuJoCo's renderer on geoms of the first task, and how many times longer it takes; null and why if it cannot."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    task = options.tasks[0]
    try:
        import mujoco  # noqa: PLC0415

        model = mujoco.MjModel.from_xml_string(_xml(task))
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        with mujoco.Renderer(model, side, side) as renderer:
            seconds = []
            for _ in range(3 * options.repeats):
                started = time.perf_counter()
                renderer.update_scene(data, "camera")
                renderer.render()
                seconds.append(time.perf_counter() - started)
    except Exception as problem:  # whatever is missing, the other numbers stand
        return {"ms_per_frame": None, "ratio": None, "why": f"{type(problem).__name__}: {problem}"[:200]}
    own = float(np.median(seconds)) * 1e3
    return {
        "task": task,
        "backend": os.environ["MUJOCO_GL"],
        "multisamples": int(model.vis.quality.offsamples),
        "ms_per_frame": own,
        "ratio": {
            f"samples {entry['samples']}, batch {entry['batch']}": own / entry["ms_per_frame"]
            for entry in points
            if entry["task"] == task
        },
    }


def _xml(task: str) -> str:
    """The first frame of a task as a model: the same geoms in the same places before the same camera."""
    scene, views, _ = load(task)

    def text(values: Any) -> str:
        return " ".join(f"{value:.6g}" for value in np.ravel(values))

    geoms = "".join(
        f'<geom type="{kind}" size="{text(size)}" pos="{text(position)}" rgba="{text(colour)}" '
        f'xyaxes="{text(rotation[:, :2].T)}"/>'
        for kind, size, position, rotation, colour in zip(
            scene.kinds, np.asarray(scene.sizes), views.positions[0], views.rotations[0], views.colours[0], strict=True
        )
    )
    camera = f'pos="{text(views.camera_position[0])}" xyaxes="{text(views.camera_rotation[0][:, :2].T)}"'
    return f"""<mujoco><visual><quality offsamples="4"/></visual><statistic center="0 0 0" extent="4"/>
    <asset><texture name="sky" type="skybox" builtin="gradient" rgb1="0.527 0.582 0.906" rgb2="0.1 0.1 0.35"
    width="800" height="800" mark="random" markrgb="1 1 1" random="0.001"/>
    <texture name="floor" type="2d" builtin="checker" rgb1="0.7 0.7 0.7" rgb2="0.8 0.8 0.8" width="100" height="100"/>
    <material name="floor" texture="floor" texrepeat="10 10" reflectance="0.1"/></asset>
    <worldbody><geom type="plane" size="3.5 3.5 0.1" material="floor"/>
    <light directional="true" dir="0 0 -1" diffuse="1 1 1" specular="0 0 0" castshadow="false"/>
    <camera name="camera" {camera} fovy="{float(views.fovy[0])}"/>{geoms}</worldbody></mujoco>"""


def frame_errors(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The mean absolute error in grey levels on all 48 reference frames, mean and worst, by number of samples."""
    with np.load(FRAMES) as file:
        tasks = dict.fromkeys(file["task"].tolist())
    result = {}
    for samples in options.samples:
        errors = []
        for task in tasks:
            scene, views, images = load(task)
            drawn = np.asarray(render_batch(scene, views, width=64, height=64, samples=samples))
            errors.append(np.abs(drawn.astype(float) - images).mean(axis=(1, 2, 3)))
        error = np.concatenate(errors)
        result[f"samples {samples}"] = {"mean": float(error.mean()), "worst_frame": float(error.max())}
        progress(f"mean absolute error, {samples} samples: {error.mean():.3f}, worst frame {error.max():.3f}")
    return result


def compare_pictures(path: Path) -> None:
    """Write reference, ours and ten times their difference, side by side, for one frame of every task."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    with np.load(FRAMES) as file:
        tasks = list(dict.fromkeys(file["task"].tolist()))
    figure, axes = pyplot.subplots(len(tasks), 3, figsize=(6.0, 2.05 * len(tasks)), layout="constrained")
    for row, task in zip(axes, tasks, strict=True):
        scene, views, images = load(task)
        drawn = np.asarray(render_batch(scene, views, width=64, height=64, samples=4))[4]
        difference = np.abs(drawn.astype(int) - images[4].astype(int))
        row[0].set_ylabel(f"{task}\nerror {difference.mean():.2f}", fontsize=8)
        for axis, image in zip(row, (images[4], drawn, np.minimum(10 * difference, 255)), strict=True):
            axis.imshow(image.astype(np.uint8), interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
    for axis, title in zip(axes[0], ("MuJoCo, OpenGL", "ours, 4 samples", "difference x 10"), strict=True):
        axis.set_title(title, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    progress(f"wrote {path}")


if __name__ == "__main__":
    main()
