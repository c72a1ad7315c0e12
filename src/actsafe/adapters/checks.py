"""What the adapters accept, and what they say where they do not."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt


def check_action(action: Any, space: gymnasium.Space) -> npt.NDArray[np.float64]:
    """`action` as numbers, clipped to [-1, 1], or ValueError before anything has changed."""
    advice = f"expected finite numbers in [-1, 1] of shape {space.shape}; env.action_space.sample() is an example."
    try:
        checked = np.asarray(action)
        if checked.dtype.kind not in "fiub":
            raise TypeError
        checked = checked.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"action: got {action!r}, which is not an array of real numbers; {advice}") from None
    if checked.shape != space.shape:
        raise ValueError(f"action: got shape {checked.shape}; {advice}")
    if not np.all(np.isfinite(checked)):
        raise ValueError(f"action: got {checked[~np.isfinite(checked)].tolist()} in {checked.tolist()}; {advice}")
    # Clipped here as well as in the problem: a finite number may overflow when JAX runs in float32.
    return np.clip(checked, -1.0, 1.0)


def refuse_options(options: dict[str, Any] | None) -> None:
    """Nothing, or ValueError: an option that is silently ignored would look as if it had been heard."""
    if options:
        raise ValueError(f"reset options: got {sorted(options)}, expected none; pass options to the constructor.")


def copy_seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """A seed for every copy: seed + i for a whole one, as they are in a list."""
    if seed is None or isinstance(seed, int):
        return [None if seed is None else seed + i for i in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"seed: got {len(seed)} seeds, expected {num_envs}, one for each copy, or one int.")
    return list(seed)
