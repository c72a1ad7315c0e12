"""The gated recurrent unit inside a kernel, forwards and backwards; its formulas are those of `gru`."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from actsafe.fast.blocks import Block, Columns, Layer, Source, products, products_back, sigmoid, vector
from actsafe.fast.gru import Gates, gate_errors

Lead = tuple[Any, ...]


class GateWeights(NamedTuple):
    """Stores of the layers to the gates, (member, in, 3 · size), and of their biases."""

    from_entry: Any
    from_state: Any
    bias: Any
    """(lead, 3 · size): of the gates from x."""
    candidate_bias: Any
    """(lead, size): of the candidate's part from h."""


class Kept(NamedTuple):
    """Stores (step, row, size) of what the backward pass needs."""

    reset: Any
    update: Any
    candidate: Any
    from_state: Any


def advance(
    block: Block,
    columns: Columns,
    weights: GateWeights,
    member: Array,
    bias_lead: Lead,
    entered: Source,
    previous: Source,
    kept: Kept,
    target: Any,
    t: Array,
) -> None:
    """Write h' of `entered` and `previous` at these columns to `target`, as step t + 1, and what the backward pass
    needs to `kept`, as step t."""
    size = previous.size

    def gates_of(source: Source, store: Any) -> tuple[Array, ...]:
        layers = [Layer(store, (member,), (0, number * size)) for number in range(3)]
        return products(block, source, layers, columns, size)

    def bias(number: int) -> Array:
        return vector(weights.bias, *bias_lead, columns=columns, width=size, offset=number * size)

    x_r, x_z, x_n = gates_of(entered, weights.from_entry)
    h_r, h_z, h_n = gates_of(previous, weights.from_state)
    reset, update = sigmoid(x_r + h_r + bias(0)), sigmoid(x_z + h_z + bias(1))
    from_state = h_n + vector(weights.candidate_bias, *bias_lead, columns=columns, width=size)
    candidate = jnp.tanh(x_n + bias(2) + reset * from_state)
    before = previous.read(block, columns).astype(jnp.float32)
    following = candidate + update * (before - candidate)
    values = Gates(reset, update, candidate, from_state)
    for store, value in zip(kept, values, strict=True):
        block.write(store, t, columns=columns, width=size, value=value)
    block.write(target, t + 1, columns=columns, width=size, value=following)


def go_back(
    block: Block,
    originals: Block,
    columns: Columns,
    cotangent: Array,
    kept: Kept,
    kept_lead: Lead,
    previous: Source,
    errors: Any,
    errors_lead: Lead,
    passed: Any,
) -> None:
    """Write the errors of all gates at these columns to `errors` (*lead, row, 4 · size), and to `passed` (row, size)
    what reaches h past the gates; what was kept is that of `originals`."""
    size = previous.size
    values = Gates(*(originals.read(store, *kept_lead, columns=columns, width=size) for store in kept))
    before = previous.read(originals, columns).astype(jnp.float32)
    parts = gate_errors(values, before, cotangent)
    for number, part in enumerate(parts):
        block.write(errors, *errors_lead, columns=columns, width=size, value=part, offset=number * size)
    block.write(passed, columns=columns, width=size, value=cotangent * values.update)


def through_gates(
    block: Block, columns: Columns, weights: GateWeights, member: Array, errors: Any, errors_lead: Lead, size: int
) -> tuple[Array, Array]:
    """What reaches x and h through the gates at these columns, from the errors (reset, update, candidate from x and
    from h) of all."""

    def term(store: Any, number: int, error: int) -> tuple[Source, Layer]:
        source = Source(errors, errors_lead, size, offset=error * size)
        return source, Layer(store, (member,), (0, number * size))

    to_entry = [term(weights.from_entry, number, error) for number, error in enumerate((0, 1, 2))]
    to_state = [term(weights.from_state, number, error) for number, error in enumerate((0, 1, 3))]
    return products_back(block, to_entry, columns, size), products_back(block, to_state, columns, size)
