"""The canary: a candidate acts in few environments first, and its own episodes decide what becomes of it.

A candidate passes through the stages, one deployment each, as long as no episode speaks against it: none over a budget,
none taken over by the governor, none of a cost that is not known. After the last stage it is certified, and acts in all
environments in which no candidate does. At the first episode against it, it is recalled.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from actsafe.agents.safe_set.archive import Counts
from actsafe.agents.safe_set.settings import CanarySettings

SEED, CERTIFIED, CANDIDATE = 0, 1, 2
"""Levels of who acts. A fallback is a level lower."""
LEVELS = ("seed", "certified", "candidate")
NONE = -1
"""The stage where no candidate is under way."""


def num_environments(settings: CanarySettings, stage: int, num_envs: int) -> int:
    """In how many environments a candidate acts at a stage."""
    return max(1, round(settings.stages[stage] * num_envs)) if settings.is_on else num_envs


def assigned(
    settings: CanarySettings, stages: Int[np.ndarray, " seed"], has_certified: Bool[np.ndarray, " seed"], num_envs: int
) -> Int[np.ndarray, "seed environment"]:
    """The level that acts in every environment: the candidate in the last ones, what is certified in the others."""
    levels = np.where(has_certified, CERTIFIED, SEED)[:, None].repeat(num_envs, axis=1)
    for seed, stage in enumerate(stages):
        if stage != NONE:
            levels[seed, num_envs - num_environments(settings, int(stage), num_envs) :] = CANDIDATE
    return levels


class Verdict(NamedTuple):
    """What a deployment decides about a candidate."""

    stage: Int[Array, ""]
    """The next one, or none."""
    is_certified: Bool[Array, ""]
    is_recalled: Bool[Array, ""]


def judged(settings: CanarySettings, stage: Int[Array, ""], new: Counts) -> Verdict:
    """The verdict on a candidate after the episodes of a deployment at this stage."""
    is_against = (new.over > 0) | (new.taken_over > 0) | ~jnp.all(jnp.isfinite(new.cost))
    is_under_way = stage != NONE
    is_recalled = is_under_way & is_against
    goes_on = is_under_way & ~is_against & (new.ended > 0)
    following = jnp.where(goes_on, stage + 1, stage)
    is_certified = goes_on & (following >= (len(settings.stages) if settings.is_on else 1))
    return Verdict(jnp.where(is_certified | is_recalled, NONE, following), is_certified, is_recalled)
