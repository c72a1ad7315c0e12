"""One Safety-Gym simulation: model, physics state and random streams of its own."""

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from actsafe.problems.safety_gym import layout
from actsafe.problems.safety_gym.anatomy import BUTTON_SHIFT, HAZARD_BIT, PILLAR_BIT, VASE_BIT, Anatomy, anatomy_of
from actsafe.problems.safety_gym.objects import GREEN, HAZARD_RADIUS, PINK
from actsafe.problems.safety_gym.observation import LidarPoints, offsets_from, state_vectors
from actsafe.problems.safety_gym.physics import MjData, MjModel, mujoco
from actsafe.problems.safety_gym.rules import Place
from actsafe.problems.safety_gym.settings import SafetyGymSettings
from actsafe.problems.safety_gym.world import compile_world

BROKEN_REWARD = -10.0
"""What the environment step pays in which the physics broke down."""

_SOURCES = tuple((bits & 1, bits >> 1 & 1, bits >> 2 & 1) for bits in range(8))
"""Bits of who charged, told apart."""
_NOISE_BLOCK = 128
_VIEWS = ("_robot", "_box", "_ctrl", "_warnings")
"""Attributes that are views into `data`: a copy needs its own."""
_UNPICKLED = ("nl", "nbody_awake", "nparent_awake", "ntree_awake", "nv_awake", "flg_rnepost")
"""Numbers in `MjData` that MuJoCo's own pickling leaves at their initial values. Not every release has all of them."""
_HAZARD_REACH = HAZARD_RADIUS * HAZARD_RADIUS


class Outcome(NamedTuple):
    """What one environment step brought, or the sum of several."""

    reward: float
    cost: float
    """Environment steps with any violation, of whatever source."""
    sources: tuple[int, ...]
    """Environment steps with a violation, by `COST_SOURCES`. A step may have several."""
    num_met: int
    """Goals reached or buttons pressed."""


NOTHING = Outcome(0.0, 0.0, (0, 0, 0), 0)
BROKEN = Outcome(BROKEN_REWARD, 1.0, (0, 0, 0), 0)
"""Fails closed: where the robot is no longer known it counts as unsafe."""


def total(outcomes: Sequence[Outcome]) -> Outcome:
    """The sum of the outcomes of successive environment steps."""
    if len(outcomes) == 1:
        return outcomes[0]
    rewards, costs, sources, num_met = zip(NOTHING, *outcomes, strict=True)
    return Outcome(sum(rewards), sum(costs), tuple(sum(source) for source in zip(*sources, strict=True)), sum(num_met))


@functools.lru_cache(maxsize=32)
def _blueprint(settings: SafetyGymSettings) -> tuple[MjModel, Anatomy]:
    """The compiled model of these settings and its anatomy, both to be left as they are."""
    model = compile_world(settings.body, settings.drive, settings.instances, settings.is_sleeping)
    return model, anatomy_of(model, settings)


class Simulation:
    """A world that is reset and stepped, always from the seed alone.

    The compiled model is copied: where static objects stand and which button is lit are part of the model, and belong
    to this simulation. Physics state lives in `data`, and with it which objects sleep. `draw_goal`, `draw_button`,
    `button`, `light`, `box` and `goal` are what a rule may use.
    """

    def __init__(self, settings: SafetyGymSettings):
        self.settings = settings
        compiled, self.anatomy = _blueprint(settings)
        self.model: MjModel = copy.copy(compiled)
        self.data: MjData = mujoco.MjData(self.model)
        self.rule = settings.layout_task.rule(settings.reward)
        self.goal = (0.0, 0.0)
        self.num_buttons = len(self.anatomy.button_geoms)
        self.seen_bodies, self.seen_groups = self.anatomy.lidar(None)
        self.num_taken = 0
        """Environment steps taken since the reset."""
        self.is_broken = False
        self.is_ready = False
        """Whether it has been reset and its episode is not over."""
        self._seed(None)
        self._hazards: list[list[float]] = []
        self._buttons: list[tuple[float, float]] = []
        self._num_further_substeps = settings.body.num_substeps - 1
        self._take_views()

    def _take_views(self) -> None:
        """Views into MuJoCo's memory, which stays where it is as long as `data` does."""
        self._robot = self.data.xpos[self.anatomy.robot_body]
        self._box = self.data.xpos[self.anatomy.box_body]
        self._ctrl = self.data.ctrl
        self._warnings = self.data.warning.number

    def __getstate__(self) -> dict[str, Any]:
        """What pickling and copying keep: everything but the views, which would become arrays of their own."""
        state = {name: value for name, value in self.__dict__.items() if name not in _VIEWS}
        numbers = {name: getattr(self.data, name) for name in _UNPICKLED if hasattr(self.data, name)}
        return state | {"unpickled": numbers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        numbers = state.pop("unpickled")
        self.__dict__.update(state)
        for name, value in numbers.items():
            setattr(self.data, name, value)
        self._take_views()

    def _seed(self, seed: int | None) -> None:
        """Starts both random streams anew: one for layouts and targets, one for action noise."""
        layouts, noise = np.random.SeedSequence(seed).spawn(2)
        self._generator, self._noise_generator = np.random.default_rng(layouts), np.random.default_rng(noise)
        self._noise = np.empty((0, self.settings.body.num_actions))
        self._noise_row = 0

    def reset(self, seed: int | None = None) -> None:
        """A new episode: from `seed` alone, or with None from where the random streams are."""
        if seed is not None:
            self._seed(seed)
        generator, anatomy, model, data = self._generator, self.anatomy, self.model, self.data
        positions = layout.place(self.settings.spots, self.settings.body.margin, generator)
        half_yaws = generator.uniform(0.0, np.pi, len(positions))
        poses = np.zeros((len(positions), 7))
        poses[:, :2], poses[:, 2] = positions, anatomy.heights
        poses[:, 3], poses[:, 6] = np.cos(half_yaws), np.sin(half_yaws)

        # Static bodies before the reset: while others sleep MuJoCo computes their poses there and nowhere else.
        model.body_pos[anatomy.static_bodies] = poses[anatomy.static_spots, :3]
        model.body_quat[anatomy.static_bodies] = poses[anatomy.static_spots, 3:]
        mujoco.mj_resetData(model, data)
        data.qpos[anatomy.free_qpos] = poses[anatomy.free_spots]
        data.mocap_pos[:] = poses[anatomy.mocap_spots, :3]
        data.mocap_quat[:] = poses[anatomy.mocap_spots, 3:]
        mujoco.mj_forward(model, data)
        self._hazards = positions[anatomy.hazard_spots].tolist()
        self._buttons = [(x, y) for x, y in positions[anatomy.button_spots].tolist()]
        self.num_taken, self.is_broken, self.is_ready = 0, False, False
        self.rule.begin(self, Place(*self._robot.tolist()))
        self.is_ready = True

    def step(self, action: npt.NDArray[np.float64]) -> Outcome:
        """What holding `action` for `action_repeat` environment steps brings, or until the episode is over."""
        outcomes = []
        for _ in range(self.settings.action_repeat):
            self.prepare(action)
            self.run_physics()
            outcomes.append(self.judge())
            if not self.is_ready:
                break
        return total(outcomes)

    def prepare(self, action: npt.NDArray[np.float64]) -> None:
        """Hands the action, with noise and then clipped, to the motors. The first part of an environment step."""
        ctrl = self._ctrl
        np.add(action, self._next_noise(), out=ctrl)
        np.minimum(np.maximum(ctrl, -1.0, out=ctrl), 1.0, out=ctrl)

    def run_physics(self) -> None:
        """The second part, nearly all of it without Python's lock: physics steps with the action held.

        The first half of the next physics step is done at the end, so that positions and contacts are those of the
        state reached; its second half is what comes first.
        """
        model, data = self.model, self.data
        try:
            mujoco.mj_step2(model, data)
            mujoco.mj_step(model, data, self._num_further_substeps)
            mujoco.mj_step1(model, data)
        except mujoco.FatalError:
            self.is_broken = True

    def judge(self) -> Outcome:
        """The third part: reward, which may draw a new target, and then cost, of the state reached."""
        self.num_taken += 1
        robot = Place(*self._robot.tolist())
        if self.is_broken or any(self._warnings.tolist()) or not math.isfinite(sum(robot)):
            self.is_broken, self.is_ready = True, False
            return BROKEN
        self.is_ready = self.num_taken < self.settings.episode_length
        touched = self._touched()
        reward, is_met = self.rule.pay(self, robot, touched >> BUTTON_SHIFT)
        violations = touched & (VASE_BIT | PILLAR_BIT) | self._is_in_hazard(robot)
        return Outcome(reward, 1.0 if violations else 0.0, _SOURCES[violations], int(is_met))

    def _next_noise(self) -> npt.NDArray[np.float64]:
        """The next row of the noise stream, which is the same in blocks of any size."""
        row = self._noise_row
        if row == len(self._noise):
            size = (_NOISE_BLOCK, self.settings.body.num_actions)
            self._noise = self._noise_generator.normal(0.0, self.settings.action_noise, size)
            row = 0
        self._noise_row = row + 1
        return self._noise[row]

    def _touched(self) -> int:
        """Bits of what the robot is in contact with: vases, pillars, and from the fourth bit on each button."""
        touched = 0
        if self.data.ncon:
            meaning = self.anatomy.contact_bits
            for first, second in self.data.contact.geom.tolist():
                touched |= meaning[first][second]
        return touched

    def _is_in_hazard(self, robot: Place) -> int:
        """`HAZARD_BIT` where the robot's root is within a hazard, its rim included."""
        x, y, _ = robot
        for hazard_x, hazard_y in self._hazards:
            across, along = x - hazard_x, y - hazard_y
            if across * across + along * along <= _HAZARD_REACH:
                return HAZARD_BIT
        return 0

    def observe(self) -> npt.NDArray[np.float64]:
        """The state vector: three lidars, then the robot's sensors."""
        self.refresh()
        return state_vectors(self.settings.body, [self.surroundings()], self.data.sensordata[None])[0]

    def refresh(self) -> None:
        """Brings accelerations and touch up to the present state; what follows is exactly as it would have been."""
        warm_start = self.data.qacc_warmstart.copy()
        mujoco.mj_forward(self.model, self.data)
        self.data.qacc_warmstart[:] = warm_start

    def surroundings(self) -> LidarPoints:
        """What the lidars see."""
        return offsets_from(self.data, self.anatomy.robot_body, self.seen_bodies), self.seen_groups

    def draw_goal(self) -> None:
        """Moves the goal to a free place among the objects where they are now."""
        anatomy = self.anatomy
        goal = self.settings.spots[anatomy.goal_spot]
        others = self.data.xpos[anatomy.other_bodies, :2]
        self.goal = layout.draw_goal(goal, others, anatomy.other_keepouts, self._generator)
        self.data.mocap_pos[0, :2] = self.goal
        mujoco.mj_kinematics(self.model, self.data)

    def draw_button(self) -> int:
        return int(self._generator.integers(self.num_buttons))

    def button(self, number: int) -> tuple[float, float]:
        return self._buttons[number]

    def light(self, number: int | None) -> None:
        """Shows that button in green and the others in pink; with None all are pink and no lidar sees them."""
        geoms = self.anatomy.button_geoms
        self.model.geom_rgba[geoms] = PINK
        if number is not None:
            self.model.geom_rgba[geoms[number]] = GREEN
        self.seen_bodies, self.seen_groups = self.anatomy.lidar(number)

    def box(self) -> tuple[float, float]:
        x, y, _ = self._box.tolist()
        return x, y
