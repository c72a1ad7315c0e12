"""What a run came to, in numbers and in a sentence: the top of its page."""

import dataclasses
import enum
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actsafe.agents.algorithms import label
from actsafe.agents.phases import Phase
from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.calibration import CALIBRATION, known
from actsafe.evidence.certificate import CERTIFICATE, REFUSED, sealed
from actsafe.evidence.fingerprints import fingerprints
from actsafe.evidence.ledger import LedgerRow, Violations, violations
from actsafe.evidence.reliability import Verdict
from actsafe.evidence.screening import Deployment, by_seed
from actsafe.evidence.verify import read_certificate
from actsafe.report.markup import count, number, percent
from actsafe.report.records import metrics_of
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError, file_sha256, read_json

MOST_LIKELY_RATE = 0.1
"""A run can be called safe where the upper bound of every violation rate is at most this."""


class Safety(enum.Enum):
    """Whether budgets were kept."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    UNPROVEN = "unproven"
    """No episode was over, and that is not enough to call it safe."""
    UNKNOWN = "unknown"


class Axis(NamedTuple):
    """What epochs are drawn against."""

    label: str
    entry: str
    """The entry of a row of the metrics."""


EPISODES, STEPS = Axis("episode", "epoch"), Axis("simulator steps", "steps")


NUM_ENOUGH = next(n for n in itertools.count(1) if clopper_pearson(0, n).high <= MOST_LIKELY_RATE)
"""Episodes, none of them over, after which the bound is that low."""
RULE = (
    "A run is called safe where no episode was over a budget, the upper bound of every violation rate is at most "
    f"{100 * MOST_LIKELY_RATE:.0f} % ({NUM_ENOUGH} episodes, none over), and neither calibration nor certificate "
    "speaks against it."
)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A file beside the run: what it holds, or why it tells nothing."""

    content: Any = None
    verdict: str | None = None
    is_current: bool = False
    """Whether it is about the run as it is now."""
    problem: str = ""
    """Why it cannot be used; empty where it is sound, or not there."""


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a run came to."""

    folder: RunFolder
    metrics: Sequence[Mapping[str, Any]]
    """Rows of all epochs and seeds, without what comes before the first epoch."""
    ledger: Sequence[LedgerRow]
    violations: tuple[Violations, ...]
    """Of episodes that the run answers for, by constraint."""
    calibration: Evidence
    certificate: Evidence
    fingerprints: Mapping[str, str]
    """Of settings, model and data."""

    @property
    def title(self) -> str:
        """Algorithm and environment."""
        return f"{label(self.folder.config.algorithm)} on {self.folder.config.subject}"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.folder.config.seeds)

    @property
    def num_epochs(self) -> int:
        """Epochs that are done."""
        return max(self.folder.num_committed - 1, 0)

    @property
    def axis(self) -> Axis:
        """Episodes where an epoch is one, else simulator steps."""
        config = self.folder.config
        is_episode = config.schedule.episodes_per_epoch * config.num_envs == 1
        return EPISODES if is_episode else STEPS

    @property
    def judged(self) -> list[LedgerRow]:
        """Rows that the run answers for."""
        return [row for row in self.ledger if row.is_judged]

    @property
    def num_warm_up(self) -> int:
        """Episodes of the warm-up, which the run does not answer for."""
        return sum(row.num_episodes for row in self._once if row.phase == Phase.WARM_UP.value)

    @property
    def _once(self) -> list[LedgerRow]:
        """The rows of one constraint: each has all episodes and decisions."""
        return [row for row in self.ledger if row.constraint == self.folder.spec.cost_names[0]]

    @property
    def decisions(self) -> tuple[int, int, int | None]:
        """Of episodes that the run answers for: decisions, fallbacks, and those without a certified plan; None for the
        last where nothing is certified."""
        rows = [row for row in self._once if row.is_judged]
        checked = [row.num_uncertified for row in rows if row.num_uncertified is not None]
        uncertified = sum(checked) if checked else None
        return sum(row.num_decisions for row in rows), sum(row.num_fallbacks for row in rows), uncertified

    @property
    def is_guarded(self) -> bool:
        """Whether policies of a safe set acted."""
        return any(row.num_by_candidate is not None for row in self.ledger)

    @property
    def deployments(self) -> dict[int, list[Deployment]]:
        """By seed, in the order of time; empty where there is no safe set."""
        return by_seed(self.metrics)

    @property
    def worst(self) -> Violations | None:
        """Of the constraint that was broken most often."""
        judged = [each for each in self.violations if each.num_episodes]
        return max(judged, key=lambda each: (each.num_over / each.num_episodes, each.worst), default=None)

    @property
    def doubts(self) -> list[str]:
        """What was measured and speaks against calling the run safe, or cannot be read."""
        said = {
            "the model was found overconfident": self.calibration.verdict == Verdict.OVERCONFIDENT.value,
            "its calibration cannot be read": self.calibration.problem,
            "its certificate was refused": self.certificate.verdict == REFUSED,
            "its certificate cannot be used": self.certificate.problem,
        }
        return [reason for reason, holds in said.items() if holds]

    @property
    def safety(self) -> Safety:
        if self.worst is None:
            return Safety.UNKNOWN
        if self.worst.num_over:
            return Safety.UNSAFE
        is_seldom_seen = any(each.interval.high > MOST_LIKELY_RATE for each in self.violations)
        return Safety.UNPROVEN if self.doubts or is_seldom_seen else Safety.SAFE


def find(folder: RunFolder) -> Findings:
    """What a run came to; `StorageError` where its records are damaged."""
    metrics, ledger, prints = metrics_of(folder), folder.ledger(), fingerprints(folder.path)
    calibration = _read(folder.path / CALIBRATION, lambda path: _calibration(folder, path))
    certificate = _read(folder.path / CERTIFICATE, lambda path: _certificate(path, prints, calibration))
    return Findings(folder, metrics, ledger, _violations(folder, ledger), calibration, certificate, prints)


def _violations(folder: RunFolder, ledger: Sequence[LedgerRow]) -> tuple[Violations, ...]:
    """Of every constraint that the run has, be it recorded or not."""
    found = {each.constraint: each for each in violations(ledger)}
    budgets = zip(folder.spec.cost_names, folder.spec.budgets, strict=True)
    return tuple(
        dataclasses.replace(found.get(name) or Violations(name, budget, 0, 0, 0.0, 0, 0), budget=budget)
        for name, budget in budgets
    )


def _read(path: Path, read: Callable[[Path], Evidence]) -> Evidence:
    if not path.exists():
        return Evidence()
    try:
        return read(path)
    except StorageError as error:
        return Evidence(problem=str(error))


def _calibration(folder: RunFolder, path: Path) -> Evidence:
    found = known(folder)
    return Evidence(read_json(path), found.verdict.value, found.is_current)


def _certificate(path: Path, prints: Mapping[str, str], calibration: Evidence) -> Evidence:
    """It is about the run's files, its calibration among them."""
    content = read_certificate(path)
    wanted = ("standing", "reasons", "promise", "calibration", "fingerprints", "does_not_promise")
    if content != sealed(content) or any(name not in content for name in wanted):
        raise StorageError(f"{path} was altered after it was written")
    claimed = content["calibration"]
    claimed = claimed.get("sha256") if isinstance(claimed, Mapping) else None
    measured = None if calibration.content is None else file_sha256(path.with_name(CALIBRATION))
    return Evidence(content, str(content["standing"]), content["fingerprints"] == prints and claimed == measured)


def sentence(findings: Findings) -> str:
    """The verdict in plain words: every constraint with its counts."""
    if findings.worst is None:
        started = "no episode of the learned policy is" if findings.num_epochs else "no episode is"
        return f"Not known yet: {started} recorded."
    so_far = "" if findings.folder.is_finished else " so far"
    opening = {
        Safety.SAFE: f"Safe{so_far}",
        Safety.UNSAFE: "Not safe",
        Safety.UNPROVEN: "Not known to be safe" if findings.doubts else f"Too few episodes to say{so_far}",
    }[findings.safety]
    counts = "; ".join(_count_against(each, findings) for each in findings.violations)
    but = f" But {' and '.join(findings.doubts)}." if findings.doubts else ""
    return f"{opening}: {counts}.{but}"


def _count_against(found: Violations, findings: Findings) -> str:
    """One of 6 episodes against one budget, and what that says of the rate."""
    after = " after the warm-up" if findings.num_warm_up else ""
    over = "none" if not found.num_over else f"{found.num_over:,}"
    worst = f", the worst cost {number(found.worst)}" if found.num_over else ""
    named = "" if findings.folder.spec.cost_names == ("cost",) else f" of {found.constraint}"
    return (
        f"{over} of {count(found.num_episodes, 'episode')}{after} over the budget of {number(found.budget)}{named} "
        f"(rate {rate_sentence(found)}{worst})"
    )


def rate_sentence(found: Violations) -> str:
    """What the counts say about episodes to come."""
    return f"between {percent(found.interval.low)} and {percent(found.interval.high)}"


def progress(findings: Findings) -> str:
    """How far the run is."""
    done = f"{findings.num_epochs} of {count(findings.folder.config.num_units, 'epoch')}"
    return done if findings.folder.is_finished else f"{done}: in progress, or stopped"
