"""MuJoCo, or what to do without it.

Its names come from compiled modules that a type checker cannot see into, hence `Any`; this is the one place to say so.
"""

import importlib
from typing import Any

try:
    mujoco: Any = importlib.import_module("mujoco")
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Safety-Gym needs MuJoCo 3.4 or newer, and there is no module {error.name!r}; pip install 'mujoco>=3.4'.",
        name=error.name,
    ) from error

MjModel = Any
MjData = Any
