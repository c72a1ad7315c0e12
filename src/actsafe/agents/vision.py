"""ActSafe with a world model: the paper's Algorithm 2 from pixels, as pure functions of one `VisionState`.

    for every update:
        learn Q_n      the ensemble world model, from recorded sequences          `elbo_loss`
        select pi_n    maximise the aim's reward in imagination, pessimistic      `Learner.improve`
                       cost returns within their budgets

The task's actor-critic and the exploration's are one batch: they share the model, and differ by what they are after.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.aims import Aim, aims
from actsafe.actor_critic.judging import Judge
from actsafe.actor_critic.learning import ActorCritic, Learner
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.phases import Phase
from actsafe.agents.recipes import Policy, VisionRecipe
from actsafe.agents.side_by_side import Batch, Policies, learn_both
from actsafe.constrained.descent import descend
from actsafe.constrained.optimisers import clipped_adam
from actsafe.constrained.settings import StepSettings
from actsafe.data.rows import Rows
from actsafe.models.networks import cast
from actsafe.models.packing import Packed, flat
from actsafe.models.rssm.encoder import prefers_products
from actsafe.models.rssm.states import State
from actsafe.models.rssm.world_model import WorldModel, WorldModelSettings
from actsafe.objectives.doubt import DoubtSettings, planner_budget

TASK, EXPLORATION = 0, 1
"""Places of the actor-critics along their axis."""

UNROLLED = 10
"""Steps of a loop in one piece on an accelerator, which waits less between them."""

RewardRange = Float[Array, "2"]
"""The least and the largest."""

PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclasses.dataclass(frozen=True)
class VisionSettings:
    """Everything that the agent's learning depends on. Sizes and rates are the paper's; how doubt is weighed is for
    the task, and the presets say it."""

    model: WorldModelSettings = dataclasses.field(default_factory=WorldModelSettings)
    actor_critic: ActorCriticSettings = dataclasses.field(default_factory=ActorCriticSettings)
    doubt: DoubtSettings = dataclasses.field(default_factory=DoubtSettings)
    step: StepSettings = dataclasses.field(default_factory=StepSettings)
    batch_size: int = 16
    """Sequences in a batch."""
    sequence_length: int = 50
    """Rows of each."""
    recent_rows: int = 0
    """Which dreams count against the budgets. 0: all, wherever in the replay they begin, as in the released code. Else
    half of every batch is from the newest so many rows, of all environments together, and dreams that begin there
    count: what the agent did long ago still teaches everyone, but is no longer what its policies are said to cost."""
    model_rate: float = 3e-4
    """Learning rate of the world model."""
    reward_scale: float = 1.0
    """Rewards are learned times this. Likelihoods have unit variance, so that rewards far below 1 teach slowly."""
    precision: str = "bfloat16"
    """Of products of matrices: bfloat16 or float32. Parameters, losses and optimisers are float32 either way."""
    is_budget_released: bool = False
    """Whether the planner's budget counts simulator steps, as the released code does, instead of decisions."""
    budget_slack: float = 0.0
    """Added to the planner's budgets."""
    unroll: int = 0
    """Steps of a loop in one piece: more compile longer and run faster on an accelerator. 0 is 10 there, and 1 else."""

    def __post_init__(self) -> None:
        batch_size = 2 if self.recent_rows else 1
        for name, least in (("recent_rows", 0), ("batch_size", batch_size), ("sequence_length", 1), ("unroll", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"agent.{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("model_rate", "reward_scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"agent.{name} must be positive, got {getattr(self, name)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"agent.precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")

    @property
    def is_counted(self) -> tuple[bool, ...]:
        """Of each sequence of a batch, whether dreams that begin in it count against the budgets."""
        return tuple(not self.recent_rows or place >= self.batch_size // 2 for place in range(self.batch_size))


class Mind(NamedTuple):
    """What decisions are made with."""

    model: Packed[WorldModel]
    actors: Packed[Actor]
    """The task's and, if the recipe explores, the exploration's, along the leading axis."""


class VisionState(eqx.Module):
    """All that changes while the agent learns."""

    model: Packed[WorldModel]
    model_memory: Any
    actor_critics: ActorCritic
    """The task's and, if the recipe explores, the exploration's, along the leading axis."""
    starts: State
    """Of the last batch: where the next dreams begin."""
    num_updates: Int[Array, ""]
    num_skipped: Int[Array, ""]
    """Updates of which a part was skipped because something was not finite."""

    @property
    def mind(self) -> Mind:
        return Mind(self.model, self.actor_critics.actor)


class Filter(NamedTuple):
    """What acting remembers of every environment."""

    state: State
    action: Float[Array, "environment action"]


class EnvSpec(NamedTuple):
    """What the agent has to know of its environment."""

    observation_shape: tuple[int, ...]
    action_dim: int
    budgets: tuple[float, ...]
    """Bounds on the sums of costs in an episode, one per constraint."""
    num_decisions: int
    """In an episode."""
    action_repeat: int = 1


@dataclasses.dataclass(frozen=True)
class VisionAgent:
    """The unchanging part: an environment's shape, a row of the table, and settings."""

    surroundings: EnvSpec
    recipe: VisionRecipe
    settings: VisionSettings

    @property
    def planner_budgets(self) -> tuple[float, ...]:
        """The bounds on discounted cost returns that stand for the budgets."""
        here = self.surroundings
        return tuple(
            planner_budget(
                budget,
                num_decisions=here.num_decisions,
                discount=self.settings.actor_critic.cost_discount,
                slack=self.settings.budget_slack,
                released_repeat=here.action_repeat if self.settings.is_budget_released else None,
            )
            for budget in here.budgets
        )

    @property
    def learner(self) -> Learner:
        """What improves actor-critics."""
        doubt, actor_critic = self.settings.doubt, self.settings.actor_critic
        judge = Judge(
            actor_critic,
            doubt.measure(),
            is_doubt_differentiated=doubt.is_intrinsic_differentiated,
            is_outcome_averaged=doubt.is_outcome_averaged,
            is_counted=self.settings.is_counted,
            dtype=self._dtype,
        )
        step = self.recipe.step(self.settings.step, actor_critic.actor_rate)
        return Learner(judge, step, self.planner_budgets, unroll=self._unroll)

    @property
    def aims(self) -> Aim:
        """What the actor-critics are after."""
        doubt = self.settings.doubt
        pessimism = doubt.pessimism if self.recipe.is_pessimistic else 0.0
        entries = [Aim(1.0, doubt.optimism if self.recipe.is_optimistic else 0.0, pessimism)]
        if self.recipe.explores:
            entries.append(Aim(0.0, doubt.intrinsic, pessimism))
        return aims(entries)

    def init(self, key: PRNGKeyArray) -> VisionState:
        """An agent that has learned nothing."""
        here, settings = self.surroundings, self.settings
        model_key, actor_key = jax.random.split(key)
        shape, num_costs = here.observation_shape, len(here.budgets)
        model = Packed.of(WorldModel.create(shape, here.action_dim, num_costs, settings.model, model_key))
        num_features = settings.model.deterministic + settings.model.stochastic
        keys = jax.random.split(actor_key, 2)[: 1 + self.recipe.explores]
        actor_critics = eqx.filter_vmap(lambda k: self.learner.init(num_features, here.action_dim, k))(keys)
        starts = self.begin(settings.batch_size * settings.sequence_length).state
        # Arrays of their own: a program that takes the state over takes each only once.
        counts = (jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return VisionState(model, self._model_optimiser.init(model.vector), actor_critics, starts, *counts)

    def learn(
        self,
        state: VisionState,
        sample: Callable[[Any], Rows],
        draws: Any,
        keys: Key[Array, " update"],
        phase: Phase,
        reward_range: RewardRange | None = None,
    ) -> tuple[VisionState, dict[str, Float[Array, " update"]]]:
        """The state after one update per key, and what was measured at each.

        `sample(draw)` gives the rows (batch, time) of one update, for every entry of `draws` along their first axis.
        `reward_range` are the least and the largest reward that there is evidence of, where that is known.
        Once the expansion is over the exploration's actor-critic rests, and the loop does not carry it.
        """
        rests = phase is Phase.EXPLOITATION and self.recipe.explores
        active = jax.tree.map(lambda leaf: leaf[: TASK + 1], state.actor_critics) if rests else state.actor_critics

        names: list[str] = []

        def one(state: VisionState, inputs: tuple[Any, PRNGKeyArray]) -> tuple[VisionState, Float[Array, " measure"]]:
            draw, key = inputs
            state, measured = self.update(state, sample(draw), key, reward_range)
            names[:] = measured
            # As one array: each by itself would have a kernel of its own, or a copy that cuts a device's graph in two.
            return state, jnp.stack([value.astype(jnp.float32) for value in measured.values()])

        everyone = state.actor_critics
        state = dataclasses.replace(state, actor_critics=active)
        state, measures = jax.lax.scan(one, state, (draws, keys))
        if rests:
            back = jax.tree.map(lambda old, new: old.at[: TASK + 1].set(new), everyone, state.actor_critics)
            state = dataclasses.replace(state, actor_critics=back)
        return state, dict(zip(names, measures.T, strict=True))

    def update(
        self, state: VisionState, rows: Rows, key: PRNGKeyArray, reward_range: RewardRange | None = None
    ) -> tuple[VisionState, dict[str, Array]]:
        """The state after one update from sequences (batch, time) of all actor-critics that `state` holds.

        The policies learn in the model as it is, from the states of the last batch, while the model learns from this
        one: neither waits for the other, and a device may do both at once. Every policy update thus sees the newest
        model but for the step under way; the very first begins where nothing is known yet.
        """
        model_key, dream_key = jax.random.split(key)
        rows = rows._replace(reward=self.settings.reward_scale * rows.reward)
        num_active = state.actor_critics.actor.vector.shape[0]
        batch = Batch(rows, self.settings.model, model_key, self._dtype, self._unroll)
        aims = jax.tree.map(lambda leaf: leaf[:num_active], self._bounded(self.aims, reward_range))
        keys = jax.random.split(dream_key, num_active)
        policies = Policies(self.learner, state.actor_critics, aims, state.starts, keys)
        taught, actor_critics, info = learn_both(state.model.tree, batch, policies)
        explained = taught.explained
        with jax.named_scope("model_step"):
            weights, memory, is_model_skipped = descend(
                self._model_optimiser, state.model.vector, flat(taught.gradient), state.model_memory
            )
        # Neighbours are from different sequences: blocks of them draw what they believe together.
        starts = jax.tree.map(
            lambda leaf: jnp.swapaxes(leaf, 0, 1).reshape(-1, leaf.shape[-1]).astype(jnp.float32),
            explained.filtered.state,
        )
        is_skipped = jnp.maximum(is_model_skipped, jnp.max(info["is_skipped"]))
        metrics = {
            "model/loss": taught.loss,
            "model/observation_loss": explained.observation_loss,
            "model/reward_loss": explained.reward_loss,
            "model/cost_loss": explained.cost_loss,
            "model/kl": explained.kl,
            "is_skipped": is_skipped,
        }
        for place, name in ((TASK, "task"), (EXPLORATION, "exploration"))[:num_active]:
            metrics |= {f"{name}/{entry}": value[place] for entry, value in info.items()}
        return (
            VisionState(
                Packed(weights, state.model.layout),
                memory,
                actor_critics,
                starts,
                state.num_updates + 1,
                state.num_skipped + is_skipped.astype(jnp.int32),
            ),
            metrics,
        )

    def _bounded(self, aims: Aim, reward_range: RewardRange | None) -> Aim:
        """The task's critic is heeded between the least and the largest reward, earned for ever.

        Critics learn from what they say themselves, and may run away: one that promised a hundred times what there is
        to earn has cost a policy all that it knew. An optimist's bonus is nowhere recorded, and so not bounded.
        """
        if reward_range is None or self.recipe.is_optimistic:
            return aims
        scale = self.settings.reward_scale / (1.0 - self.settings.actor_critic.discount)
        lowest, highest = (
            jnp.asarray(known).at[TASK].set(scale * bound)
            for known, bound in zip((aims.lowest, aims.highest), reward_range, strict=True)
        )
        return aims._replace(lowest=lowest, highest=highest)

    def begin(self, num_envs: int) -> Filter:
        """What acting remembers before the first observation."""
        sizes = self.settings.model
        state = State(*(jnp.zeros((num_envs, size), jnp.float32) for size in (sizes.deterministic, sizes.stochastic)))
        return Filter(state, jnp.zeros((num_envs, self.surroundings.action_dim), jnp.float32))

    def see(self, mind: Mind, observation: Array) -> Float[Array, "environment feature"]:
        """What the encoder makes of observations, a row for each: no environment needs another's."""
        return cast(mind.model.tree.encoder, self._acting_dtype)(observation)

    def act(
        self,
        mind: Mind,
        memory: Filter,
        seen: Float[Array, "environment feature"],
        is_first: Bool[Array, " environment"],
        key: PRNGKeyArray,
        *,
        policy: Policy,
        is_greedy: bool = False,
    ) -> tuple[Float[Array, "environment action"], Filter]:
        """Actions for all environments, and what is remembered; greedy actions are the policy's medians."""
        filter_key, action_key = jax.random.split(key)
        model = cast(mind.model.tree, self._acting_dtype)
        latent = model.step(memory.state, memory.action, seen, is_first, filter_key)
        if policy is Policy.UNIFORM:
            action = jax.random.uniform(action_key, memory.action.shape, jnp.float32, -1.0, 1.0)
            return action, Filter(latent, action)
        place = EXPLORATION if policy is Policy.EXPLORATION else TASK
        packed = jax.tree.map(lambda leaf: leaf[place], mind.actors)
        actor = cast(packed.tree, self._acting_dtype)
        distribution = actor(latent.features)
        noise = jax.random.normal(action_key, memory.action.shape, jnp.float32)
        action = distribution.middle if is_greedy else distribution.sample(noise)
        return action, Filter(latent, action)

    @property
    def _unroll(self) -> int:
        return self.settings.unroll or (1 if prefers_products() else UNROLLED)

    @property
    def _acting_dtype(self) -> Any:
        """A CPU decides in single precision: it would have to emulate any other."""
        return jnp.float32 if prefers_products() else self._dtype

    @property
    def _dtype(self) -> Any:
        return PRECISIONS[self.settings.precision]

    @property
    def _model_optimiser(self) -> Any:
        return clipped_adam(self.settings.model_rate)
