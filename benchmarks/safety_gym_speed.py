"""Environment steps per second of the Safety-Gym tasks: one thread and all cores, objects asleep and awake."""

import argparse
import statistics
import time
from typing import Any

import mujoco
import numpy as np
from timing import arguments, emit, machine, progress

from actsafe.problems.safety_gym import ROBOTS, TASKS, Batch, SafetyGymSettings

CLAIM = "At least 15,000 PointGotoGoal environment steps a second and core; many times what it is with objects awake."

METHOD = {
    "step": (
        "Batch.step with uniform random actions: noise, physics, reward, cost, new goals; no observation, no image"
    ),
    "beginning": (
        "a reset and the first 20 environment steps, after which objects at rest are asleep, are timed apart; "
        "with_resets is the rate of whole episodes of 1000 environment steps, these included"
    ),
    "physics": "MuJoCo's steps alone, mj_step(model, data, 5) from the same states with the same actions, one thread",
    "reference": "the same simulations with MuJoCo's sleeping switched off, in the same run, in turn",
    "rate": "environment steps of all simulations by wall-clock second; best and median of the repeats",
    "cpu_us_per_step": "processor time of all threads, which other programs on the machine disturb less; the least",
}

EPISODE, SETTLING = 1000, 20
"""Environment steps of an episode, and of its beginning while objects come to rest."""


def main() -> None:
    options = parse()
    about = machine() | {"mujoco": mujoco.__version__}
    all_cores = about["cores"]
    points = [
        point(robot, task, options.simulations, num_threads, options)
        for robot in options.robots
        for task in options.tasks
        for num_threads in sorted({1, min(all_cores, options.simulations)})
    ]
    growth = [
        point("Point", "GotoGoal", num, threads, options)
        for num in options.growth
        for threads in sorted({1, min(num, all_cores)})
    ]
    result = {
        "benchmark": "safety_gym_speed",
        "claim": CLAIM,
        "method": METHOD,
        "machine": about,
        "is_quick": options.quick,
        "num_steps": options.steps,
        "physics": physics(options),
        "points": points,
        "growth": growth,
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=5)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--tasks", nargs="+", default=["GotoGoal", "PressButtons", "PushBox"], choices=list(TASKS))
    parser.add_argument("--simulations", type=int, default=10, help="simulations by task")
    parser.add_argument("--growth", nargs="+", type=int, default=[1, 10, 50, 256], help="numbers of simulations")
    parser.add_argument("--steps", type=int, default=500, help="environment steps that are timed, of each simulation")
    options = parser.parse_args()
    if options.quick:
        options.robots, options.tasks, options.simulations, options.growth = ["Point"], ["GotoGoal"], 2, [1, 2]
        options.steps, options.repeats = 10, 2
    return options


def point(robot: str, task: str, num_simulations: int, num_threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Rates with objects asleep and awake, taking turns, and how many times faster sleeping is."""
    about = {"robot": robot, "task": task, "num_simulations": num_simulations, "num_threads": num_threads}
    progress(", ".join(str(value) for value in about.values()))
    # About as much work for any number of simulations, and an awake world is ten times the work.
    num_steps = max(10, min(options.steps, 10 * options.steps // num_simulations))
    batches = {
        name: Batch(SafetyGymSettings(robot=robot, task=task, is_sleeping=is_sleeping), num_simulations, num_threads)
        for name, is_sleeping in (("sleeping", True), ("awake", False))
    }
    rates: dict[str, list[float]] = {name: [] for name in batches}
    beginnings: dict[str, list[float]] = {name: [] for name in batches}
    cpu_times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(options.repeats):
        for name, batch in batches.items():
            seconds, cpu_seconds, beginning = _timed(batch, num_steps)
            cpu_times[name].append(cpu_seconds / num_simulations / num_steps)
            rates[name].append(num_simulations * num_steps / seconds)
            beginnings[name].append(beginning / num_simulations)
    for batch in batches.values():
        batch.close()
    results = {name: _summary(rates[name], beginnings[name], cpu_times[name]) for name in batches}
    ratio = {key: results["sleeping"][key] / results["awake"][key] for key in ("best", "median")}
    progress(f"  {results['sleeping']['best']:.0f} steps/s, {ratio['best']:.1f} times as fast as awake")
    return about | {"num_steps": num_steps} | results | {"ratio": ratio}


def _timed(batch: Batch, num_steps: int) -> tuple[float, float, float]:
    """Seconds for these steps of an episode by wall clock and by processor, and for all that comes before them."""
    num, settings = len(batch.simulations), batch.settings
    size = (SETTLING + num_steps, num, settings.body.num_actions)
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, size)
    started = time.perf_counter()
    batch.reset(list(range(num)))
    for row in actions[:SETTLING]:
        batch.step(row)
    begun, cpu_begun = time.perf_counter(), time.process_time()
    for row in actions[SETTLING:]:
        batch.step(row)
    return time.perf_counter() - begun, time.process_time() - cpu_begun, begun - started


def _summary(rates: list[float], beginnings: list[float], cpu_times: list[float]) -> dict[str, float]:
    best, beginning = max(rates), min(beginnings)
    return {
        "best": best,
        "median": statistics.median(rates),
        "cpu_us_per_step": 1e6 * min(cpu_times),
        "beginning_ms": 1e3 * beginning,
        "with_resets": EPISODE / (beginning + (EPISODE - SETTLING) / best),
        "repeats": len(rates),
    }


def physics(options: argparse.Namespace) -> dict[str, float]:
    """Environment steps a second of MuJoCo alone in PointGotoGoal: what is left to gain."""
    batch = Batch(SafetyGymSettings(action_noise=0.0), 1, 1)
    simulation = batch.simulations[0]
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (options.steps, 2))
    rates = []
    for _ in range(options.repeats):
        batch.reset([0])
        for action in actions[:SETTLING]:
            batch.step(action[None])
        model, data = simulation.model, simulation.data
        started = time.perf_counter()
        for action in actions:
            data.ctrl[:] = action
            mujoco.mj_step(model, data, simulation.settings.body.num_substeps)
        rates.append(len(actions) / (time.perf_counter() - started))
    batch.close()
    return {"best": max(rates), "median": statistics.median(rates)}


if __name__ == "__main__":
    main()
