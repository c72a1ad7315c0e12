"""How an update with a world model grows with its batch, its ensemble and seeds: time, compilation and memory."""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from operations import count
from timing import arguments, emit, machine, progress
from vision_workloads import command, make_agent, make_replay, peak_device_bytes, updates, use_single_precision
from workloads import growth_exponent

from actsafe.agents.phases import Phase
from actsafe.agents.world_model import WorldModelAgent, WorldModelState
from actsafe.agents.world_model_learner import compiler_options

CLAIM = "On an accelerator an update of twice the batch, members or seeds takes less than twice the time."

METHOD = {
    "update": "Agent.learn as in vision_update: many updates in one compiled call, each from a batch drawn in "
    "it. A call goes on from the state that the last one left and takes its memory over, as in a run",
    "seeds": "jax.vmap of Agent.learn over agents that begin alike, each with random numbers of its own; they "
    "draw from one replay. A single seed is not vmapped",
    "time": "wall clock of a call over its updates, all rows in turn; compilation apart",
    "memory": "what the compiler plans for the program: arguments, results that do not take an argument's place, and "
    "temporaries. The replay here is small, a run's comes on top. process_peak_bytes is the device's, over all rows",
    "operations": "floating-point operations of all products and convolutions",
    "reference": "the paper's sizes, in the same run; ratio_to_reference is the row over it, per_seed also over seeds",
    "exponent": "least-squares slope of log(value) over log(size) along one axis, the others as in the reference: 1 is "
    "in proportion",
}


class Sizes(NamedTuple):
    """What is varied."""

    batch_size: int
    num_members: int
    num_seeds: int


AXES = {"batch": "batch_size", "members": "num_members", "seeds": "num_seeds"}
REFERENCE = Sizes(batch_size=16, num_members=5, num_seeds=1)
GRID = {"batch": (8, 16, 32, 64), "members": (1, 3, 5, 10), "seeds": (1, 2, 4)}
QUICK_REFERENCE = Sizes(batch_size=2, num_members=2, num_seeds=1)
QUICK_GRID = {"batch": (2, 4), "members": (1, 2), "seeds": (1, 2)}

PHASES = {phase.value: phase for phase in (Phase.EXPANSION, Phase.EXPLOITATION)}


class Program:
    """The compiled updates of agents of some sizes, how long compilation took, and what they hold on the device."""

    def __init__(self, sizes: Sizes, beginning: WorldModelState, options: argparse.Namespace) -> None:
        self.agent = asked_agent(sizes, options)
        self._replay = make_replay(self.agent, options.envs)
        starts = beginning.model.tree.begin(sizes.batch_size * self.agent.settings.sequence_length)
        self._state = jax.tree.map(jnp.copy, dataclasses.replace(beginning, starts=starts))
        self._keys = jax.random.split(jax.random.key(1), options.updates)
        learn = updates(self.agent, PHASES[options.phase])
        if sizes.num_seeds > 1:
            learn = jax.vmap(learn, in_axes=(0, None, 0))
            self._state = jax.tree.map(lambda leaf: jnp.stack([leaf] * sizes.num_seeds), self._state)
            self._keys = jax.vmap(lambda key: jax.random.split(key, sizes.num_seeds), out_axes=1)(self._keys)
        started = time.perf_counter()
        program = jax.jit(learn, donate_argnums=0, compiler_options=compiler_options())
        self._compiled = program.lower(self._state, self._replay, self._keys).compile()
        self.compile_seconds = time.perf_counter() - started
        self.flop = count(learn, self._state, self._replay, self._keys)

    @property
    def memory_bytes(self) -> dict[str, int]:
        """By the compiler's plan."""
        plan: Any = self._compiled.memory_analysis()
        return {
            "arguments": plan.argument_size_in_bytes,
            "results": plan.output_size_in_bytes - plan.alias_size_in_bytes,
            "temporaries": plan.temp_size_in_bytes,
        }

    def seconds(self) -> float:
        """Of one call, until its result is there; the next goes on from that."""
        started = time.perf_counter()
        self._state, _ = jax.block_until_ready(self._compiled(self._state, self._replay, self._keys))
        return time.perf_counter() - started


def main() -> None:
    options = parse()
    use_single_precision()
    programs, beginnings = {}, {}
    for sizes in asked_sizes(options):
        progress(", ".join(f"{name} {value}" for name, value in sizes._asdict().items()))
        # Drawing weights takes a while to compile, and they do not depend on the batch.
        if sizes.num_members not in beginnings:
            beginnings[sizes.num_members] = jax.jit(asked_agent(sizes, options).init)(jax.random.key(0))
        programs[sizes] = Program(sizes, beginnings[sizes.num_members], options)
        progress(f"  compiled in {programs[sizes].compile_seconds:.1f} s")
    rows = measured(programs, options)
    result = {
        "benchmark": "vision_growth",
        "claim": CLAIM,
        "method": METHOD,
        "command": command(),
        "machine": machine() | {"precision": options.precision},
        "is_quick": options.quick,
        "phase": options.phase,
        "updates_per_call": options.updates,
        "reference": options.reference._asdict(),
        "settings_of_reference": dataclasses.asdict(programs[options.reference].agent.settings),
        "rows": rows,
        "exponents": {axis: exponents(axis, rows, options) for axis in options.grid},
        "process_peak_bytes": peak_device_bytes(),
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=10)
    parser.add_argument("--only", choices=AXES, help="vary this alone: every row takes a while to compile")
    parser.add_argument("--phase", default=Phase.EXPLOITATION.value, choices=PHASES)
    parser.add_argument("--precision", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--unroll", type=int, default=0, help="steps of a loop in one piece; 0: the agent's own")
    parser.add_argument("--updates", type=int, default=20, help="updates in one call")
    parser.add_argument("--envs", type=int, default=10, help="environments whose rows the replay has")
    options = parser.parse_args()
    options.reference, options.grid = REFERENCE, GRID
    if options.quick:
        options.reference, options.grid = QUICK_REFERENCE, QUICK_GRID
        options.updates, options.repeats, options.precision = 2, 1, "float32"
    if options.only is not None:
        options.grid = {options.only: options.grid[options.only]}
    return options


def asked_sizes(options: argparse.Namespace) -> list[Sizes]:
    """The reference, and with it each axis on its own; every one once."""
    varied = [
        options.reference._replace(**{AXES[axis]: size}) for axis, values in options.grid.items() for size in values
    ]
    return list(dict.fromkeys([options.reference, *varied]))


def asked_agent(sizes: Sizes, options: argparse.Namespace) -> WorldModelAgent:
    """An agent of these sizes, the rest as the command line asks."""
    return make_agent(
        batch=sizes.batch_size,
        members=sizes.num_members,
        precision=options.precision,
        unroll=options.unroll,
        is_quick=options.quick,
    )


def measured(programs: Mapping[Sizes, Program], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every program; they take turns, so that what else the machine does meets all alike."""
    for program in programs.values():
        program.seconds()
    seconds: dict[Sizes, list[float]] = {sizes: [] for sizes in programs}
    for _ in range(options.repeats):
        for sizes, program in programs.items():
            seconds[sizes].append(program.seconds())
    rows = {sizes: _row(sizes, program, seconds[sizes], options) for sizes, program in programs.items()}
    reference = rows[options.reference]
    for sizes, row in rows.items():
        row["ratio_to_reference"] = {
            "time": row["ms_per_update"] / reference["ms_per_update"],
            "time_per_seed": row["ms_per_update"] / reference["ms_per_update"] / sizes.num_seeds,
            "compile": row["compile_seconds"] / reference["compile_seconds"],
            "memory": row["peak_bytes"] / reference["peak_bytes"],
            "operations": row["gflop_per_update"] / reference["gflop_per_update"],
        }
        progress(f"{tuple(sizes)}: {row['ms_per_update']:.3f} ms an update, {row['peak_bytes'] / 2**20:.0f} MiB")
    return list(rows.values())


def _row(sizes: Sizes, program: Program, seconds: Sequence[float], options: argparse.Namespace) -> dict[str, Any]:
    first, third = np.percentile(seconds, [25, 75])
    memory = program.memory_bytes
    return {
        **sizes._asdict(),
        "compile_seconds": program.compile_seconds,
        "median_ms": 1e3 * statistics.median(seconds),
        "min_ms": 1e3 * min(seconds),
        "spread_ms": 1e3 * float(third - first),
        "repeats": len(seconds),
        "ms_per_update": 1e3 * statistics.median(seconds) / options.updates,
        "gflop_per_update": program.flop / options.updates / 1e9,
        "memory_bytes": memory,
        "peak_bytes": sum(memory.values()),
    }


def exponents(axis: str, rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> dict[str, float]:
    """How fast things grow along an axis."""
    wanted = [options.reference._replace(**{AXES[axis]: size}) for size in options.grid[axis]]
    along = [next(row for row in rows if sizes._asdict().items() <= row.items()) for sizes in wanted]
    measures = {"time": "ms_per_update", "compile": "compile_seconds", "memory": "peak_bytes"}
    measures["operations"] = "gflop_per_update"
    return {name: growth_exponent(options.grid[axis], [row[key] for row in along]) for name, key in measures.items()}


if __name__ == "__main__":
    main()
