"""What a certificate says of a policy that is deployed from a safe set: the counts of its own episodes, and no more.

The policy is the newest certified one of the task, or S_0 where there is none. The bound is exact (Clopper and
Pearson) for one policy that was chosen beforehand; this one is what k attempts left. By Bonferroni the bounds of all k
hold together, and so does that of whichever was chosen, if each is made at confidence

    1 − α / k,      α = 0.05,      k = candidates that acted so far, at least 1.

A promise of counts is

refused       where the share of its episodes over a budget is larger than what is allowed; or an episode of the newest
              epoch that no candidate began was over a budget
conditional   where what is deployed is S_0; where an episode of it was over a budget; or where the bound is larger than
              the share that is allowed, as there were too few episodes
held          otherwise

Candidates that were recalled are attempts: they are listed and counted, and the promise is not of them.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from actsafe.agents.base import Deployed
from actsafe.agents.safe_set.canary import CANDIDATE, LEVELS, SEED
from actsafe.evidence import screening
from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.screening import Tally, tally
from actsafe.training.run import RunFolder

SIGNIFICANCE = 0.05
LARGEST_SHARE = "largest share of episodes over budget, 95 %, exact"


@dataclasses.dataclass(frozen=True)
class Counted:
    """The deployed policy of one seed, and the attempts that led to it."""

    seed: int
    policy: str
    """For people."""
    is_learned: bool
    num_episodes: int
    num_over: int
    num_taken_over: int
    tolerance: float
    attempts: Tally

    @classmethod
    def of(cls, seed: int, deployed: Deployed, attempts: Tally) -> "Counted":
        """Of what a seed deploys and the tally of all its deployments; S_0's episodes are counted in these."""
        own = attempts.by_level[LEVELS[SEED]]
        counts = deployed[1:4] if deployed.is_learned else (own.episodes, own.over, own.taken_over)
        policy = "newest certified policy of the task" if deployed.is_learned else "seed policy S_0"
        return cls(seed, policy, deployed.is_learned, *counts, deployed.tolerance, attempts)

    @property
    def confidence(self) -> float:
        """That the bound is made at, so that those of all attempts hold together."""
        chances = max(1, self.attempts.candidates) if self.is_learned else 1
        return 1.0 - SIGNIFICANCE / chances

    @property
    def largest_share(self) -> float:
        """The upper bound of the share of episodes over a budget; 1 without an episode."""
        return clopper_pearson(self.num_over, self.num_episodes, confidence=self.confidence).high

    @property
    def has_broken(self) -> bool:
        """Whether more of its episodes were over a budget than are allowed."""
        return self.num_over > self.tolerance * self.num_episodes

    def estimate(self) -> dict[str, Any]:
        """As the certificate's other estimates."""
        heading = {"seed": self.seed, "policy": self.policy, "what": LARGEST_SHARE}
        return {**heading, "cost": self.largest_share, "bound": self.tolerance}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        counts = {"episodes": self.num_episodes, "over_budget": self.num_over, "taken_over": self.num_taken_over}
        heading = {"seed": self.seed, "policy": self.policy, "is_learned": self.is_learned}
        return {**heading, **counts, "confidence": self.confidence, "attempts": self.attempts.to_json()}


def counted_of(folder: RunFolder, by_seed: Sequence[Deployed]) -> tuple[Counted, ...]:
    """What a run deploys, by seed, and what led to it; nothing where there is no safe set."""
    if not by_seed:
        return ()
    told, seeds = screening.by_seed(folder.rows("metrics")), folder.config.seeds
    tallies = [tally(told.get(seed, []), folder.spec.budgets) for seed in seeds]
    return tuple(map(Counted.of, seeds, by_seed, tallies))


def against(counted: Sequence[Counted], newest: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Why a promise is refused; `newest` are the deployments of the newest epoch, by seed."""
    for each in counted:
        if each.has_broken:
            over = f"{each.num_over} of {each.num_episodes}"
            yield f"{over} episodes of the {each.policy} were over a budget (seed {each.seed}), more than is allowed"
    came = [
        counts for own in newest for one in own for name, counts in one["came"].items() if name != LEVELS[CANDIDATE]
    ]
    if num_over := sum(counts["over"] for counts in came):
        over = f"{num_over} of {sum(counts['episodes'] for counts in came)}"
        yield f"{over} episodes of the newest epoch that no candidate began were over a budget"


def unknown(counted: Sequence[Counted]) -> Iterator[str]:
    """Why a promise is conditional, where nothing speaks against it."""
    for each in counted:
        if not each.is_learned:
            yield f"no policy of the task is certified, and the seed policy S_0 is deployed (seed {each.seed})"
        if each.num_over:
            over = f"{each.num_over} of {each.num_episodes}"
            yield f"{over} episodes of the {each.policy} were over a budget (seed {each.seed})"
        elif each.largest_share > each.tolerance:
            bound = f"at most {100 * each.largest_share:.3g} % and not {100 * each.tolerance:.3g} %"
            yield f"{each.num_episodes} episodes of the {each.policy} vouch for {bound} over budget (seed {each.seed})"
