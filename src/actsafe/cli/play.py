"""`actsafe play`."""

import contextlib
import dataclasses
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track
from tyro.conf import Positional, UseAppendAction, arg

from actsafe.cli import jax_setup
from actsafe.cli.options import Flag, given
from actsafe.cli.train import assignment
from actsafe.cli.video import require_free, save, writer_for
from actsafe.cli.working import console
from actsafe.envs.checks import check_action
from actsafe.training.errors import did_you_mean
from actsafe.training.settings import ConfigError, require_at_least

Policy = Callable[[Any], Any]
"""From an observation to an action."""

PREFIX, VERSION = "actsafe/", "-v0"
SOURCE = "cost_"
"""What begins the names of costs by source in `info`."""


@dataclasses.dataclass(frozen=True)
class Play:
    """Record a short video of a task: a random policy, none at all, or your own.

    Tasks are those of docs/problems.md, with or without "actsafe/" and "-v0". The video ends with the episode.
    """

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """For instance PointGotoGoal, or point-goto-goal."""
    policy: Annotated[str, arg(metavar="random|zero|MODULE:FUNCTION")] = "random"
    """Who acts. A function of yours gets an observation and gives an action; its module may be in this folder."""
    steps: Annotated[int, arg(metavar="N")] = 200
    """Actions to record, at most."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Of the episode, and of the random policy."""
    out: Annotated[Path | None, given("FILE", "TASK.gif")] = None
    """The video: .gif, .webp, .png (animated) or, where imageio-ffmpeg is installed, .mp4."""
    overwrite: Flag = False
    """Replace the file if there is one."""
    size: Annotated[int, arg(metavar="PIXELS")] = 256
    """Width and height of the video."""
    camera: Annotated[str | None, given("NAME", "track")] = None
    """vision, track, fixednear or fixedfar; Safety-Gym tasks only."""
    observation: Annotated[str | None, given("pixels|state", "the task's, for a policy that looks")] = None
    """What the policy gets to see."""
    changes: Annotated[tuple[tuple[str, ...], ...], UseAppendAction, arg(name="set", metavar="NAME=VALUE [...]")] = ()
    """Options of the environment, e.g. --set motor_gear=3.0 action_repeat=2. Values are JSON."""

    def run(self, arguments: Sequence[str]) -> int:
        """Record, and say what happened."""
        for name, least in (("steps", 1), ("seed", 0), ("size", 16)):
            require_at_least(least, self, name, prefix="--")
        task = known_task(self.task)
        path = self.out or Path(f"{task}.gif")
        write = writer_for(path)
        choose = policy_named(self.policy)
        require_free(path, self.overwrite)
        jax_setup.prepare()
        out = console()
        with contextlib.closing(self.environment(task)) as env:
            out.print(f"playing {task}, {self.policy} policy, seed {self.seed}")
            recording = record(env, choose(env.action_space, self.seed), self, out)
            rate = env.metadata["render_fps"]
        started = time.perf_counter()
        size = save(recording.frames, rate, path, write)
        _report(recording, out)
        out.print(
            f"file     {path}  ({len(recording.frames)} frames, {rate} a second, {size / 1e6:.2g} MB, "
            f"written in {time.perf_counter() - started:.1f} s)"
        )
        return 0

    def environment(self, task: str) -> gymnasium.Env:
        """The environment asked for."""
        name = PREFIX + task + VERSION
        has_cameras = "robot" in gymnasium.spec(name).kwargs
        if self.camera is not None and not has_cameras:
            raise ConfigError(f"--camera: got {self.camera}, but {task} is seen from the front only; leave it out")
        options: dict[str, Any] = {"render_mode": "rgb_array"}
        if has_cameras:
            options |= {"render_size": self.size, "render_camera": self.camera or "track"}
        # A policy that does not look needs no pixels, which take the longest.
        observation = self.observation or ("state" if self.policy in POLICIES else None)
        if observation is not None:
            options["observation"] = observation
        options |= dict(assignment(text) for group in self.changes for text in group)
        try:
            return gymnasium.make(name, disable_env_checker=True, **options)
        except (TypeError, ValueError) as error:
            reason = str(error).partition(" was raised from")[0].rstrip(".")
            raise ConfigError(f"{task} cannot be made so: {reason}. docs/problems.md lists the options") from error


@dataclasses.dataclass(frozen=True)
class Recording:
    """What was seen and what it brought."""

    frames: list[Image.Image]
    rewards: float
    totals: Mapping[str, float]
    """The sum of every entry of `info`."""
    budget: float
    """Of a whole episode."""
    ending: str
    first_seconds: float
    """Until the first step was done, compilation included."""
    seconds: float
    """For the others."""


def record(env: gymnasium.Env, policy: Policy, asked: Play, out: Console) -> Recording:
    """What at most `asked.steps` actions of an episode bring."""
    started = begun = time.perf_counter()
    observation, _ = env.reset(seed=asked.seed)
    frames = [_frame(env, asked.size)]
    rewards, totals, ending = 0.0, {}, f"after {asked.steps} steps, within the episode"
    for number in _progress(asked.steps, out):
        action = _answer(policy, observation, env.action_space, f"--policy {asked.policy}, step {number}")
        observation, reward, is_broken, is_over, info = env.step(action)
        rewards += float(reward)
        totals = {name: totals.get(name, 0.0) + float(value) for name, value in info.items()}
        frames.append(_frame(env, asked.size))
        begun = time.perf_counter() if number == 1 else begun
        if is_broken or is_over:
            ending = f"after {number} steps, as {'the physics broke down' if is_broken else 'the episode was over'}"
            break
    bare: Any = env.unwrapped
    budget = bare.problem.budget if hasattr(bare, "problem") else bare.settings.budget
    return Recording(frames, rewards, totals, budget, ending, begun - started, time.perf_counter() - begun)


def _frame(env: gymnasium.Env, size: int) -> Image.Image:
    picture = Image.fromarray(np.asarray(env.render()))
    return picture if picture.size == (size, size) else picture.resize((size, size))


def _progress(num_steps: int, out: Console) -> Iterator[int]:
    """Numbers from 1 to `num_steps`: a bar on a terminal, a line per quarter anywhere else."""
    numbers = range(1, num_steps + 1)
    if out.is_terminal:
        yield from track(numbers, "recording", console=out)
        return
    for number in numbers:
        yield number
        if number * 4 // num_steps > (number - 1) * 4 // num_steps:
            out.print(f"step {number} of {num_steps}")


def _answer(policy: Policy, observation: Any, space: gymnasium.Space, where: str) -> np.ndarray:
    """The policy's action, checked."""
    try:
        action = policy(observation)
    except Exception as error:  # it is the user's code, and may raise anything
        seen = f"an observation of shape {np.shape(observation)}"
        raise ConfigError(f"{where}: it raised {type(error).__name__} on {seen}: {error}") from error
    try:
        return check_action(action, space)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _report(recording: Recording, out: Console) -> None:
    totals, num_timed = recording.totals, len(recording.frames) - 2
    sources = [f"{name.removeprefix(SOURCE)} {totals[name]:g}" for name in totals if name.startswith(SOURCE)]
    details = [*sources, f"budget {recording.budget:g} in an episode"]
    lines = [
        f"ended    {recording.ending}",
        f"return   {recording.rewards:.3f}",
        f"cost     {totals.get('cost', 0.0):.3g}  ({', '.join(details)})",
    ]
    if "goals_met" in totals:
        lines.append(f"goals    {totals['goals_met']:g} met")
    speed = f"{num_timed / recording.seconds:.1f} frames/s, after " if num_timed else ""
    lines.append(f"speed    {speed}{recording.first_seconds:.1f} s for the first")
    for line in lines:
        out.print(line)


def known_task(name: str) -> str:
    """The task's short name, whatever the case and the hyphens; `ConfigError` with the nearest if there is none."""
    tasks = [each.removeprefix(PREFIX).removesuffix(VERSION) for each in gymnasium.registry if each.startswith(PREFIX)]
    folded = {task.lower(): task for task in tasks}
    asked = name.lower().removeprefix(PREFIX).removesuffix(VERSION).replace("-", "").replace("_", "")
    if asked not in folded:
        raise ConfigError(f"unknown task {name!r}; expected one of {', '.join(tasks)}.{did_you_mean(name, tasks)}")
    return folded[asked]


def _random(space: gymnasium.Space, seed: int) -> Policy:
    space.seed(seed)
    return lambda observation: space.sample()


POLICIES: Mapping[str, Callable[[gymnasium.Space, int], Policy]] = {
    "random": _random,
    "zero": lambda space, seed: lambda observation: np.zeros(space.shape or ()),
}


def policy_named(name: str) -> Callable[[gymnasium.Space, int], Policy]:
    """What makes the policy for an action space and a seed."""
    if name in POLICIES:
        return POLICIES[name]
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        hint = did_you_mean(name, POLICIES)
        raise ConfigError(f"unknown policy {name!r}; expected {', '.join(POLICIES)} or MODULE:FUNCTION.{hint}")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        loaded = importlib.import_module(module)
    except Exception as error:  # it is the user's code, and may raise anything
        raise ConfigError(
            f"--policy {name}: {module} cannot be imported ({type(error).__name__}: {error}). Expected a module that "
            "is installed or in this folder, with dots between its parts and without .py"
        ) from error
    policy = getattr(loaded, function, None)
    if not callable(policy):
        found = "nothing of that name" if policy is None else f"{policy!r} there, which cannot be called"
        raise ConfigError(f"--policy {name}: {module} has {found}; expected a function from observation to action")
    return lambda space, seed: policy
