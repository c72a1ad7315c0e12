"""`actsafe calibrate`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.options import given
from actsafe.cli.working import console
from actsafe.evidence.calibration import CALIBRATION, Measured, measure, record
from actsafe.evidence.reliability import LEVELS, Assessment, Verdict
from actsafe.training.run import RunFolder
from actsafe.training.settings import require_at_least
from actsafe.training.sweep import open_runs

COLOURS = {
    Verdict.CALIBRATED: "green",
    Verdict.UNDERCONFIDENT: "yellow",
    Verdict.OVERCONFIDENT: "bold red",
    Verdict.UNKNOWN: "yellow",
}


@dataclasses.dataclass(frozen=True)
class Calibrate:
    """Test whether a run's model knows how wrong it is, on episodes that it has not seen.

    Writes calibration.json into the run's folder. The exit code is 1 if the model is overconfident.
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder, or a sweep's: then every run is tested."""
    episodes: Annotated[int | None, given("N", "usual for the agent")] = None
    """Held-out episodes, of every task and seed; more of them see smaller faults."""
    horizon: Annotated[int | None, given("STEPS", "usual for the agent")] = None
    """How many decisions ahead to forecast."""

    def run(self, arguments: Sequence[str]) -> int:
        """Measure, write, and say what was found."""
        require_at_least(1, self, "episodes", "horizon", prefix="--")
        folders = open_runs(self.folder)
        jax_setup.prepare()
        return max(self._measure(folder, console()) for folder in folders)

    def _measure(self, folder: RunFolder, out: Console) -> int:
        with folder.locked():
            measured = measure(folder, num_episodes=self.episodes, horizon=self.horizon)
            content = record(folder, measured)
        _print(measured, content, out)
        out.print(f"written to {folder.path / CALIBRATION}")
        return int(content["verdict"] == Verdict.OVERCONFIDENT.value)


def _print(measured: Measured, content: Mapping[str, Any], out: Console) -> None:
    """Every claim one step ahead and at the farthest, and the verdict."""
    for name, claim in measured.claims.items():
        table = Table(
            "steps ahead",
            "of",
            *(f"{level:.0%}" for level in LEVELS),
            "error",
            "widen by",
            title=f"{name}: {claim.meaning}",
            title_justify="left",
        )
        for step in sorted({1, len(claim.steps)}):
            _add_rows(table, step, claim.steps[step - 1], content)
        out.print(table, soft_wrap=False)
        for step in sorted({1, len(claim.steps)}):
            found = claim.steps[step - 1]
            ahead = f"{step} step{'s' * (step > 1)} ahead, {found.num_predictions} predictions"
            out.print(f"{name}, {ahead}: [{COLOURS[found.verdict]}]{found.verdict.value}[/]", markup=True)
    out.print(
        "shares of truths inside central intervals; * is told from its level by an exact test, all tests of a claim "
        "together at 95 %. error: expected calibration error. widen by: factor on every std that "
        "restores coverage (split-conformal, largest of all levels)",
        style="dim",
    )
    colour = COLOURS[Verdict(content["verdict"])]
    out.print(
        f"verdict, the worse of {content['deciding_claim']} near and far: [{colour}]{content['verdict']}[/]",
        markup=True,
    )
    if not content["has_power"]:
        out.print("this claim could hardly have failed: passing is no evidence that the model is right")


def _add_rows(table: Table, step: int, found: Assessment, content: Mapping[str, Any]) -> None:
    bounds = (found.coverage, found.coverage_low, found.coverage_high)
    for number, (coordinate, is_safety) in enumerate(zip(content["coordinates"], content["is_safety"], strict=True)):
        shares = [
            f"{share:.1%}{'*' * (not low <= level <= high)}"
            for level, share, low, high in zip(LEVELS, *(each[number] for each in bounds), strict=True)
        ]
        vouched = max((float(m) for m in found.conformal[number] if m < float("inf")), default=float("inf"))
        table.add_row(
            str(step),
            coordinate + " (does not count)" * (not is_safety),
            *shares,
            f"{found.calibration_error[number]:.3f}",
            f"{vouched:.3g}",
        )
    joint = [
        f"{share:.1%}{'*' * bool(high < level)}"
        for level, share, high in zip(LEVELS, found.joint_coverage, found.joint_coverage_high, strict=True)
    ]
    table.add_row(str(step), "all together", *joint, "", f"{found.multiplier:.3g}", end_section=True)
