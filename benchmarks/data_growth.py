"""How plan time grows with the number of data points: exact, reduced, and refactoring in every posterior call."""

import argparse
from typing import Any

from timing import arguments, compare, emit, machine, progress, ratio
from workloads import (
    POSTERIORS,
    QUICK,
    REFERENCES,
    SMALL,
    arithmetic,
    growth_exponent,
    plan_once,
    planning_case,
    search_settings,
    shrink,
)

from actsafe.training.config import Config
from actsafe.training.presets import PRESETS

CLAIM = "Beyond its subset the reduced posterior's plan time stops growing with the data; exact and reference do not."

METHOD = {
    "plan": "one plan of one seed, models of one size in turn; compiled ahead",
    "exponent": "least-squares slope of log(median ms) over log(data points); last_exponent: of the two largest sizes",
    "small": (
        "the authors' settings with a search small enough for the reference that factors in every prediction; ours is "
        "mostly fixed overhead there, which flatters the reference"
    ),
    "reduced": "up to subset_size data points the reduced posteriors are the exact one: read last_exponent",
}


def main() -> None:
    parser = arguments(__doc__, repeats=7)
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 128, 256, 512, 1024], help="data points")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.repeats = [8, 16], 2
    if len(options.sizes) < 2:
        parser.error("--sizes needs at least two sizes")
    result = {
        "benchmark": "data_growth",
        "claim": CLAIM,
        "method": METHOD,
        "machine": machine(),
        "is_quick": options.quick,
        "sizes": options.sizes,
        "workloads": [growth(*workload, options) for workload in workloads(options)],
    }
    emit(result, options.out)


def workloads(options: argparse.Namespace) -> list[tuple[str, Config, tuple[str, ...]]]:
    """What is planned, and with which models; the first is ours, exact."""
    authors = PRESETS["authors-pendulum"]()
    if options.quick:
        return [("small", shrink(authors, QUICK, num_particles=2), ("exact", "refactor_per_call"))]
    return [
        ("demo", PRESETS["demo"](), POSTERIORS),
        ("small", shrink(authors, SMALL, num_particles=4), ("exact", *REFERENCES)),
    ]


def growth(name: str, config: Config, models: tuple[str, ...], options: argparse.Namespace) -> dict[str, Any]:
    """Plan times over all sizes, and the exponents."""
    curves: dict[str, list[dict[str, Any]]] = {model: [] for model in models}
    for size in options.sizes:
        progress(f"{name}, {size} data points")
        cases = {m: (plan_once, planning_case(config, m, num_data=size, num_seeds=1)) for m in models}
        times, _ = compare(cases, repeats=options.repeats)
        for model in models:
            work = arithmetic(config, model, num_data=size, num_seeds=1, milliseconds=times[model]["median_ms"])
            to_exact = ratio(times[model], times["exact"])
            curves[model].append({"num_data": size, **times[model], "ratio_to_exact": to_exact, **work})
    return {"workload": name, "settings": search_settings(config), "curves": curves, "growth": exponents(curves)}


def exponents(curves: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """The growth exponent of every model's curve."""
    found = {}
    for model, points in curves.items():
        sizes, times = [p["num_data"] for p in points], [p["median_ms"] for p in points]
        found[model] = {
            "exponent": growth_exponent(sizes, times),
            "last_exponent": growth_exponent(sizes[-2:], times[-2:]),
        }
    return found


if __name__ == "__main__":
    main()
