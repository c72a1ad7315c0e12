"""Milliseconds per update of the vision agent, by phase and by part, and per act; the arithmetic floor beside them."""

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
from actsafe.agents.recipes import Policy
from actsafe.agents.vision import VisionAgent, VisionSettings, VisionState
from actsafe.training.learning import compiler_options
from operations import count
from timing import arguments, compile_ahead, emit, machine, measure, progress
from vision_workloads import command, make_agent, make_replay, peak_device_bytes, updates, use_single_precision

from actsafe.actor_critic.imagination import DreamNoise, dream
from actsafe.agents.phases import Phase
from actsafe.constrained.descent import descend
from actsafe.data.device_replay import Replay
from actsafe.models.networks import cast
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import elbo_loss

CLAIM = "On one H200, bfloat16, batch 16 x 50, horizon 15, five members: 8 ms an update in the expansion, 5 after it."

METHOD = {
    "update": "VisionAgent.learn: sampling from a replay on the device, world model, actor-critics; 100 updates in one "
    "compiled loop, as in runs of the paper's presets, time over their number",
    "parts": "each part alone, forward and backward (imagination: with two cotangents), in a loop of its own whose "
    "steps depend on each other; parts overlap and share work in an update, so that they need not add up",
    "act": "VisionAgent.see and act for 10 environments with 64 x 64 pixels from host memory to actions in host memory",
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
    parser.add_argument("--unroll", type=int, default=VisionSettings().unroll, help="steps of a loop in one piece")
    parser.add_argument("--precision", default="bfloat16", choices=["bfloat16", "float32"])
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


def asked_agent(options: argparse.Namespace, unroll: int) -> VisionAgent:
    """The agent that the command line asks for, with so many steps of its loops in one piece."""
    return make_agent(
        batch=options.batch,
        members=options.members,
        precision=options.precision,
        unroll=unroll,
        is_quick=options.quick,
    )


def update_time(
    agent: VisionAgent, state: VisionState, replay: Replay, phase: Phase, options: argparse.Namespace
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


def act_time(agent: VisionAgent, state: VisionState, options: argparse.Namespace) -> dict[str, float]:
    """Times from pixels on the host to actions on the host."""
    frames = np.zeros((options.envs, *agent.surroundings.observation_shape), np.uint8)
    is_first = np.zeros(options.envs, bool)

    @functools.partial(jax.jit, donate_argnums=1)
    def act(state: VisionState, memory: Any, frames: Any, is_first: Any, key: Any) -> Any:
        seen = agent.see(state.mind, frames)
        return agent.act(state.mind, memory, seen, is_first, key, policy=Policy.TASK)

    memory, key = agent.begin(options.envs), jax.random.key(0)
    seconds = []
    for _ in range(20 * options.repeats):
        started = time.perf_counter()
        action, memory = act(state, memory, frames, is_first, key)
        np.asarray(action)
        seconds.append(time.perf_counter() - started)
    seconds = seconds[len(seconds) // 10 + 1 :]
    result = {"median_ms": 1e3 * float(np.median(seconds)), "min_ms": 1e3 * min(seconds)}
    progress(f"act: {result['median_ms']:.3f} ms")
    return result


def part_times(agent: VisionAgent, state: VisionState, replay: Replay, options: argparse.Namespace) -> dict[str, float]:
    """Each part alone, forward and backward, in milliseconds."""
    settings, key = agent.settings, jax.random.key(2)
    dtype = jnp.bfloat16 if settings.precision == "bfloat16" else jnp.float32
    rows = replay.sample(key, settings.batch_size, settings.sequence_length)
    model = cast(state.model.tree, dtype)
    num_rows = rows.is_first.size
    features = jnp.zeros((num_rows, settings.model.deterministic + settings.model.stochastic), dtype)
    images = rows.observation.reshape(-1, *rows.observation.shape[2:])
    embeddings = model.encoder(images).reshape(*rows.is_first.shape, -1)

    def encoder(encoder: Any) -> Any:
        return jnp.sum(encoder(images).astype(jnp.float32) ** 2)

    def decoder(decoder: Any) -> Any:
        return jnp.sum((decoder(features).astype(jnp.float32) - decoder.target(images)) ** 2)

    def scan(cell: Any) -> Any:
        steps, draws = cell.prepare(embeddings, rows.action, rows.is_first, key)
        filtered = cell.distributions(cell.filter(steps, draws, unroll=agent._unroll), draws)
        return sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(filtered))

    def elbo(model: Any) -> Any:
        return elbo_loss(model, rows, settings.model, key, unroll=agent._unroll)[0]

    start = State(features[:, : settings.model.deterministic], features[:, settings.model.deterministic :])
    one = jax.tree.map(lambda leaf: leaf[0], state.actor_critics)
    weights = jax.tree.map(lambda leaf: leaf[0], agent.objective_weights)

    def improve(learned: Any) -> Any:
        return agent.learner.improve(learned, model, start, weights, key)[0]

    def improve_both(learned: Any) -> Any:
        keys = jax.random.split(key, 2)
        return eqx.filter_vmap(lambda a, b, c: agent.learner.improve(a, model, start, b, c)[0])(
            learned, agent.objective_weights, keys
        )

    def imagine(action_offsets: Any) -> Any:
        actor = cast(one.actor.tree, dtype)
        noise = DreamNoise.draw(model.cell, num_rows, action_offsets.shape[-1], action_offsets.shape[0], key)
        dreamt, back = jax.vjp(
            lambda x: dream(model.cell, actor, start, noise, x, unroll=agent._unroll), action_offsets
        )
        both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), dreamt)
        return action_offsets + 1e-9 * jnp.sum(jax.vmap(back)(both)[0], axis=0)

    action_offsets = jnp.zeros((settings.actor_critic.horizon, num_rows, agent.surroundings.action_dim), jnp.float32)
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
        "imagination": (imagine, action_offsets),
        "actor_critic": (improve, one),
        "two_actor_critics": (improve_both, state.actor_critics),
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
