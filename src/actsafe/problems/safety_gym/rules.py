"""How the tasks pay: what a robot earns in one environment step, and when its target changes.

A rule keeps the distances of the step before. Distances are planar but for the goal's of `ReachGoal`, which is in
three dimensions, with a planar one before the first step after each draw: as it was when the paper's results were made.
"""

import math
from typing import NamedTuple, Protocol, runtime_checkable

from actsafe.problems.safety_gym.objects import GOAL, GOAL_RADIUS

NO_GATE = math.inf
"""Progress is paid at any distance: the dense rewards."""
BUTTON_PAUSE = 5
"""Environment steps from a press until the next active button shows."""

_BONUS = 1.0


class Place(NamedTuple):
    """A position in the world."""

    x: float
    y: float
    z: float


@runtime_checkable
class Scene(Protocol):
    """What a rule may know of a simulation, and what it may do to it."""

    goal: tuple[float, float]
    num_buttons: int

    def draw_goal(self) -> None:
        """Moves the goal to a new free place."""
        ...

    def draw_button(self) -> int:
        """The number of a button, any with the same chance."""
        ...

    def button(self, number: int) -> tuple[float, float]:
        """Where that button is."""
        ...

    def light(self, number: int | None) -> None:
        """Shows that button as the active one; with None all rest, and no lidar sees them."""
        ...

    def box(self) -> tuple[float, float]:
        """Where the box is."""
        ...


@runtime_checkable
class Rule(Protocol):
    """One task's reward."""

    def begin(self, scene: Scene, robot: Place) -> None:
        """Draws the first target of an episode."""
        ...

    def pay(self, scene: Scene, robot: Place, touched: int) -> tuple[float, bool]:
        """The reward of an environment step, and whether the target was met; then the next one is drawn.

        Bit k of `touched` says whether the robot is in contact with button k.
        """
        ...


def progress(previous: float, distance: float, gate: float) -> float:
    """previous - distance, where `distance` is at most `gate`; else 0. The gate looks at the distance arrived at."""
    return previous - distance if distance <= gate else 0.0


def planar(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """The distance of two places in the plane."""
    across, along = first[0] - second[0], first[1] - second[1]
    return math.sqrt(across * across + along * along)


class ReachGoal:
    """r_t = [d_t <= gate] (d_{t-1} - d_t) + [d_t <= 0.3], d the robot's distance to the goal in three dimensions."""

    def __init__(self, gate: float = NO_GATE):
        self._gate = gate
        self._previous = math.nan

    def begin(self, scene: Scene, robot: Place) -> None:
        scene.draw_goal()
        self._previous = planar(robot, scene.goal)

    def pay(self, scene: Scene, robot: Place, touched: int) -> tuple[float, bool]:
        x, y, z = robot
        goal_x, goal_y = scene.goal
        x, y, z = x - goal_x, y - goal_y, z - GOAL.height
        distance = math.sqrt(x * x + y * y + z * z)
        reward = progress(self._previous, distance, self._gate)
        self._previous = distance
        if distance > GOAL_RADIUS:
            return reward, False
        self.begin(scene, robot)
        return reward + _BONUS, True


class PressButton:
    """r_t = (d_{t-1} - d_t, if dense) + [robot touches the active button], d the distance to that button.

    After a press another button is drawn, which may be the same, and for five steps none shows; touching the new one
    pays already. Touching another button neither pays nor costs.
    """

    def __init__(self, is_dense: bool):
        self._is_dense = is_dense
        self._active = 0
        self._previous = math.nan
        self._pause = 0

    def begin(self, scene: Scene, robot: Place) -> None:
        self._pause = 0
        self._draw(scene, robot)
        scene.light(self._active)

    def _draw(self, scene: Scene, robot: Place) -> None:
        self._active = scene.draw_button()
        self._previous = planar(robot, scene.button(self._active))

    def pay(self, scene: Scene, robot: Place, touched: int) -> tuple[float, bool]:
        distance = planar(robot, scene.button(self._active))
        reward = self._previous - distance if self._is_dense else 0.0
        self._previous = distance
        if self._pause:
            self._pause -= 1
            if not self._pause:
                scene.light(self._active)
        if not touched >> self._active & 1:
            return reward, False
        self._draw(scene, robot)
        self._pause = BUTTON_PAUSE
        scene.light(None)
        return reward + _BONUS, True


class PushToGoal:
    """r_t = [b_t <= gate] (b_{t-1} - b_t) + (q_{t-1} - q_t) + [q_t <= 0.3].

    b is the distance from robot to box, q that from box to goal.
    """

    def __init__(self, gate: float = NO_GATE):
        self._gate = gate
        self._robot_to_box = self._box_to_goal = math.nan

    def begin(self, scene: Scene, robot: Place) -> None:
        scene.draw_goal()
        box = scene.box()
        self._robot_to_box, self._box_to_goal = planar(robot, box), planar(box, scene.goal)

    def pay(self, scene: Scene, robot: Place, touched: int) -> tuple[float, bool]:
        box = scene.box()
        robot_to_box, box_to_goal = planar(robot, box), planar(box, scene.goal)
        reward = progress(self._robot_to_box, robot_to_box, self._gate) + self._box_to_goal - box_to_goal
        self._robot_to_box, self._box_to_goal = robot_to_box, box_to_goal
        if box_to_goal > GOAL_RADIUS:
            return reward, False
        self.begin(scene, robot)
        return reward + _BONUS, True
