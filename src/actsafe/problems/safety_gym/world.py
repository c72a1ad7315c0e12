"""The MuJoCo model of a world: floor, light, sky, cameras, one robot, and objects that are put in place at reset."""

import functools

from actsafe.problems.safety_gym.objects import Kind, object_xml
from actsafe.problems.safety_gym.physics import MjModel, mujoco
from actsafe.problems.safety_gym.robots import Drive, Robot

Instances = tuple[tuple[str, Kind], ...]
"""Names and kinds of the objects of a world, in the order in which they are placed."""

SLEEP_TOLERANCE = 1e-6
"""m/s under which whatever nobody pushes falls asleep after ten physics steps. MuJoCo's default, 1e-3, also stops what
still creeps after a collision, and is no faster."""

_SURROUNDINGS = """
<asset>
  <texture name="sky" type="skybox" builtin="gradient" rgb1="0.527 0.582 0.906" rgb2="0.1 0.1 0.35"
           width="64" height="64" mark="random" markrgb="1 1 1" random="0.001"/>
  <texture name="floor" type="2d" builtin="checker" rgb1="0.7 0.7 0.7" rgb2="0.8 0.8 0.8" width="100" height="100"/>
  <material name="floor" texture="floor" texrepeat="10 10" reflectance="0.1" shininess="0.1" specular="0.1"/>
</asset>"""

_FIXTURES = """
<geom name="floor" type="plane" size="3.5 3.5 0.1" condim="6" material="floor" rgba="1 1 1 1"/>
<light name="overhead" directional="true" pos="0 0 0.5" dir="0 0 -1" diffuse="1 1 1" ambient="0 0 0" specular="0 0 0"
       cutoff="100" exponent="1" castshadow="false"/>
<camera name="fixednear" pos="0 -2 2" zaxis="0 -1 1"/>
<camera name="fixedfar" pos="0 -5 5" zaxis="0 -1 1"/>"""


@functools.lru_cache(maxsize=32)
def compile_world(robot: Robot, drive: Drive, instances: Instances, is_sleeping: bool) -> MjModel:
    """The compiled model, shared by all that ask for the same one: copy it before changing it."""
    return mujoco.MjModel.from_xml_string(world_xml(robot, drive, instances, is_sleeping))


def world_xml(robot: Robot, drive: Drive, instances: Instances, is_sleeping: bool) -> str:
    """The model as MJCF. Objects stand in a row far from the robot until a simulation puts them in place."""
    pieces = robot.mjcf(drive)
    objects = "".join(
        object_xml(kind, name, (10.0 + 2.0 * number, 0.0, kind.height)) for number, (name, kind) in enumerate(instances)
    )
    return f"""
    <mujoco model="{robot.name}">
      <option timestep="{robot.time_step}" integrator="Euler" solver="Newton" cone="pyramidal" iterations="100"
              ls_iterations="50" tolerance="1e-8" sleep_tolerance="{SLEEP_TOLERANCE}">
        <flag sleep="{"enable" if is_sleeping else "disable"}"/>
      </option>
      <statistic center="0 0 0" extent="4"/>
      <visual><quality offsamples="4"/></visual>
      <default><default class="robot">{pieces.default}</default></default>
      {_SURROUNDINGS}
      <worldbody>{_FIXTURES}{pieces.body}{objects}</worldbody>
      <actuator>{pieces.actuators}</actuator>
      <sensor>{pieces.sensors}</sensor>
    </mujoco>"""
