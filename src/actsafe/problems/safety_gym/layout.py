"""Where things go: positions with keep-outs at reset, and a new goal whenever one has been reached."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.float64]
"""Planar positions (object, 2)."""

MAX_LAYOUTS = 1000
"""Layouts tried before giving up; the tasks as they are need 1 to about 20."""
GOAL_GROWTH = 1.01
"""Factor on the goal's box after every draw that was refused."""

_BLOCKS = (16, 112, 872)
"""Draws of one object, together 1000. They are made in blocks: most objects fit at the first few."""
_GOAL_BLOCK, _MAX_GOAL_DRAWS = 32, 1024


class Spot(NamedTuple):
    """Where one object may go."""

    name: str
    extent: float
    """The object and its keep-out stay within +-extent."""
    keepout: float


class LayoutError(ValueError):
    """Objects do not fit into the extents they were given."""


def place(spots: Sequence[Spot], margin: float, generator: np.random.Generator) -> Positions:
    """Positions of all spots, drawn one after the other.

    Uniform in each spot's own box, at least the two keep-outs and `margin` apart. When an object fits nowhere the
    whole layout is drawn again. *Deviation:* the boxes do not grow when that goes on; it is an error.
    """
    widest = max(spot.extent for spot in spots)
    # Keep-outs are disjoint discs within the widest box; when they have more area than it, no draw can help.
    num_tries = 0 if np.pi * sum(spot.keepout**2 for spot in spots) > (2.0 * widest) ** 2 else MAX_LAYOUTS
    for _ in range(num_tries):
        positions = np.empty((len(spots), 2))
        if all(_place_next(spots, number, margin, positions, generator) for number in range(len(spots))):
            return positions
    raise LayoutError(
        f"layout: {len(spots)} objects, the robot included, found no place in {num_tries} tries; the widest box is "
        f"+-{widest:g}. Ask for fewer objects or a larger extent."
    )


def _place_next(
    spots: Sequence[Spot], number: int, margin: float, positions: Positions, generator: np.random.Generator
) -> bool:
    """Whether spot `number` fits beside those before it; its row of `positions` is then filled in."""
    _, extent, keepout = spots[number]
    half = extent - keepout
    apart = np.array([spot.keepout for spot in spots[:number]]) + (keepout + margin)
    for size in _BLOCKS:
        chosen = _first_clear(generator.uniform(-half, half, (size, 2)), positions[:number], apart)
        if chosen is not None:
            positions[number] = chosen
            return True
    return False


def draw_goal(
    spot: Spot, others: Positions, their_keepouts: npt.NDArray[np.float64], generator: np.random.Generator
) -> tuple[float, float]:
    """A position for the goal that keeps clear of all others where they are now. No margin is added here.

    Draw k (from 0) is uniform within +-(1.01^k extent - keepout). So a crowded middle sends the goal outwards: about
    36 % of GotoGoal's goals lie beyond the box they started from.
    """
    apart = their_keepouts + spot.keepout
    for first in range(0, _MAX_GOAL_DRAWS, _GOAL_BLOCK):
        halves = spot.extent * GOAL_GROWTH ** np.arange(first, first + _GOAL_BLOCK) - spot.keepout
        candidates = generator.uniform(-1.0, 1.0, (_GOAL_BLOCK, 2)) * halves[:, None]
        chosen = _first_clear(candidates, others, apart)
        if chosen is not None:
            return float(chosen[0]), float(chosen[1])
    raise LayoutError(
        f"{spot.name}: no free place in {_MAX_GOAL_DRAWS} draws from a growing box that began at +-{spot.extent:g}; "
        "ask for fewer objects."
    )


def _first_clear(
    candidates: Positions, others: Positions, apart: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64] | None:
    """The first candidate at least `apart` from each of the others, or None."""
    away = candidates[:, None, :] - others[None, :, :]
    is_clear = np.all(away[..., 0] ** 2 + away[..., 1] ** 2 >= apart**2, axis=1)
    first = int(np.argmax(is_clear))
    return candidates[first] if is_clear[first] else None
