"""Seconds per ten-episode run, through the runner, compilation apart; against the authors' time and the reference."""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from timing import CompileClock, arguments, compare, emit, machine, progress
from workloads import REFERENCES, calls_per_plan, known_problem, make_model, predictions_per_plan, random_transitions

from actsafe.training.config import Config
from actsafe.training.loop import Loop, make_loop
from actsafe.training.presets import PRESETS
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer

AUTHORS_HOURS = 13.4
"""Hours of one of the authors' runs, as published; their machine, not ours."""

CLAIM = "A run of ten episodes takes minutes where the authors' took 13.4 hours."

METHOD = {
    "run": "training.runner in a temporary folder, all seeds in one program, evaluation as the preset has it",
    "compile": (
        "the time in which JAX says it traced, lowered or compiled (jax.monitoring), overlaps counted once, within the "
        "same run; steady is wall clock less that"
    ),
    "again": "with --again a second run that finds every program compiled: what steady_seconds claims, measured whole",
    "authors": f"{AUTHORS_HOURS} h a run is a published number, not measured here, and of the authors' machine",
    "reference": (
        "extrapolated: the time of the refactoring model's predictions at several data sizes, measured here, times the "
        "predictions that this run made with as many data; search and simulation are not charged to it"
    ),
}

PHASES = {
    "explore": ("collect_seconds",),
    "learn": ("train_seconds", "collect_seconds"),
    "evaluate": ("evaluate_seconds",),
}
"""The entries of an epoch's timing that a phase is: the first less the others."""
TIMINGS = ("seconds", "train_seconds", "collect_seconds", "evaluate_seconds")


def main() -> None:
    options = parse()
    config = make_config(options)
    compilation = CompileClock()
    with tempfile.TemporaryDirectory() as folder:
        run, loop = timed_run(Path(folder) / "first", config, compilation)
        again = timed_run(Path(folder) / "again", config, compilation, loop)[0] if options.again else None
    reference = extrapolate(config, options)
    ours = run["steady_seconds_per_seed"]
    result = {
        "benchmark": "run_time",
        "claim": CLAIM,
        "method": METHOD,
        "machine": machine(),
        "is_quick": options.quick,
        "preset": options.preset,
        "num_seeds": len(config.seeds),
        "num_episodes": config.schedule.num_episodes,
        "plans_per_seed": sum(plans_per_episode(config)),
        "config": config.to_json(),
        "run": run,
        "again": again,
        "authors_published_hours_per_run": AUTHORS_HOURS,
        "ratio_of_published_to_ours_per_seed": AUTHORS_HOURS * 3600.0 / run["seconds_per_seed"],
        "reference_extrapolated": reference,
        "ratio_of_extrapolated_reference_to_ours": {
            name: seconds / ours for name, seconds in reference["seconds_per_seed"].items()
        },
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=3)
    parser.add_argument("--preset", default="demo", choices=PRESETS)
    parser.add_argument("--seeds", type=int, help="number of seeds, batched in one program; default: the preset's")
    parser.add_argument("--episodes", type=int, help="planned episodes; default: the preset's")
    parser.add_argument("--again", action="store_true", help="run a second time with everything compiled, as a check")
    options = parser.parse_args()
    if options.quick:
        options.preset, options.seeds, options.episodes, options.repeats = "tiny", 1, 1, 2
    return options


def make_config(options: argparse.Namespace) -> Config:
    """The preset with the number of seeds and episodes asked for."""
    config = PRESETS[options.preset]()
    if options.seeds is not None:
        config = dataclasses.replace(config, seeds=tuple(range(options.seeds)))
    if options.episodes is not None:
        schedule = dataclasses.replace(config.schedule, expansion=options.episodes, exploitation=0)
        config = dataclasses.replace(config, schedule=schedule)
    return config


def timed_run(
    path: Path, config: Config, compilation: CompileClock, loop: Loop | None = None
) -> tuple[dict[str, Any], Loop]:
    """Times of one run from the creation of its folder to its last commit, and the loop with what it compiled."""
    started = time.perf_counter()
    loop = make_loop(config) if loop is None else loop
    folder = RunFolder.create(path, config, loop.envs.spec)
    Trainer(folder, loop=loop, on_epoch=lambda rows: progress(f"epoch {rows[0]['epoch']}")).run("benchmark")
    seconds = time.perf_counter() - started
    compile_seconds = compilation.within(started, started + seconds)
    epochs = [{name: timing.get(name, 0.0) for name in TIMINGS} for timing in folder.timing()]
    totals = {name: sum(epoch[name] for epoch in epochs) for name in TIMINGS}
    phases = {phase: totals[first] - sum(totals[name] for name in rest) for phase, (first, *rest) in PHASES.items()}
    phases["other"] = seconds - sum(phases.values())
    times = {
        "seconds": seconds,
        "compile_seconds": compile_seconds,
        "steady_seconds": seconds - compile_seconds,
        "seconds_per_seed": seconds / len(config.seeds),
        "steady_seconds_per_seed": (seconds - compile_seconds) / len(config.seeds),
        "phases": {phase: {"seconds": each} for phase, each in phases.items()},
        "seconds_of_epochs": [epoch["seconds"] for epoch in epochs],
    }
    return times, loop


def plans_per_episode(config: Config) -> list[int]:
    """Plans of every planned episode of one seed, those of its evaluations included."""
    problem = known_problem(config)
    episodes = range(1, config.schedule.num_episodes + 1)
    return [problem.num_decisions * (1 + len(problem.tasks) * config.is_evaluated(n)) for n in episodes]


def extrapolate(config: Config, options: argparse.Namespace) -> dict[str, Any]:
    """What the model calls of such a run would take if each factored the kernel matrix: extrapolated, see `METHOD`."""
    problem = known_problem(config)
    decisions, seed_decisions = problem.num_decisions, config.schedule.seed_decisions
    plans = plans_per_episode(config)
    num_data = [seed_decisions + decisions * n for n in range(len(plans))]
    largest = num_data[-1] + decisions
    sizes = sorted({max(2, largest // 8), largest} if options.quick else {max(2, largest // 8), largest // 2, largest})
    calls, predictions = calls_per_plan(config), predictions_per_plan(config)
    widths = {"refactor_per_call": predictions // calls, "refactor_per_prediction": 2 if options.quick else 16}
    points = {name: [_predict_seconds(config, name, widths[name], n, options) for n in sizes] for name in REFERENCES}
    seconds = {}
    for name in REFERENCES:
        each = np.exp(np.interp(np.log(num_data), np.log(sizes), np.log(points[name])))
        times = calls if name == "refactor_per_call" else predictions / widths[name]
        seconds[name] = float(np.sum(np.asarray(plans) * each * times))
    return {
        "is_extrapolated": True,
        "data_sizes_measured": sizes,
        "predictions_per_measured_call": widths,
        "seconds_per_measured_call": points,
        "calls_per_plan": calls,
        "predictions_per_plan": predictions,
        "seconds_per_seed": seconds,
    }


def _predict_seconds(config: Config, name: str, width: int, num_data: int, options: argparse.Namespace) -> float:
    progress(f"{name}: {width} predictions, {num_data} data points")
    problem = known_problem(config)
    model = make_model(problem, random_transitions(problem, num_data, jax.random.key(0)), name)
    asked = random_transitions(problem, width, jax.random.key(1))
    case = (lambda m, d: jax.vmap(m.predict)(d.states, d.actions)), (model, asked)
    return compare({name: case}, repeats=options.repeats)[0][name]["median_ms"] / 1e3


if __name__ == "__main__":
    main()
