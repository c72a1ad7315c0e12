"""Episodes as rollouts bring them: return, costs and what was said of decisions, by seed."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from actsafe.data.rows import episode_spans
from actsafe.envs.spec import EnvSpec
from actsafe.training.collecting import Block


@dataclasses.dataclass(frozen=True)
class EpisodeOutcome:
    """What one episode came to."""

    returns: Mapping[str, float]
    """Sum of rewards, by task."""
    costs: Float[np.ndarray, " constraint"]
    """Sum of each cost."""
    is_ended: bool
    """Else it was cut off by the end of the rollout."""
    is_goal: bool | None
    """Whether the problem's goal held at the end; None where there is no saying."""
    inner_cost: float | None
    """The largest cost at any simulator step, where the environment says."""
    num_decisions: int
    num_fallbacks: int
    num_uncertified: int
    num_taken_over: int
    """Decisions by another policy than the one that the episode began with; 0 where only one acts."""
    level: int | None
    """Of who acted at its beginning (`agents.safe_set.canary.LEVELS`); None where nobody asks."""
    predicted_cost: float | None
    """The largest pessimistic cost that was predicted of a decision; None where nothing was."""
    value: float | None
    """The mean of what decisions were expected to be worth."""


class Episodes:
    """Outcomes of the episodes of a rollout, whose blocks come one after the other."""

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec
        self._blocks: list[dict[str, np.ndarray]] = []

    def add(self, block: Block) -> None:
        """Take the rows of a block in, which follow those before."""
        kept = {"reward": block.reward, "costs": block.costs, "is_first": block.is_first, "is_last": block.is_last}
        if self._spec.problem is not None:
            kept["observation"] = np.asarray(block.observations())
        said = {f"decision/{name}": values for name, values in block.decisions.items()}
        self._blocks.append({**kept, **block.info, **said})

    @property
    def by_env(self) -> list[list[list[EpisodeOutcome]]]:
        """By seed and environment, in the order of time; the last of each may be under way."""
        if not self._blocks:
            return []
        names = self._blocks[0]
        parts = {name: [block[name] for block in self._blocks if name in block] for name in names}
        arrays = {name: np.concatenate(values, axis=2) for name, values in parts.items()}
        num_seeds, num_envs = arrays["reward"].shape[:2]
        return [
            [self._of({name: values[seed, env] for name, values in arrays.items()}) for env in range(num_envs)]
            for seed in range(num_seeds)
        ]

    def outcomes(self) -> list[list[EpisodeOutcome]]:
        """By seed: all that have ended, and what those under way have come to."""
        return [
            [each for each in _flat(envs) if each.is_ended] + [each for each in _flat(envs) if not each.is_ended]
            for envs in self.by_env
        ]

    def first(self, num_episodes: int) -> list[list[EpisodeOutcome]]:
        """By seed: `num_episodes` that have ended, taken from the environments in turn."""
        chosen = []
        for envs in self.by_env:
            ended = [[each for each in of_env if each.is_ended] for of_env in envs]
            per_env = -(-num_episodes // len(ended))
            chosen.append([own[n] for n in range(per_env) for own in ended if n < len(own)][:num_episodes])
        return chosen

    def _of(self, arrays: Mapping[str, np.ndarray]) -> list[EpisodeOutcome]:
        """The episodes of one environment."""
        found = episode_spans(arrays["is_first"])
        return [self._outcome({name: values[span] for name, values in arrays.items()}) for span in found]

    def _outcome(self, rows: Mapping[str, np.ndarray]) -> EpisodeOutcome:
        """Of one episode's rows, the first included. Nobody acts on the decision that follows the last."""
        spec, num_decisions = self._spec, len(rows["reward"]) - 1
        returns = {spec.task: float(np.sum(rows["reward"], dtype=float))}
        if "rewards" in rows:
            returns = dict(zip(spec.tasks, np.sum(rows["rewards"], axis=0, dtype=float).tolist(), strict=True))
        is_ended = bool(rows["is_last"][-1])
        prefix = "decision/"
        said = {name.removeprefix(prefix): rows[name][:num_decisions] for name in rows if name.startswith(prefix)}
        return EpisodeOutcome(
            returns,
            np.sum(rows["costs"], axis=0, dtype=float),
            is_ended,
            bool(spec.problem.is_goal(jnp.asarray(rows["observation"][-1]))) if is_ended and spec.problem else None,
            float(np.max(rows["inner_cost"])) if "inner_cost" in rows else None,
            num_decisions,
            int(np.sum(said["is_fallback"])) if said else 0,
            int(np.sum(~said["is_certified"])) if said else num_decisions,
            int(np.sum(said["level"] < said["level"][0])) if "level" in said else 0,
            int(said["level"][0]) if "level" in said else None,
            _largest(said["predicted_cost"]) if said else None,
            _mean(said["value"]) if said else None,
        )


def _flat(envs: list[list[EpisodeOutcome]]) -> list[EpisodeOutcome]:
    return [each for of_env in envs for each in of_env]


def _largest(values: np.ndarray) -> Any:
    known = values[~np.isnan(values)]
    return float(np.max(known)) if known.size else None


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _mean(values: np.ndarray) -> float | None:
    return None if np.any(np.isnan(values)) else float(np.mean(values))
