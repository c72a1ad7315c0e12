"""The filter in three parts: all that does not depend on the state, the chain of steps, and all that follows from it.

Together they are `models.rssm.filter.filter_sequences`. Only the chain has to wait for itself; the rest is done for all
steps at once. A normalised cell, or members that are followed row by row, are not taken apart: then the chain is the
plain one (see `PlainSteps`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from actsafe.fast import teams
from actsafe.fast.cell import from_observation, joined_gates, to_members
from actsafe.fast.filter_forward import FilterInputs, FilterResult, FilterSizes, FilterWeights
from actsafe.fast.filter_kernel import FilterWorkspace, filter_states
from actsafe.fast.gru import Gates
from actsafe.fast.hoisting import Layers, hoisted_scan
from actsafe.fast.networks import dense, elu, shifted
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.filter import FilterDraws
from actsafe.models.rssm.filter import filter_steps as plain_steps
from actsafe.models.rssm.states import Filtered, Gaussian, State


class Steps(NamedTuple):
    """What the steps of the chain are given."""

    action_offsets: Float[Array, "time row hidden"]
    """The actions' part of what enters the cell, and the layer's bias."""
    informed: Float[Array, "time row hidden"]
    """The observations' part of the posterior's hidden layer, and the layer's bias."""

    @property
    def from_observations(self) -> Float[Array, "time row hidden"]:
        """What waits for the encoder."""
        return self.informed


class PlainSteps(NamedTuple):
    """What the plain chain is given."""

    embeddings: Float[Array, "time row embedding"]
    actions: Float[Array, "time row action"]

    @property
    def from_observations(self) -> Float[Array, "time row embedding"]:
        """What waits for the encoder."""
        return self.embeddings


class StepDraws(NamedTuple):
    """The same, without gradients."""

    noise: Float[Array, "time row stochastic"]
    goes_on: Float[Array, "time row 1"]
    """0 where an episode begins, else 1."""
    members: Int[Array, "time *row"]
    """One is drawn per step and predicts for the whole batch; or each row's own, for the plain chain."""


def prepare(
    cell: Cell,
    embeddings: Float[Array, "batch time embedding"],
    actions: Float[Array, "batch time action"],
    is_first: Bool[Array, "batch time"],
    key: PRNGKeyArray,
    owners: Bool[Array, "batch time member"] | None = None,
) -> tuple[Steps | PlainSteps, StepDraws]:
    """All of the filter that does not depend on the state. Plain: a part of `filter_sequences`."""
    num_batch, num_steps = is_first.shape
    dtype = cell.priors.entry.weight.dtype
    members, noise = FilterDraws.draw(cell, num_steps, num_batch, key, owners)
    goes_on = 1.0 - jnp.swapaxes(is_first, 0, 1)[..., None].astype(dtype)
    draws = StepDraws(noise, goes_on, members)
    actions = jnp.swapaxes(actions, 0, 1).astype(dtype) * goes_on
    if cell.is_normalised or owners is not None:
        return PlainSteps(jnp.swapaxes(embeddings, 0, 1), actions), draws
    entry, size = cell.priors.entry, cell.stochastic_size
    drawn = jnp.einsum("tba,tah->tbh", actions, entry.weight[members, size:])
    offsets = drawn + entry.bias[members][:, None]
    informed = from_observation(cell.posterior, embeddings, cell.deterministic_size)
    return Steps(offsets, jnp.swapaxes(informed, 0, 1)), draws


def distributions(cell: Cell, result: FilterResult | Filtered, draws: StepDraws) -> Filtered:
    """States and beliefs (batch, time) from the chain's result. Plain: a part of `filter_sequences`."""
    filtered = result if isinstance(result, Filtered) else _with_beliefs(cell, result, draws)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), filtered)


def _with_beliefs(cell: Cell, result: FilterResult, draws: StepDraws) -> Filtered:
    """The same (time, batch); priors of all steps at once."""
    deterministic = result.states.deterministic
    rows = deterministic.reshape(1, -1, deterministic.shape[-1])
    everyone = dense(cell.priors.out, elu(dense(cell.priors.hidden, to_members(rows[0], cell.num_members))))
    outputs = everyone.reshape(cell.num_members, *deterministic.shape[:2], -1)
    prior = Gaussian.of(outputs[draws.members, jnp.arange(len(draws.members))])
    return Filtered(result.states, Gaussian.of(result.outputs), prior)


def workspace(
    cell: Cell, num_steps: int, num_rows: int, *, is_bootstrapped: bool = False
) -> FilterWorkspace | tuple[()]:
    """Memory for `filter_steps`, if a kernel takes its steps."""
    dtype = cell.priors.entry.weight.dtype
    if cell.is_normalised or is_bootstrapped or not teams.is_usable(num_rows, dtype):
        return ()
    hidden = cell.posterior.out.weight.shape[0]
    sizes = FilterSizes(num_steps, num_rows, cell.deterministic_size, cell.stochastic_size, hidden)
    return FilterWorkspace.of(sizes, dtype)


def filter_steps(
    cell: Cell,
    steps: Steps | PlainSteps,
    draws: StepDraws,
    memory: FilterWorkspace | tuple[()] | None = None,
    *,
    unroll: int = 1,
) -> FilterResult | Filtered:
    """The chain of steps, by a kernel or a loop; `memory` is for callers that order a program (see `blocks.call`).

    Plain: a part of `filter_sequences`.
    """
    if isinstance(steps, PlainSteps):
        noise, goes_on, members = draws
        return plain_steps(cell, *steps, goes_on[..., 0] == 0, FilterDraws(members, noise), unroll=unroll)
    memory = workspace(cell, *steps.action_offsets.shape[:2]) if memory is None else memory
    return filter_by_kernel(cell, steps, draws, memory) if memory else filter_by_loop(cell, steps, draws, unroll=unroll)


def filter_by_loop(cell: Cell, steps: Steps, draws: StepDraws, *, unroll: int = 1) -> FilterResult:
    """The chain of steps as a loop. Plain: a part of `filter_sequences`."""
    offsets, informed = steps
    noise, goes_on, members = draws
    dtype, size, gates = offsets.dtype, cell.stochastic_size, joined_gates(cell.priors)
    num_steps, num_rows = offsets.shape[:2]
    weights = {
        "entry": cell.priors.entry.weight[:, :size],
        "gates": gates.weight,
        "posterior": cell.posterior.hidden.weight[: cell.deterministic_size],
        "out": cell.posterior.out.weight,
    }

    def step(layers: Layers, carry: State, inputs: tuple, others: tuple) -> tuple[State, tuple[State, Array]]:
        offset, informed, gate_bias, out_bias = inputs
        noise, goes_on = others
        previous, width = carry.deterministic, carry.deterministic.shape[-1]
        entered = elu(layers("entry", carry.stochastic) + offset)
        gates = shifted(layers("gates", jnp.concatenate([entered, previous], axis=-1)), gate_bias)
        parts = jnp.split(gates.astype(jnp.float32), (2 * width, 3 * width), axis=-1)
        deterministic = Gates.of(*parts).following(previous.astype(jnp.float32)).astype(dtype)
        hidden = elu(layers("posterior", deterministic) + informed)
        outputs = shifted(layers("out", hidden), out_bias)
        state = State(deterministic, Gaussian.of(outputs).sample(noise).astype(dtype))
        # What the next step is given: where an episode begins then, nothing.
        return State(state.deterministic * goes_on, state.stochastic * goes_on), (state, outputs)

    out_biases = jnp.broadcast_to(cell.posterior.out.bias, (num_steps, 2 * size))
    start = jax.tree.map(lambda leaf: leaf.astype(dtype), cell.begin(num_rows))
    _, (states, outputs) = hoisted_scan(
        step,
        weights,
        start,
        (offsets, informed, gates.bias[members], out_biases),
        (noise, jnp.concatenate([goes_on[1:], goes_on[:1]])),
        members,
        unroll=unroll,
    )
    return FilterResult(states, outputs)


def filter_by_kernel(
    cell: Cell, steps: Steps, draws: StepDraws, memory: FilterWorkspace, *, interpret: bool = False
) -> FilterResult:
    """The chain of steps in one kernel. Plain: a part of `filter_sequences`."""
    priors, posterior = cell.priors, cell.posterior
    weights = FilterWeights(
        priors.entry.weight[:, : cell.stochastic_size],
        priors.gates_from_entry.weight,
        priors.gates_from_state,
        posterior.hidden.weight[: cell.deterministic_size],
        posterior.out.weight,
    )
    biases = (priors.gates_from_entry.bias[draws.members], priors.candidate_bias[draws.members], posterior.out.bias)
    goes_on = draws.goes_on[..., 0].astype(jnp.float32)
    inputs = FilterInputs(*steps, *biases, draws.noise, goes_on, draws.members)
    result: Any = filter_states(weights, inputs, memory, interpret)
    return result
