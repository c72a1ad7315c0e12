"""Dreams forwards, in one kernel (see `models/rssm/blocks`): the same as the loop in `imagination`."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from actsafe.actor_critic.actor import MEAN_LIMIT, MIN_STD, Actor
from actsafe.fast import blocks
from actsafe.fast.blocks import BLOCK, Block, Columns, Layer, Source, call, elu, pieces, products
from actsafe.fast.gate_kernel import GateWeights, Kept, advance
from actsafe.models.rssm.cell import Priors
from actsafe.models.rssm.states import MIN_STD as MIN_STATE_STD
from actsafe.models.rssm.states import State


class Draws(NamedTuple):
    """The random numbers of dreams."""

    action: Float[Array, "time row action"]
    state: Float[Array, "time row stochastic"]
    members: Int[Array, "time block"]


class Trace(NamedTuple):
    """What was dreamt, and what the backward pass needs."""

    states: State
    """(time and one, row, ...), the first included."""
    actions: Float[Array, "time row action"]
    entered: Float[Array, "time row hidden"]
    hidden: Float[Array, "time row hidden"]
    raw: Float[Array, "time row stochastic"]
    """Of the prior's std."""
    kept: Kept


class Sizes(NamedTuple):
    steps: int
    rows: int
    actions: int
    deterministic: int
    stochastic: int
    hidden: int


def forward(priors: Priors, actor: Actor, start: State, draws: Draws, workspace: Any, interpret: bool) -> Trace:
    sizes = sizes_of(priors, draws)
    offset = actor.initial_std + math.log(-math.expm1(-actor.initial_std))
    width = actor.layers.layers[0].weight.shape[-1]

    def program(priors: Any, layers: Any, start: Any, draws: Any, results: Any) -> None:
        trace, scratch = results
        block = Block.mine(interpret)
        for source, target, size in zip(start, trace.states, (sizes.deterministic, sizes.stochastic), strict=True):
            _copy(block, source, target, size)
        block.wait()

        def step(t: Array, _: None) -> None:
            member = draws.members[t, block.number]
            _act(block, layers, trace, scratch, draws, t, sizes, width, offset)
            _follow(block, priors, trace, draws, t, member, sizes)

        jax.lax.fori_loop(jnp.int32(0), jnp.int32(sizes.steps), step, None)

    kernel = call(program, workspace, sizes.rows // BLOCK, interpret=interpret, name="dream")
    return kernel(priors, actor.layers.layers, start, draws)[0]


def forward_workspace(sizes: Sizes, width: int, dtype: DTypeLike) -> tuple[Trace, tuple[Array, Array]]:
    """For `forward`, with an actor of this width."""

    def store(steps: int, columns: int) -> Array:
        return jnp.zeros((steps, sizes.rows, columns), dtype)

    trace = Trace(
        State(store(sizes.steps + 1, sizes.deterministic), store(sizes.steps + 1, sizes.stochastic)),
        store(sizes.steps, sizes.actions),
        store(sizes.steps, sizes.hidden),
        store(sizes.steps, sizes.hidden),
        store(sizes.steps, sizes.stochastic),
        Kept(*(store(sizes.steps, sizes.deterministic) for _ in Kept._fields)),
    )
    return trace, (jnp.zeros((sizes.rows, width), dtype), jnp.zeros((sizes.rows, width), dtype))


def _copy(block: Block, source: Any, target: Any, size: int) -> None:
    def one(columns: Columns) -> None:
        value = block.read(source, columns=columns, width=size)
        block.write(target, 0, columns=columns, width=size, value=value)

    pieces(size, one)


def _act(
    block: Block, layers: Any, trace: Any, scratch: Any, draws: Any, t: Array, sizes: Sizes, width: int, offset: float
) -> None:
    """Write the actor's action in state t."""
    sources = [
        (Source(trace.states.deterministic, (t,), sizes.deterministic), 0),
        (Source(trace.states.stochastic, (t,), sizes.stochastic), sizes.deterministic),
    ]
    for number, layer in enumerate(layers[:-1]):
        target = scratch[number % 2]
        _layer(block, sources, layer, (), width, target, ())
        block.wait()
        sources = [(Source(target, (), width), 0)]

    def last(columns: Columns) -> None:
        mean, spread = _halves(block, sources, layers[-1], (), columns, sizes.actions)
        noise = block.read(draws.action, t, columns=columns, width=sizes.actions)
        mean = MEAN_LIMIT * jnp.tanh(mean / MEAN_LIMIT)
        action = jnp.tanh(mean + (blocks.softplus(spread + offset) + MIN_STD) * noise)
        block.write(trace.actions, t, columns=columns, width=sizes.actions, value=action)

    pieces(sizes.actions, last)
    block.wait()


def _follow(block: Block, priors: Any, trace: Any, draws: Any, t: Array, member: Array, sizes: Sizes) -> None:
    """Write the state that follows state t, by the member that is followed."""
    sources = [
        (Source(trace.states.stochastic, (t,), sizes.stochastic), 0),
        (Source(trace.actions, (t,), sizes.actions), sizes.stochastic),
    ]
    _layer(block, sources, priors.entry, (member,), sizes.hidden, trace.entered, (t,))
    block.wait()
    gates = gate_weights(priors)
    entered = Source(trace.entered, (t,), sizes.hidden)
    previous = Source(trace.states.deterministic, (t,), sizes.deterministic)
    following = trace.states.deterministic

    def follow(columns: Columns) -> None:
        advance(block, columns, gates, member, (member,), entered, previous, trace.kept, following, t)

    pieces(sizes.deterministic, follow)
    block.wait()
    sources = [(Source(following, (t + 1,), sizes.deterministic), 0)]
    _layer(block, sources, priors.hidden, (member,), sizes.hidden, trace.hidden, (t,))
    block.wait()

    def sample(columns: Columns) -> None:
        hidden = [(Source(trace.hidden, (t,), sizes.hidden), 0)]
        mean, raw = _halves(block, hidden, priors.out, (member,), columns, sizes.stochastic)
        noise = block.read(draws.state, t, columns=columns, width=sizes.stochastic)
        value = mean + (blocks.softplus(raw) + MIN_STATE_STD) * noise
        block.write(trace.raw, t, columns=columns, width=sizes.stochastic, value=raw)
        block.write(trace.states.stochastic, t + 1, columns=columns, width=sizes.stochastic, value=value)

    pieces(sizes.stochastic, sample)
    block.wait()


Sources = list[tuple[Source, int]]
"""What a layer is given, each with the first row of the weights that are for it."""


def _layer(block: Block, sources: Sources, layer: Any, lead: tuple, width: int, target: Any, at: tuple) -> None:
    """Write elu(Σ x W + b) to `target`."""

    def one(columns: Columns) -> None:
        (y,) = _outputs(block, sources, layer, lead, columns, width, [0])
        block.write(target, *at, columns=columns, width=width, value=elu(y))

    pieces(width, one)


def _halves(block: Block, sources: Sources, layer: Any, lead: tuple, columns: Columns, width: int) -> list[Array]:
    """Columns of both halves, `width` wide, of Σ x W + b."""
    return _outputs(block, sources, layer, lead, columns, width, [0, width])


def _outputs(
    block: Block, sources: Sources, layer: Any, lead: tuple, columns: Columns, width: int, offsets: list[int]
) -> list[Array]:
    """Columns, at every offset to the right, of Σ x W + b."""
    totals = [
        blocks.vector(layer.bias, *lead, columns=columns, width=width, offset=offset) + block.nothing(columns)
        for offset in offsets
    ]
    for source, first in sources:
        layers = [Layer(layer.weight, lead, (first, offset)) for offset in offsets]
        found = products(block, source, layers, columns, width)
        totals = [total + x for total, x in zip(totals, found, strict=True)]
    return totals


def gate_weights(priors: Any) -> GateWeights:
    gates = priors.gates_from_entry
    return GateWeights(gates.weight, priors.gates_from_state, gates.bias, priors.candidate_bias)


def sizes_of(priors: Priors, draws: Draws) -> Sizes:
    steps, rows, actions = draws.action.shape
    deterministic, hidden = priors.hidden.weight.shape[-2:]
    return Sizes(steps, rows, actions, deterministic, draws.state.shape[-1], hidden)
