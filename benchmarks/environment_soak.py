"""A large batch for a long time: does memory stay where it is, and does every copy go on?"""

import resource
import time
from pathlib import Path

import gymnasium
import numpy as np
from timing import arguments, emit, machine, progress

import actsafe  # noqa: F401  registers the environments

CLAIM = "256 environments in one batch run 10,000 steps without a leak."


def main() -> None:
    parser = arguments(__doc__, repeats=1)
    parser.add_argument("--environment", default="PointGotoGoal", help="its name without actsafe/ and -v0")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10_000, help="steps of every copy, resets included")
    parser.add_argument("--observation", default="state", choices=("state", "pixels"))
    options = parser.parse_args()
    if options.quick:
        options.num_envs, options.steps = 3, 40
    envs = gymnasium.make_vec(
        f"actsafe/{options.environment}-v0",
        num_envs=options.num_envs,
        vectorization_mode="vector_entry_point",
        observation=options.observation,
    )
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    memory, num_ended, num_broken, started = [resident_mib()], 0, 0, time.perf_counter()
    parts = 10
    for part in range(parts):
        for _ in range(options.steps // parts):
            actions = rng.uniform(-1.0, 1.0, envs.action_space.shape).astype(np.float32)
            observations, _, terminations, truncations, _ = envs.step(actions)
            num_ended += int(np.sum(terminations | truncations))
            num_broken += int(np.sum(terminations))
        memory.append(resident_mib())
        progress(f"{(part + 1) * options.steps // parts} steps, {memory[-1]:.0f} MiB")
    seconds = time.perf_counter() - started
    result = {
        "benchmark": "environment_soak",
        "claim": CLAIM,
        "machine": machine(),
        "is_quick": options.quick,
        "environment": options.environment,
        "observation": options.observation,
        "num_envs": options.num_envs,
        "steps_each": options.steps,
        "episodes_ended": num_ended,
        "broken": num_broken,
        "is_finite": bool(np.all(np.isfinite(observations))),
        "resident_mib": memory,
        "growth_mib_after_first_tenth": memory[-1] - memory[1],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "steps_per_second": options.num_envs * options.steps / seconds,
    }
    envs.close()
    emit(result, options.out)


def resident_mib() -> float:
    """Memory of this process now (Linux), or its peak elsewhere."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
