"""Time to learn from an episode against the number of data points: fit on a spread subset or on all, conditioning."""

import argparse
import dataclasses
from typing import Any

import jax
from timing import Case, arguments, compare, emit, machine, progress, ratio
from workloads import (
    EXACT,
    POSTERIORS,
    growth_exponent,
    known_problem,
    make_kernels,
    random_transitions,
    with_posterior,
)

from actsafe.models.gp.dynamics import GPSettings, fit_kernels, learn
from actsafe.training.presets import PRESETS

CLAIM = "A fit on at most max_points rows stops growing with the data; one on all rows, the reference, does not."

METHOD = {
    "fit": "fit_kernels, all outputs of one seed, over --steps Adam steps; subset: max_points rows, all: every row",
    "condition": "learn: choice of rows, kernel matrix, factor, inverse factor, weights; once per episode",
    "reference": "fit on all rows, and conditioning on all rows (exact), in the same run",
}


def main() -> None:
    parser = arguments(__doc__, repeats=5)
    defaults = PRESETS["demo"]().agent.gp.fit
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 128, 256, 512, 1024], help="data points")
    parser.add_argument("--steps", type=int, default=defaults.num_steps, help="Adam steps")
    parser.add_argument("--max-points", type=int, default=defaults.max_points, help="rows of the subset")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.steps, options.max_points, options.repeats = [12, 24], 2, 8, 2
    if len(options.sizes) < 2:
        parser.error("--sizes needs at least two sizes")
    points = [point(size, options) for size in options.sizes]
    names = [name for name in points[0] if name.startswith(("fit_", "condition_"))]
    result = {
        "benchmark": "fit_time",
        "claim": CLAIM,
        "method": METHOD,
        "machine": machine(),
        "is_quick": options.quick,
        "num_steps": options.steps,
        "max_points": options.max_points,
        "points": points,
        "growth_exponent": {n: growth_exponent(options.sizes, [p[n]["median_ms"] for p in points]) for n in names},
    }
    emit(result, options.out)


def point(size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Fit and conditioning with `size` data points."""
    progress(f"{size} data points")
    problem = known_problem(PRESETS["demo"]())
    data = random_transitions(problem, size, jax.random.key(0))
    kernels = make_kernels(problem)
    fits = {"fit_subset": fitting(options.steps, options.max_points), "fit_all": fitting(options.steps, size)}
    cases: dict[str, Case] = {
        name: (fit_kernels, (problem, data, kernels, settings)) for name, settings in fits.items()
    }
    for name in POSTERIORS:
        cases[f"condition_{name}"] = learn, (problem, data, kernels, with_posterior(EXACT, name))
    times, _ = compare(cases, repeats=options.repeats)
    for name in fits:
        times[name]["ms_per_step"] = times[name]["median_ms"] / options.steps
    exact = times["condition_exact"]
    return {
        "num_data": size,
        **times,
        "ratio": {
            "fit": ratio(times["fit_all"], times["fit_subset"]),
            **{f"condition_{name}": ratio(exact, times[f"condition_{name}"]) for name in POSTERIORS if name != "exact"},
        },
    }


def fitting(num_steps: int, max_points: int) -> GPSettings:
    """Settings of a fit on at most this number of rows."""
    return dataclasses.replace(EXACT, fit=dataclasses.replace(EXACT.fit, num_steps=num_steps, max_points=max_points))


if __name__ == "__main__":
    main()
