"""What many runs of the idealised algorithm say of the theorem, counted and nothing else."""

import dataclasses
from typing import Any

import numpy as np

from actsafe.theory.confidence import confidence_multiplier
from actsafe.theory.idealised import Run, TheoremSettings
from actsafe.theory.information_gain import worst_case_information_gain
from actsafe.theory.sample_complexity import Difficulty, required_episodes
from actsafe.theory.small_world import REWARD_BOUND, World


@dataclasses.dataclass(frozen=True)
class Tally:
    """In how many of `runs` independent draws of system and noise something was the case."""

    runs: int
    violating_runs: int
    """A policy deployed, or the final one, truly costs more than the budget (or the grid cannot tell)."""
    shrinking_runs: int
    """A policy was in S_n and later not."""
    runs_with_seed: int
    """S_n contains S_0 in the end."""
    runs_with_reachable_set: int
    """S_n contains R^epsilon_H(S_0) in the end."""
    epsilon_optimal_runs: int
    """The final policy is within epsilon of the best of R^epsilon_H(S_0)."""
    finished_runs: int
    """Expansion ended because S_n was known to epsilon, not because of the limit on episodes."""
    calibrated_runs: int
    """The truth was in every M_n."""
    runs_with_valid_distance: int
    """No two true costs certainly differ by more than D."""

    @classmethod
    def count(cls, runs: Run, epsilon: float) -> "Tally":
        """The tally of runs stacked along a leading axis. What is not a number is a failure."""
        progress = runs.progress
        return cls(
            runs=len(runs.final),
            violating_runs=int(np.sum(runs.is_violating)),
            shrinking_runs=int(np.sum(progress.has_shrunk)),
            runs_with_seed=int(np.sum(runs.contains_seed)),
            runs_with_reachable_set=int(np.sum(runs.contains_reachable)),
            epsilon_optimal_runs=int(np.sum(np.asarray(runs.reward_gap) <= epsilon)),
            finished_runs=int(np.sum(progress.is_done)),
            calibrated_runs=int(np.sum(progress.is_calibrated)),
            runs_with_valid_distance=int(np.sum(runs.is_distance_valid)),
        )

    def failures(self, delta: float) -> list[str]:
        """What contradicts the theorem, in words; nothing if nothing does.

        Its statements hold together with probability 1 - delta: up to that share of the runs may break each of them.
        That the safe set neither shrinks nor loses S_0 is so by its definition, in every run.
        """
        num, allowed = self.runs, delta * self.runs
        broken = (
            (self.violating_runs, allowed, "a policy was deployed that breaks the budget"),
            (self.shrinking_runs, 0, "the safe set shrank"),
            (num - self.runs_with_seed, 0, "the safe set lost S_0"),
            (num - self.runs_with_reachable_set, allowed, "the safe set lacks some of the reachable set"),
            (num - self.epsilon_optimal_runs, allowed, "the final policy is not epsilon-optimal"),
            (num - self.finished_runs, allowed, "expansion did not end within the limit on episodes"),
        )
        return [f"{what} in {count} of {num} runs" for count, most, what in broken if count > most]


def sizes(runs: Run, world: World) -> dict[str, Any]:
    """Medians over the runs of how much of the policy class is what, and of how long expansion took."""

    def share(is_member: Any) -> float:
        return round(float(np.median(np.mean(np.asarray(is_member), axis=tuple(range(1, np.ndim(is_member)))))), 4)

    episodes = np.asarray(runs.progress.episode)
    reachable = np.asarray(runs.is_reachable)
    seed_size = int(np.sum(world.is_seed))
    beyond = reachable.reshape(len(reachable), -1).sum(axis=1) > seed_size
    return {
        "policies": int(np.size(world.is_seed)),
        "policies_in_seed": seed_size,
        "median_share_reachable": share(reachable),
        "median_share_in_safe_set": share(runs.progress.is_safe),
        "median_share_truly_safe": share(np.asarray(runs.truth.most_cost) <= world.settings.budget),
        "runs_with_reachable_set_beyond_seed": int(np.sum(beyond)),
        "episodes_least_median_most": [int(np.min(episodes)), float(np.median(episodes)), int(np.max(episodes))],
        "largest_reward_gap": float(np.max(runs.reward_gap)),
        "largest_grid_error": float(np.max(runs.truth.width)),
        "largest_deployed_cost": float(np.max(_deployed_costs(runs))),
    }


def _deployed_costs(runs: Run) -> np.ndarray:
    deployed = np.asarray(runs.progress.deployed)
    costs = np.asarray(runs.truth.most_cost).reshape(len(deployed), -1)
    return np.where(deployed >= 0, np.take_along_axis(costs, np.maximum(deployed, 0), axis=1), 0.0)


def bound_on_episodes(world: World, settings: TheoremSettings) -> float:
    """n* of Theorem 4.1 for this world, with the worst case of gamma_n for a kernel of its rank."""
    known = world.smoothness

    def gain(episodes: float) -> float:
        constants = {"kernel_bound": 1.0, "noise_std": known.noise_std, "rank": world.kernel.rank}
        return float(worst_case_information_gain(episodes * known.num_decisions, **constants))

    def multiplier(episodes: float) -> float:
        return float(confidence_multiplier(gain(episodes), delta=settings.delta, norm_bound=world.settings.norm_bound))

    difficulty = Difficulty(
        num_decisions=known.num_decisions,
        num_expansions=settings.num_expansions,
        epsilon=settings.epsilon,
        payoff_bound=max(known.cost_bound, REWARD_BOUND, 1.0),
        prior_std=1.0,
        noise_std=known.noise_std,
    )
    return required_episodes(difficulty, gain, multiplier)
