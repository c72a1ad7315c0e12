"""What may be asked of a Safety-Gym simulation, checked when it is asked."""

import dataclasses
import functools
from typing import Any

from actsafe.problems.checking import checked_number, known
from actsafe.problems.safety_gym.layout import Spot
from actsafe.problems.safety_gym.objects import BOX, BUTTONS, GOAL, HAZARDS, PILLARS, VASES, Kind
from actsafe.problems.safety_gym.robots import POINT, ROBOTS, Drive, Robot
from actsafe.problems.safety_gym.tasks import REWARD_FORMS, TASKS, Task
from actsafe.problems.safety_gym.world import Instances

ROBOT_KEEPOUT = 0.4


@dataclasses.dataclass(frozen=True)
class SafetyGymSettings:
    """A robot, a task, and what is changed about them. None leaves what the robot or the task has."""

    robot: str = "Point"
    task: str = "GotoGoal"
    reward: str = "paper"
    """Sparse rewards as the paper's table has them ("paper") or as the published simulator pays ("released")."""
    action_noise: float = 0.01
    """Std of the Gaussian noise on every action component, drawn anew in each environment step."""
    action_repeat: int = 1
    """Environment steps for which one action is held; rewards and costs are summed. The paper's agents use 2."""
    episode_length: int = 1000
    """In environment steps."""
    budget: float = 25.0
    """Largest sum of costs allowed in an episode; nothing here enforces it."""
    num_hazards: int | None = None
    num_vases: int | None = None
    num_pillars: int | None = None
    num_buttons: int | None = None
    extent: float | None = None
    """Half the side of the square in which objects without a box of their own are placed."""
    target_extent: float | None = None
    """The same for the goal (before it grows) or the buttons."""
    motor_gear: float | None = None
    """Point's forward gear, by itself 0.3; 3.0 is the paper's shifted motor."""
    floor_damping: float | None = None
    """Point's sliding damping, by itself 0.01; 0.001 is the paper's slippery floor."""
    is_sleeping: bool = True
    """Whether objects at rest are left out of the physics until they are touched."""

    def __post_init__(self) -> None:
        known("robot", self.robot, ROBOTS)
        known("task", self.task, TASKS)
        known("reward", self.reward, REWARD_FORMS)
        for name in ("action_repeat", "episode_length"):
            _require(name, getattr(self, name), at_least=1.0, is_whole=True)
        for name in ("action_noise", "budget"):
            _require(name, getattr(self, name), at_least=0.0)
        for name in ("num_hazards", "num_vases", "num_pillars", "num_buttons"):
            _require(name, getattr(self, name), at_least=0.0, is_whole=True, is_optional=True)
        for name in ("extent", "target_extent", "motor_gear", "floor_damping"):
            _require(name, getattr(self, name), at_least=0.0, is_optional=True)
        self._require_fitting()

    def _require_fitting(self) -> None:
        """ValueError where the settings contradict each other, or an object cannot fit into its box."""
        shifts = [name for name in ("motor_gear", "floor_damping") if getattr(self, name) is not None]
        if shifts and self.robot != POINT.name:
            raise ValueError(
                f"{shifts[0]}: got {getattr(self, shifts[0])} for {self.robot}, which has no such part; expected None. "
                f"Shifted dynamics are {POINT.name}'s: choose robot={POINT.name!r} or leave it out."
            )
        has_buttons = TASKS[self.task].num_buttons > 0
        if self.num_buttons is not None and has_buttons != (self.num_buttons > 0):
            expected = "at least 1" if has_buttons else "none"
            raise ValueError(f"num_buttons: got {self.num_buttons} for {self.task}, expected {expected}; leave it out.")
        for spot in self.spots:
            if spot.extent <= spot.keepout:
                raise ValueError(
                    f"{spot.name}: its box +-{spot.extent:g} leaves no room, expected more than its keep-out of "
                    f"{spot.keepout:g}; ask for a larger extent (or target_extent)."
                )

    @property
    def body(self) -> Robot:
        return ROBOTS[self.robot]

    @property
    def drive(self) -> Drive:
        """Point's drive with the shifts that were asked for."""
        shifts = {"motor_gear": self.motor_gear, "floor_damping": self.floor_damping}
        return Drive(**{name: float(value) for name, value in shifts.items() if value is not None})

    @property
    def layout_task(self) -> Task:
        """The task that was named, with counts and extents overridden."""
        names = ("num_hazards", "num_vases", "num_pillars", "num_buttons", "extent", "target_extent")
        changes = {name: getattr(self, name) for name in names}
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(TASKS[self.task], **changes)

    @property
    def instances(self) -> Instances:
        """The objects of the world in the order in which they are placed, after the robot."""
        task = self.layout_task
        counts: list[tuple[Kind, int]] = [
            (HAZARDS, task.num_hazards),
            (VASES, task.num_vases),
            (PILLARS, task.num_pillars),
            (GOAL, 0 if task.num_buttons else 1),
            (BOX, int(task.has_box)),
            (BUTTONS, task.num_buttons),
        ]
        return tuple((kind.instance(index), kind) for kind, count in counts for index in range(count))

    @functools.cached_property
    def spots(self) -> tuple[Spot, ...]:
        """Where the robot and each object may go."""
        task = self.layout_task
        boxes = {
            GOAL.name: (task.target_extent, GOAL.keepout),
            BUTTONS.name: (task.target_extent, BUTTONS.keepout),
            BOX.name: (task.extent if task.box_extent is None else task.box_extent, task.box_keepout),
        }
        return (
            Spot("robot", task.extent, ROBOT_KEEPOUT),
            *(Spot(name, *boxes.get(kind.name, (task.extent, kind.keepout))) for name, kind in self.instances),
        )


def _require(name: str, value: Any, *, is_optional: bool = False, **limits: Any) -> None:
    """ValueError where `value` is not a number within the limits of `checked_number`."""
    if value is None and not is_optional:
        raise ValueError(f"{name}: got None, expected a number; leave it out for the default.")
    checked_number(name, value, **limits)
