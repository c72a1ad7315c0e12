"""Which numbers of a compiled model are which thing: looked up once, used in every step."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from actsafe.problems.safety_gym.objects import BOX, BUTTONS, GOAL, HAZARDS, PILLARS, VASES, Kind
from actsafe.problems.safety_gym.physics import MjModel
from actsafe.problems.safety_gym.settings import SafetyGymSettings

Indices = npt.NDArray[np.intp]

COST_SOURCES = (HAZARDS.name, VASES.name, PILLARS.name)
HAZARD_BIT, VASE_BIT, PILLAR_BIT = 1, 2, 4
"""Who charged: bit k for `COST_SOURCES[k]`."""
BUTTON_SHIFT = 3
"""Bits from this one on say which buttons the robot touches."""

OBSTACLES, OBJECTS, TARGETS = range(3)
"""The lidars in the order of an observation."""


class Anatomy(NamedTuple):
    """Indices of a model's bodies and geoms. A spot is a row of the settings' `spots`: the robot, then all objects."""

    robot_body: int
    box_body: int
    """The world's body where there is no box."""
    heights: npt.NDArray[np.float64]
    """Of each spot's centre above the floor."""
    static_bodies: Indices
    static_spots: Indices
    """Bodies whose pose is part of the model. Point is one: its joints start where it was put."""
    free_qpos: Indices
    """Rows of seven: where in `qpos` the pose of each free body is."""
    free_spots: Indices
    mocap_spots: Indices
    hazard_spots: Indices
    button_spots: Indices
    button_geoms: Indices
    goal_spot: int
    """-1 where there is none."""
    other_bodies: Indices
    """All but the goal, which keeps clear of them."""
    other_keepouts: npt.NDArray[np.float64]
    contact_bits: list[list[int]]
    """By two geoms: the bit of what the robot touches when these two do, or 0. Lists: few look-ups, each fast."""
    obstacle_bodies: Indices
    object_bodies: Indices
    """The box, or all buttons."""
    goal_bodies: Indices

    def lidar(self, active: int | None) -> tuple[Indices, Indices]:
        """Bodies that the lidars see, and for each of them which lidar does.

        An active button counts as the goal. Without an active one (`None`) buttons are hidden.
        """
        if len(self.button_geoms) == 0:
            groups = [(self.obstacle_bodies, OBSTACLES), (self.object_bodies, OBJECTS), (self.goal_bodies, TARGETS)]
        elif active is None:
            groups = [(self.obstacle_bodies, OBSTACLES)]
        else:
            inactive, lit = np.delete(self.object_bodies, active), self.object_bodies[active : active + 1]
            groups = [(self.obstacle_bodies, OBSTACLES), (inactive, OBJECTS), (lit, TARGETS)]
        bodies = np.concatenate([bodies for bodies, _ in groups])
        return bodies, np.concatenate([np.full(len(bodies), group, np.intp) for bodies, group in groups])


def anatomy_of(model: MjModel, settings: SafetyGymSettings) -> Anatomy:
    """The anatomy of this model, which was compiled for these settings."""
    robot, kinds = settings.body, [kind for _, kind in settings.instances]

    def spots_of(*wanted: Kind) -> Indices:
        return _indices(spot for spot, kind in enumerate(kinds, start=1) if kind in wanted)

    bodies = _indices(model.body(spot.name).id for spot in settings.spots)
    is_free = np.array([robot.is_free, *(kind.is_free for kind in kinds)])
    is_mocap = np.array([False, *(kind.is_relocated for kind in kinds)])
    is_static = ~(is_free | is_mocap)
    first_joints = model.body_jntadr[bodies[is_free]]
    keepouts = np.array([spot.keepout for spot in settings.spots])
    goals, boxes, buttons = spots_of(GOAL), spots_of(BOX), spots_of(BUTTONS)
    touchable = {
        **dict.fromkeys(bodies[spots_of(VASES)].tolist(), VASE_BIT),
        **dict.fromkeys(bodies[spots_of(PILLARS)].tolist(), PILLAR_BIT),
        **{body: 1 << BUTTON_SHIFT + number for number, body in enumerate(bodies[buttons].tolist())},
    }
    return Anatomy(
        robot_body=int(bodies[0]),
        box_body=int(bodies[boxes[0]]) if len(boxes) else 0,
        heights=np.array([robot.height, *(kind.height for kind in kinds)]),
        static_bodies=bodies[is_static],
        static_spots=np.flatnonzero(is_static),
        free_qpos=model.jnt_qposadr[first_joints][:, None] + np.arange(7),
        free_spots=np.flatnonzero(is_free),
        mocap_spots=np.flatnonzero(is_mocap),
        hazard_spots=spots_of(HAZARDS),
        button_spots=buttons,
        button_geoms=_indices(model.body_geomadr[bodies[buttons]].tolist()),
        goal_spot=int(goals[0]) if len(goals) else -1,
        other_bodies=np.delete(bodies, goals),
        other_keepouts=np.delete(keepouts, goals),
        contact_bits=_contact_bits(model, int(bodies[0]), touchable),
        obstacle_bodies=bodies[spots_of(HAZARDS, VASES, PILLARS)],
        object_bodies=bodies[spots_of(BOX, BUTTONS)],
        goal_bodies=bodies[goals],
    )


def _contact_bits(model: MjModel, robot: int, touchable: Mapping[int, int]) -> list[list[int]]:
    """By two geoms, the bit of what the robot touches when they do; `touchable` has the bits by body."""
    owners, roots = model.geom_bodyid.tolist(), model.body_rootid.tolist()
    is_robot = [roots[owner] == robot for owner in owners]
    bits = [touchable.get(owner, 0) for owner in owners]
    return [
        [bits[second] if is_robot[first] else bits[first] * is_robot[second] for second in range(model.ngeom)]
        for first in range(model.ngeom)
    ]


def _indices(values: Iterable[int]) -> Indices:
    return np.fromiter(values, np.intp)
