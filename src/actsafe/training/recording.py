"""What an epoch comes to: its episodes, a line for metrics.jsonl, and the safety ledger's lines."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from actsafe.agents.recipes import Policy
from actsafe.agents.vision import VisionAgent
from actsafe.training.collecting import Block


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one episode came to."""

    reward: float
    """Sum of its rewards."""
    costs: Float[np.ndarray, " constraint"]
    """Sum of each cost."""
    is_ended: bool = True


class Tally:
    """The outcomes of episodes of all environments, added up as blocks come in."""

    def __init__(self, num_envs: int, num_constraints: int) -> None:
        self.ended: list[list[Outcome]] = [[] for _ in range(num_envs)]
        """By environment, in the order of time."""
        self._rewards = np.zeros(num_envs)
        self._costs = np.zeros((num_envs, num_constraints))
        self._is_under_way = np.zeros(num_envs, bool)

    def add(self, block: Block) -> None:
        """Take the rows of a block in, which follow those before."""
        for tick in range(block.reward.shape[1]):
            goes_on = ~block.is_first[:, tick]
            self._rewards = np.where(goes_on, self._rewards + block.reward[:, tick], 0.0)
            self._costs = np.where(goes_on[:, None], self._costs + block.costs[:, tick], 0.0)
            for number in np.flatnonzero(block.is_last[:, tick]):
                self.ended[number].append(self._outcome(number, is_ended=True))
            self._is_under_way = goes_on & ~block.is_last[:, tick]

    def outcomes(self) -> list[Outcome]:
        """All that have ended, and what those under way have come to so far."""
        under_way = [self._outcome(number, is_ended=False) for number in np.flatnonzero(self._is_under_way)]
        return [outcome for ended in self.ended for outcome in ended] + under_way

    def _outcome(self, number: int | np.intp, *, is_ended: bool) -> Outcome:
        return Outcome(float(self._rewards[number]), self._costs[number].copy(), is_ended)


def means(outcomes: Sequence[Outcome], cost_names: Sequence[str], prefix: str = "") -> dict[str, Any]:
    """Mean return and mean costs of the episodes that have ended, and how many these are; None where there is none."""
    ended = [outcome for outcome in outcomes if outcome.is_ended]
    costs = np.mean([outcome.costs for outcome in ended], axis=0) if ended else [None] * len(cost_names)
    return {
        f"{prefix}episodes": len(ended),
        f"{prefix}return": np.mean([outcome.reward for outcome in ended]) if ended else None,
        f"{prefix}costs": dict(zip(cost_names, costs, strict=True)),
    }


def constraint_columns(
    agent: VisionAgent, cost_names: Sequence[str], policy: Policy, learned: Mapping[str, float]
) -> list[dict[str, Any]]:
    """For each constraint, what the policy that acted was allowed and what its dreams said that it would cost.

    Predictions are averages over the epoch's updates: of the cost of an episode (the mean over dreamt decisions, times
    the decisions of an episode) without pessimism and with it, and of the pessimistic discounted cost return, which
    is what was held against the planner's budget. None where nothing was learned, or who acted was not dreaming.
    """
    length = agent.surroundings.num_decisions
    columns = []
    for number, (name, budget, planned) in enumerate(
        zip(cost_names, agent.surroundings.budgets, agent.planner_budgets, strict=True)
    ):
        cost, pessimistic, returned = (
            learned.get(f"{policy.value}/{entry}_{number}") for entry in ("cost", "pessimistic_cost", "cost_return")
        )
        columns.append(
            {
                "policy": policy.value,
                "constraint": name,
                "budget": budget,
                "planner_budget": planned,
                "predicted_cost": None if cost is None else cost * length,
                "predicted_pessimistic_cost": None if pessimistic is None else pessimistic * length,
                "predicted_pessimistic_cost_return": returned,
            }
        )
    return columns


def ledger_rows(
    heading: Mapping[str, Any], outcomes: Sequence[Outcome], constraints: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A row per constraint: what was allowed and predicted, which `constraints` say, and what was paid.

    Episodes that were cut off by the end of the epoch count towards the largest cost and the share over budget, as
    they may have broken it already, not towards the mean.
    """
    rows = []
    for index, constraint in enumerate(constraints):
        paid = np.array([outcome.costs[index] for outcome in outcomes])
        ended = np.array([outcome.costs[index] for outcome in outcomes if outcome.is_ended])
        rows.append(
            {
                **heading,
                **constraint,
                "num_episodes": len(outcomes),
                "realised_mean_cost": np.mean(ended) if ended.size else None,
                "realised_max_cost": np.max(paid) if paid.size else None,
                "share_over_budget": np.mean(~(paid <= constraint["budget"])) if paid.size else None,
            }
        )
    return rows
