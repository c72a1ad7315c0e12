"""Frames of many MuJoCo simulations of one kind, in one call."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, UInt8

from actsafe.envs.sharing import Sharing
from actsafe.problems.checking import known
from actsafe.render.mujoco import opengl_frame, scene_of, viewer_of
from actsafe.render.raycast import SAMPLES, render_batch
from actsafe.render.scene import View

RENDERERS = ("raycast", "mujoco")

Frames = npt.NDArray[np.uint8]


class Camera:
    """One of a model's cameras, in as many simulations as there are."""

    def __init__(self, model: Any, name: str, size: int, num_samples: int, renderer: str, num_threads: int = 1):
        """`model` is any of the simulations' models: they differ in poses and colours alone.

        On a CPU a compiled call draws its frames one after the other, so that `num_threads` calls share the work.
        """
        if num_samples not in SAMPLES:
            raise ValueError(f"num_samples: got {num_samples!r}, expected one of {list(SAMPLES)}; leave it out for 4.")
        self._renderer = known("renderer", renderer, RENDERERS)
        self._name, self._size, self._num_samples = name, size, num_samples
        self._scene = scene_of(model)
        self._viewer = viewer_of(model)
        self._camera = model.camera(name).id
        self._sharing = Sharing(num_threads if jax.default_backend() == "cpu" else 1, "camera")

    def frames(self, simulations: Sequence[Any]) -> Frames:
        """What the camera sees in every simulation (simulation, row, column, channel), in fresh memory."""
        if self._renderer == "mujoco":
            size = self._size
            return np.stack([opengl_frame(each.model, each.data, self._name, size, size) for each in simulations])
        return self._sharing(lambda views: np.array(self.draw(views)), self.views(simulations))

    def views(self, simulations: Sequence[Any]) -> View:
        """What `draw` needs of every simulation."""
        viewers = [dataclasses.replace(self._viewer, model=each.model) for each in simulations]
        seen = [viewer.view(each.data, self._camera) for viewer, each in zip(viewers, simulations, strict=True)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *seen)

    def draw(self, views: View) -> UInt8[Array, "view row column 3"]:
        """Frames of these views. Pure."""
        return render_batch(self._scene, views, width=self._size, height=self._size, samples=self._num_samples)

    def close(self) -> None:
        self._sharing.close()
