"""Entries of a study's results file: flat, one per seed, with what a claim about a safe set rests on.

    runs         epochs after the warm-up, the late return, and episodes of the last policy, frozen
    deployments  of all runs, what the screen was worth

Values by constraint are numbers where there is one constraint, else by its name.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from actsafe.agents.phases import Phase
from actsafe.evidence.ledger import is_over
from actsafe.evidence.screening import calibration, tally
from actsafe.training.episodes import EpisodeOutcome, mean_of_known
from actsafe.training.results import deployments, entries, late
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer

HEADING = ("env", "task", "algorithm", "seed", "steps", "command", "settings", "machine", "wall_seconds")
PER_EPOCH = ("epoch", "steps", "phase", "role", "episodes", "mean_return", "fallback_episodes", "deployments")


def study_entries(folder: RunFolder, frozen: Sequence[Sequence[EpisodeOutcome]]) -> list[dict[str, Any]]:
    """An entry per seed of a run; `frozen` are episodes of its last policy by seed, as `frozen_episodes` makes them."""
    spec = folder.spec
    if len(frozen) != len(folder.config.seeds):
        raise ValueError(
            f"got frozen episodes of {len(frozen)} seeds; expected the {len(folder.config.seeds)} of {folder.path}"
        )
    found = []
    for run, outcomes in zip(entries(folder), frozen, strict=True):
        judged = [epoch for epoch in run["epochs"] if Phase(epoch["phase"]).is_judged]
        found.append(
            {
                **{name: run[name] for name in HEADING},
                "budget": _alone(run["budgets"]),
                "epochs": [
                    {
                        **{name: epoch[name] for name in PER_EPOCH},
                        **{name: _alone(epoch[name]) for name in ("episodes_over", "mean_cost", "max_cost")},
                    }
                    for epoch in judged
                ],
                "late_return": mean_of_known(epoch["mean_return"] for epoch in late(judged)) if judged else None,
                "frozen_episodes": len(outcomes),
                "frozen_over": sum(any(map(is_over, outcome.costs, spec.budgets)) for outcome in outcomes),
                "frozen_taken_over": sum(outcome.num_taken_over > 0 for outcome in outcomes),
                "frozen_return": mean_of_known(outcome.returns[spec.task] for outcome in outcomes),
                "deployed": tally(deployments(run), spec.budgets).to_json() if deployments(run) else None,
            }
        )
    return found


def frozen_episodes(folder: RunFolder, num_episodes: int) -> list[list[EpisodeOutcome]]:
    """By seed, fresh episodes of what a run would deploy now; nothing is learned from them."""
    trainer = Trainer(folder)
    with contextlib.closing(trainer.loop.envs):
        newest, state = trainer.newest()
        _, found = trainer.loop.evaluate(state, folder.spec.task, num_episodes, epoch=newest)
    return found


def screen_entry(runs: Sequence[Mapping[str, Any]], budgets: Sequence[float]) -> dict[str, Any]:
    """What the screen was worth in all these runs: entries of `study_entries` or of a results file."""
    told = [each for run in runs for each in deployments(run)]
    found, residuals = tally(told, budgets), [calibration(told, place) for place in range(len(budgets))]
    return {
        "deployments": found.canaries,
        **{name: getattr(found, name) for name in ("auroc", "passed", "passed_over", "screened", "refused")},
        "mean_residual": [each.mean_residual for each in residuals],
        "share_above": [each.share_above for each in residuals],
    }


def _alone(by_constraint: Mapping[str, Any]) -> Any:
    """The value of the only constraint; all by name where there are several."""
    return next(iter(by_constraint.values())) if len(by_constraint) == 1 else dict(by_constraint)
