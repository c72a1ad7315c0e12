"""What is drawn: the things that never change (`Scene`) and those that change with every frame (`View`)."""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

KINDS = ("sphere", "capsule", "cylinder", "box")
"""The shapes that can be drawn, besides the floor."""

Colour = tuple[float, float, float]
"""Red, green and blue, 0 to 1."""


class Floor(eqx.Module):
    """A horizontal square with a checker texture, centred below the world's origin. The defaults are Safety-Gym's."""

    height: float = eqx.field(default=0.0, static=True)
    half_size: float = eqx.field(default=3.5, static=True)
    square: float = eqx.field(default=0.35, static=True)
    """Side of one square of the checker; a square that touches the origin with x, y > 0 has the first colour."""
    colours: tuple[Colour, Colour] = eqx.field(default=((204 / 255,) * 3, (178 / 255,) * 3), static=True)
    """MuJoCo stores 0.7 as the byte 178: texels are truncated, not rounded."""
    texels: int = eqx.field(default=100, static=True)
    """Texels along two squares: how fine the texture is, which decides where it begins to blur."""
    reflectance: float = eqx.field(default=0.1, static=True)
    """Share of a thing's colour that its mirror image keeps; highlights keep all of theirs."""


class Sky(eqx.Module):
    """A gradient from the zenith's colour to the nadir's. The defaults are Safety-Gym's."""

    zenith: Colour = eqx.field(default=(0.527, 0.582, 0.906), static=True)
    nadir: Colour = eqx.field(default=(0.1, 0.1, 0.35), static=True)
    offset: Colour = eqx.field(default=(0.28 / 255, 0.33 / 255, 0.33 / 255), static=True)
    """Added to the gradient: what the sparse white marks of the texture bring on average (fitted)."""


class Headlight(eqx.Module):
    """Light along the gaze, the same in the whole image. The defaults are Safety-Gym's."""

    ambient: float = eqx.field(default=0.1, static=True)
    diffuse: float = eqx.field(default=0.4, static=True)
    specular: float = eqx.field(default=0.5, static=True)


class Light(eqx.Module):
    """A white light that casts no shadow. The defaults are Safety-Gym's, overhead and everywhere the same."""

    direction: Colour = eqx.field(default=(0.0, 0.0, -1.0), static=True)
    """Where it shines to, of length one."""
    position: Colour | None = eqx.field(default=None, static=True)
    """Where it hangs; None for one that is infinitely far away."""
    ambient: float = eqx.field(default=0.0, static=True)
    diffuse: float = eqx.field(default=1.0, static=True)
    specular: float = eqx.field(default=0.0, static=True)
    exponent: float = eqx.field(default=0.0, static=True)
    """A hanging light falls off with the cosine of the angle to its direction, to this power."""
    cutoff: float = eqx.field(default=180.0, static=True)
    """A hanging light reaches this many degrees to the side of its direction."""


class Scene(eqx.Module):
    """What does not change from frame to frame. Compiled into the program, but for the sizes."""

    kinds: tuple[str, ...] = eqx.field(static=True)
    """What every geom is: see `KINDS`."""
    sizes: Float[Array | np.ndarray, "geom 3"]
    """As in MuJoCo: radius; radius and half length along z; half lengths of a box."""
    transparent: tuple[bool, ...] = eqx.field(static=True)
    """Which geoms are blended by their alpha; the others are opaque unless their alpha is 0."""
    floor: Floor | None = Floor()
    sky: Sky = Sky()
    headlight: Headlight = Headlight()
    lights: tuple[Light, ...] = (Light(),)
    specular: float = eqx.field(default=0.5, static=True)
    """Share of a light's specular part that a geom's surface throws back."""
    shininess: float = eqx.field(default=0.5, static=True)
    """The sharpness of highlights, in units of the exponent 128."""

    def __check_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(KINDS))
        if unknown:
            raise ValueError(f"geoms must be one of {', '.join(KINDS)}; got {', '.join(unknown)}")
        if not len(self.kinds) == len(self.transparent):
            raise ValueError(f"got {len(self.kinds)} kinds but {len(self.transparent)} flags for transparent geoms")

    @property
    def num_geoms(self) -> int:
        return len(self.kinds)


class View(NamedTuple):
    """What changes with every frame. A batch of views has one more axis in front of every field."""

    positions: Float[Array | np.ndarray, "geom 3"]
    rotations: Float[Array | np.ndarray, "geom 3 3"]
    """From the geom's frame to the world's."""
    colours: Float[Array | np.ndarray, "geom 4"]
    """Red, green, blue, alpha. A geom of alpha 0, or with a number that is not finite, is not drawn."""
    camera_position: Float[Array | np.ndarray, "3"]
    camera_rotation: Float[Array | np.ndarray, "3 3"]
    """From the camera's frame to the world's. It looks along its negative z axis, y is up in the image."""
    fovy: Float[Array | np.ndarray, ""]
    """Vertical field of view in degrees."""


def cartpole_scene(kinds: tuple[str, ...], sizes: Float[Array | np.ndarray, "geom 3"]) -> Scene:
    """A scene of opaque geoms with the look of dm_control's cartpole.

    *Deviation:* no shadows, no lines at the edges of the floor's texture, no stars.
    """
    return Scene(
        kinds=kinds,
        sizes=sizes,
        transparent=(False,) * len(kinds),
        floor=Floor(
            height=-0.05,
            half_size=4.0,
            square=1.0,
            colours=((51 / 255, 76 / 255, 102 / 255), (25 / 255, 51 / 255, 76 / 255)),
            texels=300,
            reflectance=0.2,
        ),
        sky=Sky(zenith=(0.4, 0.6, 0.8), nadir=(0.0, 0.0, 0.0), offset=(0.0, 0.0, 0.0)),
        headlight=Headlight(ambient=0.4, diffuse=0.8, specular=0.1),
        lights=(Light(position=(0.0, 0.0, 6.0), diffuse=0.7, specular=0.3, exponent=10.0, cutoff=45.0),),
    )
