"""Simulator steps a second of training from pixels as it is run, by phase; where the time goes, and the memory."""

import argparse
import contextlib
import dataclasses
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from environment_soak import resident_mib
from timing import CompileClock, arguments, compile_ahead, emit, machine, progress
from vision_workloads import command, peak_device_bytes, use_single_precision

from actsafe.agents.phases import Phase, StepSchedule
from actsafe.data.replay import Replay, make_replay
from actsafe.envs.make import EnvBatch, ProblemBatch
from actsafe.problems import PROBLEMS
from actsafe.training.epochs import Loop, Standing, ticks_per_epoch
from actsafe.training.run import Episode, RunFolder
from actsafe.training.vision_config import ROWS, VisionConfig
from actsafe.training.vision_presets import VISION_PRESETS, vision_tiny

CLAIM = "A million simulator steps of a preset and their 100,000 updates take 15 minutes on one H200."

METHOD = {
    "run": "Loop.epoch of the preset: all that `actsafe train` does but for evaluation and checkpoint, which are timed "
    "apart. Epochs are shorter than the preset's, and phases as long as it takes to time them",
    "steps_per_second": "simulator steps of all environments by wall-clock second, median of the repeats; the first "
    "epoch of a phase compiles and is left out, and compile_seconds says what the others still compiled",
    "reference": "not_overlapped: the same epochs, in turn with the others, but the host waits for every stretch of "
    "learning to end before it goes on to simulate",
    "seconds_by_part": "of the epochs that do not overlap, as only there each part has a beginning and an end, their "
    "mean. Problems of ours are simulated inside the program that acts",
    "simulation_alone": "the environments under random actions, nothing drawn, nobody deciding: no loop can be faster",
    "checkpoint": "RunFolder.commit of the agent and of the rows of an epoch as long as the preset's",
    "memory": "replay: full or not, it takes this; host: of this process, now and at most",
    "extrapolated": "from these rates and the preset's phases, evaluations and checkpoints; no million steps were run",
}

MILLION = 1_000_000


class Training:
    """A run without its folder, and how long its parts take."""

    def __init__(self, config: VisionConfig, fleet: EnvBatch) -> None:
        self.config, self.fleet = config, fleet
        self.agent = config.make_agent(fleet)
        self.loop = Loop(config, fleet, self.agent)
        self.standing = Standing(jax.jit(self.agent.init)(jax.random.key(config.seed)), 0, 0)
        shape = (
            fleet.spec.observation_shape,
            fleet.observation_dtype,
            fleet.spec.action_dim,
            len(fleet.spec.cost_names),
        )
        self.replay = make_replay(fleet.num_envs, config.rows_per_env, *shape)
        self._number, self._waits = 0, False
        self._compilation = CompileClock()
        self._seconds: dict[str, float] = {}
        self._within = 0.0
        for name, owner, method in (
            ("simulation", fleet, "reset"),
            ("simulation", fleet, "step"),
            ("collecting", self.loop._collector, "collect"),
            ("learning", self.loop._learner, "learn"),
        ):
            setattr(owner, method, self._watched(name, getattr(owner, method)))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its seconds added to those of `name`, less those of watched functions that it calls itself;
        they are the device's too where we wait for it."""

        def call(*args: Any) -> Any:
            if self._waits:
                jax.block_until_ready([arg for arg in args if not callable(arg)])
            started, outer, self._within = time.perf_counter(), self._within, 0.0
            result = function(*args)
            if self._waits:
                jax.block_until_ready(result)
            seconds = time.perf_counter() - started
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds - self._within
            self._within = outer + seconds
            return result

        return call

    def epoch(self, *, is_overlapped: bool) -> dict[str, Any]:
        """Times of the next epoch."""
        self._number, self._waits, self._seconds = self._number + 1, not is_overlapped, {}
        started = time.perf_counter()
        epoch = self.loop.epoch(self._number, self.standing, self.replay)
        seconds = time.perf_counter() - started
        self.standing, self.replay, self._waits = epoch.standing, epoch.replay, False
        phase = self.config.phase(self._number).value
        progress(f"epoch {self._number}, {phase}: {epoch.num_steps / seconds:.0f} steps/s")
        return {
            "seconds": seconds,
            "compile_seconds": self._compilation.within(started, started + seconds),
            "steps_per_second": epoch.num_steps / seconds,
            "updates_per_second": epoch.num_updates / seconds,
            "num_steps": epoch.num_steps,
            "num_updates": epoch.num_updates,
            "parts": self._parts(seconds),
        }

    def _parts(self, seconds: float) -> dict[str, float]:
        """Seconds of an epoch by part; they add up to all of them."""
        simulation, collecting, learning = (
            self._seconds.get(name, 0.0) for name in ("simulation", "collecting", "learning")
        )
        rest = {"learning": learning, "other": seconds - simulation - collecting - learning}
        if isinstance(self.fleet, ProblemBatch):
            return {"simulation_acting_and_rendering": collecting} | rest
        return {"simulation": simulation, "acting_and_rendering": collecting} | rest

    def evaluation(self, num_episodes: int) -> dict[str, Any]:
        """Times of so many episodes, once the first have compiled what they need."""
        for _ in range(2):
            started = time.perf_counter()
            outcomes = self.loop.evaluate(self.standing.agent, num_episodes, epoch=self._number)
            seconds = time.perf_counter() - started
        num_steps = self.loop.ticks_of(num_episodes) * self.loop.steps_per_tick
        progress(f"evaluation: {num_steps / seconds:.0f} steps/s")
        return {"episodes": len(outcomes), "seconds": seconds, "steps_per_second": num_steps / seconds}

    def checkpoint(self, num_ticks: int) -> dict[str, Any]:
        """Times of a commit with the rows of so many ticks, or of those that there are."""
        nothing = Episode([], [], {}, {"seconds": 0.0})
        with tempfile.TemporaryDirectory() as path:
            folder = RunFolder.create(Path(path) / "run", self.config)
            folder.commit(0, nothing, self.standing)
            started = time.perf_counter()
            num_ticks = min(num_ticks, int(self.replay.count))
            ticks = (int(self.replay.position) - num_ticks + np.arange(num_ticks)) % self.replay.capacity
            rows = jax.tree.map(lambda store: np.asarray(store[:, ticks]), self.replay.rows)
            folder.commit(1, nothing, self.standing, **{ROWS: rows})
            seconds = time.perf_counter() - started
            num_bytes = sum(file.stat().st_size for file in folder.path.glob("*/0001/**/*") if file.is_file())
        progress(f"checkpoint: {seconds:.2f} s, {num_bytes / 2**20:.0f} MiB")
        return {"seconds": seconds, "disk_bytes": num_bytes, "num_rows": rows.reward.size}

    def memory(self) -> dict[str, Any]:
        """What is held where, in bytes."""
        return {
            "replay_bytes": self.replay.nbytes,
            "replay_rows": self.config.rows_per_env * self.fleet.num_envs,
            "is_replay_on_device": isinstance(self.replay, Replay),
            "agent_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(self.standing.agent)),
            "device_peak_bytes": peak_device_bytes(),
            "host_resident_bytes": int(resident_mib() * 2**20),
            "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def main() -> None:
    options = parse()
    use_single_precision()
    preset = make_preset(options)
    with contextlib.closing(preset.make_envs()) as fleet:
        alone = simulation_alone(fleet, options)
        training = Training(shortened(preset, fleet, options), fleet)
        phases = {phase.value: measured(training, options) for phase in phases_of(preset)}
        evaluation = training.evaluation(fleet.num_envs)
        checkpoint = training.checkpoint(ticks_per_epoch(preset, fleet))
        memory = training.memory()
    result = {
        "benchmark": "vision_run",
        "claim": CLAIM,
        "method": METHOD,
        "command": command(),
        "machine": machine() | {"precision": preset.agent.precision},
        "is_quick": options.quick,
        "preset": options.preset,
        "config": training.config.to_json(),
        "simulation_alone": alone,
        "phases": phases,
        "ratio_to_simulation_alone": {
            name: entry["overlapped"]["steps_per_second"] / alone["steps_per_second"] for name, entry in phases.items()
        },
        "evaluation": evaluation,
        "checkpoint": checkpoint,
        "memory": memory,
        "extrapolated": extrapolated(preset, phases, evaluation, checkpoint),
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=2)
    parser.add_argument("--preset", default="point-goto-goal", choices=VISION_PRESETS)
    parser.add_argument("--episodes", type=int, default=1, help="of every environment in an epoch")
    options = parser.parse_args()
    if options.quick:
        options.repeats = 1
    return options


def make_preset(options: argparse.Namespace) -> VisionConfig:
    """The preset; to be quick two environments, short episodes, small images, tiny networks, and the last phase."""
    preset, tiny = VISION_PRESETS[options.preset](), vision_tiny()
    if not options.quick:
        return preset
    short = {"num_decisions": 25} if preset.environment in PROBLEMS else {"episode_length": 50}
    kept = {name: getattr(preset, name) for name in ("environment", "task", "budget", "algorithm")}
    last = StepSchedule(warm_up=0, expansion=0, total=tiny.steps_per_epoch)
    return dataclasses.replace(tiny, **kept, options={**preset.options, **short}, schedule=last)


def phases_of(preset: VisionConfig) -> list[Phase]:
    """Those that it has, in their order."""
    return list(dict.fromkeys(preset.phase(number) for number in range(1, preset.num_units + 1)))


def shortened(preset: VisionConfig, fleet: EnvBatch, options: argparse.Namespace) -> VisionConfig:
    """The preset with short epochs: in each of its phases one to compile, and `repeats` of either kind."""
    steps_per_epoch = options.episodes * fleet.num_envs * fleet.spec.num_decisions * fleet.spec.action_repeat
    steps, phases = (1 + 2 * options.repeats) * steps_per_epoch, phases_of(preset)
    warm_up = steps * (Phase.WARM_UP in phases)
    expansion = warm_up + steps * (Phase.EXPANSION in phases)
    schedule = StepSchedule(warm_up, expansion, total=steps * len(phases))
    return dataclasses.replace(preset, schedule=schedule, steps_per_epoch=steps_per_epoch)


def measured(training: Training, options: argparse.Namespace) -> dict[str, Any]:
    """Times of the phase that is next."""
    first = training.epoch(is_overlapped=True)
    pairs = [(training.epoch(is_overlapped=True), training.epoch(is_overlapped=False)) for _ in range(options.repeats)]
    overlapped, waiting = zip(*pairs, strict=True)
    means = {name: statistics.fmean(epoch["parts"][name] for epoch in waiting) for name in waiting[0]["parts"]}
    ours, reference = summary(overlapped), summary(waiting)
    return {
        "first_epoch": {name: first[name] for name in ("seconds", "compile_seconds")},
        "overlapped": ours,
        "not_overlapped": reference | {"seconds_by_part": means},
        "ratio_to_not_overlapped": ours["steps_per_second"] / reference["steps_per_second"],
    }


def summary(epochs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rates of epochs of one kind."""
    rates = [epoch["steps_per_second"] for epoch in epochs]
    return {
        "steps_per_second": statistics.median(rates),
        "best_steps_per_second": max(rates),
        "updates_per_second": statistics.median(epoch["updates_per_second"] for epoch in epochs),
        "seconds": statistics.fmean(epoch["seconds"] for epoch in epochs),
        "compile_seconds": sum(epoch["compile_seconds"] for epoch in epochs),
        "num_steps": epochs[0]["num_steps"],
        "num_updates": epochs[0]["num_updates"],
        "repeats": len(epochs),
    }


def simulation_alone(fleet: EnvBatch, options: argparse.Namespace) -> dict[str, Any]:
    """Steps a second of the environments alone, over one episode of each; on the device in one program."""
    shape = (fleet.spec.num_decisions, fleet.num_envs, fleet.spec.action_dim)
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)
    compile_seconds = 0.0
    if isinstance(fleet, ProblemBatch):
        course, _ = fleet.begin(fleet.streams(0))
        episode, compile_seconds = compile_ahead(lambda *inputs: jax.lax.scan(fleet.advance, *inputs), course, actions)
    else:

        def episode() -> None:
            fleet.reset(0)
            for row in actions:
                fleet.step(row)

    seconds = []
    for _ in range(1 + options.repeats):
        started = time.perf_counter()
        episode()
        seconds.append(time.perf_counter() - started)
    num_steps = fleet.spec.num_decisions * fleet.num_envs * fleet.spec.action_repeat
    rate = num_steps / statistics.median(seconds[1:])
    progress(f"simulation alone: {rate:.0f} steps/s")
    return {"steps_per_second": rate, "compile_seconds": compile_seconds, "num_steps": num_steps}


def extrapolated(
    preset: VisionConfig, phases: Mapping[str, Any], evaluation: Mapping[str, Any], checkpoint: Mapping[str, Any]
) -> dict[str, Any]:
    """Minutes for a million steps: of each phase, and the first million of the preset with all that belongs to it."""
    rates = {name: entry["overlapped"]["steps_per_second"] for name, entry in phases.items()}
    epochs = range(1, MILLION // preset.steps_per_epoch + 1)
    evaluations = sum(preset.is_evaluated(number) for number in epochs) * preset.evaluation_episodes
    minutes = {
        "training": sum(preset.steps_per_epoch / rates[preset.phase(number).value] for number in epochs) / 60,
        "evaluation": evaluations * evaluation["seconds"] / evaluation["episodes"] / 60,
        "checkpoints": len(epochs) * checkpoint["seconds"] / 60,
    }
    return {
        "is_extrapolated": True,
        "minutes_per_million_steps": {name: MILLION / rate / 60 for name, rate in rates.items()},
        "minutes_of_first_million": minutes | {"all": sum(minutes.values())},
    }


if __name__ == "__main__":
    main()
