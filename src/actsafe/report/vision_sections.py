"""What a run with a world model shows: learning, promises, doubt along the run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from actsafe.agents.recipes import Policy
from actsafe.figures import panels, style
from actsafe.figures.vision import VisionRun, promises
from actsafe.report.findings import Findings
from actsafe.report.markup import Child, number, table, tag
from actsafe.report.sheet import Sheet, note, side_by_side

STEPS = "simulator steps"
POLICY_LOOKS = {Policy.EXPLORATION.value: (style.ORANGE, "D"), Policy.TASK.value: (style.BLUE, "o")}


def learning_section(sheet: Sheet, findings: Findings) -> Child:
    """Return and costs of every epoch's episodes, and those of evaluations."""
    metrics, ledger = findings.metrics, findings.ledger
    x, spans = _steps(metrics), phase_spans(metrics)
    lines = [
        panels.Curve("training", x, _column(metrics, "return")),
        panels.Curve(
            "evaluated, greedy",
            x,
            _column(metrics, "evaluation_return"),
            colour=style.ORANGE,
            marker="D",
            has_line=False,
        ),
    ]
    figures = [
        sheet.figure(
            panels.curves("Return of an episode", lines, xlabel=STEPS, spans=spans),
            "Return of an episode over the simulator steps",
            "Means over an epoch's episodes.",
        )
    ]
    for name in dict.fromkeys(row["constraint"] for row in ledger):
        rows = [row for row in ledger if row["constraint"] == name]
        evaluated = [(row.get("evaluation_costs") or {}).get(name) for row in metrics]
        costs = [
            panels.Curve("mean", x, _column(rows, "realised_mean_cost")),
            panels.Curve("worst episode", x, _column(rows, "realised_max_cost"), colour=style.BLACK, is_dotted=True),
            panels.Curve("evaluated", x, _numbers(evaluated), colour=style.ORANGE, marker="D", has_line=False),
        ]
        figures.append(
            sheet.figure(
                panels.curves(
                    f"{name.capitalize()} of an episode",
                    costs,
                    xlabel=STEPS,
                    spans=spans,
                    budget=rows[-1]["budget"],
                    is_cost=True,
                ),
                f"{name} of an episode over the simulator steps, against its budget",
                "During the warm-up actions are random, and its costs are held against nobody.",
            )
        )
    return [side_by_side(*figures), _phase_table(metrics, ledger)]


def phase_spans(metrics: Sequence[Mapping[str, Any]]) -> list[panels.Span]:
    """Where each phase begins and ends, in steps."""
    found: dict[str, panels.Span] = {}
    begins = 0
    for row in metrics:
        before = found.get(row["phase"], panels.Span(row["phase"], begins, 0))
        found[row["phase"]] = before._replace(ends=row["steps"])
        begins = row["steps"]
    return list(found.values())


def _steps(metrics: Sequence[Mapping[str, Any]]) -> np.ndarray:
    return np.array([row["steps"] for row in metrics], float)


def _numbers(values: Sequence[Any]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], float)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return _numbers([row.get(name) for row in rows])


def _phase_table(metrics: Sequence[Mapping[str, Any]], ledger: Sequence[Mapping[str, Any]]) -> Child:
    rows = []
    for span in phase_spans(metrics):
        own = [row for row in metrics if row["phase"] == span.phase]
        for name in own[0]["costs"]:
            paid = [row for row in ledger if row["phase"] == span.phase and row["constraint"] == name]
            episodes = sum(row["num_episodes"] for row in paid)
            over = sum(round((row["share_over_budget"] or 0.0) * row["num_episodes"]) for row in paid)
            worst = max(
                (row["realised_max_cost"] for row in paid if row["realised_max_cost"] is not None), default=None
            )
            rows.append(
                [
                    span.phase.replace("_", "-"),
                    name,
                    len(own),
                    f"{span.ends:,}",
                    _mean(own, "return"),
                    _mean(paid, "realised_mean_cost"),
                    number(worst),
                    f"{over} of {episodes}",
                ]
            )
    heads = ["phase", "constraint", "epochs", "until step", "return", "mean cost", "worst cost", "over budget"]
    return table(heads, rows, caption="Phases")


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    known = [row[name] for row in rows if row.get(name) is not None]
    return number(float(np.mean(known))) if known else "–"


def ledger_section(sheet: Sheet, findings: Findings) -> Child:
    """What the world model predicted of each epoch's cost and what it was."""
    config = findings.folder.config
    run = VisionRun(config.algorithm, config.seed, findings.metrics, findings.ledger)
    promised = [
        row
        for row in findings.ledger
        if row["predicted_pessimistic_cost"] is not None and row["realised_mean_cost"] is not None
    ]
    kept = sum(row["realised_mean_cost"] <= row["predicted_pessimistic_cost"] for row in promised)
    return [
        tag(
            "p", f"In {kept:,} of {len(promised):,} epochs with a prediction the mean cost was no more than predicted."
        ),
        sheet.figure(
            promises(run),
            "Predicted and realised cost of every epoch",
            "Predictions are means over dreams of the policy that acted, times the decisions of an episode: without "
            "pessimism, and with the charge for doubt. An epoch is safe where its worst episode is below the budget.",
            is_wide=True,
        ),
    ]


def unsure_section(sheet: Sheet, findings: Findings) -> Child:
    """The ensemble's disagreement along the run, as recorded."""
    x, spans = _steps(findings.metrics), phase_spans(findings.metrics)
    recorded = [row.get("learning") or {} for row in findings.metrics]
    lines = []
    for policy, (colour, marker) in POLICY_LOOKS.items():
        found = _column(recorded, f"{policy}/uncertainty")
        if np.any(np.isfinite(found)):
            lines.append(panels.Curve(f"{policy} policy", x, found, colour=colour, marker=marker))
    if not lines:
        return note("No disagreement of the ensemble is recorded yet.")
    losses = [
        panels.Curve(label, x, _column(recorded, f"model/{name}"), colour=colour)
        for name, label, colour in (
            ("observation_loss", "observation", style.BLUE),
            ("reward_loss", "reward", style.GREEN),
            ("cost_loss", "cost", style.VERMILION),
        )
    ]
    return [
        tag(
            "p",
            "A world model's state is a vector of features without a plane to cut through, so there is no slice here. "
            "This is the disagreement of its ensemble in the dreams of each policy, in the unit of its features, and "
            "how far its predictions were off, both as recorded in every epoch. How far exploration went is not "
            "recorded.",
        ),
        side_by_side(
            sheet.figure(
                panels.curves("Doubt in dreams", lines, xlabel=STEPS, spans=spans),
                "Disagreement of the ensemble along the run",
                "Mean over an epoch's updates.",
            ),
            sheet.figure(
                panels.curves("Losses of the world model", losses, xlabel=STEPS, spans=spans, is_cost=True),
                "Losses of the world model along the run",
                "Smaller is better.",
            ),
        ),
    ]


def task_sentence(findings: Findings) -> str:
    """What the task came to."""
    evaluated = [row for row in findings.metrics if row.get("evaluation_return") is not None]
    if not evaluated:
        return "not evaluated"
    last = evaluated[-1]
    return f"{number(last['evaluation_return'])} after epoch {last['epoch']}"
