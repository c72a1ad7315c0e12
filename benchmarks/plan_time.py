"""Milliseconds per plan: demo, gp-pendulum and the authors' settings, against refactoring in every posterior call."""

import argparse
from typing import Any

import numpy as np
from timing import arguments, compare, emit, machine, matrix_product_gflops, measure, progress, ratio
from workloads import (
    POSTERIORS,
    QUICK,
    REFERENCES,
    SMALL,
    arithmetic,
    is_own_posterior,
    plan_once,
    planning_case,
    search_settings,
    shrink,
)

from actsafe.training.config import Config
from actsafe.training.presets import PRESETS

CLAIM = "One plan in milliseconds, and how many times longer it takes when every call factors the kernel matrix."

METHOD = {
    "plan": "Planner.plan: search and pre-flight check, jitted, seeds batched as a run batches them; compiled ahead",
    "reference": (
        "the same planner at the authors' settings with the model of refactoring.py, which gives the same predictions "
        "but builds the kernel matrix, factors it and solves in every call; refactor_per_call shares one factorisation "
        "among all plans and particles of a horizon step, refactor_per_prediction shares nothing"
    ),
    "smaller_workload": (
        "refactor_per_prediction cannot be run at the authors' full settings (3.1 million factorisations a plan); it "
        "and ours are measured on the same smaller search, and the ratio is of that one. Nothing is extrapolated here"
    ),
}


def main() -> None:
    options = parse()
    yardstick = matrix_product_gflops(256 if options.quick else 2048)
    points = [
        point(name, config, posterior, num_seeds, options, yardstick)
        for name, config in presets(options).items()
        for posterior in options.posteriors
        for num_seeds in options.seeds
    ]
    references = [reference(name, config, names, options, yardstick) for name, config, names in workloads(options)]
    result = {
        "benchmark": "plan_time",
        "claim": CLAIM,
        "method": METHOD,
        "machine": machine(),
        "is_quick": options.quick,
        "matrix_product_gflops": yardstick,
        "num_data": options.data,
        "points": points,
        "references": references,
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=10)
    parser.add_argument("--presets", nargs="+", default=["demo", "gp-pendulum", "authors-pendulum"], choices=PRESETS)
    parser.add_argument("--posteriors", nargs="+", default=POSTERIORS, choices=POSTERIORS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 10], help="numbers of seeds in one program")
    parser.add_argument("--data", type=int, default=512, help="transitions the model knows; ten episodes leave 501")
    parser.add_argument(
        "--max-seconds", type=float, default=200.0, help="leave out a point whose arithmetic alone would take longer"
    )
    options = parser.parse_args()
    if options.quick:
        options.presets, options.posteriors, options.seeds = ["demo"], ["reduced"], [2]
        options.data, options.repeats = 16, 2
    return options


def presets(options: argparse.Namespace) -> dict[str, Config]:
    """The presets asked for; tiny versions of them if it must be quick."""
    configs = {name: PRESETS[name]() for name in options.presets}
    if options.quick:
        return {name: shrink(config, QUICK, num_particles=2) for name, config in configs.items()}
    return configs


def point(
    preset: str, config: Config, posterior: str, num_seeds: int, options: argparse.Namespace, yardstick: float
) -> dict[str, Any]:
    """One preset with one posterior, for `num_seeds` seeds at a time."""
    about = {"preset": preset, "posterior": posterior, "num_seeds": num_seeds, "num_data": options.data}
    about |= {"settings": search_settings(config), "is_presets_posterior": is_own_posterior(config, posterior)}
    progress(f"{preset}, {posterior}, {num_seeds} seeds")
    floor = _floor_seconds(config, posterior, num_seeds, options, yardstick)
    if floor > options.max_seconds:
        return about | {"skipped": f"its arithmetic alone takes {floor:.0f} s at the rate of a matrix product here"}
    case = planning_case(config, posterior, num_data=options.data, num_seeds=num_seeds)
    times = measure(plan_once, *case, repeats=options.repeats)
    work = arithmetic(config, posterior, num_data=options.data, num_seeds=num_seeds, milliseconds=times["median_ms"])
    work["share_of_matrix_product"] = work["achieved_gflops"] / yardstick
    return about | times | {"ms_per_seed": times["median_ms"] / num_seeds} | work


def workloads(options: argparse.Namespace) -> list[tuple[str, Config, tuple[str, ...]]]:
    """Searches that the references are measured on: which settings, and which references can do them."""
    authors = PRESETS["authors-pendulum"]()
    if options.quick:
        return [("small", shrink(authors, QUICK, num_particles=2), REFERENCES)]
    sixteenth = {"num_candidates": 62, "num_elites": 6}
    return [
        ("small", shrink(authors, SMALL, num_particles=4), REFERENCES),
        ("a sixteenth of the authors' candidates", shrink(authors, sixteenth, num_particles=30), REFERENCES[:1]),
        ("the authors' settings", authors, REFERENCES[:1]),
    ]


def reference(
    name: str, config: Config, references: tuple[str, ...], options: argparse.Namespace, yardstick: float
) -> dict[str, Any]:
    """Ours (exact posterior) and the references on the same search, in turn."""
    about = {"workload": name, "num_data": options.data, "settings": search_settings(config)}
    progress(f"reference: {name}")
    # Two triangular solves where ours has one product, each slower than a product.
    floor = 3 * _floor_seconds(config, "exact", 1, options, yardstick)
    if floor > options.max_seconds:
        return about | {"skipped": f"the reference would take about {floor:.0f} s a plan here"}
    cases = {
        model: (plan_once, planning_case(config, model, num_data=options.data, num_seeds=1))
        for model in ("exact", *references)
    }
    times, plans = compare(cases, repeats=options.repeats)
    value = {model: plan.best_value for model, plan in plans.items()}
    return about | {
        "ours": times["exact"]
        | arithmetic(config, "exact", num_data=options.data, num_seeds=1, milliseconds=times["exact"]["median_ms"]),
        "references": {model: times[model] for model in references},
        "ratio": {model: ratio(times[model], times["exact"]) for model in references},
        "relative_difference_of_plan_value": {
            model: float(np.max(np.abs(value[model] / value["exact"] - 1.0))) for model in references
        },
    }


def _floor_seconds(
    config: Config, posterior: str, num_seeds: int, options: argparse.Namespace, yardstick: float
) -> float:
    work = arithmetic(config, posterior, num_data=options.data, num_seeds=num_seeds, milliseconds=1.0)
    return work["gflop_per_plan"] * num_seeds / yardstick


if __name__ == "__main__":
    main()
