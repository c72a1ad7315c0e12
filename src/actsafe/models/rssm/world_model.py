"""The world model: encoder, recurrent cell with an ensemble of priors, decoder, reward and cost heads."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.data.rows import Rows
from actsafe.models.networks import MLP
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.decoder import Decoder, ImageDecoder, VectorDecoder, kernel_sizes
from actsafe.models.rssm.elbo import balanced_kl, squared_error
from actsafe.models.rssm.encoder import Encoder, ImageEncoder, VectorEncoder
from actsafe.models.rssm.states import Filtered, Gaussian, State, StepDraws, Steps

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
    num_members: int = 5
    """Transition models in the ensemble."""
    member_noise: float = 1.0
    """How far apart the members begin, in std of the weights that they share."""
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
    kl_weight: float = 1.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), 1 if field.type is int else 0
            if not value >= least:
                raise ValueError(f"agent.model.{field.name} must be at least {least}, got {value}")
        if self.balance > 1:
            raise ValueError(f"agent.model.balance must lie between 0 and 1, got {self.balance}")


def require_learnable(observation_shape: tuple[int, ...]) -> None:
    """Nothing, or ValueError where there is no model of observations of this shape."""
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


class Outcome(NamedTuple):
    """What the head expects in a state: received on arrival."""

    reward: Float[Array, "*lead"]
    costs: Float[Array, "*lead constraint"]


class WorldModel(eqx.Module):
    """What is known of the dynamics, in a latent space."""

    encoder: Encoder
    decoder: Decoder
    cell: Cell
    head: MLP

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
            key=cell_key,
        )
        return cls(encoder, decoder, cell, MLP.create(num_features, 1 + num_constraints, width, depth, head_key))

    def outcome(self, features: Float[Array, "*lead feature"]) -> Outcome:
        """Expected reward, and expected costs, which are positive (softplus)."""
        outputs = self.head(features.astype(self.head.layers[0].weight.dtype)).astype(jnp.float32)
        return Outcome(outputs[..., 0], jax.nn.softplus(outputs[..., 1:]))

    def observe(self, rows: Rows, key: PRNGKeyArray, *, unroll: int = 1) -> Filtered:
        """The states of recorded sequences (batch, time)."""
        steps, draws = self.encode(rows, key)
        with jax.named_scope("filter"):
            return self.cell.distributions(self.cell.filter(steps, draws, unroll=unroll), draws)

    def encode(self, rows: Rows, key: PRNGKeyArray) -> tuple[Steps, StepDraws]:
        """What recorded sequences (batch, time) show: all that `observe` does before its chain of steps."""
        observation, action, _, _, is_first = map(jnp.asarray, rows)
        with jax.named_scope("encoder"):
            embeddings = self.encoder(observation.reshape(-1, *observation.shape[2:]))
        with jax.named_scope("filter"):
            return self.cell.prepare(embeddings.reshape(*is_first.shape, -1), action, is_first, key)

    def step(
        self,
        state: State,
        action: Float[Array, "row action"],
        embedding: Float[Array, "row feature"],
        is_first: Bool[Array, " row"],
        key: PRNGKeyArray,
    ) -> State:
        """The state once an action was taken and its outcome seen by the encoder: one step of the filter, to act."""
        member_key, noise_key = jax.random.split(key)
        goes_on = 1.0 - is_first[:, None].astype(jnp.float32)
        state = State(state.deterministic * goes_on, state.stochastic * goes_on)
        deterministic, _ = self.cell.predict(state, action * goes_on)
        member = jax.random.randint(member_key, (), 0, self.cell.num_members)
        chosen = jax.lax.dynamic_index_in_dim(deterministic, member, keepdims=False)
        posterior = self.cell.correct(chosen, embedding)
        noise = jax.random.normal(noise_key, posterior.mean.shape, jnp.float32)
        return State(chosen.astype(jnp.float32), posterior.sample(noise))


class Elbo(NamedTuple):
    """What the loss of a batch is made of; means over all rows."""

    filtered: Filtered
    observation_loss: Float[Array, ""]
    reward_loss: Float[Array, ""]
    cost_loss: Float[Array, ""]
    kl: Float[Array, ""]


def elbo_loss(
    model: WorldModel, rows: Rows, settings: WorldModelSettings, key: PRNGKeyArray, *, unroll: int = 1
) -> tuple[Float[Array, ""], Elbo]:
    """The negative evidence lower bound of sequences (batch, time), with balanced KL, and its parts.

    −E[log p(o|s) + log p(r|s) + log p(c|s)] + KL, all likelihoods normal with unit variance. The first row of an
    episode has no reward and no cost to predict.
    """
    return elbo(model, rows, model.observe(rows, key, unroll=unroll), settings)


def elbo(
    model: WorldModel, rows: Rows, filtered: Filtered, settings: WorldModelSettings
) -> tuple[Float[Array, ""], Elbo]:
    """`elbo_loss`, once sequences are filtered."""
    features = filtered.state.features.reshape(rows.is_first.size, -1)
    observations = jnp.asarray(rows.observation).reshape(-1, *rows.observation.shape[2:])
    with jax.named_scope("decoder"):
        observation_loss = jnp.mean(model.decoder.error(features, observations))
    outcome = model.outcome(features)
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
    return loss, Elbo(filtered, observation_loss, reward_loss, cost_loss, kl)


def predict_video(model: WorldModel, rows: Rows, num_seen: int, key: PRNGKeyArray) -> Float[Array, "batch time ..."]:
    """What the model shows for sequences of which it sees the first `num_seen` observations, and then actions only."""
    filter_key, member_key, noise_key = jax.random.split(key, 3)
    seen = jax.tree.map(lambda leaf: leaf[:, :num_seen], rows)
    states = model.observe(seen, filter_key).state
    last = jax.tree.map(lambda leaf: leaf[:, -1].astype(jnp.float32), states)
    actions = jnp.swapaxes(rows.action[:, num_seen:], 0, 1)
    num_steps = actions.shape[0]
    members = jax.random.randint(member_key, (num_steps,), 0, model.cell.num_members)
    noise = jax.random.normal(noise_key, (num_steps, *last.stochastic.shape), jnp.float32)

    def advance(state: State, inputs: tuple[Array, Array, Array]) -> tuple[State, State]:
        action, member, noise = inputs
        deterministic, priors = model.cell.predict(state, action)
        prior = Gaussian(priors.mean[member], priors.std[member])
        state = State(deterministic[member].astype(jnp.float32), prior.sample(noise))
        return state, state

    _, imagined = jax.lax.scan(advance, last, (actions, members, noise))
    imagined = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), imagined)
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a.astype(jnp.float32), b], axis=1), states, imagined)
    features = joined.features
    shown = model.decoder(features.reshape(-1, features.shape[-1])).astype(jnp.float32)
    return shown.reshape(*features.shape[:2], *shown.shape[1:])
