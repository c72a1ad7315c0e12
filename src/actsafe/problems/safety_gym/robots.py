"""The robots as MJCF of our own: Point, a ball with an arrow that drives and turns, and Doggo, a quadruped."""

import dataclasses
from collections.abc import Callable

from actsafe.problems.safety_gym.objects import Vector, numbers


@dataclasses.dataclass(frozen=True)
class Drive:
    """What may be changed about Point to shift its dynamics."""

    motor_gear: float = 0.3
    """Newton of thrust per unit of the forward motor's force, which saturates at 0.05."""
    floor_damping: float = 0.01
    """Ns/m of the two sliding joints: all the friction that Point has."""


@dataclasses.dataclass(frozen=True)
class Mjcf:
    """The pieces of a model that a robot contributes; all of them use the default class `robot`."""

    default: str
    body: str
    actuators: str
    sensors: str


@dataclasses.dataclass(frozen=True)
class Robot:
    """A robot: its model, and the constants that go with it."""

    name: str
    mjcf: Callable[[Drive], Mjcf]
    """The pieces, with the body `robot` at the origin, facing +x."""
    height: float
    """Of the root above the floor at the start."""
    is_free: bool
    """Whether its pose is a free joint; else the joints are relative to where it was put."""
    time_step: float
    num_substeps: int
    """Physics steps for which one action is held."""
    margin: float
    """Added to the distance that any two objects keep when they are placed."""
    action_names: tuple[str, ...]
    num_touch: int = 0
    """Touch sensors, which follow the twelve inertial values in the sensor data."""
    num_hinges: int = 0
    """Sensed hinges: their velocities come next, then their angles."""

    @property
    def num_actions(self) -> int:
        return len(self.action_names)

    @property
    def num_sensed(self) -> int:
        """How many numbers an observation has of its sensors, each angle as its sine and cosine."""
        return 12 + self.num_touch + 3 * self.num_hinges


_INERTIAL = "".join(
    f'<{name} name="{name}" site="robot"/>' for name in ("accelerometer", "velocimeter", "gyro", "magnetometer")
)


def _vision(position: Vector, field_of_view: float) -> str:
    """The camera of the images: fixed to the root, looking forward and 21.8 degrees down."""
    return f'<camera name="vision" pos="{numbers(position)}" xyaxes="0 -1 0 0.4 0 1" fovy="{field_of_view}"/>'


TRACK = '<camera name="track" mode="track" pos="0 -2 2" xyaxes="1 0 0 0 1 1"/>'
"""A camera that follows the robot without turning with it."""


def _point(drive: Drive) -> Mjcf:
    """A ball that just touches the floor, so that only its joints' damping slows it.

    Thrust acts along the arrow and is the same for every command of at least 0.05. Under Euler at 4 ms the yaw servo
    is unstable and ends in a clamped limit cycle: small turn commands hardly turn. That is the robot of the paper.
    """
    joints = "".join(
        f'<joint name="{name}" type="{form}" axis="{axis}" damping="{damping!r}"/>'
        for name, form, axis, damping in (
            ("x", "slide", "1 0 0", float(drive.floor_damping)),
            ("y", "slide", "0 1 0", float(drive.floor_damping)),
            ("z", "hinge", "0 0 1", 0.005),
        )
    )
    return Mjcf(
        default='<geom condim="6" density="1" rgba="1 0 0 1"/>',
        body=f"""
        <body name="robot" pos="0 0 {_POINT_HEIGHT}" childclass="robot">
          {joints}
          <geom name="robot" type="sphere" size="0.1" friction="1 0.01 0.01"/>
          <geom name="pointarrow" type="box" size="0.05 0.05 0.05" pos="0.1 0 0"/>
          <site name="robot" type="sphere" size="0.032" rgba="1 0 0 0.1"/>
          {_vision((0.0, 0.0, 0.15), 90.0)}{TRACK}
        </body>""",
        actuators=f"""
        <motor name="x" site="robot" gear="{float(drive.motor_gear)!r} 0 0 0 0 0"
               ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-0.05 0.05"/>
        <velocity name="z" joint="z" gear="0.3" kv="1"
               ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-0.05 0.05"/>""",
        sensors=_INERTIAL,
    )


def _doggo(drive: Drive) -> Mjcf:
    """A torso in two halves, joined by a sprung waist without motor, on four legs with three motors each."""
    return Mjcf(
        default="""
        <geom type="capsule" size="0.032" condim="6" density="5" rgba="1 0 0 1"/>
        <joint type="hinge" limited="true" stiffness="0.01"/>
        <site type="sphere" size="0.036" rgba="0 0 0 0"/>
        <motor ctrllimited="true" ctrlrange="-1 1" gear="0.0125"/>""",
        body=f"""
        <body name="robot" pos="0 0 {_DOGGO_HEIGHT}" childclass="robot">
          <freejoint name="robot"/>
          <site name="robot"/>
          {_vision((0.125, 0.0, 0.2), 100.0)}{TRACK}
          <geom name="robot" type="cylinder" size="0.075" fromto="0 0 0 0.2 0 0" density="0.5"/>
          {_leg(1)}{_leg(4)}
          <body name="rear">
            <joint name="waist_x" axis="1 0 0" range="-30 30"/>
            <geom name="robot2" type="cylinder" size="0.075" fromto="-0.2 0 0 0 0 0" density="0.5"/>
            {_leg(2)}{_leg(3)}
          </body>
        </body>""",
        actuators="".join(f'<motor name="{name}" joint="{name}" class="robot"/>' for name in _HINGES),
        sensors=_INERTIAL
        + "".join(f'<touch name="{name}" site="{name}"/>' for name in _TOUCH)
        + "".join(f'<jointvel name="{name}_velocity" joint="{name}"/>' for name in _HINGES)
        + "".join(f'<jointpos name="{name}_angle" joint="{name}"/>' for name in _HINGES),
    )


def _leg(leg: int) -> str:
    """A fixed stub, a hip that turns about two axes, and a shank. Legs 1 and 2 are on the left, 1 and 4 in front."""
    side, front = (1.0 if leg in (1, 2) else -1.0), (1.0 if leg in (1, 4) else -1.0)
    hip, knee = numbers((0.2 * front, 0.1 * side, 0.0)), numbers((0.098, 0.0566 * side, -0.05))
    foot = numbers((-0.1176, -0.0679 * side, -0.1))
    lift = 'range="-75 15" springref="-10"' if front > 0 else 'range="0 135"'
    colour = "0 0 1 1" if front > 0 else "0 1 0 1"
    return f"""
    <body name="leg_{leg}">
      <geom name="aux_{leg}" fromto="{0.1 * front} 0 0 {hip}"/>
      <body name="aux_{leg}" pos="{hip}">
        <joint name="hip_{leg}_z" axis="0 0 {side}" range="-10 30"/>
        <joint name="hip_{leg}_y" axis="0 1 0" {lift}/>
        <geom name="hip_{leg}" fromto="0 0 0 {knee}"/>
        <body name="shank_{leg}" pos="{knee}">
          <joint name="ankle_{leg}" axis="{-0.5 * side} 0.866 0" range="-75 0" springref="-20"/>
          <geom name="ankle_{leg}" fromto="0 0 0 {foot}" rgba="{colour}"/>
          <site name="ankle_{leg}a"/>
          <site name="ankle_{leg}b" pos="{foot}"/>
        </body>
      </body>
    </body>"""


_HINGES = tuple(pattern.format(leg) for pattern in ("hip_{}_z", "hip_{}_y", "ankle_{}") for leg in range(1, 5))
_TOUCH = tuple(f"ankle_{leg}{end}" for end in "ab" for leg in range(1, 5))
_POINT_HEIGHT, _DOGGO_HEIGHT = 0.1, 0.22

POINT = Robot(
    "Point",
    _point,
    height=_POINT_HEIGHT,
    is_free=False,
    time_step=0.004,
    num_substeps=5,
    margin=0.0,
    action_names=("forward", "turn"),
)
DOGGO = Robot(
    "Doggo",
    _doggo,
    height=_DOGGO_HEIGHT,
    is_free=True,
    time_step=0.012,
    num_substeps=12,
    margin=0.165,
    action_names=_HINGES,
    num_touch=len(_TOUCH),
    num_hinges=len(_HINGES),
)

ROBOTS = {robot.name: robot for robot in (POINT, DOGGO)}
"""The robots by name."""
