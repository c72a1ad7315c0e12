"""Safety-Gym's navigation tasks on MuJoCo: Point and Doggo among hazards, vases and pillars.

Needs the package `mujoco`; nothing else here does.
"""

from actsafe.problems.safety_gym.anatomy import COST_SOURCES
from actsafe.problems.safety_gym.batch import Batch, StepResult
from actsafe.problems.safety_gym.layout import LayoutError
from actsafe.problems.safety_gym.robots import ROBOTS
from actsafe.problems.safety_gym.settings import SafetyGymSettings
from actsafe.problems.safety_gym.simulation import Outcome, Simulation
from actsafe.problems.safety_gym.tasks import REWARD_FORMS, TASKS

__all__ = [
    "COST_SOURCES",
    "REWARD_FORMS",
    "ROBOTS",
    "TASKS",
    "Batch",
    "LayoutError",
    "Outcome",
    "SafetyGymSettings",
    "Simulation",
    "StepResult",
]
