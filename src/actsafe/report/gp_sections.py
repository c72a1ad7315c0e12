"""What a run of Gaussian processes shows: learning, promises, an episode."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.figures import panels, style
from actsafe.figures.coordinates import view
from actsafe.figures.ledger import ledger_figure
from actsafe.figures.unsure import PLACES
from actsafe.report import film
from actsafe.report.findings import Findings
from actsafe.report.markup import Child, count, number, table, tag
from actsafe.report.sheet import Sheet, note, side_by_side
from actsafe.report.statistics import stratified_bootstrap
from actsafe.training.results import entries, last_known

TASK_LOOKS = ((style.BLUE, "o"), (style.GREEN, "s"), (style.PURPLE, "^"))


def learning_section(sheet: Sheet, findings: Findings) -> Child:
    """Returns of evaluations and costs of exploration over the episodes."""
    rows = [row for row in findings.metrics if row["episode"] > 0]
    episodes = sorted({row["episode"] for row in rows})
    spans = phase_spans(rows)
    x = np.array(episodes, float)
    tasks = [task for task in findings.folder.config.make_problem().tasks if any(f"{task}_return" in r for r in rows)]
    figures = []
    if tasks:
        lines = [_returns(rows, x, task, look) for task, look in zip(tasks, TASK_LOOKS, strict=False)]
        figures.append(
            sheet.figure(
                panels.curves("Return of evaluations", lines, xlabel="episode", spans=spans),
                "Return of zero-shot evaluations over the episodes",
                "Interquartile mean over seeds; band: its 95 % bootstrap interval.",
            )
        )
    costs = _by_episode(rows, "exploration_cost", episodes)
    costs = np.where(np.isnan(costs), np.inf, costs)
    median = panels.Curve("median of seeds", x, np.median(costs, axis=0), costs.min(axis=0), costs.max(axis=0))
    worst = panels.Curve("worst seed", x, costs.max(axis=0), colour=style.BLACK, is_dotted=True)
    lines = [median._replace(label="cost")] if len(findings.seeds) == 1 else [median, worst]
    budget = findings.folder.config.make_problem().budget
    figures.append(
        sheet.figure(
            panels.curves(
                "Cost of exploration",
                lines,
                xlabel="episode",
                spans=spans,
                budget=budget,
                is_cost=True,
            ),
            "Cost of every exploration episode against the budget",
            "Sum of costs in an episode. Band: all seeds, as the safety of most must not hide the one that was unsafe.",
        )
    )
    return [side_by_side(*figures), _seed_table(findings, rows)]


def phase_spans(rows: Sequence[Mapping[str, Any]]) -> list[panels.Span]:
    """Where each phase begins and ends, in episodes."""
    phases = {row["phase"]: [] for row in rows}
    for row in rows:
        phases[row["phase"]].append(row["episode"])
    return [panels.Span(phase, min(found) - 0.5, max(found) + 0.5) for phase, found in phases.items()]


def _by_episode(rows: Sequence[Mapping[str, Any]], name: str, episodes: Sequence[int]) -> np.ndarray:
    """A value per [seed, episode]; NaN where there is none."""
    seeds = sorted({row["seed"] for row in rows})
    found = np.full((len(seeds), len(episodes)), np.nan)
    for row in rows:
        value = row.get(name)
        place = seeds.index(row["seed"]), episodes.index(row["episode"])
        found[place] = np.nan if value is None else value
    return found


def _returns(rows: Sequence[Mapping[str, Any]], x: np.ndarray, task: str, look: tuple[str, str]) -> panels.Curve:
    values = _by_episode(rows, f"{task}_return", [int(episode) for episode in x])
    evaluated = np.flatnonzero(np.any(np.isfinite(values), axis=0))
    found = [stratified_bootstrap([column[np.isfinite(column)]], num_draws=1000) for column in values[:, evaluated].T]
    value, low, high = np.array(found).T
    name = task.replace("_", " ")
    return panels.Curve(name, x[evaluated], value, low, high, colour=look[0], marker=look[1])


def _seed_table(findings: Findings, rows: Sequence[Mapping[str, Any]]) -> Child:
    budget = findings.folder.config.make_problem().budget
    table_rows = []
    for seed in findings.seeds:
        own = [row for row in rows if row["seed"] == seed]
        costs = [np.inf if row["exploration_cost"] is None else row["exploration_cost"] for row in own]
        last = next((row for row in reversed(own) if "swing_up_return" in row), {})
        ending = "–" if (upright := last.get("upright")) is None else "yes" if upright else "no"
        table_rows.append(
            [
                seed,
                len(own),
                sum(not cost <= budget for cost in costs),
                number(sum(costs)),
                number(max(costs)),
                number(last.get("swing_up_return"), ".1f"),
                ending,
            ]
        )
    heads = ["seed", "episodes", "over budget", "total cost", "worst cost", "last swing-up return", "ends upright"]
    return table(heads, table_rows, caption="Seeds")


def ledger_section(sheet: Sheet, findings: Findings) -> Child:
    """What was promised of each episode and what it cost."""
    rows = [row for row in findings.ledger if row["episode"] > 0]
    promised = [row for row in rows if row["predicted_pessimistic_cost"] is not None]
    kept = sum(row["realised_cost"] is not None and _is_kept(row) for row in promised)
    between = max((row["largest_inner_cost"] or 0.0 for row in rows if row["realised_cost"] == 0), default=0.0)
    figure = ledger_figure(rows, coordinate_names=findings.folder.config.make_problem().state_names)
    said = f"{kept:,} of {len(promised):,} episodes cost no more than the worst plan of theirs was predicted to."
    unpromised = len(rows) - len(promised)
    return [
        tag("p", said, f" Of {unpromised:,} no finite cost was predicted." if unpromised else ""),
        note(
            f"In episodes that cost nothing the limit was exceeded by up to {number(between)} between decisions. That "
            "counts against no budget, as costs are read where decisions are made."
        )
        if between > 0
        else None,
        sheet.figure(
            figure,
            "Predicted pessimistic cost against realised cost of every episode",
            "Diamond: the largest pessimistic cost of any plan in the episode, over particles of the model set; the "
            "cost under the mean model is not recorded. Dot: what the episode cost. Below: decisions for which the "
            "first plan failed its check, and the confidence multiplier that plans were judged with.",
            is_wide=True,
        ),
    ]


def _is_kept(row: Mapping[str, Any]) -> bool:
    return row["realised_cost"] <= row["predicted_pessimistic_cost"] + 1e-9


def episode_section(sheet: Sheet, findings: Findings) -> Child:
    """The last evaluated swing-up of the first seed, or else its last exploration, in motion."""
    folder = findings.folder
    name = folder.config.problem
    if name not in PLACES:
        return note(f"How to draw a state of {name} is not known.")
    seed = findings.seeds[0]
    for number_ in range(folder.num_committed - 1, 0, -1):
        arrays = folder.trajectory(number_)
        if "swing_up_states" in arrays:
            states, costs = arrays["swing_up_states"][0], arrays["swing_up_costs"][0]
            what = f"Zero-shot swing-up after episode {number_}"
            break
    else:
        arrays = folder.trajectory(folder.num_committed - 1)
        states, costs = arrays["states"][0], arrays["costs"][0]
        what = f"Exploration in episode {folder.num_committed - 1}"
    said = f"{what}, seed {seed}: cost {number(float(np.sum(costs)))}"
    return [film.of_states(sheet.identity(), view(name), states, said), tag("p", f"{said}. Orange: now.")]


def task_sentence(findings: Findings) -> str:
    """What the task came to."""
    runs = entries(findings.folder)
    if all(last_known(run["swing_up_return"]) is None for run in runs):
        return "not evaluated"
    upright = sum(bool(last_known(run["upright"])) for run in runs)
    return f"ends upright in {upright} of {count(len(runs), 'seed')}"
