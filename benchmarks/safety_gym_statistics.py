"""Safety-Gym under random actions against the simulator that the paper used; sleeping against awake; layouts."""

import argparse
import math
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from timing import arguments, emit, machine, progress

from actsafe.problems.safety_gym import Batch, SafetyGymSettings

CLAIM = "Random-policy returns, costs and goals, and layouts, are those of the paper's simulator up to sampling error."

METHOD = {
    "policy": "uniform random actions, each held for 2 environment steps; 1000 environment steps an episode",
    "reference": "20 episodes of the published simulator by task, as measured and written down by us before this code",
    "verdict": (
        "chance: the share of 20-episode samples drawn from ours whose mean is at least as far out as the reference's, "
        "on its side; agrees from 0.005 on. Costs have a long tail, for which a normal approximation is no good"
    ),
    "sleeping": (
        "the same seeds and actions with MuJoCo's sleeping on and off, before and after the robot first touches a "
        "vase, a pillar or the box. What follows a collision is chaotic; how much so is shown by the second "
        "comparison, all awake, of robots that start one nanometre apart"
    ),
}

REFERENCE_EPISODES = 20
NUDGE = 1e-9
SLIPPERY = {"floor_damping": 0.001}

# Robot, task, options: return mean and std, cost mean and median, goals; in the released simulator.
REFERENCE: tuple[tuple[str, str, dict[str, float], tuple[float, ...] | None], ...] = (
    ("Point", "GotoGoal", {}, (0.12, 0.84, 12.7, 6.5, 0.10)),
    ("Point", "GotoGoalSparse", {}, (0.12, 0.35, 12.7, 6.5, 0.10)),
    ("Point", "PressButtons", {}, None),
    ("Point", "PressButtonsSparse", {}, None),
    ("Point", "PushBox", {}, None),
    ("Point", "PushBoxSparse", {}, (0.0, 0.0, 15.9, 0.0, 0.0)),
    ("Point", "GotoGoal", SLIPPERY, (-4.83, 2.84, 15.9, 8.0, 0.25)),
    ("Point", "GotoGoal", {"motor_gear": 3.0}, None),
    ("Doggo", "GotoGoal", {}, (-0.73, 1.46, 37.7, 2.0, 0.10)),
    ("Doggo", "GotoGoalSparse", {}, (0.13, 0.38, 37.7, 2.0, 0.10)),
    ("Doggo", "PressButtons", {}, None),
    ("Doggo", "PressButtonsSparse", {}, None),
    ("Doggo", "PushBox", {}, None),
    ("Doggo", "PushBoxSparse", {}, (-0.03, 0.18, 17.4, 0.0, 0.0)),
)

# Of 400 seeds of PointGotoGoal in the released simulator, and shares of goals beyond 1.1 in the others.
LAYOUT_REFERENCE = {
    "largest_coordinate_mean": 0.975,
    "largest_coordinate_p95": 1.74,
    "largest_coordinate_max": 2.0,
    "share_beyond_1_1": 0.357,
    "robot_to_goal_mean": 1.75,
    "robot_to_goal_min": 0.80,
    "robot_to_goal_max": 4.4,
}
SHARES_BEYOND = {"GotoGoal": 0.357, "PushBox": 0.18, "PushBoxSparse": 0.125}


def main() -> None:
    options = parse()
    result = {
        "benchmark": "safety_gym_statistics",
        "claim": CLAIM,
        "method": METHOD,
        "machine": machine() | {"mujoco": mujoco.__version__},
        "is_quick": options.quick,
        "random_policy": [compare(*row, options) for row in REFERENCE if row[0] in options.robots],
        "sleeping": [sleeping(task, options) for task in ("GotoGoal", "PushBox")],
        "layouts": layouts(options),
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=1)
    parser.add_argument("--robots", nargs="+", default=["Point", "Doggo"], choices=["Point", "Doggo"])
    parser.add_argument("--episodes", type=int, default=200, help="episodes by task")
    parser.add_argument("--sleeping-episodes", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1000, help="environment steps of an episode")
    parser.add_argument("--layouts", type=int, default=2000, help="seeds by task")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    if options.quick:
        options.episodes = options.sleeping_episodes = 2
        options.steps, options.layouts = 10, 10
    return options


def random_episodes(settings: SafetyGymSettings, seeds: list[int], threads: int | None) -> dict[str, npt.NDArray[Any]]:
    """Returns, costs and goals met of one episode for every seed, under uniform random actions."""
    batch = Batch(settings, len(seeds), threads)
    batch.reset(list(seeds))
    generators = [np.random.default_rng([seed, 1]) for seed in seeds]
    totals = {name: np.zeros(len(seeds)) for name in ("return", "cost", "goals", "hazards", "vases", "pillars")}
    for _ in range(settings.episode_length // settings.action_repeat):
        actions = [generator.uniform(-1.0, 1.0, settings.body.num_actions) for generator in generators]
        result = batch.step(np.array(actions))
        for name, values in (("return", result.rewards), ("cost", result.costs), ("goals", result.goals_met)):
            totals[name] += values
        for name, values in result.cost_sources.items():
            totals[name] += values
    num_broken = sum(simulation.is_broken for simulation in batch.simulations)
    batch.close()
    if num_broken:
        raise RuntimeError(f"{settings}: {num_broken} simulations broke down")
    return totals


def compare(
    robot: str, task: str, shifts: dict[str, float], reference: tuple[float, ...] | None, options: argparse.Namespace
) -> dict[str, Any]:
    """Our statistics of a task next to the reference's, with a verdict."""
    progress(f"{robot} {task} {shifts}")
    settings = SafetyGymSettings(
        robot=robot, task=task, reward="released", action_repeat=2, episode_length=options.steps, **shifts
    )
    totals = random_episodes(settings, list(range(options.episodes)), options.threads)
    ours = {name: _summary(values) for name, values in totals.items()}
    about = {"robot": robot, "task": task, "shifts": shifts, "num_episodes": options.episodes, "ours": ours}
    if reference is None:
        return about
    mean, std, cost, cost_median, goals = reference
    judged = {
        "return": _judge(totals["return"], mean, rounding=0.005) | {"std": std},
        "cost": _judge(totals["cost"], cost, rounding=0.05) | {"median": cost_median},
        "goals": _judge(totals["goals"], goals, rounding=0.005),
    }
    progress("  " + ", ".join(f"{name}: chance {value['chance']:.3f}" for name, value in judged.items()))
    return about | {"reference": judged, "agrees": all(value["agrees"] for value in judged.values())}


def _summary(values: npt.NDArray[np.float64]) -> dict[str, float]:
    std = float(np.std(values, ddof=1))
    return {
        "mean": float(np.mean(values)),
        "std": std,
        "standard_error": std / math.sqrt(len(values)),
        "median": float(np.median(values)),
        "max": float(np.max(values)),
    }


def _judge(values: npt.NDArray[np.float64], mean: float, rounding: float) -> dict[str, Any]:
    """The reference's mean, and how likely a sample of ours is as far out."""
    generator = np.random.default_rng(0)
    means = np.mean(generator.choice(values, (20_000, REFERENCE_EPISODES)), axis=1)
    chance = float(min(np.mean(means <= mean + rounding), np.mean(means >= mean - rounding)))
    return {"mean": mean, "chance": chance, "agrees": chance >= 0.005}


def sleeping(task: str, options: argparse.Namespace) -> dict[str, Any]:
    """How far robots get apart with and without sleeping; and with and without a nudge, all awake."""
    progress(f"sleeping: {task}")
    num = options.sleeping_episodes
    batches = {
        name: Batch(SafetyGymSettings(task=task, is_sleeping=name == "sleeping"), num, options.threads)
        for name in ("awake", "sleeping", "nudged")
    }
    for batch in batches.values():
        batch.reset(list(range(num)))
    for simulation in batches["nudged"].simulations:
        simulation.data.qpos[0] += NUDGE
        mujoco.mj_forward(simulation.model, simulation.data)
    traces = {name: _trace(batch, options.steps) for name, batch in batches.items()}
    for batch in batches.values():
        batch.close()
    return {
        "task": task,
        "num_episodes": num,
        "sleeping": _compare_traces(traces["sleeping"], traces["awake"]),
        "nudged": _compare_traces(traces["nudged"], traces["awake"]),
    }


def _trace(batch: Batch, num_steps: int) -> dict[str, npt.NDArray[Any]]:
    """Robots' positions, costs, and whether vases or anything else were touched, in rows of environment steps."""
    num = len(batch.simulations)
    generators = [np.random.default_rng([seed, 2]) for seed in range(num)]
    boxes, thrusts = _boxes(batch), np.ones(num)
    rows = []
    for step in range(num_steps):
        # Forth or back for a while, turning at random: touches more than actions that cancel out, and stays around.
        if step % 20 == 0:
            thrusts = np.array([generator.choice((-1.0, 1.0)) for generator in generators])
        turns = np.array([generator.uniform(-1.0, 1.0) for generator in generators])
        result = batch.step(np.stack([thrusts, turns], axis=1))
        is_vase = result.cost_sources["vases"] > 0
        is_other = (result.cost_sources["pillars"] > 0) | (np.linalg.norm(_boxes(batch) - boxes, axis=1) > 1e-3)
        rows.append((_robots(batch), result.costs, is_vase, is_vase | is_other))
    names = ("robots", "costs", "is_vase", "is_touched")
    return {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def _compare_traces(ours: dict[str, npt.NDArray[Any]], reference: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Distances before and after the first touch, and in how many episodes every step's cost is the same."""
    is_touched = np.logical_or.accumulate(ours["is_touched"] | reference["is_touched"], axis=0)
    distances = np.linalg.norm(ours["robots"] - reference["robots"], axis=-1)
    is_hit = np.any(ours["is_vase"] | reference["is_vase"], axis=0)
    is_same = np.all(ours["costs"] == reference["costs"], axis=0)
    return {
        "num_untouched": int(np.sum(~is_touched[-1])),
        "largest_distance_before_touch": float(np.max(np.where(is_touched, 0.0, distances))),
        "largest_distance_after_touch": float(np.max(np.where(is_touched, distances, 0.0))),
        "num_vase_hit": int(np.sum(is_hit)),
        "num_vase_hit_and_same_costs": int(np.sum(is_hit & is_same)),
        "num_no_vase_hit_and_same_costs": int(np.sum(~is_hit & is_same)),
        "mean_cost": float(np.mean(np.sum(ours["costs"], axis=0))),
        "mean_cost_awake": float(np.mean(np.sum(reference["costs"], axis=0))),
    }


def _robots(batch: Batch) -> npt.NDArray[np.float64]:
    return np.array([simulation.data.xpos[simulation.anatomy.robot_body] for simulation in batch.simulations])


def _boxes(batch: Batch) -> npt.NDArray[np.float64]:
    """Where the boxes are; the origin where there is none."""
    return np.array([simulation.data.xpos[simulation.anatomy.box_body] for simulation in batch.simulations])


def layouts(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Where first goals are, next to the reference."""
    results = []
    for task, share in SHARES_BEYOND.items():
        progress(f"layouts: {task}")
        batch = Batch(SafetyGymSettings(task=task), 1, 1)
        goals, distances = [], []
        for seed in range(options.layouts):
            batch.reset([seed])
            goals.append(batch.simulations[0].goal)
            distances.append(float(np.linalg.norm(_robots(batch)[0, :2] - goals[-1])))
        batch.close()
        reach = np.max(np.abs(goals), axis=1)
        ours = {
            "largest_coordinate_mean": float(np.mean(reach)),
            "largest_coordinate_p95": float(np.percentile(reach, 95)),
            "largest_coordinate_max": float(np.max(reach)),
            "share_beyond_1_1": float(np.mean(reach > 1.1)),
            "robot_to_goal_mean": float(np.mean(distances)),
            "robot_to_goal_min": float(np.min(distances)),
            "robot_to_goal_max": float(np.max(distances)),
        }
        reference = LAYOUT_REFERENCE if task == "GotoGoal" else {"share_beyond_1_1": share}
        error = math.sqrt(share * (1.0 - share) * (1.0 / 400 + 1.0 / options.layouts))
        distance = abs(ours["share_beyond_1_1"] - share) / error
        results.append(
            {"task": task, "num_seeds": options.layouts, "ours": ours, "reference": reference}
            | {"share_distance": distance, "agrees": distance <= 3.0}
        )
    return results


if __name__ == "__main__":
    main()
