"""What a run found, for people: tables, and a verdict that does not flatter."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from actsafe.agents.recipes import RECIPES
from actsafe.figures.coordinates import view
from actsafe.problems import Cartpole, Pendulum
from actsafe.training.results import entries, last_known
from actsafe.training.run import RunFolder

DRAWABLE = (Pendulum.name, Cartpole.name)
"""Problems whose states the figures, and the margin below, know how to read."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a run comes to."""

    lines: tuple[str, ...]
    is_safe: bool
    """No exploration episode cost more than its budget."""
    ends_upright: bool
    """The last swing-up of every seed ended at the goal."""


def verdict(folder: RunFolder) -> Verdict:
    """Whether the run kept its constraint, and whether it can do the task."""
    runs = entries(folder)
    costs = [cost for run in runs for cost in run["exploration_cost"]]
    budget = runs[0]["budget"]
    over = sum(not (cost is not None and cost <= budget) for cost in costs)
    name = RECIPES[folder.config.algorithm].label
    lines = [f"{name} on {folder.config.problem}: {_safety(costs, over, budget)}"]
    upright = [last_known(run["upright"]) for run in runs]
    returns = [value for run in runs if (value := last_known(run["swing_up_return"])) is not None]
    if returns:
        where = "ends upright" if all(upright) else "does not end upright"
        if len(runs) > 1:
            where = f"ends upright in {sum(map(bool, upright))} of {len(runs)} seeds"
        median = "median return" if len(runs) > 1 else "return"
        paid = max(last_known(run["swing_up_cost"]) or 0.0 for run in runs)
        lines.append(f"zero-shot swing-up {where}, {median} {np.median(returns):.0f}, cost {paid:.3g}")
    else:
        lines.append("no zero-shot evaluation was made")
    return Verdict(tuple(lines), bool(costs) and over == 0, bool(returns) and all(upright))


def _safety(costs: Sequence[float | None], over: int, budget: float) -> str:
    planned = f"{len(costs)} exploration episode{'s' if len(costs) != 1 else ''}"
    if not costs:
        return "no exploration episode yet"
    if over:
        worst = max(np.inf if cost is None else cost for cost in costs)
        return f"{planned}, {over} OVER the budget {budget:g}; the worst cost {worst:.3g}"
    if not any(costs):
        return f"{planned}, cost 0 in every one"
    return f"{planned}, none over the budget {budget:g}; the largest cost {max(cost or 0.0 for cost in costs):.3g}"


def print_run(folder: RunFolder, console: Console) -> Verdict:
    """Print what a run found, verdict first; give the verdict back."""
    found = verdict(folder)
    good = found.is_safe and found.ends_upright
    for n, line in enumerate(found.lines):
        colour = "green" if (found.is_safe if n == 0 else found.ends_upright) else "red"
        console.print(line, style=f"bold {colour}" if good or colour == "red" else "bold", markup=False, soft_wrap=True)
    is_alone = len(folder.config.seeds) == 1
    console.print(episode_table(folder) if is_alone else seed_table(folder))
    return found


def episode_table(folder: RunFolder) -> Table:
    """A row per episode of a run's only seed."""
    run = entries(folder)[0]
    problem = folder.config.make_problem()
    table = Table(title=f"budget {run['budget']:g} per episode", title_justify="left", title_style="dim")
    table.add_column("episode", justify="right")
    table.add_column("cost", justify="right")
    reach = None
    if problem.name in DRAWABLE:
        plane = view(problem.name)
        quantity = plane.label.rsplit(" (", 1)[0].split()[-1]
        table.add_column(f"largest\n{quantity}\n(limit {plane.limit:g})", justify="right")
        reach = plane
    table.add_column(f"fallbacks\n(of {problem.num_decisions})", justify="right")
    table.add_column(f"multiplier of\n{' '.join(problem.state_names)}", justify="right")
    table.add_column("swing-up\nreturn", justify="right")
    table.add_column("upright", justify="right")
    for n, cost in enumerate(run["exploration_cost"]):
        cells = [str(n + 1), _number(cost, ".3g")]
        if reach is not None:
            states = folder.trajectory(n + 1)["states"][0]
            cells.append(f"{np.max(np.abs(reach.constrained(states))):.2f}")
        cells += [
            str(run["fallbacks"][n]),
            " ".join(_number(value, ".1f") for value in run["confidence_multiplier"][n]),
            _number(run["swing_up_return"][n], ".0f"),
            {True: "yes", False: "no", None: ""}[run["upright"][n]],
        ]
        table.add_row(*cells, style="red" if cost is None or cost > run["budget"] else None)
    return table


def seed_table(folder: RunFolder) -> Table:
    """A row per seed of a run."""
    table = Table()
    for name in ("seed", "episodes", "over\nbudget", "total\ncost", "worst\ncost", "swing-up\nreturn", "upright"):
        table.add_column(name, justify="right")
    for run in entries(folder):
        costs = [np.inf if cost is None else cost for cost in run["exploration_cost"]]
        over = sum(cost > run["budget"] for cost in costs)
        table.add_row(
            str(run["seed"]),
            str(len(costs)),
            str(over),
            _number(sum(costs), ".3g"),
            _number(max(costs, default=0.0), ".3g"),
            _number(last_known(run["swing_up_return"]), ".0f"),
            {True: "yes", False: "no", None: ""}[last_known(run["upright"])],
            style="red" if over else None,
        )
    return table


def algorithm_table(summary: dict[str, dict[str, Any]]) -> Table:
    """A row per algorithm of a results file."""
    table = Table()
    table.add_column("algorithm", no_wrap=True)
    for name in (
        "episodes\nover budget",
        "seeds\nover budget",
        "total cost\nmedian, max",
        "swing-up return\nmedian (quartiles)",
        "upright",
        "seconds\nper seed",
    ):
        table.add_column(name, justify="right")
    for name, found in summary.items():
        low, high = found["swing_up_return_quartiles"]
        table.add_row(
            RECIPES[name].label if name in RECIPES else name,
            f"{found['episodes_over_budget']} of {found['episodes']}",
            f"{found['seeds_with_violation']} of {found['seeds']}",
            f"{found['total_cost_median']:.3g}, {found['total_cost_max']:.3g}",
            f"{_number(found['swing_up_return_median'], '.0f')} ({_number(low, '.0f')} to {_number(high, '.0f')})",
            f"{found['upright']} of {found['seeds']}",
            f"{found['seconds_median']:.0f}",
        )
    return table


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
