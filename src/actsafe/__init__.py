"""ActSafe: explore an unknown system and keep its safety constraint while learning.

    run = actsafe.train(actsafe.Config(env="pendulum", algorithm="actsafe"), "runs/pendulum", seed=0)
    policy = actsafe.load("runs/pendulum")

Names are imported when they are first used: `import actsafe` registers the environments with Gymnasium, and loads
neither JAX nor a simulator.
"""

import importlib as _importlib
import os as _os
import time as _time
from importlib import metadata as _metadata
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

STARTED = _time.perf_counter()
"""When this process began with anything of ours, as `time.perf_counter` counts."""

# These versions of jaxlib get some large sums wrong on the CPU, silently (jax issues 39103 and 39257), unless one of
# XLA's passes is switched off. The switch is read once, when JAX is first used; a version that does not know it would
# refuse to start, so it is set for no other. `actsafe doctor` checks such a sum.
_WRONG_SUMS, _SWITCH = ("0.10.2", "0.11.0"), "--xla_cpu_experimental_ynn_fusion_type"
if _metadata.version("jaxlib") in _WRONG_SUMS and _SWITCH not in _os.environ.get("XLA_FLAGS", ""):
    _os.environ["XLA_FLAGS"] = f"{_os.environ.get('XLA_FLAGS', '')} {_SWITCH}=".strip()

from actsafe.envs.registration import register as _register_environments  # noqa: E402

_register_environments()

if TYPE_CHECKING:
    from actsafe.agents.algorithms import ALGORITHMS, Algorithm, Objective, Role
    from actsafe.agents.base import Agent, AgentSettings, Decision
    from actsafe.agents.gp import GPAgentSettings
    from actsafe.agents.phases import Schedule
    from actsafe.agents.world_model import WorldModelAgentSettings
    from actsafe.api import Run, TrainedPolicy, calibrate, certify, evaluate, load, resume, train, verify
    from actsafe.constrained.base import ConstrainedStep
    from actsafe.envs.make import make_envs
    from actsafe.problems import PROBLEMS, Problem
    from actsafe.training import presets
    from actsafe.training.config import Config
    from actsafe.training.errors import UserError
    from actsafe.training.presets import PRESETS

_PLACES = {
    "actsafe.agents.algorithms": ("ALGORITHMS", "Algorithm", "Objective", "Role"),
    "actsafe.agents.base": ("Agent", "AgentSettings", "Decision"),
    "actsafe.agents.gp": ("GPAgentSettings",),
    "actsafe.agents.phases": ("Schedule",),
    "actsafe.agents.world_model": ("WorldModelAgentSettings",),
    "actsafe.api": ("Run", "TrainedPolicy", "calibrate", "certify", "evaluate", "load", "resume", "train", "verify"),
    "actsafe.constrained.base": ("ConstrainedStep",),
    "actsafe.envs.make": ("make_envs",),
    "actsafe.problems": ("PROBLEMS", "Problem"),
    "actsafe.training.config": ("Config",),
    "actsafe.training.errors": ("UserError",),
    "actsafe.training.presets": ("PRESETS", "presets"),
}
"""Where each public name is from."""
_HOMES = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "ALGORITHMS",
    "PRESETS",
    "PROBLEMS",
    "Agent",
    "AgentSettings",
    "Algorithm",
    "Config",
    "ConstrainedStep",
    "Decision",
    "GPAgentSettings",
    "Objective",
    "Problem",
    "Role",
    "Run",
    "Schedule",
    "TrainedPolicy",
    "UserError",
    "WorldModelAgentSettings",
    "calibrate",
    "certify",
    "evaluate",
    "load",
    "make_envs",
    "presets",
    "resume",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'actsafe' has no attribute {name!r}; it offers {', '.join(__all__)}")
    module = _importlib.import_module(_HOMES[name])
    globals()[name] = module if name == "presets" else getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
