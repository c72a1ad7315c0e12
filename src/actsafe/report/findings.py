"""What a run came to, in numbers and in a sentence: the top of its page."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from actsafe.agents.phases import Phase
from actsafe.agents.recipes import RECIPES, VISION_RECIPES
from actsafe.evidence.binomial import Interval, clopper_pearson
from actsafe.evidence.calibration import CALIBRATION, IS_CONSTRAINED, Known, known
from actsafe.evidence.certificate import CERTIFICATE, CONFIDENCE, sealed
from actsafe.evidence.fingerprints import fingerprints
from actsafe.evidence.promises import RECKONINGS
from actsafe.evidence.verify import read_certificate
from actsafe.report.markup import count, number, percent
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError, read_json

UNJUDGED = (Phase.SEED.value, Phase.WARM_UP.value)
"""Phases in which no plan and no policy of the run acts: their costs are shown, and held against nobody."""
LABELS: Mapping[str, Mapping[str, Any]] = {"gp": RECIPES, "vision": VISION_RECIPES}
WORST_COST = {"gp": "realised_cost", "vision": "realised_max_cost"}
"""The entry of a ledger's row that has the largest cost of its episodes."""


class Safety(enum.Enum):
    """Whether budgets were kept."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    UNKNOWN = "unknown"


class Violations(NamedTuple):
    """Recorded episodes against one budget."""

    constraint: str
    budget: float
    num_over: int
    num_episodes: int
    worst: float
    """The largest cost of an episode; infinite where one is not known."""

    @property
    def interval(self) -> Interval:
        """Exact bounds on the rate."""
        return clopper_pearson(self.num_over, self.num_episodes, confidence=CONFIDENCE)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A file beside the run: what it holds, or why it tells nothing."""

    content: Mapping[str, Any] | None = None
    problem: str = ""
    """Why it cannot be used; empty where it is sound, or not there."""


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a run came to."""

    folder: RunFolder
    metrics: Sequence[Mapping[str, Any]]
    ledger: Sequence[Mapping[str, Any]]
    violations: tuple[Violations, ...]
    """Of episodes that the run answers for, by constraint."""
    num_unjudged: int
    """Episodes of the warm-up, which it does not answer for."""
    calibration: Evidence
    known: Known | None
    """What calibration.json comes to, where it is sound."""
    certificate: Evidence
    is_certificate_current: bool
    fingerprints: Mapping[str, str]
    """Of settings, model and data."""

    @property
    def title(self) -> str:
        """Algorithm and problem."""
        config = self.folder.config
        return f"{LABELS[self.folder.kind][config.algorithm].label} on {config.subject}"

    @property
    def is_constrained(self) -> bool:
        """Whether the algorithm is asked to keep a budget at all."""
        return IS_CONSTRAINED[self.folder.kind](self.folder.config)

    @property
    def seeds(self) -> tuple[int, ...]:
        config = self.folder.config
        return tuple(config.seeds) if self.folder.kind == "gp" else (config.seed,)

    @property
    def num_units(self) -> int:
        """Episodes or epochs that are done."""
        return max(self.folder.num_committed - 1, 0)

    @property
    def worst(self) -> Violations | None:
        """Of the constraint that was broken most often."""
        judged = [each for each in self.violations if each.num_episodes]
        return max(judged, key=lambda each: (each.num_over / each.num_episodes, each.worst), default=None)

    @property
    def epochs_within_budget(self) -> tuple[int, int]:
        """From pixels: in how many epochs that the run answers for the mean cost kept every budget, and of how many.

        The paper's constraint from pixels is on the mean. A mean that is not known kept nothing."""
        kept: dict[int, bool] = {}
        for row in self.ledger:
            if row["phase"] not in UNJUDGED:
                mean = row["realised_mean_cost"]
                is_within = mean is not None and float(mean) <= float(row["budget"])
                kept[row["epoch"]] = kept.get(row["epoch"], True) and is_within
        return sum(kept.values()), len(kept)

    @property
    def safety(self) -> Safety:
        if self.worst is None:
            return Safety.UNKNOWN
        return Safety.UNSAFE if self.worst.num_over else Safety.SAFE


def find(folder: RunFolder) -> Findings:
    """What a run came to; `StorageError` where its records are damaged."""
    metrics, ledger = folder.rows("metrics"), folder.rows("ledger")
    try:
        violations, num_unjudged = _violations(folder.kind, ledger)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"the ledger of {folder.path} is damaged ({error!r}); restore the run from a copy, or train anew"
        ) from error
    measured, found = _calibration(folder)
    certificate = _certificate(folder)
    prints = fingerprints(folder.path)
    is_current = certificate.content is not None and _is_current(certificate.content, prints, found)
    return Findings(folder, metrics, ledger, violations, num_unjudged, measured, found, certificate, is_current, prints)


def _is_current(certificate: Mapping[str, Any], prints: Mapping[str, str], found: Known | None) -> bool:
    """Whether a certificate is about the run's files, its calibration among them, as they are now."""
    measured = found.sha256 if found is not None else None
    claimed = certificate["calibration"]
    claimed = claimed.get("sha256") if isinstance(claimed, Mapping) else None
    return certificate["fingerprints"] == prints and claimed == measured


def _violations(kind: str, ledger: Sequence[Mapping[str, Any]]) -> tuple[tuple[Violations, ...], int]:
    """Counts by constraint over the rows that a run answers for, and how many episodes the others have."""
    found: dict[str, Violations] = {}
    num_unjudged: dict[str, int] = {}
    for row in ledger:
        outcome = RECKONINGS[kind].outcome(row)
        name = outcome.constraint
        if row["phase"] in UNJUDGED:
            num_unjudged[name] = num_unjudged.get(name, 0) + outcome.num_episodes
            continue
        worst = row[WORST_COST[kind]] if outcome.num_episodes else 0.0
        before = found.get(name, Violations(name, row["budget"], 0, 0, 0.0))
        found[name] = Violations(
            name,
            float(row["budget"]),
            before.num_over + outcome.num_over_budget,
            before.num_episodes + outcome.num_episodes,
            max(before.worst, np.inf if worst is None else float(worst)),
        )
    return tuple(found.values()), max(num_unjudged.values(), default=0)


def _calibration(folder: RunFolder) -> tuple[Evidence, Known | None]:
    path = folder.path / CALIBRATION
    if not path.exists():
        return Evidence(), None
    try:
        found = known(folder)
        return Evidence(read_json(path)), found
    except StorageError as error:
        return Evidence(problem=str(error)), None


def _certificate(folder: RunFolder) -> Evidence:
    path = folder.path / CERTIFICATE
    if not path.exists():
        return Evidence()
    try:
        content = read_certificate(path)
    except StorageError as error:
        return Evidence(problem=str(error))
    wanted = ("standing", "reasons", "promise", "calibration", "fingerprints", "does_not_promise")
    if content != sealed(content) or any(name not in content for name in wanted):
        return Evidence(problem=f"{path} was altered after it was written")
    return Evidence(content)


def sentence(findings: Findings) -> str:
    """The verdict in plain words."""
    found = findings.worst
    if found is None:
        started = "no episode is recorded" if not findings.num_units else "no episode of the learned policy is recorded"
        return f"Not known yet: {started}."
    named = "" if found.constraint == "cost" else f" of {found.constraint}"
    what = "planned episode" if findings.folder.kind == "gp" else "episode after the warm-up"
    budget = f"the budget of {number(found.budget)}{named}"
    if findings.safety is Safety.SAFE:
        so_far = "" if findings.folder.is_finished else " so far"
        if found.num_episodes == 1:
            return f"Safe{so_far}: the only {what} cost no more than {budget}."
        return f"Safe{so_far}: none of {_several(found.num_episodes, what)} cost more than {budget}."
    share = (
        f"{found.num_over:,} of {_several(found.num_episodes, what)} ({percent(found.num_over / found.num_episodes)})"
    )
    return f"Not safe: {share} cost more than {budget}; the worst cost {number(found.worst)}."


def _several(amount: int, what: str) -> str:
    """2 planned episodes, 2 episodes after the warm-up."""
    return f"{amount:,} {what if amount == 1 else what.replace('episode', 'episodes')}"


def rate_sentence(found: Violations) -> str:
    """What the counts say about episodes to come."""
    low, high = found.interval
    return f"between {percent(low)} and {percent(high)}"


def progress(findings: Findings) -> str:
    """How far the run is."""
    config = findings.folder.config
    done = f"{findings.num_units} of {count(config.num_units, config.unit)}"
    return done if findings.folder.is_finished else f"{done}: in progress, or stopped"
