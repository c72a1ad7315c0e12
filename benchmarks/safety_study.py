"""Who keeps the budget while learning: variants of a preset that differ in one thing, many seeds.

No benchmark: it makes `results/state_cartpole.json`, from state on a CPU, and with another preset results from pixels.
Every run is `actsafe train` of the preset with a variant's settings, in a process of its own, on a CPU with one core;
what is finished in `--folder` is not computed again, so that the study may be stopped at any moment and goes on where
it was. After a run its deployed policy is frozen and evaluated.

    python benchmarks/safety_study.py --variants actsafe --seeds 10 --out results/state_cartpole.json
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from timing import command, emit, machine, progress

import actsafe
from actsafe.cli import jax_setup
from actsafe.cli.train import assignment, override
from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.ledger import is_over
from actsafe.training.storage import read_json, write_json
from actsafe.training.study import frozen_episodes, screen_entry, study_entries

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
    **{name: {"algorithm": name} for name in ("greedy", "uniform", "optimistic")},
    "guarded_greedy": {"algorithm": "greedy", "safe_set.is_frozen": True},
    "seed_start": {"safe_set.start": "seed", "safe_set.seed_noise": 0.005},
    "one_stage": {"safe_set.canary.stages": [0.1]},
    "advisory": {"safe_set.screen.is_advisory": True},
    **PARTS,
}
METHOD = {
    "runs": "an entry for every variant and seed; epochs after the warm-up, of ten episodes each. late_return is the "
    "mean over the last tenth of epochs",
    "frozen": "50 episodes of the deployed policy after the last epoch, nothing learned, governor included",
    "summary": "epochs_over: those whose mean cost is over the budget; intervals are exact (Clopper and Pearson, 95 %)",
    "screen": "deployments of a candidate; passed_over: over budget or taken over. auroc: of the score against that",
    "train_seconds": "of epochs, without evaluation and commits, with compilation where it was not cached; runs shared "
    "the machine with others",
}
QUICK = {
    "schedule": {"warm_up": 1, "expansion": 1, "exploitation": 1, "episodes_per_epoch": 1},
    "options": {"num_decisions": 20},
    "num_envs": 2,
    "agent.updates_per_1000_steps": 10,
    "agent.model.num_members": 2,
    "agent.is_handover_checked": False,
}


class Job(NamedTuple):
    """One run."""

    variant: str
    seed: int
    place: int
    """Of its core, on a CPU."""
    preset: str
    changes: Mapping[str, Any]
    folder: Path
    num_frozen: int

    @property
    def path(self) -> Path:
        return self.folder / self.variant / f"seed-{self.seed}"


def one_run(job: Job) -> tuple[Job, float]:
    """Trains and evaluates one seed of a variant, unless that is done, and the seconds that it took."""
    if hasattr(os, "sched_setaffinity") and os.environ.get("JAX_PLATFORMS", "cpu") == "cpu":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[job.place % len(cores)]})
    jax_setup.configure()
    started, found = time.perf_counter(), job.path.with_suffix(".json")
    content = actsafe.presets.PRESETS[job.preset]().to_json()
    for setting, value in {**job.changes, **VARIANTS[job.variant], "seeds": [job.seed]}.items():
        content = override(content, setting, value)
    if not found.is_file():
        run = actsafe.train(actsafe.Config.from_json(content), job.path, progress=False)
        (entry,) = study_entries(run.folders[0], frozen_episodes(run.folders[0], job.num_frozen))
        seconds = sum(each.get("train_seconds", 0.0) for each in run.folders[0].timing())
        write_json(found, {"variant": job.variant, **entry, "train_seconds": seconds})
    return job, time.perf_counter() - started


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
    parser.add_argument("--preset", default="cartpole-state")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of all variants")
    parser.add_argument("--seeds", type=int, default=10, help="of each variant, from 0 on")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs side by side")
    parser.add_argument("--folder", type=Path, help="where runs are kept (default: runs/safety-study)")
    parser.add_argument("--out", type=Path, help="results file, which other variants and seeds in it stay in")
    parser.add_argument("--quick", action="store_true", help="only check that it runs")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp() if options.quick else "runs/safety-study")
    changes = dict(map(assignment, options.set)) | (QUICK if options.quick else {})
    each = [(name, seed) for seed in range(1 if options.quick else options.seeds) for name in options.variants]
    jobs = [
        Job(name, seed, place, options.preset, changes, folder, 2 if options.quick else 50)
        for place, (name, seed) in enumerate(each)
    ]
    # A process for each run, and no fork of one that has a device.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        for number, (job, seconds) in enumerate(pool.map(one_run, jobs), 1):
            progress(f"{number} of {len(jobs)}: {job.variant}, seed {job.seed}, {seconds:.0f} s")
    before = read_json(options.out)["runs"] if options.out and options.out.is_file() else []
    kept = [run for run in before if (run["variant"], run["seed"]) not in each]
    runs = [*kept, *(read_json(job.path.with_suffix(".json")) for job in jobs)]
    emit(
        {
            "benchmark": "safety_study",
            "is_quick": options.quick,
            "method": METHOD,
            "claim": "Deployed from a safe set, learned policies keep the budget on every seed while they learn.",
            "command": command(),
            "machine": machine(),
            "preset": options.preset,
            "changes": changes,
            "variants": {name: VARIANTS[name] for name in dict.fromkeys(run["variant"] for run in runs)},
            "summary": summary(runs),
            "runs": runs,
        },
        options.out,
    )


if __name__ == "__main__":
    main()
