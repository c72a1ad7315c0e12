"""Draws docs/images/problems.png: every task from outside and, where it has a robot, what the robot sees."""

import argparse
from pathlib import Path

import gymnasium
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import actsafe  # noqa: F401, registers the environments

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "problems.png"

FROM_STATE = {"Pendulum": 7, "Cartpole": 3, "CartpoleSwingup": 28}
"""Actions of full size before the picture is taken."""
SEEDS = {
    "Point": {"GotoGoal": 53, "PressButtons": 5, "PushBox": 12},
    "Doggo": {"GotoGoal": 17, "PressButtons": 53, "PushBox": 12},
}
"""Layouts in which the robot has its task before its eyes."""
SETTLING = 3
"""Actions of size zero, after which a robot stands."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--size", type=int, default=240, help="pixels along the side of a picture from outside")
    options = parser.parse_args()
    figure = Figure(figsize=(7.5, 13.2), layout="constrained")
    axes = figure.subplots(1 + 2 * len(SEEDS), len(FROM_STATE))
    for cell, (task, num_steps) in zip(axes[0], FROM_STATE.items(), strict=True):
        _show(cell, _after(task, num_steps), task)
    for row, (robot, seeds) in enumerate(SEEDS.items()):
        for column, (task, seed) in enumerate(seeds.items()):
            outside, seen = views(robot + task, seed, options.size)
            _show(axes[1 + 2 * row, column], outside, robot + task)
            _show(axes[2 + 2 * row, column], seen, "what it sees, 64 x 64")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=100)
    print(options.out)


def _after(task: str, num_steps: int) -> np.ndarray:
    """The picture of a task from state after this number of actions of full size, to and fro."""
    env = gymnasium.make(f"actsafe/{task}-v0", observation="state", render_mode="rgb_array")
    env.reset(seed=0)
    for number in range(num_steps):
        env.step(np.full(env.action_space.shape, 1.0 if number // 8 % 2 == 0 else -1.0))
    return np.asarray(env.render())


def views(task: str, seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """A robot's task from outside, and what the robot sees."""
    env = gymnasium.make(
        f"actsafe/{task}-v0", render_mode="rgb_array", render_camera="fixedfar", render_size=size, image_size=64
    )
    observation, _ = env.reset(seed=seed)
    for _ in range(SETTLING):
        observation, *_ = env.step(np.zeros(env.action_space.shape))
    outside = np.asarray(env.render())
    env.close()
    return outside, observation


def _show(cell: Axes, picture: np.ndarray, title: str) -> None:
    cell.imshow(picture, interpolation="nearest")
    cell.set_title(title, fontsize=9)
    cell.set_xticks([])
    cell.set_yticks([])


if __name__ == "__main__":
    main()
