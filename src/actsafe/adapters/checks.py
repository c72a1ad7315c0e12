"""What the adapters accept, and what they say where they do not."""

import difflib
import math
import numbers
from collections.abc import Iterable
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


def known(kind: str, name: str, names: Iterable[str]) -> str:
    """`name`, or ValueError that names the nearest known one."""
    choices = list(names)
    if name in choices:
        return name
    nearest = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.0)
    advice = f"did you mean {nearest[0]!r}?" if nearest else "leave it out."
    raise ValueError(f"{kind}: got {name!r}, expected one of {choices}; {advice}")


def checked_number(name: str, value: Any, *, at_least: float = -math.inf, is_whole: bool = False) -> Any:
    """`value` as a Python number (None stays None), or ValueError where it is outside its range."""
    if value is None:
        return None
    kind = numbers.Integral if is_whole else numbers.Real
    is_number = issubclass(type(value), kind) and type(value) is not bool
    if not (is_number and at_least <= float(value) < math.inf):
        expected = "a whole number" if is_whole else "a finite number"
        expected += "" if at_least == -math.inf else f" of at least {at_least:g}"
        raise ValueError(f"{name}: got {value!r}, expected {expected}; change it or leave it out for the default.")
    return int(value) if is_whole else float(value)
