"""Dreams as one kernel forwards and one backwards (see `models/rssm/blocks`): the same as the loop in `imagination`."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from actsafe.actor_critic.actor import MEAN_LIMIT, MIN_STD, Actor
from actsafe.models.rssm import blocks
from actsafe.models.rssm.blocks import (
    Block,
    Columns,
    Layer,
    Source,
    call,
    elu,
    elu_slope,
    pieces,
    products,
    products_back,
)
from actsafe.models.rssm.cell import MIN_STD as MIN_STATE_STD
from actsafe.models.rssm.cell import Priors, State
from actsafe.models.rssm.gate_kernel import GateWeights, Kept, advance, go_back, through_gates


class Draws(NamedTuple):
    """The random numbers of dreams."""

    action: Float[Array, "time row action"]
    state: Float[Array, "time row stochastic"]
    members: Int[Array, "time block"]


class Trace(NamedTuple):
    """What was dreamt, and what the way back needs."""

    states: State
    """(time and one, row, ...), the first included."""
    actions: Float[Array, "time row action"]
    entered: Float[Array, "time row hidden"]
    hidden: Float[Array, "time row hidden"]
    raw: Float[Array, "time row stochastic"]
    """Of the prior's std."""
    kept: Kept


class _Sizes(NamedTuple):
    steps: int
    rows: int
    actions: int
    deterministic: int
    stochastic: int
    hidden: int


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def dream_states(
    pushes: Float[Array, "time row action"], priors: Priors, actor: Actor, start: State, draws: Draws, interpret: bool
) -> tuple[State, Float[Array, "time row action"]]:
    """States, the first included, and actions; ∂/∂`pushes`, which are zero, is the only gradient that there is."""
    trace = _forward(priors, actor, start, draws, interpret)
    return trace.states, trace.actions


def _forward(priors: Priors, actor: Actor, start: State, draws: Draws, interpret: bool) -> Trace:
    sizes = _sizes(priors, draws)
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

    def store(steps: int, columns: int) -> Any:
        return jax.ShapeDtypeStruct((steps, sizes.rows, columns), priors.entry.weight.dtype)

    trace = Trace(
        State(store(sizes.steps + 1, sizes.deterministic), store(sizes.steps + 1, sizes.stochastic)),
        store(sizes.steps, sizes.actions),
        store(sizes.steps, sizes.hidden),
        store(sizes.steps, sizes.hidden),
        store(sizes.steps, sizes.stochastic),
        Kept(*(store(sizes.steps, sizes.deterministic) for _ in Kept._fields)),
    )
    scratch = tuple(jax.ShapeDtypeStruct((sizes.rows, width), priors.entry.weight.dtype) for _ in range(2))
    kernel = call(program, (trace, scratch), sizes.rows, interpret=interpret, name="dream")
    return kernel(priors, actor.layers.layers, start, draws)[0]


def _copy(block: Block, source: Any, target: Any, size: int) -> None:
    def one(columns: Columns) -> None:
        value = block.read(source, columns=columns, width=size)
        block.write(target, 0, columns=columns, width=size, value=value)

    pieces(size, one)


def _act(
    block: Block, layers: Any, trace: Any, scratch: Any, draws: Any, t: Array, sizes: _Sizes, width: int, offset: float
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


def _follow(block: Block, priors: Any, trace: Any, draws: Any, t: Array, member: Array, sizes: _Sizes) -> None:
    """Write the state that follows state t, by the believed member."""
    sources = [
        (Source(trace.states.stochastic, (t,), sizes.stochastic), 0),
        (Source(trace.actions, (t,), sizes.actions), sizes.stochastic),
    ]
    _layer(block, sources, priors.entry, (member,), sizes.hidden, trace.entered, (t,))
    block.wait()
    gates = _gate_weights(priors)
    entered = Source(trace.entered, (t,), sizes.hidden)
    previous = Source(trace.states.deterministic, (t,), sizes.deterministic)
    following = trace.states.deterministic
    advance(block, gates, member, (member,), entered, previous, trace.kept, (t,), following, (t + 1,))
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
        blocks.vector(layer.bias, *lead, columns=columns, width=width, offset=offset) + blocks.nothing(columns)
        for offset in offsets
    ]
    for source, first in sources:
        layers = [Layer(layer.weight, lead, (first, offset)) for offset in offsets]
        found = products(block, source, layers, columns, width)
        totals = [total + x for total, x in zip(totals, found, strict=True)]
    return totals


def _backward(
    priors: Priors, draws: Draws, trace: Trace, cotangents: tuple[State, Array], interpret: bool
) -> Float[Array, "time row action"]:
    sizes = _sizes(priors, draws)

    def program(priors: Any, draws: Any, trace: Any, cotangents: Any, results: Any) -> None:
        wishes, errors, (to_state, to_sample, passed) = results
        block = Block.mine(interpret)
        for store, size in ((to_state, sizes.deterministic), (to_sample, sizes.stochastic)):
            _clear(block, store, size)
        block.wait()

        def step(number: Array, _: None) -> None:
            t = sizes.steps - 1 - number
            member = draws.members[t, block.number]
            _unfollow(block, priors, draws, trace, cotangents, errors, (to_state, to_sample, passed), t, member, sizes)
            _wish(block, priors, cotangents, errors, to_sample, wishes, t, member, sizes)

        jax.lax.fori_loop(jnp.int32(0), jnp.int32(sizes.steps), step, None)

    def store(width: int, dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((sizes.rows, width), dtype)

    dtype = priors.entry.weight.dtype
    errors = _Errors(
        store(sizes.hidden, dtype),
        store(4 * sizes.deterministic, dtype),
        store(sizes.hidden, dtype),
        store(2 * sizes.stochastic, dtype),
    )
    carries = tuple(store(n, jnp.float32) for n in (sizes.deterministic, sizes.stochastic, sizes.deterministic))
    wishes = jax.ShapeDtypeStruct((sizes.steps, sizes.rows, sizes.actions), jnp.float32)
    kernel = call(program, (wishes, errors, carries), sizes.rows, interpret=interpret, name="dream_back")
    return kernel(priors, draws, trace, cotangents)[0]


class _Errors(NamedTuple):
    """∂/∂ what every layer gives at the step under way, before its nonlinearity."""

    entered: Any
    gates: Any
    hidden: Any
    outputs: Any


def _clear(block: Block, store: Any, size: int) -> None:
    pieces(size, lambda columns: block.write(store, columns=columns, width=size, value=blocks.nothing(columns)))


def _unfollow(
    block: Block,
    priors: Any,
    draws: Any,
    trace: Any,
    cotangents: Any,
    errors: Any,
    carries: Any,
    t: Array,
    member: Array,
    sizes: _Sizes,
) -> None:
    """From the state after step t back to what entered it."""
    d_states, _ = cotangents
    to_state, to_sample, passed = carries

    def sampled(columns: Columns) -> None:
        total = block.read(d_states.stochastic, t + 1, columns=columns, width=sizes.stochastic)
        total += block.read(to_sample, columns=columns, width=sizes.stochastic)
        raw = block.read(trace.raw, t, columns=columns, width=sizes.stochastic)
        noise = block.read(draws.state, t, columns=columns, width=sizes.stochastic)
        for part, value in enumerate((total, total * noise * blocks.sigmoid(raw))):
            offset = part * sizes.stochastic
            block.write(errors.outputs, columns=columns, width=sizes.stochastic, value=value, offset=offset)

    pieces(sizes.stochastic, sampled)
    block.wait()

    def expected(columns: Columns) -> None:
        source = Source(errors.outputs, (), 2 * sizes.stochastic)
        x = products_back(block, [(source, Layer(priors.out.weight, (member,)))], columns, sizes.hidden)
        y = block.read(trace.hidden, t, columns=columns, width=sizes.hidden)
        block.write(errors.hidden, columns=columns, width=sizes.hidden, value=x * elu_slope(y))

    pieces(sizes.hidden, expected)
    block.wait()

    def gated(columns: Columns) -> None:
        source = Source(errors.hidden, (), sizes.hidden)
        x = products_back(block, [(source, Layer(priors.hidden.weight, (member,)))], columns, sizes.deterministic)
        x += block.read(d_states.deterministic, t + 1, columns=columns, width=sizes.deterministic)
        x += block.read(to_state, columns=columns, width=sizes.deterministic)
        previous = Source(trace.states.deterministic, (t,), sizes.deterministic)
        go_back(block, columns, x, trace.kept, (t,), previous, errors.gates, (), passed)

    pieces(sizes.deterministic, gated)
    block.wait()

    def entered(columns: Columns) -> None:
        size = sizes.deterministic
        to_entry, back = through_gates(block, columns, _gate_weights(priors), member, errors.gates, (), size)
        y = block.read(trace.entered, t, columns=columns, width=sizes.hidden)
        block.write(errors.entered, columns=columns, width=sizes.hidden, value=to_entry * elu_slope(y))
        back += block.read(passed, columns=columns, width=size)
        block.write(to_state, columns=columns, width=size, value=back)

    pieces(sizes.deterministic, entered)
    block.wait()


def _wish(
    block: Block,
    priors: Any,
    cotangents: Any,
    errors: Any,
    to_sample: Any,
    wishes: Any,
    t: Array,
    member: Array,
    sizes: _Sizes,
) -> None:
    """From what entered step t back to the state before it and to the action."""
    _, d_actions = cotangents

    def to_state(columns: Columns) -> None:
        source = Source(errors.entered, (), sizes.hidden)
        x = products_back(block, [(source, Layer(priors.entry.weight, (member,)))], columns, sizes.stochastic)
        block.write(to_sample, columns=columns, width=sizes.stochastic, value=x)

    def to_action(columns: Columns) -> None:
        source, layer = (
            Source(errors.entered, (), sizes.hidden),
            Layer(priors.entry.weight, (member,), (sizes.stochastic, 0)),
        )
        x = products_back(block, [(source, layer)], columns, sizes.actions)
        x += block.read(d_actions, t, columns=columns, width=sizes.actions)
        block.write(wishes, t, columns=columns, width=sizes.actions, value=x)

    pieces(sizes.stochastic, to_state)
    pieces(sizes.actions, to_action)
    block.wait()


def _gate_weights(priors: Any) -> GateWeights:
    gates = priors.gates_from_entry
    return GateWeights(gates.weight, priors.gates_from_state, gates.bias, priors.candidate_bias)


def _sizes(priors: Priors, draws: Draws) -> _Sizes:
    steps, rows, actions = draws.action.shape
    deterministic, hidden = priors.hidden.weight.shape[-2:]
    return _Sizes(steps, rows, actions, deterministic, draws.state.shape[-1], hidden)


def _with_trace(pushes: Any, priors: Any, actor: Any, start: Any, draws: Any, interpret: bool) -> tuple[Any, Any]:
    trace = _forward(priors, actor, start, draws, interpret)
    return (trace.states, trace.actions), (priors, draws, trace)


def _pull_back(interpret: bool, residuals: Any, cotangents: Any) -> tuple[Any, ...]:
    priors, draws, trace = residuals
    return _backward(priors, draws, trace, cotangents, interpret), None, None, None, None


dream_states.defvjp(_with_trace, _pull_back)
