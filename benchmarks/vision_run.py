"""Simulator steps a second of a preset's phases, in epochs shorter than its own, and what a million steps would take.

`actsafe train` writes the same rates of every epoch of a run into its folder (timing.json): this is for a few minutes
on a machine on which the preset itself would take hours.
"""

import argparse
import contextlib
import dataclasses
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from environment_soak import resident_mib
from timing import CompileClock, arguments, command, compile_ahead, emit, machine, progress

from actsafe.agents.phases import Phase, Schedule
from actsafe.envs.base import EnvBatch
from actsafe.envs.problem import ProblemBatch
from actsafe.problems import PROBLEMS
from actsafe.training.config import Config
from actsafe.training.loop import make_loop
from actsafe.training.presets import PRESETS, STEPS_PER_EPISODE, vision_tiny
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer

CLAIM = "A million simulator steps of a preset and their 100,000 updates take 15 minutes on one H200."

METHOD = {
    "run": "the preset as `actsafe train` runs it, checkpoints included, but that epochs are shorter, phases as long "
    "as it takes to time them, and every epoch is evaluated, of which the last counts",
    "steps_per_second": "simulator steps of all environments by wall-clock second of training, median of the repeats; "
    "the first epoch of a phase compiles and is left out, and compile_seconds says what the others still compiled",
    "seconds_by_part": "collect: until the last tick; the host does not wait for updates that go on meanwhile. finish: "
    "until the last update is done. commit: until the epoch is in the folder, with as many rows as it has",
    "simulation_alone": "the environments under random actions, nothing drawn, nobody deciding: no loop can be faster",
    "extrapolated": "from these rates and the preset's phases and evaluations; no million steps were run",
}

MILLION = 1_000_000


def main() -> None:
    options = parse()
    preset = make_preset(options)
    with jax.enable_x64(preset.agent.is_double), contextlib.closing(preset.make_envs()) as envs:
        alone = simulation_alone(envs, options)
    config = shortened(preset, options)
    with tempfile.TemporaryDirectory() as path:
        epochs = timed_epochs(Path(path) / "run", config)
    phases = {
        phase.value: measured([each for each in epochs if each["phase"] == phase.value]) for phase in phases_of(preset)
    }
    evaluation = {"episodes": config.evaluation_episodes, "seconds": epochs[-1]["evaluate_seconds"]}
    result = {
        "benchmark": "vision_run",
        "claim": CLAIM,
        "method": METHOD,
        "command": command(),
        "machine": machine() | {"precision": getattr(preset.agent, "precision", None)},
        "is_quick": options.quick,
        "preset": options.preset,
        "config": config.to_json(),
        "simulation_alone": alone,
        "phases": phases,
        "ratio_to_simulation_alone": {
            name: entry["steps_per_second"] / alone["steps_per_second"] for name, entry in phases.items()
        },
        "evaluation": evaluation,
        "memory": {
            "device_peak_bytes": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
            "host_resident_bytes": int(resident_mib() * 2**20),
            "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        },
        "extrapolated": extrapolated(preset, phases, evaluation),
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=2)
    parser.add_argument("--preset", default="point-goto-goal", choices=PRESETS)
    parser.add_argument("--episodes", type=int, default=1, help="of every environment in an epoch")
    options = parser.parse_args()
    if options.quick:
        options.repeats = 1
    return options


def make_preset(options: argparse.Namespace) -> Config:
    """The preset; to be quick two environments, short episodes, small images, tiny networks, and the last phase."""
    preset, tiny = PRESETS[options.preset](), vision_tiny()
    if not options.quick:
        return preset
    short = {"num_decisions": 25} if preset.env in PROBLEMS else {"episode_length": 50}
    kept = {name: getattr(preset, name) for name in ("env", "task", "budget", "algorithm")}
    return dataclasses.replace(
        tiny, **kept, options={**preset.options, **short}, schedule=Schedule(expansion=0, exploitation=1)
    )


def phases_of(preset: Config) -> list[Phase]:
    """Those that it has, in their order."""
    return list(dict.fromkeys(preset.phase(number) for number in range(1, preset.num_units + 1)))


def shortened(preset: Config, options: argparse.Namespace) -> Config:
    """The preset with short epochs: in each of its phases one to compile, and `repeats` that count."""
    num_episodes = (1 + options.repeats) * options.episodes
    phases = {phase.value: num_episodes for phase in phases_of(preset)}
    schedule = Schedule(**{"expansion": 0, **phases}, episodes_per_epoch=options.episodes)
    agent: Any = preset.agent
    if hasattr(agent, "is_handover_checked"):
        # Phases are those of the schedule, whatever the policies come to.
        agent = dataclasses.replace(agent, is_handover_checked=False)
    # Every epoch is evaluated: the first evaluation compiles, the last one counts.
    evaluated = {"evaluate_every": 1, "evaluation_episodes": preset.num_envs}
    return dataclasses.replace(preset, schedule=schedule, agent=agent, **evaluated)


def timed_epochs(path: Path, config: Config) -> list[dict[str, Any]]:
    """Times of all epochs of a run in a new folder."""
    compilation, ends = CompileClock(), []
    loop = make_loop(config)
    trainer = Trainer(RunFolder.create(path, config, loop.envs.spec), loop=loop)

    def on_epoch(rows: list[dict[str, Any]]) -> None:
        ends.append((time.perf_counter(), rows[0]))
        timing = rows[0]["timing"]
        progress(f"epoch {rows[0]['epoch']}, {rows[0]['phase']}: {timing['steps_per_second']:.0f} steps/s")

    trainer.on_epoch = on_epoch
    started = time.perf_counter()
    trainer.run(command())
    epochs = []
    for before, (end, row) in zip([started, *(end for end, _ in ends)], ends, strict=False):
        timing, updates = row["timing"], row["updates"] - (epochs[-1]["updates"] if epochs else 0)
        steps = row["steps"] - (epochs[-1]["steps"] if epochs else 0)
        parts = {"collect": timing["collect_seconds"], "finish": timing["train_seconds"] - timing["collect_seconds"]}
        parts["commit"] = end - before - timing["seconds"]
        entry = {"seconds_by_part": parts, "seconds": end - before, "num_steps": steps, "num_updates": updates}
        entry["compile_seconds"] = compilation.within(before, end)
        epochs.append({**timing, **row, **entry})
    return epochs


def measured(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    """Times of a phase, of whose epochs the first compiles."""
    first, *others = epochs
    rates = [epoch["steps_per_second"] for epoch in others]
    parts = {
        name: statistics.fmean(epoch["seconds_by_part"][name] for epoch in others)
        for name in others[0]["seconds_by_part"]
    }
    return {
        "first_epoch": {name: first[name] for name in ("seconds", "compile_seconds")},
        "steps_per_second": statistics.median(rates),
        "best_steps_per_second": max(rates),
        "updates_per_second": statistics.median(epoch["updates_per_second"] for epoch in others),
        "seconds": statistics.fmean(epoch["seconds"] - epoch["evaluate_seconds"] for epoch in others),
        "seconds_by_part": parts,
        "compile_seconds": sum(epoch["compile_seconds"] for epoch in others),
        "num_steps": others[0]["num_steps"],
        "num_updates": others[0]["num_updates"],
        "repeats": len(others),
    }


def simulation_alone(envs: EnvBatch, options: argparse.Namespace) -> dict[str, Any]:
    """Steps a second of the environments alone, over one episode of each; on the device in one program."""
    shape = (envs.spec.num_decisions, envs.num_envs, envs.spec.action_dim)
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)
    compile_seconds = 0.0
    if isinstance(envs, ProblemBatch):
        course, _ = envs.begin(envs.streams(0))
        episode, compile_seconds = compile_ahead(lambda *inputs: jax.lax.scan(envs.advance, *inputs), course, actions)
    else:

        def episode() -> None:
            envs.reset(0)
            for row in actions:
                envs.step(row)

    seconds = []
    for _ in range(1 + options.repeats):
        started = time.perf_counter()
        episode()
        seconds.append(time.perf_counter() - started)
    num_steps = envs.spec.num_decisions * envs.num_envs * envs.spec.action_repeat
    rate = num_steps / statistics.median(seconds[1:])
    progress(f"simulation alone: {rate:.0f} steps/s")
    return {"steps_per_second": rate, "compile_seconds": compile_seconds, "num_steps": num_steps}


def extrapolated(preset: Config, phases: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Minutes for a million steps: of each phase, and the first million of the preset with its evaluations."""
    rates = {name: entry["steps_per_second"] for name, entry in phases.items()}
    steps_per_epoch = STEPS_PER_EPISODE * preset.num_envs * preset.schedule.episodes_per_epoch
    epochs = range(1, min(MILLION // steps_per_epoch, preset.num_units) + 1)
    evaluations = sum(preset.is_evaluated(number) for number in epochs) * preset.evaluation_episodes
    minutes = {
        "training": sum(steps_per_epoch / rates[preset.phase(number).value] for number in epochs) / 60,
        "evaluation": evaluations * evaluation["seconds"] / evaluation["episodes"] / 60,
    }
    return {
        "is_extrapolated": True,
        "minutes_per_million_steps": {name: MILLION / rate / 60 for name, rate in rates.items()},
        "minutes_of_first_million": minutes | {"all": sum(minutes.values())},
    }


if __name__ == "__main__":
    main()
