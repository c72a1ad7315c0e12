"""Milliseconds per update with a world model, by phase and by part, and per act; the arithmetic floor beside them."""

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from operations import count
from timing import arguments, compile_ahead, emit, machine, measure, progress
from vision_workloads import command, make_agent, make_replay, peak_device_bytes, updates, use_single_precision

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode, Percept
from actsafe.agents.phases import Phase
from actsafe.agents.world_model import IMPLEMENTATIONS, WorldModelAgent, WorldModelState
from actsafe.agents.world_model_learner import compiler_options
from actsafe.constrained.descent import descend
from actsafe.data.device_replay import Replay
from actsafe.fast import convolutions
from actsafe.fast import filter as filters
from actsafe.fast import world_model as fast
from actsafe.fast.dream import dream
from actsafe.models.networks import cast

CLAIM = "On one H200, bfloat16, batch 16 x 50, horizon 15, five members: 8 ms an update in the expansion, 5 after it."

METHOD = {
    "update": "Agent.learn: sampling from a replay on the device, world model, actor-critics; 100 updates in one "
    "compiled loop, as in runs of the paper's presets, time over their number",
    "parts": "each part alone, forward and backward (imagination: with two cotangents), in a loop of its own whose "
    "steps depend on each other; parts overlap and share work in an update, so that they need not add up",
    "act": "WorldModelPolicy.act for 10 environments with 64 x 64 pixels from host memory to actions in host memory",
    "floor": "floating-point operations of all products and convolutions in the update, at the device's bfloat16 peak",
    "reference": "the update with every loop rolled up (unroll 1), in the same run; the released code's times are "
    "quoted from the project's measurements on the same kind of card, not run here",
}

QUOTED = {"released_code_ms": {"expansion": 62.2, "exploitation": 44.0, "act": 40.5}}
PEAK = {"NVIDIA H200": 790e12}
"""bfloat16 operations a second that large matrix products reach on the device."""


def main() -> None:
    options = parse()
    use_single_precision()
    agent = asked_agent(options, options.unroll)
    state = jax.jit(agent.init)(jax.random.key(0))
    replay = make_replay(agent, options.envs)
    times, flops = {}, {}
    for phase in (Phase.EXPANSION, Phase.EXPLOITATION):
        times[phase.value], flops[phase.value] = update_time(agent, state, replay, phase, options)
    rolled = None
    if options.rolled and agent._unroll > 1:
        again = asked_agent(options, 1)
        rolled = {
            phase.value: update_time(again, state, replay, phase, options)[0]
            for phase in (Phase.EXPANSION, Phase.EXPLOITATION)
        }
    act = act_time(agent, state, options)
    peak = PEAK.get(str(machine()["accelerator"]))
    result = {
        "benchmark": "vision_update",
        "claim": CLAIM,
        "method": METHOD,
        "command": command(),
        "machine": machine() | {"precision": options.precision},
        "is_quick": options.quick,
        "settings": dataclasses.asdict(agent.settings),
        "update_ms": {name: entry["ms_per_update"] for name, entry in times.items()},
        "act_ms": act["median_ms"],
        "parts_ms": part_times(agent, state, replay, options) if options.parts else None,
        "details": {"updates": times, "act": act, "rolled": rolled},
        "floor_ms": None if peak is None else {name: 1e3 * flop / peak for name, flop in flops.items()},
        "gflop_per_update": {name: flop / 1e9 for name, flop in flops.items()},
        "peak_memory_bytes": peak_device_bytes(),
        **QUOTED,
    }
    emit(result, options.out)


def parse() -> argparse.Namespace:
    parser = arguments(__doc__, repeats=10)
    parser.add_argument("--unroll", type=int, default=0, help="steps of a loop in one piece; 0: the agent's own")
    parser.add_argument("--precision", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--implementation", default="auto", choices=IMPLEMENTATIONS)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument(
        "--updates", type=int, default=100, help="updates in one call, by default as many as presets make"
    )
    parser.add_argument("--envs", type=int, default=10)
    parser.add_argument("--rolled", action="store_true", help="also with rolled loops, as a reference for --unroll")
    parser.add_argument("--parts", action="store_true", help="also every part alone")
    options = parser.parse_args()
    if options.quick:
        options.batch, options.members, options.updates, options.repeats = 2, 2, 2, 1
        options.precision = "float32"
    return options


def asked_agent(options: argparse.Namespace, unroll: int) -> WorldModelAgent:
    """The agent that the command line asks for, with this number of steps of its loops in one piece."""
    return make_agent(
        batch=options.batch,
        members=options.members,
        precision=options.precision,
        unroll=unroll,
        implementation=options.implementation,
        is_quick=options.quick,
    )


def update_time(
    agent: WorldModelAgent, state: WorldModelState, replay: Replay, phase: Phase, options: argparse.Namespace
) -> tuple[dict[str, float], float]:
    """Times of an update in this phase, and the floating-point operations of its products."""
    learn = updates(agent, phase)
    progress(f"update, {phase.value}, unroll {agent._unroll}")
    keys = jax.random.split(jax.random.key(1), options.updates)
    times = measure(learn, state, replay, keys, repeats=options.repeats, options=compiler_options())
    times["ms_per_update"] = times["median_ms"] / options.updates
    progress(f"  {times['ms_per_update']:.3f} ms an update")
    # Counted where no kernel hides its products: in single precision there are none.
    plain = dataclasses.replace(agent, settings=dataclasses.replace(agent.settings, precision="float32"))
    return times, count(updates(plain, phase), state, replay, keys) / options.updates


def act_time(agent: WorldModelAgent, state: WorldModelState, options: argparse.Namespace) -> dict[str, float]:
    """Times from pixels on the host to actions on the host."""
    frames = np.zeros((options.envs, *agent.spec.observation_shape), np.uint8)
    zeros = np.zeros(options.envs, np.float32)
    percept = Percept(zeros, zeros[:, None], np.zeros(options.envs, bool))
    policy = agent.policy(state.policy_weights, ActMode(Role.TASK))

    @functools.partial(eqx.filter_jit, donate="none")
    def act(policy: Any, memory: Any, frames: Any, percept: Any) -> Any:
        decision, memory = policy.act(memory, policy.encode(frames), percept)
        return decision.action, memory

    memory = policy.begin(options.envs, jax.random.key(0))
    seconds = []
    for _ in range(20 * options.repeats):
        started = time.perf_counter()
        action, memory = act(policy, memory, frames, percept)
        np.asarray(action)
        seconds.append(time.perf_counter() - started)
    seconds = seconds[len(seconds) // 10 + 1 :]
    result = {"median_ms": 1e3 * float(np.median(seconds)), "min_ms": 1e3 * min(seconds)}
    progress(f"act: {result['median_ms']:.3f} ms")
    return result


def part_times(
    agent: WorldModelAgent, state: WorldModelState, replay: Replay, options: argparse.Namespace
) -> dict[str, float]:
    """Each part alone, forward and backward, in milliseconds."""
    settings, key = agent.settings, jax.random.key(2)
    dtype = jnp.bfloat16 if settings.precision == "bfloat16" else jnp.float32
    rows = replay.sample(key, settings.batch_size, settings.sequence_length)
    model = cast(state.model.tree, dtype)
    num_rows = rows.is_first.size
    features = jnp.zeros((num_rows, settings.model.deterministic + settings.model.stochastic), dtype)
    images = rows.observation.reshape(-1, *rows.observation.shape[2:])
    embeddings = convolutions.encode(model.encoder, images).reshape(*rows.is_first.shape, -1)

    def encoder(encoder: Any) -> Any:
        return jnp.sum(convolutions.encode(encoder, images).astype(jnp.float32) ** 2)

    def decoder(decoder: Any) -> Any:
        return jnp.sum(convolutions.decoder_error(decoder, features, images))

    def scan(cell: Any) -> Any:
        steps, draws = filters.prepare(cell, embeddings, rows.action, rows.is_first, key)
        found = filters.distributions(cell, filters.filter_steps(cell, steps, draws, unroll=agent._unroll), draws)
        return sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(found))

    def elbo(model: Any) -> Any:
        return fast.loss(model, rows, key, unroll=agent._unroll)[0]

    start = cast(model.begin(num_rows), dtype)
    one = jax.tree.map(lambda leaf: leaf[0], state.actor_critics)

    def imagine(offsets: Any) -> Any:
        actor = cast(one.actor.tree, dtype)
        noise = agent.search.draw(one, model, start, key)
        dreamt, back = jax.vjp(lambda x: dream(model.cell, actor, start, noise, x, unroll=agent._unroll), offsets)
        both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), dreamt)
        return offsets + 1e-9 * jnp.sum(jax.vmap(back)(both)[0], axis=0)

    offsets = jnp.zeros((settings.actor_critic.horizon, num_rows, agent.spec.action_dim), jnp.float32)
    optimiser = agent._model_optimiser

    def optimise(carry: Any) -> Any:
        weights, memory = carry
        return descend(optimiser, weights, weights, memory)[:2]

    parts: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "encoder": (_trained(encoder), model.encoder),
        "decoder": (_trained(decoder), model.decoder),
        "rssm_scan": (_trained(scan), model.cell),
        "world_model_loss_and_gradient": (_trained(elbo), model),
        "world_model_optimiser": (optimise, (state.model.vector, state.model_memory)),
        "imagination": (imagine, offsets),
        "replay_sample": (
            lambda key: jax.random.fold_in(
                key, replay.sample(key, settings.batch_size, settings.sequence_length).observation[0, 0, 0, 0, 0]
            ),
            key,
        ),
    }
    return {name: _loop_time(name, step, carry, options) for name, (step, carry) in parts.items()}


def _trained(loss: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A step of plain descent: what makes the next pass depend on this one."""

    def step(weights: Any) -> Any:
        gradient = eqx.filter_grad(loss)(weights)
        return jax.tree.map(lambda w, g: w - 1e-9 * g if g is not None else w, weights, gradient)

    return step


def _loop_time(name: str, step: Callable[[Any], Any], carry: Any, options: argparse.Namespace) -> float:
    arrays, rest = eqx.partition(carry, eqx.is_array)

    def loop(arrays: Any) -> Any:
        def body(arrays: Any, _: None) -> tuple[Any, None]:
            return eqx.filter(step(eqx.combine(arrays, rest)), eqx.is_array), None

        return jax.lax.scan(body, arrays, length=options.updates)[0]

    progress(f"part: {name}")
    call, _ = compile_ahead(loop, arrays)
    call()
    seconds = []
    for _ in range(options.repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    milliseconds = 1e3 * float(np.median(seconds)) / options.updates
    progress(f"  {milliseconds:.3f} ms")
    return milliseconds


if __name__ == "__main__":
    main()
