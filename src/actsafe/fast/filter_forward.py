"""The filter's chain of steps as one kernel, forwards (see `teams`)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from actsafe.fast import blocks, teams
from actsafe.fast.blocks import Columns, Layer, Source, clear, elu, pieces, product, products
from actsafe.fast.gate_kernel import GateWeights, Kept, advance
from actsafe.fast.teams import Team
from actsafe.models.rssm.states import MIN_STD, State

FIRST = 0
"""Where arrivals are counted from."""


class FilterWeights(NamedTuple):
    """Of the layers inside the chain."""

    entry: Float[Array, "member stochastic hidden"]
    gates_from_entry: Float[Array, "member hidden gate"]
    gates_from_state: Float[Array, "member deterministic gate"]
    posterior: Float[Array, "deterministic hidden"]
    out: Float[Array, "hidden outputs"]


class FilterInputs(NamedTuple):
    """What every step is given; all but the last three have gradients."""

    offset: Float[Array, "time row hidden"]
    """Added to what enters."""
    informed: Float[Array, "time row hidden"]
    """Added to the posterior's hidden layer."""
    gate_bias: Float[Array, "time gate"]
    candidate_bias: Float[Array, "time deterministic"]
    out_bias: Float[Array, " outputs"]
    noise: Float[Array, "time row stochastic"]
    goes_on: Float[Array, "time row"]
    """0 where an episode begins, else 1."""
    members: Int[Array, " time"]


class FilterTrace(NamedTuple):
    """What the way back needs; states have one row of nothing before the first step."""

    deterministic: Float[Array, "time_and_one row deterministic"]
    stochastic: Float[Array, "time_and_one row stochastic"]
    outputs: Float[Array, "time row outputs"]
    entered: Float[Array, "time row hidden"]
    hidden: Float[Array, "time row hidden"]
    kept: Kept


class FilterResult(NamedTuple):
    """What the chain of steps gives."""

    states: State
    """(time, row, ...)"""
    outputs: Float[Array, "time row outputs"]
    """Of the posterior's last layer."""


class FilterSizes(NamedTuple):
    steps: int
    rows: int
    deterministic: int
    stochastic: int
    hidden: int


def forward_workspace(sizes: FilterSizes, dtype: DTypeLike) -> tuple[FilterTrace, Array]:
    """For `forward`."""

    def store(steps: int, width: int) -> Array:
        return jnp.zeros((steps, sizes.rows, width), dtype)

    trace = FilterTrace(
        store(sizes.steps + 1, sizes.deterministic),
        store(sizes.steps + 1, sizes.stochastic),
        store(sizes.steps, 2 * sizes.stochastic),
        store(sizes.steps, sizes.hidden),
        store(sizes.steps, sizes.hidden),
        Kept(*(store(sizes.steps, sizes.deterministic) for _ in Kept._fields)),
    )
    return trace, teams.arrivals(sizes.rows, FIRST)


def forward(weights: FilterWeights, inputs: FilterInputs, workspace: Any, interpret: bool) -> FilterTrace:
    """The states of sequences from their beginning, in the precision of `weights`, and what led to them."""
    num_steps, num_rows, hidden = inputs.offset.shape
    stochastic, deterministic = weights.entry.shape[1], weights.posterior.shape[0]

    def program(team: Team, weights: Any, inputs: Any, trace: Any) -> None:
        block = team.block
        gates = GateWeights(weights.gates_from_entry, weights.gates_from_state, inputs.gate_bias, inputs.candidate_bias)
        clear(block, trace.deterministic, 0, width=deterministic)
        clear(block, trace.stochastic, 0, width=stochastic)
        block.wait()

        def step(t: Array, _: None) -> None:
            member, goes_on = inputs.members[t], block.column(inputs.goes_on, t)
            last = Source(trace.stochastic, (t,), stochastic, scale=goes_on)
            previous = Source(trace.deterministic, (t,), deterministic, scale=goes_on)

            def enter(columns: Columns) -> None:
                x = product(block, last, Layer(weights.entry, (member,)), columns, hidden)
                y = elu(x + block.read(inputs.offset, t, columns=columns, width=hidden))
                block.write(trace.entered, t, columns=columns, width=hidden, value=y)

            # A small layer: all programs do all of it, and write the same, rather than wait.
            pieces(hidden, enter)
            block.wait()
            entered = Source(trace.entered, (t,), hidden)

            def follow(columns: Columns) -> None:
                advance(block, columns, gates, member, (t,), entered, previous, trace.kept, trace.deterministic, t)

            team.share(follow)
            team.wait(2 * t + 1)

            def correct(columns: Columns) -> None:
                source = Source(trace.deterministic, (t + 1,), deterministic)
                x = product(block, source, Layer(weights.posterior), columns, hidden)
                y = elu(x + block.read(inputs.informed, t, columns=columns, width=hidden))
                block.write(trace.hidden, t, columns=columns, width=hidden, value=y)

            team.share(correct)
            team.wait(2 * t + 2)

            def sample(columns: Columns) -> None:
                halves = [Layer(weights.out, at=(0, part * stochastic)) for part in (0, 1)]
                outputs = products(block, Source(trace.hidden, (t,), hidden), halves, columns, stochastic)
                mean, raw = (
                    x + blocks.vector(inputs.out_bias, columns=columns, width=stochastic, offset=part * stochastic)
                    for part, x in enumerate(outputs)
                )
                noise = block.read(inputs.noise, t, columns=columns, width=stochastic)
                value = mean + (blocks.softplus(raw) + MIN_STD) * noise
                block.write(trace.outputs, t, columns=columns, width=stochastic, value=mean)
                block.write(trace.outputs, t, columns=columns, width=stochastic, value=raw, offset=stochastic)
                block.write(trace.stochastic, t + 1, columns=columns, width=stochastic, value=value)

            pieces(stochastic, sample)
            block.wait()

        jax.lax.fori_loop(jnp.int32(0), jnp.int32(num_steps), step, None)

    widest = max(hidden, deterministic)
    kernel = teams.call(program, workspace, num_rows, widest, first=FIRST, interpret=interpret, name="filter_forward")
    return kernel(weights, inputs)
