"""`actsafe train`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import UseAppendAction, arg

from actsafe.cli import jax_setup
from actsafe.cli.halves import HALVES
from actsafe.cli.options import Flag, Log
from actsafe.cli.sweep import Jobs, carry_on_all, require_jobs, stay_off_devices
from actsafe.cli.working import carry_on, console, new_folder
from actsafe.training import provenance
from actsafe.training.config import CONFIDENCE, Config
from actsafe.training.kinds import kind_of
from actsafe.training.loggers import LOGGERS
from actsafe.training.presets import PRESETS
from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError, require_known
from actsafe.training.sweep import SweepFolder
from actsafe.training.vision_presets import VISION_PRESETS

ALL_PRESETS = {**PRESETS, **VISION_PRESETS}
OPTIONS = tuple(dict.fromkeys(option for half in HALVES.values() for option in half.changes))
"""The options of this command that change a setting."""
OPEN = "options"
"""The one group of settings that takes any entry: an environment's own options."""


def _changed(metavar: str) -> Any:
    """How an option that replaces an entry of the preset is shown."""
    return arg(metavar=metavar, help_behavior_hint="(default: the preset's)")


@dataclasses.dataclass(frozen=True)
class Train:
    """Start a run: explore, learn, evaluate.

    A preset gives every setting; the options below change some of them, and --set any of them.
    """

    preset: Annotated[str, arg(metavar="NAME")] = "demo"
    """From state: demo, gp-pendulum, gp-cartpole, authors-pendulum or tiny.
    From pixels: point-goto-goal, point-press-buttons, point-push-box,
    doggo-goto-goal, doggo-press-buttons, doggo-push-box, each also with
    -sparse at its end, cartpole-swingup-sparse or vision-tiny."""
    problem: Annotated[str | None, _changed("NAME")] = None
    """pendulum or cartpole; from pixels PointGotoGoal and the like, cartpole_swingup, or any Gymnasium id."""
    algorithm: Annotated[str | None, _changed("NAME")] = None
    """From state: actsafe, no_pessimism, opax, greedy_safe or greedy.
    From pixels: actsafe, actsafe_strict, actsafe_lagrangian, no_pessimism,
    opax, greedy, uniform or optimistic."""
    seeds: Annotated[tuple[int, ...] | None, _changed("N [N ...]")] = None
    """Independent repetitions, computed side by side; from pixels by a process each, in FOLDER/seed-N."""
    budget: Annotated[float | None, _changed("COST")] = None
    """Largest cost allowed in an episode."""
    episodes: Annotated[int | None, _changed("N")] = None
    """Exploration episodes."""
    steps: Annotated[int | None, _changed("N")] = None
    """Simulator steps of a run from pixels."""
    confidence: Annotated[str | None, _changed("RULE")] = None
    """Where the confidence multiplier comes from: calibrated, fixed or theory."""
    multiplier: Annotated[float | None, _changed("BETA")] = None
    """A fixed confidence multiplier; the same as --confidence fixed with this value."""
    process_noise: Annotated[float | None, _changed("STD")] = None
    """Noise that the simulator adds to the state at every decision."""
    evaluate_every: Annotated[int | None, _changed("N")] = None
    """Evaluate the tasks after each so many episodes, or epochs; 0 for never."""
    changes: Annotated[
        tuple[tuple[str, ...], ...], UseAppendAction, arg(name="set", metavar="KEY.PATH=VALUE [...]")
    ] = ()
    """Any entry of the settings, e.g. --set planning.search.horizon=30 gp.kernel=matern52. Values are JSON."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/PROBLEM-ALGORITHM-N)")] = None
    """A new folder for the run."""
    log: Log = ()
    """Where metrics go beside the run folder: tensorboard, wandb."""
    jobs: Jobs = None
    """From pixels, how many of several seeds run at once; they share cores, memory and the GPU."""
    dry_run: Flag = False
    """Print all settings that the run would have, as JSON, and do nothing."""

    def run(self, arguments: Sequence[str]) -> int:
        """Train, and say what was found."""
        first, *others = configs = self.configs()
        if self.dry_run:
            print(json.dumps([config.to_json() for config in configs] if others else first.to_json(), indent=1))
            return 0
        half = HALVES[kind_of(first)]
        for name in self.log:
            require_known("logger", name, LOGGERS)
        require_jobs(self.jobs)
        if others:
            stay_off_devices()
        jax_setup.prepare(is_double=half.is_double)
        half.check(first)
        path = self.out or new_folder(Path("runs") / f"{first.subject}-{first.algorithm}")
        work = self._train_all if others else self._train
        code = work(configs, path, arguments)
        if code == 0:
            out = console()
            out.print(f"pictures of it: actsafe plot {path}", markup=False, soft_wrap=True)
            out.print(f"more episodes:  actsafe evaluate {path}", markup=False, soft_wrap=True)
        return code

    def _train(self, configs: Sequence[Any], path: Path, arguments: Sequence[str]) -> int:
        (config,) = configs
        folder = RunFolder.create(path, config)
        out = console()
        out.print(f"training {config.algorithm} on {config.subject} in {path}", markup=False, soft_wrap=True)
        carry_on(folder, arguments, label=config.algorithm, log=self.log)
        out.print()
        HALVES[folder.kind].print_run(folder, out)
        return 0

    def _train_all(self, configs: Sequence[Any], path: Path, arguments: Sequence[str]) -> int:
        sweep = SweepFolder.create(path, configs, command=provenance.command_line(arguments))
        console().print(
            f"training {sweep.config.algorithm} on {sweep.config.subject}, seeds {sweep.listed}, in {path}",
            markup=False,
            soft_wrap=True,
        )
        return carry_on_all(sweep, jobs=self.jobs, log=self.log)

    def configs(self) -> list[Any]:
        """The settings asked for, of every run."""
        require_known("preset", self.preset, ALL_PRESETS)
        preset = ALL_PRESETS[self.preset]()
        seeds = [None] if self.seeds is None else HALVES[kind_of(preset)].seeds_of_runs(self.seeds)
        return [self._config(preset, of_run) for of_run in seeds]

    def _config(self, preset: Any, seeds: Any) -> Any:
        """The preset with what is to be changed; `seeds` are those of this run, None for the preset's."""
        changes, plain = HALVES[kind_of(preset)].changes, preset.to_json()
        options = {name: getattr(self, name) for name in OPTIONS}
        options |= {"seeds": seeds, "confidence": self._confidence_kind()}
        for name, value in options.items():
            if value is None:
                continue
            if name not in changes:
                known = ", ".join(f"--{option.replace('_', '-')}" for option in changes)
                raise ConfigError(
                    f"--{name.replace('_', '-')} does not apply to the preset {self.preset}; expected some of {known}, "
                    "or --set with any of its settings"
                )
            override(plain, changes[name], value)
        for path, value in (assignment(text) for group in self.changes for text in group):
            override(plain, path, value)
        return type(preset).from_json(plain)

    def _confidence_kind(self) -> str | None:
        if self.multiplier is None:
            return self.confidence
        if self.confidence not in (None, "fixed"):
            raise ConfigError(
                f"got --multiplier and --confidence {self.confidence}; expected one of the two, as --multiplier fixes "
                "what the rule would choose: leave one away"
            )
        return "fixed"


def assignment(text: str) -> tuple[str, Any]:
    """KEY.PATH=VALUE as path and value; what is not JSON is a text."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set got {text!r}; expected KEY.PATH=VALUE, for instance planning.search.horizon=30")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def override(plain: dict[str, Any], path: str, value: Any) -> None:
    """Change one entry of settings as JSON; whether the value will do is for `from_json` to say."""
    if path == "confidence.kind" and "confidence" in plain:
        # Rules have different entries: another rule starts from its own defaults.
        require_known(path, value, CONFIDENCE)
        if value != plain["confidence"]["kind"]:
            plain["confidence"] = Config(confidence=CONFIDENCE[value]()).to_json()["confidence"]
        return
    *parents, name = path.split(".")
    node = plain
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not isinstance(node, dict) or (name not in node and parents != [OPEN]):
        raise ConfigError(_unknown(path, plain))
    node[name] = value


def _unknown(path: str, plain: dict[str, Any]) -> str:
    known = list(_paths(plain))
    try:
        require_known("setting", path, known)
    except ConfigError as error:
        hint = str(error).partition("Did you mean")[1:]
        return f"unknown setting {path!r}; `actsafe train --dry-run` prints all {len(known)}. {''.join(hint)}".rstrip()
    return f"{path} cannot be set"


def _paths(plain: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name, value in plain.items():
        found += _paths(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
    return found
