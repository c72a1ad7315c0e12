"""`actsafe train`."""

import contextlib
import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from actsafe.agents.safe_set.settings import ALL_PARTS
from actsafe.cli import jax_setup
from actsafe.cli.options import Changes, Flag, Jobs, Log, Number, Whole, given
from actsafe.cli.sweep import stay_off_devices, trained
from actsafe.cli.tables import print_run
from actsafe.cli.working import console, new_folder
from actsafe.training import settings
from actsafe.training.config import AGENTS, Config
from actsafe.training.errors import did_you_mean
from actsafe.training.loggers import require_loggers
from actsafe.training.presets import PRESETS
from actsafe.training.run import require_free
from actsafe.training.settings import ConfigError, require_at_least, require_known

PATHS: Mapping[str, str] = {
    "env": "env",
    "algorithm": "algorithm",
    "seeds": "seeds",
    "budget": "budget",
    "warm_up": "schedule.warm_up",
    "expansion": "schedule.expansion",
    "exploitation": "schedule.exploitation",
    "confidence": "agent.confidence.kind",
    "multiplier": "agent.confidence.value",
    "evaluate_every": "evaluate_every",
}
"""The options of this command that change a setting, and its path in the config."""
OF_AN_ENV: Mapping[str, Any] = {"task": None, "budget": None, "action_repeat": None, "options": {}}
"""Settings that belong to one environment: another has its own."""
OPEN = "options"
"""The one group of settings that takes any entry: an environment's own options."""


@dataclasses.dataclass(frozen=True)
class Train:
    """Start a run: explore, learn, evaluate.

    A preset gives every setting; the options below change some of them, and --set any of them.
    """

    preset: Annotated[str | None, given("NAME", "demo, or what suits --env")] = None
    """Gaussian processes and a planner: demo, gp-pendulum, gp-cartpole,
    authors-pendulum, tiny; for an environment of your own: own-gp.
    A world model from pixels: point-goto-goal, point-press-buttons,
    point-push-box, doggo-goto-goal, doggo-press-buttons, doggo-push-box,
    each also with -sparse at its end, cartpole-swingup-sparse, vision-tiny;
    from the state, in minutes: cartpole-state;
    for an environment of your own: own-state (small, a laptop's), own-pixels."""
    env: Annotated[str | None, given("NAME", "the preset's", aliases=["--problem"])] = None
    """A problem (pendulum, cartpole, cartpole_swingup), a task of Safety-Gym (PointGotoGoal and the like), a
    Gymnasium id, or module:Name of an environment or a problem of your own. What it allows, its task and its options
    are then its own, and not the preset's."""
    algorithm: Annotated[str | None, given("NAME", "the preset's")] = None
    """actsafe, no_pessimism, opax, greedy or greedy_unconstrained; with a world model also actsafe_released,
    actsafe_strict, actsafe_lagrangian, uniform or optimistic; or module:NAME of a row of your own."""
    seeds: Annotated[tuple[Whole, ...] | None, given("N [N ...]", "the preset's")] = None
    """Independent repetitions: in one program where that can be, else by a process each, in FOLDER/seed-N."""
    budget: Annotated[tuple[Number, ...] | None, given("COST [COST ...]", "the environment's")] = None
    """Largest cost allowed in an episode: one for all costs, or one for each."""
    warm_up: Annotated[Whole | None, given("N", "the preset's")] = None
    """Episodes of random actions."""
    expansion: Annotated[Whole | None, given("N", "the preset's", aliases=["--episodes"])] = None
    """Episodes that explore."""
    exploitation: Annotated[Whole | None, given("N", "the preset's")] = None
    """Episodes that follow the task's reward."""
    confidence: Annotated[str | None, given("RULE", "the preset's")] = None
    """Where the confidence multiplier of Gaussian processes comes from: calibrated, fixed or theory."""
    multiplier: Annotated[Number | None, given("BETA", "the preset's")] = None
    """A fixed confidence multiplier; the same as --confidence fixed with this value."""
    evaluate_every: Annotated[Whole | None, given("N", "the preset's")] = None
    """Evaluate the tasks after every N-th epoch; 0 for never."""
    changes: Changes = ()
    """Any entry of the settings, e.g. --set agent.planning.search.horizon=30 agent.gp.kernel=matern52. Values are
    JSON."""
    out: Annotated[Path | None, given("FOLDER", "runs/ENV-ALGORITHM-N")] = None
    """A new folder for the run."""
    log: Log = ()
    """Where metrics go beside the run folder: tensorboard, wandb."""
    jobs: Jobs = None
    """How many of several processes run at once; they share cores, memory and the GPU."""
    dry_run: Flag = False
    """Print all settings that the run would have, as JSON, and do nothing."""

    def run(self, arguments: Sequence[str]) -> int:
        """Train, and say what was found."""
        config = self.config()
        configs = config.programs
        if self.dry_run:
            content = [each.to_json() for each in configs]
            print(json.dumps(content if len(configs) > 1 else content[0], indent=1))
            return 0
        require_loggers(self.log)
        require_at_least(1, self, "jobs", prefix="--")
        if len(configs) > 1:
            stay_off_devices()
        jax_setup.prepare()
        path = self.out or new_folder(Path("runs") / f"{config.subject}-{config.algorithm}")
        try:
            require_free(path)
            runs, code = trained(path, config, arguments, jobs=self.jobs, log=self.log)
        finally:
            if self.out is None:  # Made above: a run that was refused leaves nothing.
                with contextlib.suppress(OSError):
                    path.rmdir()
                    path.parent.rmdir()
        out = console()
        if len(configs) == 1:
            out.print()
            print_run(runs[0], out)
        if code == 0:
            out.print(f"pictures of it: actsafe plot {path}")
            out.print(f"more episodes:  actsafe evaluate {path}")
        return code

    def config(self) -> Config:
        """The settings asked for."""
        if () in self.changes:
            raise ConfigError(f"--set got nothing; {EXPECTED}")
        sets = [assignment(text) for group in self.changes for text in group]
        plain = self._base(sets)
        options = {name: value for name in PATHS if (value := getattr(self, name)) is not None}
        if self.budget is not None and len(self.budget) == 1:
            options["budget"] = self.budget[0]
        if self.multiplier is not None:
            if self.confidence not in (None, "fixed"):
                raise ConfigError(
                    f"got --multiplier and --confidence {self.confidence}; expected one of the two, as --multiplier "
                    "fixes what the rule would choose: leave one away"
                )
            plain = self._applied(plain, "multiplier", "agent.confidence.kind", "fixed")
        for name, value in options.items():
            plain = self._applied(plain, name, PATHS[name], value)
        for path, value in sets:
            plain = override(plain, path, value)
        return Config.from_json(plain)

    def _base(self, sets: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """The settings before the options, as JSON: the preset's or, for another environment, what suits that one."""
        if self.preset is not None or self.env is None:
            name = self.preset or "demo"
            require_known("preset", name, PRESETS)
            plain = PRESETS[name]().to_json()
            if self.env not in (None, plain["env"]):
                plain |= copy.deepcopy(OF_AN_ENV)
            return plain
        plain = {"env": self.env, **copy.deepcopy(OF_AN_ENV)}
        if self.algorithm is not None:
            plain["algorithm"] = self.algorithm
        if self.budget is not None:
            plain["budget"] = self.budget
        for path, value in sets:
            group, _, name = path.rpartition(".")
            if group == OPEN:
                plain[OPEN] = {**plain[OPEN], name: value}
            elif path in (*OF_AN_ENV, "observation"):
                plain[path] = value
        return Config.from_json(plain).to_json()

    def _applied(self, plain: dict[str, Any], option: str, path: str, value: Any) -> dict[str, Any]:
        parent = _node(plain, path)
        if parent is None:
            typed, missing = option.replace("_", "-"), path.rpartition(".")[0]
            raise ConfigError(
                f"--{typed} does not apply to {self.preset or self.env or 'demo'}: there are no settings {missing}. "
                "Leave it out, or choose another preset"
            )
        return override(plain, path, value)


SAFE_SET = "safe_set"
EXPECTED = "expected KEY.PATH=VALUE, for instance agent.planning.search.horizon=30"


def assignment(text: str) -> tuple[str, Any]:
    """KEY.PATH=VALUE as path and value; what is not JSON is a text."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set got {text!r}; {EXPECTED}")
    try:
        return path, json.loads(value)
    except RecursionError as error:
        raise ConfigError(f"--set {path}: the value is nested too deeply; expected plain JSON") from error
    except ValueError:
        return path, value


def override(plain: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Settings as JSON with one entry changed; whether the value will do is for `Config.from_json` to say.

    Parts of a safe set that was left to the algorithm are changed in one that has all parts: so any row is given one.
    """
    if path.startswith(f"{SAFE_SET}.") and plain[SAFE_SET] is None:
        plain = {**plain, SAFE_SET: settings.plain(ALL_PARTS)}
    node, name = _node(plain, path), path.rpartition(".")[2]
    if node is None or (name not in node and path.rpartition(".")[0] != OPEN):
        known = list(settings.by_path(plain))
        hint = did_you_mean(path, known)
        raise ConfigError(f"unknown setting {path!r}; `actsafe train --dry-run` prints all {len(known)}.{hint}")
    if name != "kind":
        node[name] = value
    elif value != node[name]:
        # Other members of a union have other entries: they start from their own defaults.
        node.clear()
        node[name] = value
        if node is plain["agent"] and value in AGENTS:
            small = AGENTS[value].small()
            plain = {key: entry for key, entry in plain.items() if key not in small} | {
                "agent": settings.plain(small["agent"])
            }
        plain = Config.from_json(plain).to_json()
    return plain


def _node(plain: dict[str, Any], path: str) -> dict[str, Any] | None:
    """What holds the last name of a path."""
    node: Any = plain
    for parent in path.split(".")[:-1]:
        node = node.get(parent) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else None
