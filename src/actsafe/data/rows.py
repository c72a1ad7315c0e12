"""What an environment has at each tick, and what is refused before it is kept."""

import itertools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Shaped


class Rows(NamedTuple):
    """One row for every environment and tick: where it arrived, and what it received on the way.

    A batch to learn from has the leading axes (batch, time), a block to keep (environment, time).
    """

    observation: Shaped[Array | np.ndarray, "*lead_and_observation"]
    """uint8 pixels (height, width, 3), or float32 vectors."""
    action: Float[Array | np.ndarray, "*lead action"]
    """What led here."""
    reward: Float[Array | np.ndarray, "*lead"]
    costs: Float[Array | np.ndarray, "*lead constraint"]
    is_first: Bool[Array | np.ndarray, "*lead"]
    """The observation begins an episode: nothing led here, so that action, reward and costs are 0."""


def episode_spans(is_first: np.ndarray) -> list[slice]:
    """Where episodes are among the rows of an environment; a row by itself is none."""
    edges = [*np.flatnonzero(is_first).tolist(), len(is_first)]
    return [slice(start, end) for start, end in itertools.pairwise(edges) if end - start > 1]


class RowLayout(NamedTuple):
    """How many rows are to be kept, and of what."""

    num_envs: int
    capacity: int
    """Rows of every environment."""
    observation_shape: tuple[int, ...]
    observation_dtype: Any
    action_dim: int
    num_constraints: int

    def zeros(self, module: Any) -> Rows:
        """Rows of zeros (environment, capacity) in arrays of `module`, which is numpy or jax.numpy."""
        for name, size in (("num_envs", self.num_envs), ("capacity", self.capacity)):
            if size < 1:
                raise ValueError(f"{name}: got {size}, expected at least 1; change it.")
        lead = (self.num_envs, self.capacity)
        return Rows(
            observation=module.zeros((*lead, *self.observation_shape), self.observation_dtype),
            action=module.zeros((*lead, self.action_dim), np.float32),
            reward=module.zeros(lead, np.float32),
            costs=module.zeros((*lead, self.num_constraints), np.float32),
            is_first=module.zeros(lead, np.bool_),
        )

    @property
    def nbytes(self) -> int:
        """The memory that these rows take."""
        one_row = self._replace(num_envs=1, capacity=1).zeros(np)
        return self.num_envs * self.capacity * sum(field.nbytes for field in one_row)


def require_sound(rows: Rows, where: str) -> None:
    """Raise ValueError unless a block (environment, time) is made of rows that one may learn from.

    To be called on the host before the block is kept. `where` begins the message, which names the first environment and
    the tick within the block. Pixels of bytes are always finite and are not fetched from the device.
    """
    lead = np.shape(rows.reward)
    if len(lead) != 2:
        raise ValueError(f"{where}: reward has shape {lead}, expected (environment, time); give a block of rows.")
    num_axes = {"observation": None, "action": 3, "costs": 3, "is_first": 2}
    for name, expected in num_axes.items():
        shape = np.shape(getattr(rows, name))
        if shape[:2] != lead or expected not in (None, len(shape)):
            raise ValueError(
                f"{where}: {name} has shape {shape}, but reward has {lead}; expected the same environments and ticks."
            )
    for name, words in (("observation", "observation"), ("action", "action"), ("reward", "reward"), ("costs", "cost")):
        values = getattr(rows, name)
        if np.issubdtype(values.dtype, np.floating):
            values = np.asarray(values)
            _refuse(~np.isfinite(values), values, f"{where}: the {words}", "a finite number")
    costs = np.asarray(rows.costs)
    _refuse(costs < 0.0, costs, f"{where}: the cost", "at least 0")


def _refuse(is_wrong: np.ndarray, values: np.ndarray, what: str, expected: str) -> None:
    """Raise ValueError about the first of the wrong values (environment, time, ...), if there are any."""
    if not np.any(is_wrong):
        return
    environment, tick, *place = np.argwhere(is_wrong)[0].tolist()
    value = values[environment, tick][tuple(place)]
    entry = f" (entry {', '.join(map(str, place))})" if place else ""
    raise ValueError(
        f"{what} of environment {environment} at tick {tick}{entry} is {value}, expected {expected}. Nothing of this "
        "block was kept: look into the environment, not into the learner."
    )


def require_fitting(stores: Rows, rows: Rows) -> None:
    """Raise ValueError unless a block fits into the arrays of a replay."""
    num_envs, capacity = stores.reward.shape
    for name, store, field in zip(Rows._fields, stores, rows, strict=True):
        shape = np.shape(field)
        if shape != (num_envs, *rows.reward.shape[1:2], *store.shape[2:]):
            expected = ", ".join(("time", *map(str, store.shape[2:])))
            raise ValueError(
                f"replay: {name} of the rows has shape {shape}, expected ({num_envs}, {expected}); append blocks "
                "(environment, time) of the environments that the replay was made for."
            )
        # Numbers may lose digits, but must not become bytes.
        if not np.can_cast(field.dtype, store.dtype, "same_kind"):
            raise ValueError(f"replay: {name} of the rows is {field.dtype}, expected {store.dtype}; convert it.")
    if rows.reward.shape[1] > capacity:
        raise ValueError(
            f"replay: got {rows.reward.shape[1]} ticks, expected at most {capacity}, which is its capacity; enlarge it."
        )
