"""The largest expected sum of payoffs that any plausible model allows, by dynamic programming on a scalar state.

The system is s' = f(s + a) + w, w ~ N(0, sigma^2), of which a `Band` around f is known at a grid of inputs x = s + a.
Policies are plans (a_0, ..., a_(T-2), 0): at time t the action is a_t in every state. Every result is an upper bound,
whatever the width of the grid, on the maximum over f in the band:

- within a cell a payoff counts as the largest it can be there (the caller's to say), and f, which has Lipschitz
  constant L_f, may leave the band of the cell's middle by L_f times half the width;
- the expected payoff that follows, as a function of the mean m of the next state, is computed at nodes and
  interpolated; it can exceed the straight line between two nodes by width^2 / 8 times its curvature, which for a value
  function of range R is at most 2 phi(1) R / sigma^2, phi the standard normal density. That much is added;
- where the next state leaves the grid it is charged the largest payoff for the rest of the episode;
- the model is chosen anew at every state and time. Who may do that can do no less than who must choose one f for all of
  them, so that it is P_n or more: pessimistic, in the safe direction.

The smallest sum is minus the largest of minus the payoffs, and errs in the other direction.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from actsafe.theory.plausible_models import Band

PEAK_CURVATURE = 2.0 * math.exp(-0.5) / math.sqrt(2.0 * math.pi)
"""2 phi(1), half the integral of |phi''|: the most that smoothing a step of height one bends it, times sigma^2."""
NODES_PER_STD = 4
"""Nodes of means per standard deviation of the noise."""
TAIL_STDS = 6.0
"""Standard deviations of noise that the grid of states covers on either side of where f can lead."""


class Lattice(eqx.Module):
    """Cells of states, nodes of means, and inputs x = s + a, all on one grid."""

    actions: Float[Array, " action"]
    cells: Float[Array, " cell"]
    """Middles of the cells that states are sorted into."""
    nodes: Float[Array, " node"]
    """Means of the next state."""
    inputs: Float[Array, " input"]
    """Every sum of a cell's middle and an action."""
    arrival: Float[Array, "node cell"]
    """Probability of arriving in a cell from a mean, the noise integrated exactly; the rest leaves the grid."""
    input_of: Int[Array, "action cell"]
    """Where in `inputs` the sum of an action and a cell's middle is."""
    start: int = eqx.field(static=True)
    """The cell whose middle is the initial state, 0."""
    zero: int = eqx.field(static=True)
    """The action that is 0, taken by every policy at the last decision, which moves nothing that counts."""
    num_decisions: int = eqx.field(static=True)
    noise_std: float = eqx.field(static=True)
    slack: float = eqx.field(static=True)
    """L_f times half a cell: how far f can leave the band of a cell's middle within the cell."""

    @property
    def cell_width(self) -> Float[Array, ""]:
        return self.cells[1] - self.cells[0]

    @classmethod
    def create(
        cls,
        *,
        num_actions: int,
        action_step: float,
        actions_per_cell: int,
        reach: float,
        dynamics_slope: float,
        noise_std: float,
        num_decisions: int,
    ) -> "Lattice":
        """A lattice of `num_actions` actions around 0, for dynamics with |f| ≤ `reach`."""
        if num_actions % 2 == 0 or num_actions < 3:
            raise ValueError(f"num_actions must be odd and at least 3, so that 0 is in the middle; got {num_actions}")
        width, half_actions = action_step * actions_per_cell, num_actions // 2
        slack = 0.5 * dynamics_slope * width
        half_cells = math.ceil((reach + slack + TAIL_STDS * noise_std) / width)
        half_nodes = math.ceil((reach + slack) / noise_std * NODES_PER_STD)
        nodes = jnp.arange(-half_nodes, half_nodes + 1) * noise_std / NODES_PER_STD
        actions, cells = jnp.arange(-half_actions, half_actions + 1), jnp.arange(-half_cells, half_cells + 1)
        half_inputs = half_actions + half_cells * actions_per_cell
        edges = (jnp.arange(-half_cells, half_cells + 2) - 0.5) * width
        below = jax.scipy.stats.norm.cdf((edges[None] - nodes[:, None]) / noise_std)
        return cls(
            actions=actions * action_step,
            cells=cells * width,
            nodes=nodes,
            inputs=jnp.arange(-half_inputs, half_inputs + 1) * action_step,
            arrival=jnp.diff(below, axis=1),
            input_of=half_inputs + actions[:, None] + actions_per_cell * cells[None],
            start=half_cells,
            zero=half_actions,
            num_decisions=num_decisions,
            noise_std=noise_std,
            slack=slack,
        )


def largest_sum(
    lattice: Lattice,
    models: Band,
    state_payoff: Float[Array, " cell"],
    input_payoff: Float[Array, " input"],
    ceiling: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """An upper bound on max_(f in M) E[sum_t payoff(s_t, a_t)], for every plan; one axis per free action, a_0 first.

        V_t(s) = payoff(s, a_t) + max_(lower(s + a_t) ≤ m ≤ upper(s + a_t)) E V_(t+1)(m + w)

    The payoff of a state and an action is the sum of what is given for the state's cell and for the input, and never
    exceeds `ceiling`. With a payoff of cost it is P_n of the paper's Definition 4.2, or more.
    """
    values = (state_payoff + input_payoff[lattice.input_of[lattice.zero]])[None]
    for decision in reversed(range(1, lattice.num_decisions - 1)):
        follows = _largest_mean(lattice, models, values, (lattice.num_decisions - 1 - decision) * ceiling)
        now = state_payoff[None] + input_payoff[lattice.input_of]
        values = now[:, None] + jnp.moveaxis(follows[:, lattice.input_of], 0, 1)
        values = values.reshape(-1, len(lattice.cells))
    # At the first decision the state is known: only the inputs that can follow it are asked about.
    first = lattice.input_of[:, lattice.start]
    here = Band(models.lower[first], models.upper[first])
    follows = _largest_mean(lattice, here, values, (lattice.num_decisions - 1) * ceiling)
    sums = state_payoff[lattice.start] + input_payoff[first][:, None] + follows.T
    return sums.reshape((len(first),) * (lattice.num_decisions - 1))


def _largest_mean(
    lattice: Lattice, models: Band, values: Float[Array, "plan cell"], tail: Float[Array, ""] | float
) -> Float[Array, "plan input"]:
    """max_m E V(m + w) over the band at every input of `models`, for every V in `values`; off the grid V is `tail`."""
    width = lattice.noise_std / NODES_PER_STD
    smooth = values @ lattice.arrival.T + ((1.0 - jnp.sum(lattice.arrival, axis=1)) * tail)[None]
    spread = jnp.maximum(jnp.max(values, axis=1), tail) - jnp.minimum(jnp.min(values, axis=1), tail)
    smooth = smooth + (PEAK_CURVATURE / (8.0 * NODES_PER_STD**2) * spread)[:, None]
    last = len(lattice.nodes) - 1
    low = jnp.clip((models.lower - lattice.slack - lattice.nodes[0]) / width, 0.0, last)
    high = jnp.clip((models.upper + lattice.slack - lattice.nodes[0]) / width, 0.0, last)
    ends = jnp.maximum(_interpolate(smooth, low), _interpolate(smooth, high))
    return jnp.maximum(ends, _largest_between(smooth, jnp.ceil(low).astype(int), jnp.floor(high).astype(int)))


def _interpolate(values: Float[Array, "plan node"], place: Float[Array, " input"]) -> Float[Array, "plan input"]:
    """The values on straight lines between nodes, at places counted in nodes."""
    left = jnp.minimum(jnp.floor(place).astype(int), values.shape[1] - 2)
    share = (place - left)[None]
    return (1.0 - share) * values[:, left] + share * values[:, left + 1]


def _largest_between(
    values: Float[Array, "plan node"], low: Int[Array, " input"], high: Int[Array, " input"]
) -> Float[Array, "plan input"]:
    """max(values[low : high + 1]) for many ranges, minus infinity for an empty one.

    By a table of the maxima over 1, 2, 4, ... nodes from every node on: the two longest windows that fit cover a range.
    """
    num_nodes = values.shape[1]
    levels = [values]
    for level in range(1, num_nodes.bit_length()):
        reach = 1 << (level - 1)
        shifted = jnp.pad(levels[-1][:, reach:], ((0, 0), (0, reach)), constant_values=-jnp.inf)
        levels.append(jnp.maximum(levels[-1], shifted))
    table = jnp.concatenate(levels, axis=1)
    count = jnp.maximum(high - low + 1, 1)
    level = 31 - jax.lax.clz(count.astype(jnp.int32)).astype(int)
    left, right = level * num_nodes + low, level * num_nodes + low + count - (1 << level)
    return jnp.where((low <= high)[None], jnp.maximum(table[:, left], table[:, right]), -jnp.inf)
