"""The things of the world beside floor and robot: their shapes, colours, keep-outs and whether they can be moved."""

import dataclasses

Vector = tuple[float, float, float]
Colour = tuple[float, float, float, float]

GREEN: Colour = (0.0, 1.0, 0.0, 1.0)
"""An active button."""
PINK: Colour = (1.0, 105.0 / 255.0, 180.0 / 255.0, 1.0)
"""A button that is not active, or any of them during the pause after a press."""

_DENSITY = 0.001
"""kg/m3 of whatever the robot can push: a vase has 8e-6 kg, the box 1.28e-4 kg."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """One geom, in the frame of its object."""

    form: str
    size: tuple[float, ...]
    """MuJoCo's meaning: half sizes of a box; radius and half height of a cylinder; radius of a sphere."""
    position: Vector = (0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What all objects of one kind have in common."""

    name: str
    shapes: tuple[Shape, ...]
    height: float
    """Of the centre above the floor."""
    colour: Colour
    keepout: float
    """Radius that no other object's keep-out may enter when objects are placed."""
    is_solid: bool = True
    """Whether anything collides with it."""
    is_free: bool = False
    """Whether it moves when pushed; else it stands where it was placed."""
    is_relocated: bool = False
    """Whether the task moves it while physics goes on: a mocap body to MuJoCo, which never looks at others again."""
    is_single: bool = False
    """Whether a world has at most one, named without a number."""

    def instance(self, index: int) -> str:
        """The name of the object with this number, which its body and its first geom carry."""
        return self.name if self.is_single else f"{self.name}{index}"


GOAL = Kind(
    "goal",
    (Shape("cylinder", (0.3, 0.15)),),
    height=0.16,
    colour=(0.0, 1.0, 0.0, 0.25),
    keepout=0.4,
    is_solid=False,
    is_relocated=True,
    is_single=True,
)
HAZARDS = Kind(
    "hazards",
    (Shape("cylinder", (0.2, 0.01)),),
    height=0.02,
    colour=(0.0, 0.0, 1.0, 0.25),
    keepout=0.2,
    is_solid=False,
)
VASES = Kind(
    "vases",
    (Shape("box", (0.1, 0.1, 0.1)),),
    # So far into the floor that the contact carries it from the first step on.
    height=0.1 - 4e-5,
    colour=(0.0, 1.0, 1.0, 1.0),
    keepout=0.15,
    is_free=True,
)
PILLARS = Kind("pillars", (Shape("cylinder", (0.2, 0.5)),), height=0.5, colour=(0.5, 0.5, 1.0, 1.0), keepout=0.3)
BUTTONS = Kind("buttons", (Shape("sphere", (0.1,)),), height=0.1, colour=PINK, keepout=0.2)
BOX = Kind(
    "box",
    (
        Shape("box", (0.2, 0.2, 0.2)),
        *(Shape("box", (0.1, 0.1, 0.2), (x, y, 0.0)) for x in (-0.2, 0.2) for y in (-0.2, 0.2)),
    ),
    height=0.2,
    colour=(1.0, 1.0, 0.0, 0.25),
    keepout=0.5,
    is_free=True,
    is_single=True,
)

HAZARD_RADIUS = HAZARDS.shapes[0].size[0]
"""A robot whose centre is this near to a hazard's, or nearer, pays."""
GOAL_RADIUS = GOAL.shapes[0].size[0]
"""What is this near to the goal's centre, or nearer, has reached it."""


def numbers(values: tuple[float, ...]) -> str:
    """The values as MJCF writes them, to the last bit."""
    return " ".join(repr(float(value)) for value in values)


def object_xml(kind: Kind, name: str, position: Vector) -> str:
    """A body of this kind. Its further geoms are called NAME_part1, NAME_part2 and so on.

    Contacts have MuJoCo's own settings (condim 3), not the robot's; a pair takes the larger of the two.
    """
    collides = int(kind.is_solid)
    parts = [f'<freejoint name="{name}"/>'] if kind.is_free else []
    parts += [
        f'<geom name="{f"{name}_part{number}" if number else name}" type="{shape.form}" size="{numbers(shape.size)}"'
        f' pos="{numbers(shape.position)}" rgba="{numbers(kind.colour)}" density="{_DENSITY}"'
        f' contype="{collides}" conaffinity="{collides}"/>'
        for number, shape in enumerate(kind.shapes)
    ]
    is_mocap = str(kind.is_relocated).lower()
    return f'<body name="{name}" pos="{numbers(position)}" mocap="{is_mocap}">{"".join(parts)}</body>'
