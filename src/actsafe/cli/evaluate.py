"""`actsafe evaluate`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.halves import HALVES
from actsafe.cli.options import Flag
from actsafe.cli.working import console, say_calibration
from actsafe.training.settings import ConfigError
from actsafe.training.sweep import open_runs


def _none(metavar: str, default: str) -> object:
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Try what a run has learned on its tasks, in fresh episodes.

    Nothing is learned from them and the run folder is not changed.
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder, or a sweep's: then every run is tried, and names of videos end in the seed."""
    task: Annotated[str | None, _none("NAME", "all")] = None
    """swing_up or keep_down; runs from pixels have one task."""
    episodes: Annotated[int | None, _none("N", "5, from pixels 50")] = None
    """Episodes per seed and task, each with random numbers of its own."""
    draws: Flag = False
    """Act by draws from the policy, as in training, and not by its medians. From pixels only."""
    video: Annotated[Path | None, _none("FILE", "none")] = None
    """A video of the first episode as the agent sees it: .gif, .webp, .png (animated) or .mp4. From pixels only."""
    predict: Annotated[Path | None, _none("FILE", "none")] = None
    """A video of what happened above what the world model had predicted, without looking. From pixels only."""
    size: Annotated[int, arg(metavar="PIXELS")] = 256
    """Width and height of the video, where the environment can be drawn larger than the agent sees it."""
    overwrite: Flag = False
    """Replace video files that are there."""
    uncalibrated: Flag = False
    """Act even if the run is asked to be safe and `actsafe calibrate` found its model overconfident."""

    def run(self, arguments: Sequence[str]) -> int:
        """Print what the episodes came to."""
        if self.episodes is not None and self.episodes < 1:
            raise ConfigError(f"--episodes must be at least 1, got {self.episodes}")
        if self.size < 16:
            raise ConfigError(f"--size must be at least 16, got {self.size}")
        folders = open_runs(self.folder)
        half = HALVES[folders[0].kind]
        jax_setup.prepare(is_double=half.is_double)
        for folder in folders:
            say_calibration(folder, is_allowed=self.uncalibrated)
            half.evaluate(self if len(folders) == 1 else self._of_seed(folder.config.seed), folder, console())
        return 0

    def _of_seed(self, seed: int) -> "Evaluate":
        """The same, with files that are this seed's own."""
        named = {
            name: path.with_stem(f"{path.stem}-seed-{seed}")
            for name in ("video", "predict")
            if (path := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **named)
