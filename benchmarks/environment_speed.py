"""Steps per second of PointGotoGoal from action to observation: pixels or state, one copy and many."""

import argparse
import statistics
import time
from typing import Any

import gymnasium
import mujoco
import numpy as np
from timing import arguments, emit, machine, progress

import actsafe  # noqa: F401, registers the environments

CLAIM = "A vector of environments is as fast as Gymnasium's SyncVectorEnv of the same ones, and faster with many."

METHOD = {
    "step": "envs.step with uniform random actions: physics, reward, cost and every copy's observation, on the host",
    "rate": "environment steps of all copies by wall-clock second; best and median of the repeats",
    "first_seconds": "making, resetting and the first step, compilation included unless an earlier case did it; apart",
    "reference": "gymnasium.vector.SyncVectorEnv of our single environments, in the same run, in turn",
    "growth": "rate with this number of copies over the rate with the first number of copies",
    "devices": "physics run on the CPU's cores, pixels on the device that JAX has",
}

ENVIRONMENT = "actsafe/PointGotoGoal-v0"
OBSERVATIONS: dict[str, dict[str, Any]] = {
    "state": {"observation": "state"},
    "pixels, 1 sample": {"observation": "pixels", "num_samples": 1},
    "pixels, 4 samples": {"observation": "pixels", "num_samples": 4},
}
MODES = {"ours": "vector_entry_point", "sync": "sync"}
"""How Gymnasium makes a vector: one object of ours, or a list of single environments."""


def main() -> None:
    options = parse()
    points = [point(name, num_copies, options) for name in options.observations for num_copies in options.copies]
    result = {
        "benchmark": "environment_speed",
        "claim": CLAIM,
        "method": METHOD,
        "machine": machine() | {"mujoco": mujoco.__version__, "precision": "float32"},
        "is_quick": options.quick,
        "environment": ENVIRONMENT,
        "image_size": options.side,
        "points": points,
        "growth": [growth(name, points) for name in options.observations],
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=5)
    parser.add_argument("--observations", nargs="+", default=list(OBSERVATIONS), choices=list(OBSERVATIONS))
    parser.add_argument("--copies", nargs="+", type=int, default=[1, 10, 64])
    parser.add_argument("--side", type=int, default=64, help="pixels along a side of an observation")
    parser.add_argument("--steps", type=int, default=640, help="environment steps of all copies in a repeat, about")
    options = parser.parse_args()
    if options.quick:
        options.observations, options.copies, options.side = ["state", "pixels, 1 sample"], [1], 8
        options.steps, options.repeats = 8, 2
    return options


def point(name: str, num_copies: int, options: argparse.Namespace) -> dict[str, Any]:
    """Rates of both kinds of vector, taking turns, and how many times faster ours is."""
    progress(f"{name}, {num_copies} copies")
    num_steps = max(4, options.steps // num_copies)
    vectors, first_seconds = {}, {}
    for kind, mode in MODES.items():
        vectors[kind], first_seconds[kind] = _begin(name, num_copies, mode, options.side)
    rates: dict[str, list[float]] = {kind: [] for kind in vectors}
    for _ in range(options.repeats):
        for kind, envs in vectors.items():
            rates[kind].append(num_copies * num_steps / _timed(envs, num_steps))
    for envs in vectors.values():
        envs.close()
    results = {
        kind: {
            "first_seconds": first_seconds[kind],
            "best": max(values),
            "median": statistics.median(values),
            "repeats": len(values),
        }
        for kind, values in rates.items()
    }
    ratio = {key: results["ours"][key] / results["sync"][key] for key in ("best", "median")}
    progress(f"  {results['ours']['best']:.0f} steps/s, {ratio['best']:.1f} times as fast as SyncVectorEnv")
    return {"observation": name, "num_copies": num_copies, "num_steps": num_steps} | results | {"ratio": ratio}


def _begin(name: str, num_copies: int, mode: str, side: int) -> tuple[gymnasium.vector.VectorEnv, float]:
    """A vector that has made its first step, and the seconds until then."""
    started = time.perf_counter()
    envs = gymnasium.make_vec(
        ENVIRONMENT, num_envs=num_copies, vectorization_mode=mode, image_size=side, **OBSERVATIONS[name]
    )
    envs.reset(seed=0)
    envs.step(np.zeros(envs.action_space.shape))
    return envs, time.perf_counter() - started


def _timed(envs: gymnasium.vector.VectorEnv, num_steps: int) -> float:
    """Seconds for this number of steps of every copy."""
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (num_steps, *envs.action_space.shape))
    started = time.perf_counter()
    for row in actions:
        envs.step(row)
    return time.perf_counter() - started


def growth(name: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    """How the rate of ours grows with the number of copies."""
    mine = [entry for entry in points if entry["observation"] == name]
    rates = {str(entry["num_copies"]): entry["ours"]["best"] / mine[0]["ours"]["best"] for entry in mine}
    return {"observation": name, "over_first": rates}


if __name__ == "__main__":
    main()
