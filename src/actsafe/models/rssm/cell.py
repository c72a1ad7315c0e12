"""The recurrent state-space model: what follows a state and an action, by an ensemble, and what an observation adds.

x   = elu([s, a] W_in)                        h' = GRU(x, h)           deterministic
s' ~ N(μ, σ),  (μ, σ) = out(elu(h' W_hid))                             stochastic: the prior, one per member
s' ~ N(μ, σ),  (μ, σ) = out(elu([h', e] W_post))                       the posterior, shared; e the embedding
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from actsafe.models.networks import Dense, elu, shifted
from actsafe.models.rssm import teams
from actsafe.models.rssm.filter_forward import FilterInputs, FilterSizes, FilterWeights
from actsafe.models.rssm.filter_kernel import FilterWorkspace, filter_states
from actsafe.models.rssm.gru import Gates, beside, gru
from actsafe.models.rssm.hoisting import Layers, hoisted_scan
from actsafe.models.rssm.states import Filtered, FilterResult, Gaussian, State, StepDraws, Steps


class Priors(eqx.Module):
    """The transition models of all members; every array has the leading axis member."""

    entry: Dense
    gates_from_entry: Dense
    """x to the GRU's gates (reset, update, candidate)."""
    gates_from_state: Float[Array, "member deterministic gate"]
    """h to the same."""
    candidate_bias: Float[Array, "member deterministic"]
    """Of the candidate's part from h."""
    hidden: Dense
    out: Dense


class Posterior(eqx.Module):
    """What the observation adds; the hidden layer takes [h, e]."""

    hidden: Dense
    out: Dense


class Cell(eqx.Module):
    """Priors and posterior."""

    priors: Priors
    posterior: Posterior

    @classmethod
    def create(
        cls,
        *,
        deterministic: int,
        stochastic: int,
        hidden: int,
        embedding: int,
        action: int,
        num_members: int,
        member_noise: float,
        key: PRNGKeyArray,
    ) -> "Cell":
        """Members start from one set of weights W, each with noise of std `member_noise` · std(W) of its own."""
        keys = jax.random.split(key, 8)
        from_state = Dense.create(deterministic, 3 * deterministic, keys[2])
        common = (
            Dense.create(stochastic + action, hidden, keys[0]),
            Dense.create(hidden, 3 * deterministic, keys[1]),
            from_state.weight,
            from_state.bias[:deterministic],
            Dense.create(deterministic, hidden, keys[3]),
            Dense.create(hidden, 2 * stochastic, keys[4]),
        )
        leaves, structure = jax.tree.flatten(common)
        noises = jax.random.split(keys[5], len(leaves))
        spread = [
            leaf[None]
            + member_noise * jnp.std(leaf) * jax.random.normal(noise, (num_members, *leaf.shape), jnp.float32)
            for leaf, noise in zip(leaves, noises, strict=True)
        ]
        posterior = Posterior(
            Dense.create(deterministic + embedding, hidden, keys[6]), Dense.create(hidden, 2 * stochastic, keys[7])
        )
        return cls(Priors(*jax.tree.unflatten(structure, spread)), posterior)

    @property
    def num_members(self) -> int:
        return self.priors.hidden.weight.shape[0]

    @property
    def deterministic_size(self) -> int:
        return self.priors.hidden.weight.shape[-2]

    @property
    def stochastic_size(self) -> int:
        return self.posterior.out.weight.shape[-1] // 2

    def begin(self, *lead: int) -> State:
        """The state before anything is known."""
        sizes = (self.deterministic_size, self.stochastic_size)
        return State(*(jnp.zeros((*lead, size), jnp.float32) for size in sizes))

    def predict(
        self, state: State, action: Float[Array, "row action"]
    ) -> tuple[Float[Array, "member row deterministic"], Gaussian]:
        """What every member expects to follow: deterministic states, and distributions of stochastic ones."""
        everyone = jax.tree.map(lambda leaf: _to_members(leaf, self.num_members), (state, action))
        return self.predict_each(*everyone)

    def predict_many(
        self, state: State, action: Float[Array, "row action"]
    ) -> tuple[Float[Array, "member row deterministic"], Gaussian]:
        """The same, of so many rows that to write and read what both layers of gates give takes longer than a product
        with both at once, in which a third of the weights are 0."""
        dtype = self.priors.entry.weight.dtype
        step = jnp.concatenate([state.stochastic, action], axis=-1).astype(dtype)
        entering = self.priors.entry(_to_members(step, self.num_members))
        previous = _to_members(state.deterministic.astype(dtype), self.num_members)
        gates = _joined_gates(self.priors)(beside(entering, previous))
        deterministic = gru(gates, previous)
        return deterministic, self.prior(deterministic)

    def predict_each(
        self, state: State, action: Float[Array, "member row action"]
    ) -> tuple[Float[Array, "member row deterministic"], Gaussian]:
        """What each member expects to follow states of its own: `state` has the leading axis member."""
        priors, dtype = self.priors, self.priors.entry.weight.dtype
        step = jnp.concatenate([state.stochastic, action], axis=-1).astype(dtype)
        previous = state.deterministic.astype(dtype)
        x, ends = priors.gates_from_entry(elu(priors.entry(step))), 2 * self.deterministic_size
        h = previous @ priors.gates_from_state
        from_state = shifted(h[..., ends:], priors.candidate_bias)
        gates = jnp.concatenate([x[..., :ends] + h[..., :ends], x[..., ends:], from_state], axis=-1)
        deterministic = gru(gates, previous)
        return deterministic, self.prior(deterministic)

    def prior(self, deterministic: Float[Array, "member row deterministic"]) -> Gaussian:
        """Each member's distribution of the stochastic state, given its deterministic one."""
        return Gaussian.of(self.priors.out(elu(self.priors.hidden(deterministic))))

    def correct(
        self, deterministic: Float[Array, "row deterministic"], embedding: Float[Array, "row embedding"]
    ) -> Gaussian:
        """The distribution of the stochastic state once the observation is known."""
        hidden = deterministic @ self.posterior.hidden.weight[: self.deterministic_size] + self._informed(embedding)
        return Gaussian.of(self.posterior.out(elu(hidden)))

    def prepare(
        self,
        embeddings: Float[Array, "batch time embedding"],
        actions: Float[Array, "batch time action"],
        is_first: Bool[Array, "batch time"],
        key: PRNGKeyArray,
    ) -> tuple[Steps, StepDraws]:
        """All of the filter that does not depend on the state, of sequences from their beginning: where episodes begin,
        nothing before it counts. `filter` and `distributions` are the rest."""
        member_key, noise_key = jax.random.split(key)
        num_batch, num_steps = is_first.shape
        dtype = self.priors.entry.weight.dtype
        members = jax.random.randint(member_key, (num_steps,), 0, self.num_members)
        noise = jax.random.normal(noise_key, (num_steps, num_batch, self.stochastic_size), jnp.float32)
        goes_on = 1.0 - jnp.swapaxes(is_first, 0, 1)[..., None].astype(dtype)
        actions = jnp.swapaxes(actions, 0, 1).astype(dtype) * goes_on
        entry, size = self.priors.entry, self.stochastic_size
        drawn = jnp.einsum("tba,tah->tbh", actions, entry.weight[members, size:])
        action_offsets = drawn + entry.bias[members][:, None]
        return Steps(action_offsets, jnp.swapaxes(self._informed(embeddings), 0, 1)), StepDraws(noise, goes_on, members)

    def distributions(self, filtered_states: FilterResult, draws: StepDraws) -> Filtered:
        """What was filtered_states through, and what was believed on the way; (batch, time, ...)."""
        prior = self._chosen_prior(filtered_states.states.deterministic, draws.members)
        result = Filtered(filtered_states.states, Gaussian.of(filtered_states.outputs), prior)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), result)

    def workspace(self, num_steps: int, num_rows: int) -> FilterWorkspace | tuple[()]:
        """For `filter`: memory to work in, if it is a kernel that walks."""
        dtype = self.priors.entry.weight.dtype
        if not teams.is_usable(num_rows, dtype):
            return ()
        hidden = self.posterior.out.weight.shape[0]
        sizes = FilterSizes(num_steps, num_rows, self.deterministic_size, self.stochastic_size, hidden)
        return FilterWorkspace.of(sizes, dtype)

    def filter(
        self, steps: Steps, draws: StepDraws, workspace: FilterWorkspace | tuple[()] | None = None, *, unroll: int = 1
    ) -> FilterResult:
        """The chain of steps, from the beginning; `workspace` is for whoever orders a program (see `blocks.call`)."""
        workspace = self.workspace(*steps.action_offsets.shape[:2]) if workspace is None else workspace
        if workspace:
            return self.filter_by_kernel(steps, draws, workspace)
        action_offsets, informed = steps
        noise, goes_on, members = draws
        dtype, size, gates = action_offsets.dtype, self.stochastic_size, _joined_gates(self.priors)
        num_steps, num_rows = action_offsets.shape[:2]
        weights = {
            "entry": self.priors.entry.weight[:, :size],
            "gates": gates.weight,
            "posterior": self.posterior.hidden.weight[: self.deterministic_size],
            "out": self.posterior.out.weight,
        }

        def step(layers: Layers, carry: State, inputs: tuple, others: tuple) -> tuple[State, tuple[State, Array]]:
            offset, informed, gate_bias, out_bias = inputs
            noise, goes_on = others
            previous = carry.deterministic
            entered = elu(layers("entry", carry.stochastic) + offset)
            gates = shifted(layers("gates", jnp.concatenate([entered, previous], axis=-1)), gate_bias)
            parts = jnp.split(gates.astype(jnp.float32), _gate_ends(previous.shape[-1]), axis=-1)
            deterministic = Gates.of(*parts).following(previous.astype(jnp.float32)).astype(dtype)
            hidden = elu(layers("posterior", deterministic) + informed)
            outputs = shifted(layers("out", hidden), out_bias)
            state = State(deterministic, Gaussian.of(outputs).sample(noise).astype(dtype))
            # What the next step is given: where an episode begins then, nothing.
            return State(state.deterministic * goes_on, state.stochastic * goes_on), (state, outputs)

        out_biases = jnp.broadcast_to(self.posterior.out.bias, (num_steps, 2 * size))
        start = jax.tree.map(lambda leaf: leaf.astype(dtype), self.begin(num_rows))
        _, (states, outputs) = hoisted_scan(
            step,
            weights,
            start,
            (action_offsets, informed, gates.bias[members], out_biases),
            (noise, jnp.concatenate([goes_on[1:], goes_on[:1]])),
            members,
            unroll=unroll,
        )
        return FilterResult(states, outputs)

    def filter_by_kernel(
        self, steps: Steps, draws: StepDraws, workspace: FilterWorkspace, *, interpret: bool = False
    ) -> FilterResult:
        """The same in one kernel."""
        priors, posterior = self.priors, self.posterior
        weights = FilterWeights(
            priors.entry.weight[:, : self.stochastic_size],
            priors.gates_from_entry.weight,
            priors.gates_from_state,
            posterior.hidden.weight[: self.deterministic_size],
            posterior.out.weight,
        )
        biases = (priors.gates_from_entry.bias[draws.members], priors.candidate_bias[draws.members], posterior.out.bias)
        goes_on = draws.goes_on[..., 0].astype(jnp.float32)
        inputs = FilterInputs(*steps, *biases, draws.noise, goes_on, draws.members)
        filtered_states: Any = filter_states(weights, inputs, workspace, interpret)
        return filtered_states

    def _chosen_prior(self, deterministic: Float[Array, "time row deterministic"], members: Int[Array, " time"]):
        rows = deterministic.reshape(1, -1, deterministic.shape[-1])
        everyone = self.priors.out(elu(self.priors.hidden(_to_members(rows[0], self.num_members))))
        outputs = everyone.reshape(self.num_members, *deterministic.shape[:2], -1)
        return Gaussian.of(outputs[members, jnp.arange(len(members))])

    def _informed(self, embedding: Float[Array, "*lead embedding"]) -> Float[Array, "*lead hidden"]:
        """The observation's part of the posterior's hidden layer, and the layer's bias."""
        layer = self.posterior.hidden
        return shifted(embedding @ layer.weight[self.deterministic_size :], layer.bias)


def _joined_gates(priors: Priors) -> Dense:
    """Both layers of gates as one, [x, h] to (reset, update, candidate from x, candidate from h)."""
    x, h = priors.gates_from_entry, priors.gates_from_state
    rest = 2 * h.shape[-2]
    none_x, none_h = jnp.zeros_like(x.weight[..., rest:]), jnp.zeros_like(h[..., rest:])
    upper = jnp.concatenate([x.weight, none_x], axis=-1)
    lower = jnp.concatenate([h[..., :rest], none_h, h[..., rest:]], axis=-1)
    bias = jnp.concatenate([x.bias, priors.candidate_bias], axis=-1)
    return Dense(jnp.concatenate([upper, lower], axis=-2), bias)


def _gate_ends(size: int) -> tuple[int, int]:
    """Where reset and update end, and the candidate from x."""
    return 2 * size, 3 * size


def _to_members(x: Float[Array, "row feature"], num_members: int) -> Float[Array, "member row feature"]:
    return jnp.broadcast_to(x[None], (num_members, *x.shape))
