"""What a run from pixels found, for people."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from actsafe.agents.phases import Phase
from actsafe.agents.recipes import VISION_RECIPES
from actsafe.training.run import RunFolder

Rows = Sequence[Mapping[str, Any]]


def print_run(folder: RunFolder, console: Console) -> None:
    """Print what a run found, the verdict on its safety first."""
    metrics, ledger = folder.rows("metrics"), folder.rows("ledger")
    config = folder.config
    heading = f"{VISION_RECIPES[config.algorithm].label} on {config.environment}"
    if not metrics:
        console.print(f"{heading}: no epoch yet", markup=False)
        return
    # Random actions keep to nothing: they are reported in the table, and held against nobody.
    chosen = [row for row in ledger if row["phase"] != Phase.WARM_UP.value]
    for name in dict.fromkeys(row["constraint"] for row in ledger):
        rows = [row for row in chosen if row["constraint"] == name]
        is_safe = bool(rows) and num_over_budget(rows) == 0
        style = "bold green" if is_safe else "bold red" if rows else "bold"
        console.print(f"{heading}: {_safety(rows, name)}", style=style, markup=False, soft_wrap=True)
    evaluated = [row for row in metrics if row.get("evaluation_return") is not None]
    if evaluated:
        last = evaluated[-1]
        paid = ", ".join(f"{name} {value:.3g}" for name, value in last["evaluation_costs"].items())
        console.print(
            f"evaluated after epoch {last['epoch']}: return {last['evaluation_return']:.3g}, {paid} "
            f"(means of {last['evaluation_episodes']} episodes)",
            style="bold",
            markup=False,
            soft_wrap=True,
        )
    console.print(phase_table(metrics, ledger))


def num_over_budget(ledger: Rows) -> int:
    """Episodes that cost more than their budget; those of which it is not known count."""
    return sum(round(_known(row["share_over_budget"], 1.0) * row["num_episodes"]) for row in ledger)


def _safety(rows: Rows, name: str) -> str:
    if not rows:
        return f"no episode of the learned policy yet, which is what the budget of {name} is for"
    num_episodes, over = sum(row["num_episodes"] for row in rows), num_over_budget(rows)
    budget, worst = rows[-1]["budget"], max(_known(row["realised_max_cost"], np.inf) for row in rows)
    kept = f"{over} OVER the budget" if over else "none over the budget"
    return f"{num_episodes} episodes after the warm-up, {kept} {budget:g} of {name}; the largest {worst:.3g}"


def phase_table(metrics: Rows, ledger: Rows) -> Table:
    """A row per phase and constraint."""
    table = Table()
    table.add_column("phase", no_wrap=True)
    for name in (
        "epochs",
        "steps\nuntil",
        "return",
        "cost",
        "mean",
        "worst",
        "over\nbudget",
        "predicted,\npessimistic",
    ):
        table.add_column(name, justify="right")
    for phase in dict.fromkeys(row["phase"] for row in metrics):
        epochs = [row for row in metrics if row["phase"] == phase]
        for name in epochs[0]["costs"]:
            rows = [row for row in ledger if row["phase"] == phase and row["constraint"] == name]
            over, total = num_over_budget(rows), sum(row["num_episodes"] for row in rows)
            table.add_row(
                phase.replace("_", "-"),
                str(len(epochs)),
                f"{epochs[-1]['steps']:,}",
                _mean([row["return"] for row in epochs]),
                name,
                _mean([row["realised_mean_cost"] for row in rows]),
                _number(max(_known(row["realised_max_cost"], np.inf) for row in rows)),
                f"{over} of {total}",
                _mean([row["predicted_pessimistic_cost"] for row in rows]),
                style="red" if over and phase != Phase.WARM_UP.value else None,
            )
    return table


def _known(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _number(float(np.mean(known))) if known else ""


def _number(value: float) -> str:
    return f"{value:.3g}"
