"""Doors to other libraries. Importing this package is cheap: the environments load when the first one is made."""

from collections.abc import Iterator
from typing import Any

# By name: `import gymnasium` here would be shadowed as soon as our own submodule of that name is imported.
from gymnasium.envs.registration import register as register_environment
from gymnasium.envs.registration import registry

_PROBLEM, _SAFETY_GYM = "actsafe.envs.gymnasium_problem:Problem", "actsafe.envs.gymnasium_safety_gym:SafetyGym"


def _environments() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every environment: its name, its entry point without Env or VectorEnv, its options."""
    yield "Pendulum", _PROBLEM, {"problem": "pendulum"}
    yield "Cartpole", _PROBLEM, {"problem": "cartpole"}
    yield "CartpoleSwingup", _PROBLEM, {"problem": "cartpole_swingup", "task": "swing_up", "observation": "pixels"}
    swing_up_sparse = {"problem": "cartpole_swingup", "task": "swing_up_sparse", "observation": "pixels"}
    yield "CartpoleSwingupSparse", _PROBLEM, swing_up_sparse
    for robot in ("Point", "Doggo"):
        for task in ("GotoGoal", "PressButtons", "PushBox"):
            for suffix in ("", "Sparse"):
                yield f"{robot}{task}{suffix}", _SAFETY_GYM, {"robot": robot, "task": f"{task}{suffix}"}


def register() -> None:
    """Make `gymnasium.make("actsafe/Pendulum-v0")` and the others work.

    Entry points are strings, so that neither JAX nor an environment is imported here. No `max_episode_steps` is given:
    the environments truncate themselves, and a second clock could disagree with it.
    """
    for name, entry_point, options in _environments():
        environment_id = f"actsafe/{name}-v0"
        # Gymnasium warns when an id is registered twice; an import that is repeated is no fault of the user.
        if environment_id not in registry:
            register_environment(
                environment_id,
                entry_point=f"{entry_point}Env",
                vector_entry_point=f"{entry_point}VectorEnv",
                kwargs=options,
            )
