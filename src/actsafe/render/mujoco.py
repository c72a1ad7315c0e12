"""Scenes and views of a MuJoCo model, gathered with NumPy; and MuJoCo's own picture, to compare with.

MuJoCo is imported only where it is needed: what draws the pixels does not depend on it.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from actsafe.render.scene import Colour, Floor, Headlight, Light, Scene, Sky, View

SHAPES = {2: "sphere", 3: "capsule", 5: "cylinder", 6: "box"}
"""MuJoCo's numbers for the shapes that can be drawn."""

PLANE, SKYBOX, RGB, DIRECTIONAL = 0, 2, 1, 1
"""MuJoCo's numbers: a geom that is a plane, a texture that is a sky, a material's colour, a light from afar."""

LAST_SHOWN_GROUP = 2
UNSET = np.asarray([0.5, 0.5, 0.5, 1.0], np.float32)
"""A geom of this colour takes that of its material."""


@dataclasses.dataclass(frozen=True)
class Viewer:
    """Gathers views of one model. Geoms whose alpha is 0 when it is made are left out for good."""

    model: Any
    geoms: Int[np.ndarray, " geom"]
    """Which of the model's geoms are drawn, in the scene's order."""
    materials: Int[np.ndarray, " geom"]
    """The material of each; -1 for none."""

    def view(self, data: Any, camera: int | str) -> View:
        """What this camera sees now. Positions must be up to date (mj_forward, mj_camlight)."""
        number = self.model.camera(camera).id
        return View(
            positions=data.geom_xpos[self.geoms].astype(np.float32),
            rotations=data.geom_xmat[self.geoms].reshape(-1, 3, 3).astype(np.float32),
            colours=_colours(self.model, self.geoms, self.materials),
            camera_position=data.cam_xpos[number].astype(np.float32),
            camera_rotation=data.cam_xmat[number].reshape(3, 3).astype(np.float32),
            fovy=np.asarray(self.model.cam_fovy[number], np.float32),
        )


def viewer_of(model: Any) -> Viewer:
    """The viewer whose views go with `scene_of(model)`."""
    shown = np.flatnonzero((model.geom_type != PLANE) & (model.geom_group <= LAST_SHOWN_GROUP))
    shown = shown[_colours(model, shown, model.geom_matid[shown])[:, 3] > 0.0]
    unknown = sorted({int(number) for number in model.geom_type[shown]} - set(SHAPES))
    if unknown:
        raise ValueError(f"geoms of MuJoCo's types {unknown} cannot be drawn; only {', '.join(SHAPES.values())} can")
    return Viewer(model, shown, model.geom_matid[shown])


def scene_of(model: Any) -> Scene:
    """The scene of a model: its geoms, its floor if it has one, its sky and its lights.

    *Deviation:* lights are white, fixed to the world and cast no shadow; a floor is level, centred at the origin and,
    if textured, a checker; all other geoms have MuJoCo's default gloss.
    """
    viewer = viewer_of(model)
    alpha = _colours(model, viewer.geoms, viewer.materials)[:, 3]
    planes = np.flatnonzero((model.geom_type == PLANE) & (model.geom_group <= LAST_SHOWN_GROUP))
    head = model.vis.headlight
    kind = model.light_type if hasattr(model, "light_type") else model.light_directional
    return Scene(
        kinds=tuple(SHAPES[int(number)] for number in model.geom_type[viewer.geoms]),
        sizes=model.geom_size[viewer.geoms].astype(np.float32),
        transparent=tuple(bool(value < 1.0) for value in alpha),
        floor=_floor(model, int(planes[0])) if len(planes) else None,
        sky=_sky(model),
        headlight=Headlight(*(_grey(part) * bool(head.active) for part in (head.ambient, head.diffuse, head.specular))),
        lights=tuple(
            _light(model, int(number), is_far=bool(kind[number] == DIRECTIONAL))
            for number in np.flatnonzero(model.light_active)
        ),
    )


def opengl_frame(
    model: Any, data: Any, camera: int | str, width: int, height: int
) -> UInt8[np.ndarray, "height width 3"]:
    """MuJoCo's own picture. Needs OpenGL: set MUJOCO_GL to egl or osmesa where there is no display."""
    import mujoco  # noqa: PLC0415

    with mujoco.Renderer(model, height, width) as renderer:
        renderer.update_scene(data, camera)
        return renderer.render().copy()


def _colours(model: Any, geoms: np.ndarray, materials: np.ndarray) -> Float[np.ndarray, "geom 4"]:
    colours = model.geom_rgba[geoms].astype(np.float32)
    takes = (materials >= 0) & np.all(colours == UNSET[None], axis=1)
    colours[takes] = model.mat_rgba[materials[takes]]
    return colours


def _floor(model: Any, plane: int) -> Floor:
    half = float(model.geom_size[plane, 0]) or 1e3
    height, material = float(model.geom_pos[plane, 2]), int(model.geom_matid[plane])
    # Before MuJoCo 3.2 a material has one texture, later one for each role.
    textures = np.ravel(model.mat_texid[material]) if material >= 0 else np.asarray([-1])
    texture = int(textures[min(RGB, len(textures) - 1)])
    if texture < 0:
        tone = _three(_colours(model, np.asarray([plane]), np.asarray([material]))[0])
        return Floor(height, half, square=half, colours=(tone, tone), texels=2, reflectance=0.0)
    texels = _texels(model, texture)
    repeat = float(model.mat_texrepeat[material, 0])
    # Half the repeats per unit of length, or per half side of the plane.
    period = 2.0 / repeat * (1.0 if model.mat_texuniform[material] else half)
    middle = texels.shape[1] // 2
    colours = (_tone(texels[2:4, middle + 2 : middle + 4]), _tone(texels[2:4, 2:4]))
    reflectance = float(model.mat_reflectance[material])
    return Floor(height, half, period / 2.0, colours, texels.shape[1], reflectance)


def _sky(model: Any) -> Sky:
    """The gradient that goes through the texels in the middle of the cube's upper and lower face.

    These are not quite at the zenith and the nadir. Texels are truncated: half a step is lost.
    """
    skies = np.flatnonzero(model.tex_type == SKYBOX)
    if not len(skies):
        return Sky((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    texels = _texels(model, int(skies[0]))
    side = texels.shape[1]
    middle = slice(side // 2 - 1, side // 2 + 1)
    up, down = (_tone(texels[face * side : (face + 1) * side][middle, middle], lost=0.5) for face in (2, 3))
    elevation = 1.0 - np.arctan(np.sqrt(2.0) / side) / (0.5 * np.pi)
    lack = 0.5 - elevation / np.sqrt(2.0 + 2.0 * elevation**2)
    beyond = lack / (1.0 - 2.0 * lack) * (np.asarray(up) - np.asarray(down))
    return Sky(_three(np.clip(up + beyond, 0.0, 1.0)), _three(np.clip(down - beyond, 0.0, 1.0)))


def _light(model: Any, number: int, *, is_far: bool) -> Light:
    direction = model.light_dir[number] / np.linalg.norm(model.light_dir[number])
    return Light(
        direction=_three(direction),
        position=None if is_far else _three(model.light_pos[number]),
        ambient=_grey(model.light_ambient[number]),
        diffuse=_grey(model.light_diffuse[number]),
        specular=_grey(model.light_specular[number]),
        exponent=0.0 if is_far else float(model.light_exponent[number]),
        cutoff=180.0 if is_far else float(model.light_cutoff[number]),
    )


def _texels(model: Any, texture: int) -> UInt8[np.ndarray, "row column channel"]:
    shape = (int(model.tex_height[texture]), int(model.tex_width[texture]), int(model.tex_nchannel[texture]))
    start = int(model.tex_adr[texture])
    return model.tex_data[start : start + int(np.prod(shape))].reshape(shape)


def _tone(patch: np.ndarray, lost: float = 0.0) -> Colour:
    """The colour of most of the patch: a few marks do not count."""
    return _three((np.median(patch.reshape(-1, patch.shape[-1])[:, :3], axis=0) + lost) / 255.0)


def _three(vector: np.ndarray) -> Colour:
    return float(vector[0]), float(vector[1]), float(vector[2])


def _grey(colour: np.ndarray) -> float:
    return float(np.mean(colour))
