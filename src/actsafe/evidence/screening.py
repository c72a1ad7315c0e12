"""What came of deployments from a safe set: who acted, how often a budget was broken, and what the screen was worth.

A deployment is a dictionary, as a row of the metrics has it (`agents.safe_set.learner`). Those of one seed follow each
other in time; of several seeds the lists may be joined, one after the other.

A screen's score is held against what came of the candidate's own episodes,

    AUROC = P(score of a deployment that went wrong > score of one that did not), ties count half,

where a deployment went wrong if an episode was over a budget, or a fallback took one over. Candidates that a screen
refused never act, and nothing is known of them: the numbers are of those that it let pass, unless it is advisory.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from actsafe.agents.safe_set.canary import CANDIDATE, CERTIFIED, LEVELS, SEED
from actsafe.evidence.binomial import Interval, clopper_pearson

Deployment = Mapping[str, Any]
COUNTED = ("episodes", "over", "taken_over")
REFUSED, RECALLED, MADE_CERTIFIED = "refused by the screen", "recalled", "certified"
"""What a deployment says of its candidate."""


class Episodes(NamedTuple):
    """Counts of episodes."""

    episodes: int
    over: int
    """Over a budget, or of a cost that is not known."""
    taken_over: int
    """That a fallback took over."""

    @property
    def interval(self) -> Interval:
        """Exact bounds on the probability that an episode is over a budget (Clopper and Pearson, 95 %)."""
        return clopper_pearson(self.over, self.episodes)


class Trial(NamedTuple):
    """A deployment in which a candidate acted."""

    score: float
    """The largest of its scores by constraint, as a share of the budget; infinite where one is not known."""
    has_passed: bool
    """The screen, when the candidate was put forward."""
    went_wrong: bool


class Calibration(NamedTuple):
    """The screen's scores beside the mean costs of the episodes that followed, of one constraint."""

    pairs: tuple[tuple[float, float], ...]
    """Score and cost of every deployment of a candidate of which both are known."""
    mean_residual: float | None
    """Cost less score; None without pairs."""
    share_above: float | None
    """Of the costs, that are larger than their score."""


@dataclasses.dataclass(frozen=True)
class Tally:
    """What some deployments come to."""

    deployments: int
    screened: int
    """New candidates, of whom the screen was asked."""
    refused: int
    """Deployments before which the screen refused a candidate."""
    candidates: int
    """That acted: each of them was a chance to be certified by luck."""
    canaries: int
    """Deployments in which a candidate acted; of one candidate several, where it passes through several stages."""
    passed: int
    """Of these, whose candidate had passed the screen: all, unless it is advisory."""
    passed_over: int
    """Of these, that went wrong."""
    recalled: int
    certified: int
    by_level: Mapping[str, Episodes]
    """Of all that a level began: seed, certified, candidate."""
    auroc: float | None
    """Of the screen; None where every deployment went well, or every one wrong, or where no score is known."""

    @property
    def learned(self) -> Episodes:
        """Episodes that learned policies began, candidates and certified ones."""
        return _added([self.by_level[LEVELS[level]] for level in (CANDIDATE, CERTIFIED)])

    @property
    def all(self) -> Episodes:
        """Episodes of all who act."""
        return _added(self.by_level.values())

    @property
    def fallback_episodes(self) -> int:
        """Episodes in which a fallback acted at any time."""
        seeded = self.by_level[LEVELS[SEED]].episodes
        return seeded + self.learned.taken_over

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the exact interval of the share of learned policies' episodes over a budget."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        by_level = {name: counts._asdict() for name, counts in self.by_level.items()}
        learned = {**self.learned._asdict(), "interval": list(self.learned.interval)}
        return found | {"by_level": by_level, "learned": learned, "fallback_episodes": self.fallback_episodes}


def by_seed(metrics: Iterable[Mapping[str, Any]]) -> dict[int, list[Deployment]]:
    """The deployments in rows of the metrics, in the order of time; seeds without any are left out."""
    found: dict[int, list[Deployment]] = {}
    for row in metrics:
        if told := row.get("deployments", ()):
            found.setdefault(row["seed"], []).extend(told)
    return found


def candidates_of(deployments: Iterable[Deployment]) -> list[Deployment]:
    """Those in which a candidate acted."""
    return _having(deployments, LEVELS[CANDIDATE])


def described(found: Tally) -> str:
    """A tally in one line."""
    learned, seeded = found.learned, found.by_level[LEVELS[SEED]].episodes
    low, high = learned.interval
    parts = [
        f"{learned.over} of {learned.episodes} episodes of learned policies over a budget "
        f"({100 * low:.3g} to {100 * high:.3g} %)",
        f"candidates: {found.screened} screened, {found.refused} refused, {found.candidates} tried, "
        f"{found.recalled} recalled, {found.certified} certified",
        f"{seeded} episodes by S_0, {learned.taken_over} taken over",
    ]
    return "; ".join(parts) + ("" if found.auroc is None else f"; AUROC of the screen {found.auroc:.2f}")


def tally(deployments: Sequence[Deployment], budgets: Sequence[float]) -> Tally:
    """The counts of deployments under these budgets, in the order of the constraints."""
    tried, said = trials(deployments, budgets), [deployment["candidate"] for deployment in deployments]
    passed = [trial for trial in tried if trial.has_passed]
    return Tally(
        deployments=len(deployments),
        screened=sum(deployment["is_new"] for deployment in deployments) if _is_screened(deployments) else 0,
        refused=said.count(REFUSED),
        candidates=sum(deployment["is_new"] for deployment in _having(deployments, LEVELS[CANDIDATE])),
        canaries=len(tried),
        passed=len(passed),
        passed_over=sum(trial.went_wrong for trial in passed),
        recalled=said.count(RECALLED),
        certified=said.count(MADE_CERTIFIED),
        by_level={
            name: _added(Episodes(*(came[name][each] for each in COUNTED)) for came in _came(deployments, name))
            for name in LEVELS
        },
        auroc=auroc([trial.score for trial in tried], [trial.went_wrong for trial in tried])
        if _is_screened(deployments)
        else None,
    )


def auroc(scores: Sequence[float], are_wrong: Sequence[bool]) -> float | None:
    """The probability that a score of what went wrong is larger than one of what did not; None without either."""
    ranks, wrong = rankdata(np.asarray(scores, float)), np.asarray(are_wrong, bool)
    num_wrong, num_right = int(np.sum(wrong)), int(np.sum(~wrong))
    if not (num_wrong and num_right):
        return None
    # Mann and Whitney: ranks are means over ties.
    return float((np.sum(ranks[wrong]) - num_wrong * (num_wrong + 1) / 2) / (num_wrong * num_right))


def trials(deployments: Sequence[Deployment], budgets: Sequence[float]) -> list[Trial]:
    """Every deployment in which a candidate acted."""
    found, has_passed, name = [], False, LEVELS[CANDIDATE]
    for deployment in deployments:
        # The margin may have moved since a candidate passed: what counts is what was said when it was put forward.
        if deployment["is_new"]:
            has_passed = passes(deployment, budgets)
        if name in deployment["came"]:
            came = deployment["came"][name]
            share = relative_score(deployment, budgets)
            found.append(Trial(share, has_passed, came["over"] + came["taken_over"] > 0))
    return found


def passes(deployment: Deployment, budgets: Sequence[float]) -> bool:
    """Whether score and upper quantile, with the margin, lie within every budget; what is not known does not."""
    bounds, margin = np.asarray(budgets, float), _known(deployment["margin"])
    return all(bool(np.all(_known(deployment[name]) + margin <= bounds)) for name in ("score", "upper"))


def relative_score(deployment: Deployment, budgets: Sequence[float]) -> float:
    """The largest score, as a share of its budget; infinite where it is not known, or over a budget of 0."""
    shares = [
        score / budget if budget else np.inf if score else 0.0
        for score, budget in zip(_known(deployment["score"]).tolist(), budgets, strict=True)
    ]
    return float(max(shares))


def calibration(deployments: Sequence[Deployment], constraint: int = 0) -> Calibration:
    """How far the scores of candidates are from what their episodes cost, of one constraint by its place."""
    name = LEVELS[CANDIDATE]
    said = [(each["score"][constraint], each["came"][name]["costs"][constraint]) for each in _having(deployments, name)]
    pairs = tuple((float(score), float(cost)) for score, cost in said if _is_finite(score) and _is_finite(cost))
    if not pairs:
        return Calibration((), None, None)
    residuals = np.array([cost - score for score, cost in pairs])
    return Calibration(pairs, float(np.mean(residuals)), float(np.mean(residuals > 0)))


def _added(counts: Iterable[Episodes]) -> Episodes:
    return Episodes(*np.sum([Episodes(0, 0, 0), *counts], axis=0).tolist())


def _having(deployments: Iterable[Deployment], name: str) -> list[Deployment]:
    """Deployments in which that level began an episode."""
    return [deployment for deployment in deployments if name in deployment["came"]]


def _came(deployments: Iterable[Deployment], name: str) -> list[Mapping[str, Any]]:
    return [deployment["came"] for deployment in _having(deployments, name)]


def _is_screened(deployments: Iterable[Deployment]) -> bool:
    """Whether any score is known: without a screen there is none."""
    return any(_is_finite(score) for deployment in deployments for score in deployment["score"])


def _known(values: Sequence[float | None]) -> np.ndarray:
    """As an array, infinite where a value is not known: files have null for what is not finite."""
    return np.array([value if _is_finite(value) else np.inf for value in values], float)


def _is_finite(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))
