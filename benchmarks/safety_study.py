"""Who keeps the budget while learning, from state on a CPU: variants of a preset that differ in one thing, many seeds.

No benchmark: it makes `results/state_cartpole.json`. Every run is `actsafe train` of the preset `cartpole-state` with
a variant's settings, in a process of its own on one core; what is finished in `--folder` is not computed again, so
that the study may be stopped at any moment and goes on where it was. After a run its deployed policy is frozen and
evaluated.

    python benchmarks/safety_study.py --variants actsafe --seeds 10 --out results/state_cartpole.json
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timing import command, emit, machine

import actsafe
from actsafe.cli.train import override
from actsafe.evidence.binomial import clopper_pearson
from actsafe.training.storage import write_json

PRESET = "cartpole-state"
PARTS = {
    "no_freeze": {"safe_set.is_frozen": False},
    "no_archive": {"safe_set.archive_size": 0},
    "no_screen": {"safe_set.screen.is_on": False},
    "no_canary": {"safe_set.canary.is_on": False},
    "no_governor": {"safe_set.governor.is_on": False},
}
"""Each of the five parts switched off."""
VARIANTS: dict[str, dict[str, Any]] = {
    "actsafe": {},
    "actsafe_released": {"algorithm": "actsafe_released"},
    "greedy": {"algorithm": "greedy"},
    "guarded_greedy": {"algorithm": "greedy", "safe_set.is_frozen": True},
    "seed_start": {"safe_set.start": "seed", "safe_set.seed_noise": 0.02},
    "advisory": {"safe_set.screen.is_advisory": True},
    **PARTS,
}
QUICK = {
    "schedule": {"warm_up": 1, "expansion": 1, "exploitation": 1, "episodes_per_epoch": 1},
    "options": {"num_decisions": 20},
    "num_envs": 2,
    "agent.updates_per_1000_steps": 10,
    "agent.model.num_members": 2,
}


def one_run(job: tuple[str, int, str, int, bool]) -> tuple[str, int, float]:
    """Trains and evaluates one seed of a variant on the core `place`, unless that is done."""
    name, seed, folder, place, is_quick = job
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[place % len(cores)]})
    jax_setup.configure()
    started, path = time.perf_counter(), Path(folder) / name / f"seed-{seed}"
    content = actsafe.presets.PRESETS[PRESET]().to_json()
    for setting, value in (VARIANTS[name] | (QUICK if is_quick else {}) | {"seeds": [seed]}).items():
        content = override(content, setting, value)
    found = path.with_suffix(".json")
    if not found.is_file():
        run = actsafe.train(actsafe.Config.from_json(content), path, progress=False)
        (entry,) = study_entries(run.folders[0], frozen_episodes(run.folders[0], 4 if is_quick else 50))
        seconds = sum(each["train_seconds"] for each in run.folders[0].timing() if "train_seconds" in each)
        write_json(found, {"variant": name, **entry, "train_seconds": seconds})
    return name, seed, time.perf_counter() - started


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By variant: who broke the budget, with exact intervals, and what was earned."""
    found = {}
    for name in dict.fromkeys(run["variant"] for run in runs):
        own = [run for run in runs if run["variant"] == name]
        epochs = [epoch for run in own for epoch in run["epochs"]]
        over, episodes = (sum(epoch[count] for epoch in epochs) for count in ("episodes_over", "episodes"))
        found[name] = {
            "seeds": len(own),
            "epochs": len(epochs),
            "epochs_over": sum(is_over(epoch["mean_cost"], own[0]["budget"]) for epoch in epochs),
            "episodes": episodes,
            "episodes_over": over,
            "share_over": over / max(1, episodes),
            "interval": list(clopper_pearson(over, episodes)),
            "largest_share_of_a_seed": max(
                sum(epoch["episodes_over"] for epoch in run["epochs"])
                / max(1, sum(epoch["episodes"] for epoch in run["epochs"]))
                for run in own
            ),
            "fallback_episodes": sum(epoch["fallback_episodes"] or 0 for epoch in epochs),
            **{name: sum(run[name] for run in own) for name in ("frozen_over", "frozen_episodes")},
            **{name: [run[name] for run in own] for name in ("late_return", "frozen_return", "train_seconds")},
            "screen": screen_entry(own, [own[0]["budget"]]) if own[0]["deployed"] else None,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), default=["actsafe"])
    parser.add_argument("--seeds", type=int, default=10, help="of each variant, from 0 on")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="runs side by side")
    parser.add_argument("--folder", type=Path, default=Path("runs/safety-study"))
    parser.add_argument("--out", type=Path, help="results file, which other variants and seeds in it stay in")
    parser.add_argument("--quick", action="store_true", help="only check that it runs")
    options = parser.parse_args()
    jobs = [
        (name, seed, str(options.folder), place, options.quick)
        for place, (seed, name) in enumerate((seed, name) for seed in range(options.seeds) for name in options.variants)
    ]
    # A process for each run: a new one has no compiled programs of another's.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.cores, mp_context=context, max_tasks_per_child=1) as pool:
        for number, (name, seed, seconds) in enumerate(pool.map(one_run, jobs), 1):
            print(f"{number} of {len(jobs)}: {name}, seed {seed}, {seconds:.0f} s", file=sys.stderr, flush=True)
    before = read_json(options.out)["runs"] if options.out and options.out.is_file() else []
    is_new = {(name, seed) for name, seed, *_ in jobs}
    kept = [run for run in before if (run["variant"], run["seed"]) not in is_new]
    runs = [*kept, *(read_json(options.folder / name / f"seed-{seed}.json") for name, seed, *_ in jobs)]
    emit(
        {
            "benchmark": "safety_study",
            "is_quick": options.quick,
            "claim": "Deployed from a safe set, learned policies keep the budget on every seed while they learn.",
            "command": command(),
            "machine": machine(),
            "preset": PRESET,
            "variants": {name: VARIANTS[name] for name in dict.fromkeys(run["variant"] for run in runs)},
            "summary": summary(runs),
            "runs": runs,
        },
        options.out,
    )


if __name__ == "__main__":
    main()
