"""When the task's policy may act in place of the one that explores."""

from collections.abc import Mapping

import numpy as np

from actsafe.agents.recipes import Policy
from actsafe.agents.vision import VisionAgent

AT_THE_BOUNDARY = 0.25
"""Of a budget. Steps go back and forth across the boundary, so that a mean over many may lie a little beyond it."""


def may_take_over(agent: VisionAgent, learned: Mapping[str, float | None]) -> bool:
    """Whether the task's policy may act in place of the exploration's, going by what an epoch's updates reported.

    It may where it keeps to its budgets in its own dreams, and where the exploration's policy would break them as
    badly. What is not known, or not finite, is as bad as can be. Who keeps to no budget, or does not explore, has
    nothing to wait for.
    """
    if not (agent.recipe.is_constrained and agent.recipe.explores):
        return True
    task, exploration = (_least_margin(agent, policy, learned) for policy in (Policy.TASK, Policy.EXPLORATION))
    return task > -AT_THE_BOUNDARY or task >= exploration


def _least_margin(agent: VisionAgent, policy: Policy, learned: Mapping[str, float | None]) -> float:
    """Of all constraints, what the policy's dreams left of the planner's budget, as a share of it."""
    shares = []
    for number, budget in enumerate(agent.planner_budgets):
        margin = learned.get(f"{policy.value}/margin_{number}")
        shares.append(-np.inf if margin is None or not np.isfinite(margin) else margin / max(budget, 1e-9))
    return min(shares, default=np.inf)
