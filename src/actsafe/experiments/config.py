"""Everything a run depends on, as one frozen value that can be written to JSON and read back."""

import dataclasses
import difflib
import hashlib
import json
import math
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from actsafe.agents.actsafe import Agent, ObjectiveSettings
from actsafe.agents.deciding import PlanningSettings
from actsafe.agents.phases import Schedule
from actsafe.agents.recipes import RECIPES
from actsafe.experiments.errors import UserError
from actsafe.models.gp.dynamics import GPSettings
from actsafe.models.gp.fit import FitSettings
from actsafe.objectives.pessimism import Constraint
from actsafe.planning.icem import ICEMSettings
from actsafe.problems import PROBLEMS, Problem
from actsafe.safety.confidence import Calibrated, Confidence, Fixed, Theory

SCHEMA_VERSION = 1

CONFIDENCE: Mapping[str, type[Confidence]] = {"calibrated": Calibrated, "fixed": Fixed, "theory": Theory}


class ConfigError(UserError, ValueError):
    """A setting that cannot be run, with what to do about it."""


@dataclasses.dataclass(frozen=True)
class Config:
    """One run: a problem, an algorithm, seeds, and every setting."""

    problem: str = "pendulum"
    algorithm: str = "actsafe"
    """A row of the table in agents/recipes.py."""
    seeds: tuple[int, ...] = (0,)
    """Independent repetitions, computed side by side in one program."""
    budget: float | None = None
    """Largest sum of costs in an episode; None for the problem's own."""
    process_noise_std: float | None = None
    """Std of the noise that the simulator adds; None for the problem's own."""
    evaluate_every: int = 1
    """Zero-shot evaluation of every task after each so many episodes, and after the last; 0 for never."""
    capacity_step: int = 128
    """Arrays grow by this many rows of data; larger steps compile less often and compute more padding."""
    decisions_per_call: int = 10
    """Decisions in one compiled call: how often progress is shown and a stop is noticed."""
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    gp: GPSettings = dataclasses.field(default_factory=GPSettings)
    planning: PlanningSettings = dataclasses.field(default_factory=PlanningSettings)
    objective: ObjectiveSettings = dataclasses.field(default_factory=ObjectiveSettings)
    confidence: Confidence = dataclasses.field(default_factory=Calibrated)

    def __post_init__(self) -> None:
        require_known("problem", self.problem, PROBLEMS)
        require_known("algorithm", self.algorithm, RECIPES)
        if (
            not self.seeds
            or len(set(self.seeds)) != len(self.seeds)
            or not 0 <= min(self.seeds) <= max(self.seeds) < 2**32
        ):
            raise ConfigError(f"seeds must be one or more different numbers from 0 to 2^32 - 1, got {list(self.seeds)}")
        for name in ("budget", "process_noise_std"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} must be a finite number of at least 0, got {value}")
        for name, least in (("evaluate_every", 0), ("capacity_step", 1), ("decisions_per_call", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        problem = self.make_problem()
        if problem.is_summed:
            raise ConfigError(
                f"problem: got {self.problem}, which is for agents that learn from pixels. Its budget of "
                f"{problem.budget:g} is for {problem.num_decisions} decisions, of which a planner sees too few ahead "
                "to keep it. Choose pendulum or cartpole"
            )
        require_known("objective.task", self.objective.task, problem.tasks)

    def make_problem(self) -> Problem:
        """The problem, with the budget and the noise asked for."""
        changes: dict[str, Any] = {}
        if self.budget is not None:
            changes["budget"] = self.budget
        if self.process_noise_std is not None:
            changes["process_noise_std"] = self.process_noise_std
        return dataclasses.replace(PROBLEMS[self.problem](), **changes)

    def make_agent(self) -> Agent:
        """The agent that this run trains."""
        recipe = RECIPES[self.algorithm]
        return Agent(self.make_problem(), recipe, self.gp, self.planning, self.objective, self.confidence)

    def is_evaluated(self, episode: int) -> bool:
        """Whether the tasks are evaluated after this episode."""
        if self.evaluate_every == 0 or episode == 0:
            return False
        return episode % self.evaluate_every == 0 or episode == self.schedule.num_episodes

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives the same config back."""
        plain = dataclasses.asdict(self)
        kind = next(name for name, cls in CONFIDENCE.items() if isinstance(self.confidence, cls))
        plain["confidence"] = {"kind": kind, **plain["confidence"]}
        return json.loads(json.dumps(plain))

    @classmethod
    def from_json(cls, plain: Any) -> "Config":
        """The config that was written; an entry that is unknown or not of its kind raises `ConfigError`."""
        _require_mapping("config", plain)
        values = dict(plain)
        confidence = values.pop("confidence", {"kind": "calibrated"})
        _require_mapping("confidence", confidence)
        rest = dict(confidence)
        kind = rest.pop("kind", "calibrated")
        require_known("confidence.kind", kind, CONFIDENCE)
        values["confidence"] = _build(CONFIDENCE[kind], rest, "confidence.")
        return _build(cls, values, "")

    @property
    def digest(self) -> str:
        """A short hash of every setting."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]


_NESTED = {
    "schedule": Schedule,
    "gp": GPSettings,
    "gp.fit": FitSettings,
    "planning": PlanningSettings,
    "planning.search": ICEMSettings,
    "objective": ObjectiveSettings,
    "objective.constraint": Constraint,
}


def _build(cls: type, values: Any, prefix: str) -> Any:
    _require_mapping(prefix.rstrip("."), values)
    hints = typing.get_type_hints(cls)
    names = [prefix + field.name for field in dataclasses.fields(cls)]
    built = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        require_known("setting", path, names)
        if path in _NESTED:
            built[name] = _build(_NESTED[path], value, f"{path}.")
        elif isinstance(value, Confidence):
            built[name] = value
        else:
            built[name] = _of_kind(path, value, hints[name])
    try:
        return cls(**built)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, ConfigError) else ConfigError(str(error)) from error


def _require_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be an object with one entry per setting, got {value!r}")


_KINDS: Mapping[Any, tuple[str, Any]] = {
    type(None): ("null", lambda value: value is None),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: type(value) is int),
    float: (
        "a finite number",
        lambda value: type(value) in (int, float) and abs(value) <= sys.float_info.max,
    ),
    str: ("a text", lambda value: isinstance(value, str)),
    tuple[int, ...]: (
        "a list of whole numbers",
        lambda value: isinstance(value, list | tuple) and all(type(item) is int for item in value),
    ),
}
"""For every type that a setting may have: its name for people, and whether a value read from JSON is one."""


def _of_kind(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type that the setting has, or `ConfigError`."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if _KINDS[option][1](value):
            return tuple(value) if isinstance(value, list) else float(value) if option is float else value
    raise ConfigError(f"{name} must be {' or '.join(_KINDS[option][0] for option in options)}, got {value!r}")


def require_known(what: str, got: Any, known: Iterable[str]) -> None:
    """Raise `ConfigError` with the nearest known name unless `got` is one of `known`."""
    names = list(known)
    if got in names:
        return
    nearest = difflib.get_close_matches(str(got), names, n=1, cutoff=0.3)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise ConfigError(f"unknown {what} {got!r}; expected one of {', '.join(names)}.{hint}")
