"""What an epoch leaves in the run folder: a line for metrics.jsonl per seed, and the safety ledger's lines."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.agents.base import Agent
from actsafe.agents.phases import Phase
from actsafe.evidence.ledger import LedgerRow, is_over, ledger_rows
from actsafe.training.config import Config
from actsafe.training.episodes import EpisodeOutcome, mean_of_known
from actsafe.training.loop import Epoch


def metrics_rows(epoch: Epoch, agent: Agent, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row per seed: who acted, means over the episodes that ended, evaluations by task, and what was learned."""
    return [
        {
            **_heading(epoch, seed),
            "steps": int(epoch.train_state.num_steps),
            "updates": int(epoch.train_state.num_updates),
            **_means(epoch.episodes[place] if epoch.episodes else [], agent.spec.cost_names, agent.spec.task),
            "evaluation": {task: evaluation(found[place], agent, task) for task, found in epoch.evaluations.items()},
            "learning": epoch.learned[place],
            "deployments": epoch.deployments[place] if epoch.deployments else [],
        }
        for place, seed in enumerate(seeds)
    ]


def ledger_of(epoch: Epoch, agent: Agent, seeds: Sequence[int]) -> list[LedgerRow]:
    """A row per seed and constraint."""
    rows = []
    for place, seed in enumerate(seeds):
        outcomes = epoch.episodes[place] if epoch.episodes else []
        decided = [outcome.predicted_cost for outcome in outcomes if outcome.predicted_cost is not None]
        largest = max(decided, default=None)
        largest = None if largest is None or not np.isfinite(largest) else largest
        constraints = agent.predicted(epoch.role, epoch.learned[place], largest)
        rows += ledger_rows(_heading(epoch, seed), outcomes, constraints, is_certifying=agent.is_certifying)
    return rows


def _heading(epoch: Epoch, seed: int) -> dict[str, Any]:
    return {"epoch": epoch.number, "seed": seed, "phase": epoch.phase.value, "role": epoch.role.value}


def _means(outcomes: Sequence[EpisodeOutcome], cost_names: Sequence[str], task: str) -> dict[str, Any]:
    """Means over episodes that ended, None where none did; counts are over all."""
    ended = [outcome for outcome in outcomes if outcome.is_ended]
    returns = {
        name: mean_of_known(outcome.returns[name] for outcome in ended) for name in (ended[0].returns if ended else ())
    }
    inner_costs = [outcome.inner_cost for outcome in outcomes if outcome.inner_cost is not None]
    return {
        "episodes": len(ended),
        "return": returns.get(task),
        "returns": returns,
        "costs": _costs(ended, cost_names),
        "inner_cost": max(inner_costs, default=None),
        "value": mean_of_known(outcome.value for outcome in outcomes),
    }


def evaluation(outcomes: Sequence[EpisodeOutcome], agent: Agent, task: str) -> dict[str, Any]:
    """Of one task's episodes."""
    spec = agent.spec
    goals = [outcome.is_goal for outcome in outcomes if outcome.is_goal is not None]
    over = [any(map(is_over, outcome.costs, spec.budgets)) for outcome in outcomes]
    return {
        "episodes": len(outcomes),
        "return": mean_of_known(outcome.returns[task] for outcome in outcomes),
        "costs": _costs(outcomes, spec.cost_names),
        "over": sum(over),
        "goals": sum(goals) if goals else None,
        "fallbacks": sum(outcome.num_fallbacks for outcome in outcomes),
        "uncertified": sum(outcome.num_uncertified for outcome in outcomes) if agent.is_certifying else None,
    }


def described(rows: Sequence[Mapping[str, Any]], config: Config) -> str:
    """What an epoch came to, in a few words; its metrics, one row per seed."""
    parts = [Phase(rows[0]["phase"]).label]
    returns = [row["return"] for row in rows if row["return"] is not None]
    if returns:
        parts.append(f"return {np.mean(returns):.3g}")
        ended = [row["costs"] for row in rows if row["episodes"]]
        parts += [f"{name} {max(float(costs[name]) for costs in ended):.3g}" for name in ended[0]]
    if "timing" in rows[0] and config.agent.replay_rows:
        parts.append(f"{rows[0]['timing']['updates_per_second']:.3g} updates/s")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """`seconds` for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole / 86400:.0f} days"


def _costs(outcomes: Sequence[EpisodeOutcome], cost_names: Sequence[str]) -> Mapping[str, float | None]:
    return {name: mean_of_known(float(outcome.costs[n]) for outcome in outcomes) for n, name in enumerate(cost_names)}
