"""Dreams backwards, in one kernel: from what states and actions bring to what a change of each action would."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from actsafe.fast import blocks
from actsafe.fast.blocks import (
    BLOCK,
    Block,
    Columns,
    Layer,
    Source,
    call,
    clear,
    elu_slope,
    pieces,
    products_back,
)
from actsafe.fast.dream_forward import Draws, Sizes, Trace, gate_weights, sizes_of
from actsafe.fast.gate_kernel import go_back, through_gates
from actsafe.models.rssm.cell import Priors


def backward(
    priors: Priors, draws: Draws, trace: Trace, cotangents: Any, workspace: Any, copies: int, interpret: bool
) -> Float[Array, "time rows action"]:
    """∂/∂action_offsets from cotangents of which every row of the dream has several, one next to the other."""
    sizes = sizes_of(priors, draws)

    def program(priors: Any, draws: Any, trace: Any, cotangents: Any, results: Any) -> None:
        action_gradients, errors, carries = results
        block = Block.mine(interpret, copies)
        for store, size in zip(carries[:2], (sizes.deterministic, sizes.stochastic), strict=True):
            clear(block, store, width=size)
        block.wait()

        def step(number: Array, _: None) -> None:
            t = sizes.steps - 1 - number
            member = draws.members[t, block.number]
            way = _WayBack(block, block.originals(copies), priors, draws, trace, cotangents, errors, carries)
            way.follow(t, member, sizes)
            way.act(t, member, sizes, action_gradients)

        jax.lax.fori_loop(jnp.int32(0), jnp.int32(sizes.steps), step, None)

    kernel = call(program, workspace, sizes.rows // BLOCK, interpret=interpret, name="dream_back")
    return kernel(priors, draws, trace, cotangents)[0]


def backward_workspace(sizes: Sizes, copies: int, dtype: DTypeLike) -> tuple[Array, Any, tuple[Array, ...]]:
    """For `backward` with `copies` cotangents of every row."""
    num_rows = sizes.rows * copies
    widths = (sizes.hidden, 4 * sizes.deterministic, sizes.hidden, 2 * sizes.stochastic)
    carried = (sizes.deterministic, sizes.stochastic, sizes.deterministic)
    return (
        jnp.zeros((sizes.steps, num_rows, sizes.actions), jnp.float32),
        _Errors(*(jnp.zeros((num_rows, width), dtype) for width in widths)),
        tuple(jnp.zeros((num_rows, width), jnp.float32) for width in carried),
    )


class _Errors(NamedTuple):
    """∂/∂ what every layer gives at the step under way, before its nonlinearity."""

    entered: Any
    gates: Any
    hidden: Any
    outputs: Any


class _WayBack(NamedTuple):
    """Where things are, for a block of cotangents."""

    block: Block
    originals: Block
    """The rows that they are cotangents of."""
    priors: Any
    draws: Any
    trace: Any
    cotangents: Any
    errors: Any
    carries: Any
    """What reaches the deterministic and the stochastic state from later steps, and what passes the gates."""

    def follow(self, t: Array, member: Array, sizes: Sizes) -> None:
        """From the state after step t back to what entered it."""
        block, originals, trace, errors = self.block, self.originals, self.trace, self.errors
        (d_states, _), (to_state, to_sample, passed) = self.cotangents, self.carries

        def sampled(columns: Columns) -> None:
            total = block.read(d_states.stochastic, t + 1, columns=columns, width=sizes.stochastic)
            total += block.read(to_sample, columns=columns, width=sizes.stochastic)
            raw = originals.read(trace.raw, t, columns=columns, width=sizes.stochastic)
            noise = originals.read(self.draws.state, t, columns=columns, width=sizes.stochastic)
            for part, value in enumerate((total, total * noise * blocks.sigmoid(raw))):
                offset = part * sizes.stochastic
                block.write(errors.outputs, columns=columns, width=sizes.stochastic, value=value, offset=offset)

        pieces(sizes.stochastic, sampled)
        block.wait()

        def expected(columns: Columns) -> None:
            terms = [(Source(errors.outputs, (), 2 * sizes.stochastic), Layer(self.priors.out.weight, (member,)))]
            y = originals.read(trace.hidden, t, columns=columns, width=sizes.hidden)
            value = products_back(block, terms, columns, sizes.hidden) * elu_slope(y)
            block.write(errors.hidden, columns=columns, width=sizes.hidden, value=value)

        pieces(sizes.hidden, expected)
        block.wait()

        def gated(columns: Columns) -> None:
            terms = [(Source(errors.hidden, (), sizes.hidden), Layer(self.priors.hidden.weight, (member,)))]
            x = products_back(block, terms, columns, sizes.deterministic)
            x += block.read(d_states.deterministic, t + 1, columns=columns, width=sizes.deterministic)
            x += block.read(to_state, columns=columns, width=sizes.deterministic)
            previous = Source(trace.states.deterministic, (t,), sizes.deterministic)
            go_back(block, originals, columns, x, trace.kept, (t,), previous, errors.gates, (), passed)

        pieces(sizes.deterministic, gated)
        block.wait()

        def entered(columns: Columns) -> None:
            size, weights = sizes.deterministic, gate_weights(self.priors)
            to_entry, back = through_gates(block, columns, weights, member, errors.gates, (), size)
            y = originals.read(trace.entered, t, columns=columns, width=sizes.hidden)
            block.write(errors.entered, columns=columns, width=sizes.hidden, value=to_entry * elu_slope(y))
            back += block.read(passed, columns=columns, width=size)
            block.write(to_state, columns=columns, width=size, value=back)

        pieces(sizes.deterministic, entered)
        block.wait()

    def act(self, t: Array, member: Array, sizes: Sizes, action_gradients: Any) -> None:
        """From what entered step t back to the state before it and to the action."""
        block, (_, to_sample, _) = self.block, self.carries
        source, weight = Source(self.errors.entered, (), sizes.hidden), self.priors.entry.weight

        def to_state(columns: Columns) -> None:
            x = products_back(block, [(source, Layer(weight, (member,)))], columns, sizes.stochastic)
            block.write(to_sample, columns=columns, width=sizes.stochastic, value=x)

        def to_action(columns: Columns) -> None:
            layer = Layer(weight, (member,), (sizes.stochastic, 0))
            x = products_back(block, [(source, layer)], columns, sizes.actions)
            x += block.read(self.cotangents[1], t, columns=columns, width=sizes.actions)
            block.write(action_gradients, t, columns=columns, width=sizes.actions, value=x)

        pieces(sizes.stochastic, to_state)
        pieces(sizes.actions, to_action)
        block.wait()
