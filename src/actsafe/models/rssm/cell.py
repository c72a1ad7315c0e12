"""The recurrent state-space model's cell: what follows a state and an action, and what an observation adds.

x  = elu([s, a] W_in)                     h' = GRU(x, h)           deterministic
s' ~ N(μ, σ),  (μ, σ) = out(elu(h' W_hid))                         the prior p(s' | h'), one per member of the ensemble
s' ~ N(μ, σ),  (μ, σ) = out(elu([h', e] W_post))                   the posterior q(s' | h', o'), shared; e embeds o'

With normalisation (an option), x W + b of the GRU's two products and of both hidden layers is LN(x W) · scale + b:
see `PriorScales`.

Paper, section 4.3, "From CMDPs to visual control": the RSSM of Hafner et al. (2019), and Q_n = ∪_i {f^i} an ensemble of
its priors.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from actsafe.models.networks import Dense, aligned, dense_normalised, normalised
from actsafe.models.rssm.states import Gaussian, State

MEMBER_NOISE = ("all", "linear", "independent")
"""How members may begin apart."""


class PriorScales(eqx.Module):
    """The learned scales of a normalised cell's priors; offsets are the layers' biases.

    The GRU's products are normalised before they meet, each over its three gates together, as Ba et al. (2016) do:
    x = LN(W_x e) · scale + b,   h = LN(W_h h) · scale
    """

    from_entry: Float[Array, "*member gate"]
    from_state: Float[Array, "*member gate"]
    hidden: Float[Array, "*member hidden"]

    @classmethod
    def create(cls, deterministic: int, hidden: int, num_members: int) -> "PriorScales":
        """Ones for every member: noise is for weights alone."""
        sizes = (3 * deterministic, 3 * deterministic, hidden)
        return cls(*(jnp.ones((num_members, size), jnp.float32) for size in sizes))


class Priors(eqx.Module):
    """Transition models f^1 ... f^M; every array has the leading axis member, or none for a single member."""

    entry: Dense
    gates_from_entry: Dense
    """x to the GRU's gates (reset, update, candidate)."""
    gates_from_state: Float[Array, "*member deterministic gate"]
    """h to the same."""
    candidate_bias: Float[Array, "*member deterministic"]
    """Of the candidate's part from h."""
    hidden: Dense
    out: Dense
    scales: PriorScales | None = None
    """Of a normalised cell."""

    def __call__(
        self, state: State, action: Float[Array, "*lead action"]
    ) -> tuple[Float[Array, "*member_and_lead deterministic"], Gaussian]:
        """h' and p(s' | h').

        r = σ(x_r + h_r),   z = σ(x_z + h_z),   n = tanh(x_n + r (h_n + b)),   h' = n + z (h − n)
        """
        dtype, previous = self.entry.weight.dtype, state.deterministic
        entered = jax.nn.elu(self.entry(jnp.concatenate([state.stochastic, action], axis=-1).astype(dtype)))
        x, h = self._gates(entered, previous.astype(dtype))
        (x_r, x_z, x_n), (h_r, h_z, h_n) = (jnp.split(gates, 3, axis=-1) for gates in (x, h))
        reset, update = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
        candidate = jnp.tanh(x_n + reset * (h_n + aligned(self.candidate_bias, h_n.ndim)))
        deterministic = candidate + update * (previous.astype(dtype) - candidate)
        return deterministic, self.belief(deterministic)

    def _gates(
        self, entered: Float[Array, "... hidden"], previous: Float[Array, "... deterministic"]
    ) -> tuple[Float[Array, "... gate"], Float[Array, "... gate"]]:
        """What both products give to the gates."""
        from_state = previous @ self.gates_from_state
        if self.scales is None:
            return self.gates_from_entry(entered), from_state
        from_entry = dense_normalised(self.gates_from_entry, entered, self.scales.from_entry)
        return from_entry, normalised(from_state, self.scales.from_state)

    def belief(self, deterministic: Float[Array, "*lead deterministic"]) -> Gaussian:
        """p(s' | h')"""
        return _belief(self.hidden, self.out, deterministic, None if self.scales is None else self.scales.hidden)


class Posterior(eqx.Module):
    """What the observation adds; the hidden layer takes [h, e]."""

    hidden: Dense
    out: Dense
    scale: Float[Array, " hidden"] | None = None
    """Of a normalised cell's hidden layer."""

    def __call__(
        self, deterministic: Float[Array, "row deterministic"], embedding: Float[Array, "row embedding"]
    ) -> Gaussian:
        """q(s' | h', o')"""
        both = jnp.concatenate([deterministic, embedding.astype(deterministic.dtype)], axis=-1)
        return _belief(self.hidden, self.out, both, self.scale)


def _belief(hidden: Dense, out: Dense, x: Float[Array, "*lead in"], scale: Array | None) -> Gaussian:
    """out(elu(x W + b)), with x W normalised where there is a scale."""
    return Gaussian.of(out(jax.nn.elu(hidden(x) if scale is None else dense_normalised(hidden, x, scale))))


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
        member_noise_on: str = "all",
        is_normalised: bool = False,
        key: PRNGKeyArray,
    ) -> "Cell":
        """Members start from one set of weights W, each with noise of std `member_noise` · std(W) of its own.

        `member_noise_on` is one of `MEMBER_NOISE`: "all" weights; "linear" for the layers outside the GRU, whose
        weights then are the same in all members; or "independent", where every member draws a W of its own, without
        further noise. Scales of a normalised cell begin as ones.
        """
        keys = jax.random.split(key, 8)

        def one(keys: Key[Array, " layer"]) -> Priors:
            from_state = Dense.create(deterministic, 3 * deterministic, keys[2])
            return Priors(
                Dense.create(stochastic + action, hidden, keys[0]),
                Dense.create(hidden, 3 * deterministic, keys[1]),
                from_state.weight,
                from_state.bias[:deterministic],
                Dense.create(deterministic, hidden, keys[3]),
                Dense.create(hidden, 2 * stochastic, keys[4]),
            )

        if member_noise_on == "independent":
            each = jax.random.split(keys[5], num_members)
            priors = jax.vmap(lambda own: one(jax.random.split(own, 5)))(each)
        else:
            priors = _spread(one(keys[:5]), num_members, member_noise, keys[5], is_gru_noisy=member_noise_on == "all")
        posterior = Posterior(
            Dense.create(deterministic + embedding, hidden, keys[6]), Dense.create(hidden, 2 * stochastic, keys[7])
        )
        if is_normalised:
            priors = dataclasses.replace(priors, scales=PriorScales.create(deterministic, hidden, num_members))
            posterior = dataclasses.replace(posterior, scale=jnp.ones(hidden, jnp.float32))
        return cls(priors, posterior)

    @property
    def is_normalised(self) -> bool:
        """Whether its layers are normalised: then `priors` and `posterior` both have scales."""
        return self.priors.scales is not None

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
        """What every member expects to follow: {s^p_{t+1}}, paper, appendix B.2."""
        return self.priors(jax.tree.map(lambda leaf: leaf[None], state), action[None])

    def follow(
        self, state: State, action: Float[Array, "row action"], member: Int[Array, "*row"]
    ) -> tuple[Float[Array, "row deterministic"], Gaussian]:
        """What one member expects to follow, the same for all rows, or each row's own.

        Where each row has its own all members are asked, and answers that are not taken teach nothing. That takes fewer
        weights to read than to gather a member's for each row.
        """
        if member.ndim == 0:
            return jax.tree.map(lambda leaf: leaf[member], self.priors)(state, action)
        everyone, rows = self.predict(state, action), jnp.arange(action.shape[0])
        return jax.tree.map(lambda leaf: leaf[member, rows], everyone)


def _spread(priors: Priors, num_members: int, member_noise: float, key: PRNGKeyArray, *, is_gru_noisy: bool) -> Priors:
    """Members with the weights of `priors` and noise of their own, which the GRU's have too if `is_gru_noisy`."""
    leaves, structure = jax.tree.flatten(priors)
    spread = [
        leaf[None] + member_noise * jnp.std(leaf) * jax.random.normal(noise, (num_members, *leaf.shape), jnp.float32)
        for leaf, noise in zip(leaves, jax.random.split(key, len(leaves)), strict=True)
    ]
    noisy: Priors = jax.tree.unflatten(structure, spread)
    if is_gru_noisy:
        return noisy

    def gru(priors: Priors) -> tuple[Any, ...]:
        return priors.gates_from_entry, priors.gates_from_state, priors.candidate_bias

    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (num_members, *leaf.shape)), gru(priors))
    return eqx.tree_at(gru, noisy, same)
