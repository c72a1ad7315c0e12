"""Batches of environments by name, ours or anybody's."""

import contextlib
import difflib
import functools
import importlib
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, VectorizeMode, registry

from actsafe.envs.base import EnvBatch, environment_seeds
from actsafe.envs.checks import CheckedEnv, blamed_on
from actsafe.envs.gymnasium_problem import ProblemStage
from actsafe.envs.problem import ProblemBatch
from actsafe.envs.registration import register
from actsafe.envs.repeat import RepeatedAction
from actsafe.envs.safety_gym import SafetyGymBatch
from actsafe.envs.yours import GymnasiumBatch
from actsafe.models.rssm.world_model import require_learnable
from actsafe.problems import PROBLEMS, Problem
from actsafe.problems.checking import checked_number, known

__all__ = ["EnvBatch", "GymnasiumBatch", "ProblemBatch", "SafetyGymBatch", "environment_seeds", "make_envs"]

PAPER_ACTION_REPEAT = 2
"""Of the paper's Safety-Gym agents; our other problems have one of their own."""
_OURS = "actsafe/"


def make_envs(
    name: str,
    num_envs: int,
    *,
    observation: str = "pixels",
    image_size: int = 64,
    num_samples: int = 4,
    action_repeat: int | None = None,
    task: str | None = None,
    budget: float | Sequence[float] | None = None,
    is_double: bool = False,
    **options: Any,
) -> EnvBatch:
    """`num_envs` environments of this name.

    `name` is a problem ("cartpole_swingup"), one of our environments ("PointGotoGoal", "CartpoleSwingupSparse"), any
    Gymnasium id ("Ant-v5", "my_module:MyEnv-v0"), or a `Problem` of one's own ("my_module:MyProblem"). State vectors
    are in double precision where `is_double` is. What is None is left to the environment; `task` is for problems,
    which have several. `options` go to `ProblemStage`, to `SafetyGymSettings`, or to `GymnasiumBatch` (cost_names,
    num_decisions) and Gymnasium's `make_vec`. A Gymnasium id needs a `budget`, which may be one for each cost, and has
    images of its own size.
    """
    num_envs = int(checked_number("num_envs", num_envs, at_least=1.0, is_whole=True))
    asked = {"action_repeat": action_repeat, "task": task, "budget": budget}
    asked = {option: value for option, value in asked.items() if value is not None} | options
    look: dict[str, Any] = {"observation": observation, "image_size": image_size, "num_samples": num_samples}
    own = _own_environments()
    problem, usual = _problem(name)
    if problem is not None:
        dtype = {"dtype": "float64"} if is_double else {}
        return ProblemBatch(problem, num_envs, **{**usual, **asked, **look, **dtype})
    if name not in own:
        if not {":", "/", "-"} & set(name):
            known("environment", name, [*PROBLEMS, *(each for each in own if not each.startswith(_OURS))])
        return _gymnasium_batch(name, num_envs, observation, **asked)
    if task is not None:
        raise ValueError(f"task: got {task!r}, but the name {name!r} says the task already; leave it out.")
    return SafetyGymBatch(num_envs, **look, **{"action_repeat": PAPER_ACTION_REPEAT, **own[name], **asked})


def is_pure(name: str) -> bool:
    """Whether `make_envs` gives environments of this name that run inside compiled programs."""
    return _problem(name)[0] is not None


def known_problem(name: str, observation: str, **asked: Any) -> Problem | None:
    """The problem that `make_envs` describes with these options; None where reward and cost are not known functions of
    what is observed. No environment is made."""
    problem, usual = _problem(name)
    if problem is None or observation != "state":
        return None
    options = {option: value for option, value in {**usual, **asked}.items() if value is not None}
    return ProblemStage(1, problem, **{**options, "observation": observation}).problem


def _problem(name: str) -> tuple[Problem | str | None, dict[str, Any]]:
    """The problem of this name and its usual options; None where it is another environment."""
    if name in PROBLEMS:
        return name, {}
    usual = dict(_own_environments().get(name, {}))
    return (usual.pop("problem"), usual) if "problem" in usual else (_own_problem(name), {})


def _own_problem(name: str) -> Problem | None:
    """The problem that "module:Name" is, where Name is a class or a function that makes one; else None."""
    module, colon, attribute = name.partition(":")
    if not colon or not attribute.isidentifier():
        return None
    advice = "The current folder is searched with PYTHONPATH=. only."
    with blamed_on(f"the module {module} of {name!r} cannot be imported", advice):
        make = getattr(importlib.import_module(module), attribute, None)
    if not callable(make):
        return None
    with blamed_on(f"{name} cannot be made", "A problem needs no arguments here."):
        problem = make()
    return problem if isinstance(problem, Problem) else None


def _own_environments() -> dict[str, dict[str, Any]]:
    """Options of the environments that are registered as ours, by id and by the name in it."""
    register()
    specs = {each: spec.kwargs for each, spec in registry.items() if each.startswith(_OURS)}
    return {each.removeprefix(_OURS).rpartition("-v")[0]: options for each, options in specs.items()} | specs


def _gymnasium_batch(
    name: str,
    num_envs: int,
    observation: str,
    *,
    budget: float | Sequence[float] = (),
    action_repeat: int = 1,
    cost_names: Sequence[str] = ("cost",),
    num_decisions: int | None = None,
    **options: Any,
) -> GymnasiumBatch:
    """Environments of a Gymnasium id; one `budget` holds for each of its costs."""
    spec = _registered(name)
    if "task" in options:
        raise ValueError(f"task: got {options['task']!r}, but {name!r} has one task only; leave it out.")
    budgets = budget if isinstance(budget, Sequence) else (budget,) * len(cost_names)
    if not budgets:
        raise ValueError(f"budget: {name!r} does not say what it allows; give the largest sum of costs of an episode.")
    repeat = int(checked_number("action_repeat", action_repeat, at_least=1.0, is_whole=True))
    is_own_vector = spec.vector_entry_point is not None and repeat == 1
    mode = options.pop("vectorization_mode", "vector_entry_point" if is_own_vector else "sync")
    modes = [each.value for each in VectorizeMode]
    mode = VectorizeMode(known("vectorization_mode", getattr(mode, "value", mode), modes))
    wrappers = list(options.pop("wrappers", ()))
    if mode is not VectorizeMode.VECTOR_ENTRY_POINT:
        wrappers.append(functools.partial(CheckedEnv, cost_names=cost_names))
    if repeat > 1:
        wrappers.append(functools.partial(RepeatedAction, num_steps=repeat, cost_names=cost_names))
    with blamed_on(f"{name} cannot be made", f"Try gymnasium.make({name!r}) by itself."):
        vector = gymnasium.make_vec(name, num_envs=num_envs, vectorization_mode=mode, wrappers=wrappers, **options)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(vector.close)
        envs = GymnasiumBatch(
            vector,
            budgets=[checked_number("budget", each, at_least=0.0) for each in budgets],
            cost_names=cost_names,
            num_decisions=num_decisions,
            action_repeat=repeat,
        )
        seen = "pixels" if len(envs.spec.observation_shape) == 3 else "state"
        if known("observation", observation, ("pixels", "state")) != seen:
            advice = f"ask for that (--set observation={seen}), or wrap it."
            raise ValueError(f"observation: got {observation!r}, but {name!r} gives {seen!r}; {advice}")
        try:
            require_learnable(envs.spec.observation_shape)
        except ValueError as error:
            raise ValueError(f"{name}: {error}; wrap it (gymnasium.wrappers.ResizeObservation, ...).") from error
        on_failure.pop_all()
    return envs


def _registered(name: str) -> EnvSpec:
    """What is registered under a Gymnasium id, once the module before its colon is imported, or ValueError."""
    module, colon, environment_id = name.rpartition(":")
    if name in registry:
        return registry[name]
    if not colon:
        nearest = difflib.get_close_matches(name, registry, n=1, cutoff=0.7)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        raise ValueError(
            f"Gymnasium id: got {name!r}, which is not registered{hint} An environment of your own is named "
            f"module:{name}, with the module that registers it."
        )
    advice = "The current folder is searched with PYTHONPATH=. only."
    with blamed_on(f"the module {module} of {name!r} cannot be imported", advice):
        importlib.import_module(module)
    advice = f"Expected an id that {module} registers as it is imported: gymnasium.register(id=..., entry_point=...)."
    with blamed_on(f"the module {module} has no environment {environment_id!r}", advice):
        return gymnasium.spec(environment_id)
