"""The filter's chain of steps gone back, as one kernel (see `teams`).

It carries error signals; gradients of weights are sums over steps, and follow outside, as large products.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from actsafe.fast import blocks, teams
from actsafe.fast.blocks import Columns, Layer, Source, clear, elu_slope, pieces, products_back
from actsafe.fast.filter_forward import (
    FilterInputs,
    FilterResult,
    FilterSizes,
    FilterTrace,
    FilterWeights,
)
from actsafe.fast.gate_kernel import GateWeights, go_back, through_gates
from actsafe.fast.teams import Team

FIRST = 1
"""Where arrivals are counted from."""


class FilterErrors(NamedTuple):
    """∂/∂ what every layer gives, before its nonlinearity."""

    entered: Float[Array, "time row hidden"]
    gates: Float[Array, "time row four_sizes"]
    """Reset, update, candidate from x, candidate from h."""
    hidden: Float[Array, "time row hidden"]
    outputs: Float[Array, "time row outputs"]


def backward_workspace(sizes: FilterSizes, dtype: DTypeLike) -> tuple[Any, Array]:
    """For `backward`."""

    def store(width: int) -> Array:
        return jnp.zeros((sizes.steps, sizes.rows, width), dtype)

    widths = (sizes.hidden, 4 * sizes.deterministic, sizes.hidden, 2 * sizes.stochastic)
    carried = (sizes.deterministic, sizes.stochastic, sizes.deterministic)
    carries = tuple(jnp.zeros((sizes.rows, width), jnp.float32) for width in carried)
    return (FilterErrors(*map(store, widths)), carries), teams.arrivals(sizes.rows, FIRST)


def backward(
    weights: FilterWeights,
    inputs: FilterInputs,
    trace: FilterTrace,
    cotangents: FilterResult,
    workspace: Any,
    interpret: bool,
) -> FilterErrors:
    """How what `cotangents` are of changes with what each layer gave."""
    num_steps, num_rows, hidden = inputs.offset.shape
    stochastic, deterministic = weights.entry.shape[1], weights.posterior.shape[0]

    def program(team: Team, weights: Any, inputs: Any, trace: Any, cotangents: Any, results: Any) -> None:
        errors, (to_state, to_sample, passed) = results
        block = team.block
        gates = GateWeights(weights.gates_from_entry, weights.gates_from_state, None, None)
        clear(block, to_state, width=deterministic)
        clear(block, to_sample, width=stochastic)
        block.wait()

        def step(number: Array, _: None) -> None:
            t = num_steps - 1 - number
            member, goes_on = inputs.members[t], block.column(inputs.goes_on, t)
            previous = Source(trace.deterministic, (t,), deterministic, scale=goes_on)

            def sampled(columns: Columns) -> None:
                total = block.read(cotangents.states.stochastic, t, columns=columns, width=stochastic)
                total += block.read(to_sample, columns=columns, width=stochastic)
                raw = block.read(trace.outputs, t, columns=columns, width=stochastic, offset=stochastic)
                noise = block.read(inputs.noise, t, columns=columns, width=stochastic)
                for part, value in enumerate((total, total * noise * blocks.sigmoid(raw))):
                    offset = part * stochastic
                    direct = block.read(cotangents.outputs, t, columns=columns, width=stochastic, offset=offset)
                    block.write(
                        errors.outputs, t, columns=columns, width=stochastic, value=value + direct, offset=offset
                    )

            pieces(stochastic, sampled)
            block.wait()

            def corrected(columns: Columns) -> None:
                source = Source(errors.outputs, (t,), 2 * stochastic)
                x = products_back(block, [(source, Layer(weights.out))], columns, hidden)
                y = block.read(trace.hidden, t, columns=columns, width=hidden)
                block.write(errors.hidden, t, columns=columns, width=hidden, value=x * elu_slope(y))

            team.share(corrected)
            team.wait(3 * number + 1)

            def gated(columns: Columns) -> None:
                source = Source(errors.hidden, (t,), hidden)
                x = products_back(block, [(source, Layer(weights.posterior))], columns, deterministic)
                x += block.read(cotangents.states.deterministic, t, columns=columns, width=deterministic)
                x += block.read(to_state, columns=columns, width=deterministic)
                go_back(block, block, columns, x, trace.kept, (t,), previous, errors.gates, (t,), passed)

            team.share(gated)
            team.wait(3 * number + 2)

            def entered(columns: Columns) -> None:
                to_entry, back = through_gates(block, columns, gates, member, errors.gates, (t,), deterministic)
                y = block.read(trace.entered, t, columns=columns, width=hidden)
                block.write(errors.entered, t, columns=columns, width=hidden, value=to_entry * elu_slope(y))
                back += block.read(passed, columns=columns, width=deterministic)
                block.write(to_state, columns=columns, width=deterministic, value=back * goes_on)

            team.share(entered)
            team.wait(3 * number + 3)

            def first(columns: Columns) -> None:
                source = Source(errors.entered, (t,), hidden)
                x = products_back(block, [(source, Layer(weights.entry, (member,)))], columns, stochastic)
                block.write(to_sample, columns=columns, width=stochastic, value=x * goes_on)

            pieces(stochastic, first)
            block.wait()

        jax.lax.fori_loop(jnp.int32(0), jnp.int32(num_steps), step, None)

    widest = max(hidden, deterministic)
    kernel = teams.call(program, workspace, num_rows, widest, first=FIRST, interpret=interpret, name="filter_back")
    return kernel(weights, inputs, trace, cotangents)[0]
