"""The world model: encoder, recurrent cell with an ensemble of priors, decoder, reward and cost heads."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from actsafe.data.rows import Rows
from actsafe.models.base import Disagreement, Outcome
from actsafe.models.networks import MLP
from actsafe.models.rssm.bootstrap import owners_of
from actsafe.models.rssm.cell import MEMBER_NOISE, Cell
from actsafe.models.rssm.decoder import Decoder, ImageDecoder, VectorDecoder, kernel_sizes
from actsafe.models.rssm.elbo import balanced_kl, squared_error
from actsafe.models.rssm.encoder import Encoder, ImageEncoder, VectorEncoder
from actsafe.models.rssm.filter import filter_sequences
from actsafe.models.rssm.open_loop import open_loop_losses
from actsafe.models.rssm.states import Filtered, State

IMAGE_AXES = 3


@dataclasses.dataclass(frozen=True)
class WorldModelSettings:
    """Sizes and the loss. The defaults are the paper's: 6.80 M parameters for images of 64 pixels and 2 actions."""

    deterministic: int = 200
    """Size of the deterministic state."""
    stochastic: int = 60
    """Size of the stochastic state."""
    hidden: int = 200
    """Width of the layers inside the recurrent cell."""
    is_cell_normalised: bool = False
    """Whether layers inside the recurrent cell are normalised: both products of the GRU, each over its gates together
    and before they meet, and the hidden layers of priors and posterior (LayerNorm, with learned scale and offset)."""
    num_members: int = 5
    """Transition models in the ensemble."""
    member_noise: float = 1.0
    """How far apart the members begin, in std of the weights that they share."""
    member_noise_on: str = "all"
    """Where they begin apart. all: noise on all weights; linear: on those outside the GRU alone, as in the released
    code; independent: every member draws weights of its own, and `member_noise` does not matter."""
    is_bootstrapped: bool = False
    """Whether each member learns from rows of its own: every recorded row belongs to half of the members, and to the
    same ones always. Else any member may be followed to any row, and all come to see the same data."""
    image_depth: int = 32
    """Channels of the first convolution; the others follow by doubling."""
    image_width: int = 1024
    """Width of the dense layer before the image decoder's convolutions."""
    head_width: int = 400
    head_depth: int = 3
    """Hidden layers of the reward and cost head, and of the layers for vector observations."""
    balance: float = 0.8
    """The share of the KL term that teaches the prior."""
    free_nats: float = 1.0
    """A batch whose mean KL is at or below this many nats teaches the prior nothing of it: `kl_at_floor` is then 1."""
    kl_weight: float = 1.0
    open_loop_steps: int = 0
    """k: rewards and costs are also learned 1 to k steps ahead of every k-th row, open loop, by the priors and with
    the recorded actions, which takes one prediction per row and member. 0: of filtered states alone."""
    open_loop_weight: float = 1.0
    """Of these errors in the loss."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 1 if field.type is int and field.name != "open_loop_steps" else 0
            if field.type is not str and not value >= least:
                raise ValueError(f"agent.model.{field.name} must be at least {least}, got {value}")
        if self.member_noise_on not in MEMBER_NOISE:
            known = ", ".join(MEMBER_NOISE)
            raise ValueError(f"agent.model.member_noise_on must be one of {known}, got {self.member_noise_on!r}")
        if self.balance > 1:
            raise ValueError(f"agent.model.balance must lie between 0 and 1, got {self.balance}")

    def create(
        self, observation_shape: tuple[int, ...], action_dim: int, num_constraints: int, key: PRNGKeyArray
    ) -> "WorldModel":
        """A model that has learned nothing."""
        return WorldModel.create(observation_shape, action_dim, num_constraints, self, key)


def require_learnable(observation_shape: tuple[int, ...]) -> None:
    """Raises ValueError unless there is a model of observations of this shape."""
    if len(observation_shape) == IMAGE_AXES:
        height, across, _ = observation_shape
        if height != across:
            raise ValueError(f"images must be square, got {height} x {across} pixels")
        kernel_sizes(height)
    elif len(observation_shape) != 1 or observation_shape[0] < 1:
        raise ValueError(
            "observations must be images (height, width, channel) or vectors of at least one number, got the shape "
            f"{observation_shape}"
        )


class ImaginationDraws(NamedTuple):
    """The random numbers of imagined steps; with a leading axis time, or of one step."""

    noise: Float[Array, "*time row stochastic"]
    members: Int[Array, "*time block"]
    """The member that each block of neighbouring rows follows."""

    @property
    def by_row(self) -> Int[Array, " row"]:
        """The member of every row, in one step."""
        return jnp.repeat(self.members, self.noise.shape[0] // self.members.shape[0])


class WorldModel(eqx.Module):
    """An ensemble RSSM: a `LatentModel` whose latent is a `State`."""

    encoder: Encoder
    decoder: Decoder
    cell: Cell
    head: MLP
    """Features to the expected reward and, before their softplus, costs."""
    settings: WorldModelSettings = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        observation_shape: tuple[int, ...],
        action_dim: int,
        num_constraints: int,
        settings: WorldModelSettings,
        key: PRNGKeyArray,
    ) -> "WorldModel":
        """For images (height, width, channel) or vectors (size,)."""
        cell_key, encoder_key, decoder_key, head_key = jax.random.split(key, 4)
        num_features = settings.deterministic + settings.stochastic
        width, depth = settings.head_width, settings.head_depth
        require_learnable(observation_shape)
        if len(observation_shape) == IMAGE_AXES:
            height, _, channels = observation_shape
            encoder = ImageEncoder.create(height, channels, settings.image_depth, encoder_key)
            decoder = ImageDecoder.create(
                num_features, height, channels, settings.image_depth, settings.image_width, decoder_key
            )
        else:
            size = observation_shape[0]
            encoder = VectorEncoder.create(size, width, depth, encoder_key)
            decoder = VectorDecoder(MLP.create(num_features, size, width, depth, decoder_key))
        cell = Cell.create(
            deterministic=settings.deterministic,
            stochastic=settings.stochastic,
            hidden=settings.hidden,
            embedding=encoder.embedding_size,
            action=action_dim,
            num_members=settings.num_members,
            member_noise=settings.member_noise,
            member_noise_on=settings.member_noise_on,
            is_normalised=settings.is_cell_normalised,
            key=cell_key,
        )
        return cls(
            encoder, decoder, cell, MLP.create(num_features, 1 + num_constraints, width, depth, head_key), settings
        )

    @property
    def num_features(self) -> int:
        return self.cell.deterministic_size + self.cell.stochastic_size

    @property
    def num_members(self) -> int:
        return self.cell.num_members

    def encode(self, observations: Array) -> Float[Array, "row embedding"]:
        return self.encoder(observations)

    def begin(self, num_rows: int) -> State:
        return self.cell.begin(num_rows)

    def observe(self, rows: Rows, key: PRNGKeyArray) -> State:
        return self.filter(rows, key).state

    def filter(self, rows: Rows, key: PRNGKeyArray) -> Filtered:
        """States of recorded sequences (batch, time), and the beliefs about them."""
        observation, action, _, _, is_first = map(jnp.asarray, rows)
        embeddings = self.encode(observation.reshape(-1, *observation.shape[2:]))
        owners = self.owners(rows)
        return filter_sequences(self.cell, embeddings.reshape(*is_first.shape, -1), action, is_first, key, owners)

    def owners(self, rows: Rows) -> Bool[Array, "batch time member"] | None:
        """The members that learn from each row of a bootstrap; None where all do."""
        return owners_of(rows, self.num_members) if self.settings.is_bootstrapped else None

    def step(
        self,
        latent: State,
        action: Float[Array, "row action"],
        embedding: Float[Array, "row feature"],
        is_first: Bool[Array, " row"],
        key: PRNGKeyArray,
    ) -> State:
        """One step of the filter. Every row follows a member of its own, drawn anew."""
        member_key, noise_key = jax.random.split(key)
        goes_on = 1.0 - is_first[:, None].astype(jnp.float32)
        latent, action = jax.tree.map(lambda leaf: leaf * goes_on, (latent, action))
        members = jax.random.randint(member_key, is_first.shape, 0, self.cell.num_members)
        everyone, _ = self.cell.predict(latent, action)
        deterministic = everyone[members, jnp.arange(members.size)]
        posterior = self.cell.posterior(deterministic, embedding)
        noise = jax.random.normal(noise_key, posterior.mean.shape, jnp.float32)
        return State(deterministic.astype(jnp.float32), posterior.sample(noise))

    def draw(self, num_rows: int, horizon: int, keys: list[PRNGKeyArray]) -> ImaginationDraws:
        """Every row follows every member with the same chance, independently at each step."""
        noise_key, member_key = keys
        num_blocks = num_rows // block_size(num_rows)
        return ImaginationDraws(
            jax.random.normal(noise_key, (horizon, num_rows, self.cell.stochastic_size), jnp.float32),
            jax.random.randint(member_key, (horizon, num_blocks), 0, self.cell.num_members),
        )

    def imagine(self, latent: State, action: Float[Array, "row action"], draws: ImaginationDraws) -> State:
        """s_{t+1} uniform from {s^p_{t+1}}: TS1, paper, appendix B.2."""
        everyone, rows = self.imagine_each(latent, action, draws), jnp.arange(action.shape[0])
        return jax.tree.map(lambda leaf: leaf[draws.by_row, rows], everyone)

    def imagine_each(self, latent: State, action: Float[Array, "row action"], draws: ImaginationDraws) -> State:
        """{s^p_{t+1}}, all with the same noise."""
        deterministic, priors = self.cell.predict(latent, action)
        return State(deterministic, priors.sample(draws.noise[None]).astype(deterministic.dtype))

    def follow(self, latent: State, action: Float[Array, "member row action"], key: PRNGKeyArray) -> State:
        """s_{t+1} ~ f^i(s_t, a_t) for the rows of each member i: one product per layer for all members and rows."""
        deterministic, priors = self.cell.priors(latent, action)
        noise = jax.random.normal(key, priors.mean.shape, jnp.float32)
        return State(deterministic, priors.sample(noise).astype(deterministic.dtype))

    def disagreement(self, latent: State, action: Float[Array, "row action"]) -> Disagreement:
        """σ_n² = Var({s^p_{t+1}}), of the members' means: paper, appendix B.2."""
        _, priors = self.cell.predict(latent, action)
        return Disagreement.among(priors.mean, priors.std, axis=0)

    def features(self, latent: State) -> Float[Array, "*lead feature"]:
        return latent.features

    def outcome(self, features: Float[Array, "*lead feature"]) -> Outcome:
        """Expected reward, and expected costs, which are positive (softplus)."""
        return outcome_of(self.head(features))

    def loss(self, rows: Rows, key: PRNGKeyArray) -> tuple[Float[Array, ""], tuple[State, dict[str, Array]]]:
        """The negative evidence lower bound of sequences (batch, time), with balanced KL (see `elbo`).

        −E[log p(o|s) + log p(r|s) + log p(c|s)] + KL, all likelihoods normal with unit variance; and, as an option,
        the errors of rewards and costs some steps ahead (see `open_loop`).
        """
        filtered = self.filter(rows, key)
        features = filtered.state.features.reshape(rows.is_first.size, -1)
        observation_loss = jnp.mean(self.decoder.error(features, flat_observations(rows)))
        ahead = self.open_loop_losses(rows, filtered.state, key)
        return total_loss(self.settings, rows, filtered, observation_loss, self.outcome(features), ahead)

    def open_loop_losses(self, rows: Rows, states: State, key: PRNGKeyArray) -> dict[str, Float[Array, ""]]:
        """Parts of the loss from rewards and costs some steps ahead of filtered states, if there are any."""
        num_steps = self.settings.open_loop_steps
        if not num_steps:
            return {}
        # The filter splits the same key in two, which are its folds 0 and 1.
        own_key = jax.random.fold_in(key, 2)
        losses = open_loop_losses(self.cell, self.outcome, states, rows, self.owners(rows), num_steps, own_key)
        return dict(zip(("open_loop_reward_loss", "open_loop_cost_loss"), losses, strict=True))


def outcome_of(outputs: Float[Array, "*lead outputs"]) -> Outcome:
    """What the head's outputs stand for."""
    outputs = outputs.astype(jnp.float32)
    return Outcome(outputs[..., 0], jax.nn.softplus(outputs[..., 1:]))


def flat_observations(rows: Rows) -> Array:
    """The observations of sequences as rows."""
    return jnp.asarray(rows.observation).reshape(-1, *rows.observation.shape[2:])


def total_loss(
    settings: WorldModelSettings,
    rows: Rows,
    filtered: Filtered,
    observation_loss: Float[Array, ""],
    outcome: Outcome,
    ahead: Mapping[str, Float[Array, ""]],
) -> tuple[Float[Array, ""], tuple[State, dict[str, Array]]]:
    """The loss, the states, and the parts of the loss: means over all rows; `ahead` are those of open-loop steps.

    The first row of an episode has no reward and no cost to predict. `kl_at_floor` is 1 where the KL is at or below the
    free nats, so that it has no gradient: its mean over updates is the share of batches that left the prior as it was.
    """
    counts = 1.0 - rows.is_first.ravel().astype(jnp.float32)
    num_counted = jnp.maximum(jnp.sum(counts), 1.0)
    reward_errors = squared_error(outcome.reward[:, None], jnp.asarray(rows.reward).reshape(-1, 1))
    cost_errors = squared_error(outcome.costs, jnp.asarray(rows.costs).reshape(outcome.costs.shape))
    reward_loss = jnp.sum(counts * reward_errors) / num_counted
    cost_loss = jnp.sum(counts * cost_errors) / num_counted
    kl_loss, kl = balanced_kl(
        filtered.posterior, filtered.prior, balance=settings.balance, free_nats=settings.free_nats
    )
    loss = observation_loss + reward_loss + cost_loss + settings.kl_weight * kl_loss
    if ahead:
        loss = loss + settings.open_loop_weight * sum(ahead.values())
    parts = {
        "observation_loss": observation_loss,
        "reward_loss": reward_loss,
        "cost_loss": cost_loss,
        "kl": kl,
        "kl_at_floor": (kl <= settings.free_nats).astype(jnp.float32),
        **ahead,
    }
    return loss, (filtered.state, parts)


def block_size(num_rows: int) -> int:
    """Rows that follow the same member: 16, or the largest smaller number that divides all."""
    return next(size for size in range(MOST_IN_BLOCK, 0, -1) if num_rows % size == 0)


MOST_IN_BLOCK = 16
"""A block that a product of matrices takes at once needs the weights of one member only."""


def predict_video(model: WorldModel, rows: Rows, num_seen: int, key: PRNGKeyArray) -> Float[Array, "batch time ..."]:
    """What the model shows for sequences of which it sees the first `num_seen` observations, and then actions only."""
    filter_key, *keys = jax.random.split(key, 3)
    states = model.observe(jax.tree.map(lambda leaf: leaf[:, :num_seen], rows), filter_key)
    last = jax.tree.map(lambda leaf: leaf[:, -1], states)
    actions = jnp.swapaxes(rows.action[:, num_seen:], 0, 1)

    def advance(state: State, inputs: tuple[Array, ImaginationDraws]) -> tuple[State, State]:
        state = model.imagine(state, *inputs)
        return state, state

    _, imagined = jax.lax.scan(advance, last, (actions, model.draw(actions.shape[1], actions.shape[0], keys)))
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, jnp.swapaxes(b, 0, 1)], axis=1), states, imagined)
    features = joined.features
    shown = model.decoder(features.reshape(-1, features.shape[-1])).astype(jnp.float32)
    return shown.reshape(*features.shape[:2], *shown.shape[1:])
