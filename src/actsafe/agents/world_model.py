"""ActSafe with a world model: the paper's Algorithm 2 from pixels or state, as pure functions of one `WorldModelState`.

    for every update:
        learn Q_n      the ensemble world model, from recorded sequences          `LatentModel.loss`
        select pi_n    maximise the weighted reward in imagination, pessimistic      `Learner.improve`
                       cost returns within their budgets

The task's actor-critic and the exploration's are one batch: they share the model, and differ by what they are after.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from actsafe.actor_critic import update as plain
from actsafe.actor_critic.actor import Actor
from actsafe.actor_critic.losses import ImaginedObjective
from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.actor_critic.update import ActorCritic, Batch, Learner, Policies
from actsafe.agents.algorithms import Algorithm, Role
from actsafe.agents.base import ActMode, Agent, AgentSettings, Decision, Forecasts, Newest, Percept, Policy, Promise
from actsafe.agents.handover import may_take_over
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.safe_set.screen import Dreamt, dream_episodes
from actsafe.agents.safe_set.settings import SafeSetSettings
from actsafe.agents.world_model_forecasts import DOES_NOT_PROMISE, NUM_SEEN, imagined_promise, outcome_forecasts
from actsafe.agents.world_model_learner import WorldModelLearner
from actsafe.constrained.descent import descend
from actsafe.constrained.optimisers import clipped_adam
from actsafe.constrained.settings import StepSettings
from actsafe.data.rows import Rows
from actsafe.envs.spec import EnvSpec
from actsafe.fast import convolutions, device, side_by_side
from actsafe.fast import world_model as fast
from actsafe.models.base import Latent, LatentModel
from actsafe.models.networks import cast
from actsafe.models.packing import Packed, flat
from actsafe.models.rssm.world_model import WorldModel, WorldModelSettings, predict_video, require_learnable
from actsafe.objectives.uncertainty import UncertaintySettings, planner_budget
from actsafe.objectives.weights import ObjectiveWeights, Recorded, stacked

TASK, EXPLORATION = 0, 1
"""Places of the actor-critics along their axis."""

UNROLLED = 10
"""Steps of a loop in one piece on an accelerator, which waits less between them."""

PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


class Implementation(NamedTuple):
    """The functions that a model acts and learns by; parameters and train state are the same for all."""

    encode: Callable[..., Array]
    step: Callable[..., Latent]
    learn_both: Callable[..., Any]


PLAIN = Implementation(
    lambda model, observations: model.encode(observations),
    lambda model, *inputs: model.step(*inputs),
    plain.learn_both,
)
FAST = Implementation(
    lambda model, observations: convolutions.encode(model.encoder, observations), fast.step, side_by_side.learn_both
)
IMPLEMENTATIONS = ("auto", "plain", "fast")


def implementation(name: str, model: LatentModel) -> Implementation:
    """What `WorldModelAgentSettings.implementation` stands for with this model."""
    has_fast = isinstance(model, WorldModel)
    if name == "fast" and not has_fast:
        raise ValueError(
            f"agent.implementation: got fast, but a {type(model).__name__} has a plain one alone; use auto or plain"
        )
    return FAST if has_fast and name != "plain" else PLAIN


@dataclasses.dataclass(frozen=True)
class WorldModelAgentSettings(AgentSettings):
    """An ensemble world model and actor-critics in imagination. Sizes and rates are the paper's; how uncertainty is
    weighed is for the task, and the presets say it."""

    kind: ClassVar[str] = "rssm"
    takes_safe_set: ClassVar[bool] = True
    for_a_try: ClassVar[str] = "--preset vision-tiny, or --preset own-state"
    more_cautious: ClassVar[str] = "with more agent.updates_per_1000_steps, or a longer schedule.warm_up"

    model: WorldModelSettings = dataclasses.field(default_factory=WorldModelSettings)
    actor_critic: ActorCriticSettings = dataclasses.field(default_factory=ActorCriticSettings)
    uncertainty: UncertaintySettings = dataclasses.field(default_factory=UncertaintySettings)
    step: StepSettings = dataclasses.field(default_factory=StepSettings)
    batch_size: int = 16
    """Sequences in a batch."""
    sequence_length: int = 50
    """Rows of each."""
    recent_rows: int = 0
    """Which dreams count against the budgets. 0: all, wherever in the replay they begin, as in the released code. Else
    half of every batch is from the newest so many rows, of all environments together, and dreams that begin there
    count: what the agent did long ago still teaches model and critics, but is no longer what its policies are said to
    cost."""
    is_loss_recent: bool = True
    """Whether with `recent_rows` the same dreams make the loss. False: all dreams do, and where costs do not count the
    actor learns from rewards alone, which teaches it not to brake at an edge where it was long ago."""
    model_rate: float = 3e-4
    """Learning rate of the world model."""
    reward_scale: float = 1.0
    """Rewards are learned times this. Likelihoods have unit variance, so that rewards far below 1 teach slowly."""
    observation_scale: tuple[float, ...] = ()
    """Vector observations are seen and learned over these, one for each coordinate; empty for as they are. Likelihoods
    have unit variance, to which a position of 0.3 m is nothing."""
    precision: str = "bfloat16"
    """Of products of matrices: bfloat16 or float32. Parameters, losses and optimisers are float32 either way."""
    is_budget_released: bool = False
    """Whether the planner's budget counts simulator steps, as the released code does, instead of decisions."""
    budget_slack: float = 0.0
    """Added to the planner's budgets."""
    implementation: str = "auto"
    """plain: JAX as the equations read; fast: the same in fewer and larger operations, and in kernels where there are
    some for the device and the precision; auto: fast, for models that it is there for."""
    unroll: int = 0
    """Steps of a loop in one piece, in the fast implementation: more compile longer and run faster on an accelerator. 0
    is 10 there, and 1 else."""

    def __post_init__(self) -> None:
        batch_size = 2 if self.recent_rows else 1
        for name, least in (("recent_rows", 0), ("batch_size", batch_size), ("sequence_length", 1), ("unroll", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"agent.{name} must be at least {least}, got {getattr(self, name)}")
        if self.handover_reward is not None and not 0 <= self.handover_reward < float("inf"):
            raise ValueError(
                "agent.handover_reward must be a finite number of at least 0, or null to ask for no reward, got "
                f"{self.handover_reward}"
            )
        for name in ("model_rate", "reward_scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"agent.{name} must be positive, got {getattr(self, name)}")
        if not all(0 < scale < float("inf") for scale in self.observation_scale):
            raise ValueError(f"agent.observation_scale must be positive numbers, got {list(self.observation_scale)}")
        for name, known in (("precision", PRECISIONS), ("implementation", IMPLEMENTATIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"agent.{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")

    decisions_per_cycle: int = 50
    """Decisions of every environment between two stretches of learning."""
    updates_per_1000_steps: int = 100
    replay_capacity: int = 500_000
    """Rows, of all environments together, that are kept to learn from: a decision each, or an episode's beginning."""
    is_handover_checked: bool = True
    """Whether the expansion goes on after its time until the task's policy keeps its budgets in its own imagination, or
    is no worse there than the one that explores. False: as released, the task's policy takes over in any case and for
    good, whatever the next two say."""
    handover_reward: float | None = None
    """The task's policy takes over only once a larger reward than this was recorded: a policy that maximises a reward
    which nobody has seen learns nothing. 0 is for sparse rewards; None asks for none, as some are never positive."""
    is_handover_final: bool = False
    """Whether the task's policy goes on acting after an epoch in which it broke a budget in the mean. False: the
    exploration's acts for at least an epoch, and until the task's may take over again."""

    @classmethod
    def small(cls) -> Mapping[str, Any]:
        """Small networks for state vectors: minutes on a laptop."""
        model = WorldModelSettings(
            deterministic=64, stochastic=16, hidden=64, num_members=3, head_width=64, head_depth=2
        )
        actor_critic = ActorCriticSettings(
            horizon=10, actor_width=64, actor_depth=2, critic_width=64, critic_depth=2, initial_std=0.3
        )
        return {
            "num_envs": 4,
            "schedule": Schedule(warm_up=8, expansion=8, exploitation=16, episodes_per_epoch=4),
            "evaluate_every": 4,
            "evaluation_episodes": 8,
            "agent": cls(
                model=model,
                actor_critic=actor_critic,
                batch_size=8,
                sequence_length=20,
                replay_capacity=50_000,
                decisions_per_cycle=50,
                precision="float32",
            ),
        }

    def make(self, spec: EnvSpec, algorithm: Algorithm, schedule: Schedule) -> "WorldModelAgent":
        """The agent for such an environment, or ValueError where it cannot have one."""
        require_learnable(spec.observation_shape)
        if self.observation_scale and (len(self.observation_scale),) != spec.observation_shape:
            raise ValueError(
                f"agent.observation_scale: got {len(self.observation_scale)} numbers, but observations have the shape "
                f"{spec.observation_shape}; expected one for each coordinate of a vector, or none"
            )
        return WorldModelAgent(spec, algorithm, self, schedule)

    @property
    def replay_rows(self) -> Mapping[str, int]:
        """Settings that count rows of the buffer, of all environments together."""
        recent = {"recent_rows": self.recent_rows} if self.recent_rows else {}
        return {"replay_capacity": self.replay_capacity, **recent}

    def seen(self, observations: Any) -> Any:
        """Observations as the model sees them."""
        if not self.observation_scale:
            return observations
        return jnp.asarray(observations) / jnp.asarray(self.observation_scale, jnp.float32)

    def learned(self, rows: Rows) -> Rows:
        """Recorded rows as the model learns them."""
        return rows._replace(observation=self.seen(rows.observation), reward=self.reward_scale * rows.reward)

    @property
    def is_counted(self) -> tuple[bool, ...]:
        """Of each sequence of a batch, whether dreams that begin in it count against the budgets."""
        return tuple(not self.recent_rows or place >= self.batch_size // 2 for place in range(self.batch_size))


class PolicyWeights(NamedTuple):
    """What decisions are made with."""

    model: Packed[LatentModel]
    actors: Packed[Actor]
    """The task's and, if the algorithm explores, the exploration's, along the leading axis."""


class WorldModelState(eqx.Module):
    """All that changes while the agent learns."""

    model: Packed[LatentModel]
    model_memory: Any
    actor_critics: ActorCritic
    """The task's and, if the algorithm explores, the exploration's, along the leading axis."""
    starts: Latent
    """Of the last batch: where the next dreams begin."""
    num_updates: Int[Array, ""]
    num_skipped: Int[Array, ""]
    """Updates of which a part was skipped because something was not finite."""

    @property
    def policy_weights(self) -> PolicyWeights:
        return PolicyWeights(self.model, self.actor_critics.deployed)


class FilterMemory(NamedTuple):
    """What acting remembers of every environment."""

    state: Latent
    action: Float[Array, "environment action"]
    key: PRNGKeyArray
    """The random stream of all environments."""


class WorldModelPolicy(Policy):
    """Filters what it observes, and acts by an actor on the latent state."""

    weights: PolicyWeights
    place: int = eqx.field(static=True)
    """Of the actor along its axis."""
    is_uniform: bool = eqx.field(static=True)
    """Whether actions are uniform all the same; the filter goes on."""
    is_greedy: bool = eqx.field(static=True)
    """Whether actions are the policy's medians."""
    action_dim: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)
    settings: WorldModelAgentSettings = eqx.field(static=True)

    def begin(self, num_envs: int, key: PRNGKeyArray) -> FilterMemory:
        """What comes before the first observation, which begins a new state anyway."""
        action = jnp.zeros((num_envs, self.action_dim), jnp.float32)
        return FilterMemory(self.weights.model.tree.begin(num_envs), action, key)

    def encode(self, observation: Array) -> Float[Array, "environment feature"]:
        """What the encoder makes of observations."""
        model = cast(self.weights.model.tree, self.dtype)
        return implementation(self.settings.implementation, model).encode(model, self.settings.seen(observation))

    def act(self, memory: FilterMemory, encoded: Array, percept: Percept) -> tuple[Decision, FilterMemory]:
        """Actions of the actor, or their medians. Nothing is checked before it is done."""
        key, filter_key, action_key = jax.random.split(memory.key, 3)
        model = cast(self.weights.model.tree, self.dtype)
        step = implementation(self.settings.implementation, model).step
        latent = step(model, memory.state, memory.action, encoded, percept.is_first, filter_key)
        if self.is_uniform:
            action = jax.random.uniform(action_key, memory.action.shape, jnp.float32, -1.0, 1.0)
        else:
            packed = jax.tree.map(lambda leaf: leaf[self.place], self.weights.actors)
            distribution = cast(packed.tree, self.dtype)(model.features(latent))
            noise = jax.random.normal(action_key, memory.action.shape, jnp.float32)
            action = distribution.middle if self.is_greedy else distribution.sample(noise)
        unknown, no = jnp.full(percept.is_first.shape, jnp.nan), jnp.zeros(percept.is_first.shape, bool)
        return Decision(action, unknown, unknown, no, no), FilterMemory(latent, action, key)

    def executed(self, memory: FilterMemory, action: Float[Array, "environment action"]) -> FilterMemory:
        """The filter goes on from what was executed."""
        return memory._replace(action=action)


@dataclasses.dataclass(frozen=True)
class WorldModelAgent(Agent):
    """A row of the table with a latent model and actor-critics in imagination."""

    settings: WorldModelAgentSettings

    is_drawn: ClassVar[bool] = True
    num_seen: ClassVar[int] = NUM_SEEN
    usual_episodes: ClassVar[int] = 20
    usual_horizon: ClassVar[int] = 15
    does_not_promise: ClassVar[tuple[str, ...]] = DOES_NOT_PROMISE

    @property
    def num_ticks_at_once(self) -> int:
        return self.settings.decisions_per_cycle

    def acting_part(self, state: WorldModelState) -> Any:
        """The weights of the model and of the actors."""
        needed = {id(leaf) for leaf in jax.tree.leaves(state.policy_weights)}
        return jax.tree.map(lambda leaf: leaf if id(leaf) in needed else None, state)

    @property
    def planner_budgets(self) -> tuple[float, ...]:
        """The bounds on discounted cost returns that stand for the budgets."""
        here = self.spec
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
    def search(self) -> Learner:
        """What improves actor-critics in imagination."""
        uncertainty, actor_critic = self.settings.uncertainty, self.settings.actor_critic
        objective = ImaginedObjective(
            actor_critic,
            uncertainty.measure(),
            is_uncertainty_differentiated=uncertainty.is_intrinsic_differentiated,
            is_outcome_averaged=uncertainty.is_outcome_averaged,
            is_counted=self.settings.is_counted,
            is_loss_counted=self.settings.is_loss_recent,
            smallest_range=uncertainty.smallest_range if uncertainty.is_intrinsic_normalised else None,
            dtype=self.dtype,
        )
        step = self.algorithm.step(self.settings.step, actor_critic.actor_rate)
        return Learner(objective, step, self.planner_budgets)

    @property
    def objective_weights(self) -> ObjectiveWeights:
        """What the actor-critics maximise."""
        return stacked([self._weights(role) for role in (Role.TASK, Role.EXPLORATION)[: 1 + self.algorithm.explores]])

    def _weights(self, role: Role) -> ObjectiveWeights:
        return self.algorithm.objective.weights(role, self.settings.uncertainty)

    def init(self, key: PRNGKeyArray) -> WorldModelState:
        """An agent that has learned nothing."""
        here, settings = self.spec, self.settings
        model_key, actor_key = jax.random.split(key)
        shape, num_costs = here.observation_shape, len(here.budgets)
        model: LatentModel = settings.model.create(shape, here.action_dim, num_costs, model_key)
        keys = jax.random.split(actor_key, 2)[: 1 + self.algorithm.explores]
        actor_critics = eqx.filter_vmap(lambda k: self.search.init(model.num_features, here.action_dim, k))(keys)
        starts, packed = model.begin(settings.batch_size * settings.sequence_length), Packed.of(model)
        # Arrays of their own: a program that takes the state over takes each only once.
        counts = (jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
        return WorldModelState(packed, self._model_optimiser.init(packed.vector), actor_critics, starts, *counts)

    def learn(
        self,
        state: WorldModelState,
        sample: Callable[[Any], Rows],
        draws: Any,
        keys: Key[Array, " update"],
        phase: Phase,
        recorded: Recorded | None = None,
    ) -> tuple[WorldModelState, dict[str, Float[Array, " update"]]]:
        """The state after one update per key, and what was measured at each.

        `sample(draw)` gives the rows (batch, time) of one update, for every entry of `draws` along their first axis.
        `recorded` are the extremes of rewards and costs that there is evidence of, where that is known.
        Once the expansion is over the exploration's actor-critic rests, and the loop does not carry it.
        """
        rests = phase is Phase.EXPLOITATION and self.algorithm.explores
        active = jax.tree.map(lambda leaf: leaf[: TASK + 1], state.actor_critics) if rests else state.actor_critics

        names: list[str] = []

        def one(
            state: WorldModelState, inputs: tuple[Any, PRNGKeyArray]
        ) -> tuple[WorldModelState, Float[Array, " measure"]]:
            draw, key = inputs
            state, measured = self.update(state, sample(draw), key, recorded)
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
        self, state: WorldModelState, rows: Rows, key: PRNGKeyArray, recorded: Recorded | None = None
    ) -> tuple[WorldModelState, dict[str, Array]]:
        """The state after one update from sequences (batch, time) of all actor-critics that `state` holds.

        The policies learn in the model as it is, from the states of the last batch, while the model learns from this
        one: neither waits for the other, and a device may do both at once. Every policy update thus sees the newest
        model but for the step under way; the very first begins where nothing is known yet.
        """
        model_key, dream_key = jax.random.split(key)
        rows = self.settings.learned(rows)
        num_active = state.actor_critics.actor.vector.shape[0]
        batch = Batch(rows, model_key, self.dtype, self._unroll)
        weights = jax.tree.map(lambda leaf: leaf[:num_active], self._held_to(self.objective_weights, recorded))
        keys = jax.random.split(dream_key, num_active)
        policies = Policies(self.search, state.actor_critics, weights, state.starts, keys)
        model = state.model.tree
        learn_both = implementation(self.settings.implementation, model).learn_both
        taught, actor_critics, info = learn_both(model, batch, policies)
        with jax.named_scope("model_step"):
            weights, memory, is_model_skipped = descend(
                self._model_optimiser, state.model.vector, flat(taught.gradient), state.model_memory
            )
        # Neighbours are from different sequences: the members of a block draw together which model to follow.
        starts = jax.tree.map(
            lambda leaf: jnp.swapaxes(leaf, 0, 1).reshape(-1, *leaf.shape[2:]).astype(jnp.float32), taught.states
        )
        is_skipped = jnp.maximum(is_model_skipped, jnp.max(info["is_skipped"]))
        metrics = {
            "model/loss": taught.loss,
            **{f"model/{name}": value for name, value in taught.parts.items()},
            "is_skipped": is_skipped,
        }
        for place, name in ((TASK, "task"), (EXPLORATION, "exploration"))[:num_active]:
            metrics |= {f"{name}/{entry}": value[place] for entry, value in info.items()}
        return (
            WorldModelState(
                Packed(weights, state.model.layout),
                memory,
                actor_critics,
                starts,
                state.num_updates + 1,
                state.num_skipped + is_skipped.astype(jnp.int32),
            ),
            metrics,
        )

    def _held_to(self, weights: ObjectiveWeights, recorded: Recorded | None) -> ObjectiveWeights:
        """The weights of every policy, with what was recorded; rewards count as they are learned."""
        if recorded is None:
            return weights
        scale, num_policies = self.settings.reward_scale, 1 + self.algorithm.explores
        learned = Recorded(scale * recorded.lowest_reward, scale * recorded.highest_reward, recorded.highest_costs)
        everyone = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_policies, *jnp.shape(leaf))), learned)
        return weights._replace(recorded=everyone)

    def policy(self, weights: PolicyWeights, mode: ActMode) -> "WorldModelPolicy":
        """What decides with these weights."""
        place = EXPLORATION if mode.role is Role.EXPLORATION else TASK
        choices = (self.spec.action_dim, self._acting_dtype, self.settings)
        return WorldModelPolicy(weights, place, mode.role is Role.UNIFORM, mode.is_greedy, *choices)

    def deployable(self, state: WorldModelState, role: Role) -> PolicyWeights:
        """The weights of the model and of this role's actor."""
        place, weights = EXPLORATION if role is Role.EXPLORATION else TASK, state.policy_weights
        return weights._replace(actors=jax.tree.map(lambda leaf: leaf[place : place + 1], weights.actors))

    def deployed(self, weights: PolicyWeights) -> "WorldModelPolicy":
        """What acts by `deployable` weights, by draws from the actor."""
        return self.policy(weights, ActMode(Role.TASK))

    def dreamt(
        self,
        weights: PolicyWeights,
        observations: Array,
        limit: Float[Array, ""],
        settings: SafeSetSettings,
        key: PRNGKeyArray,
    ) -> Dreamt:
        """Whole episodes in the model that the policy was learned with, in single precision."""
        actor = jax.tree.map(lambda leaf: leaf[TASK], weights.actors)
        return dream_episodes(
            weights.model.tree,
            actor.tree,
            self.settings.seen(observations),
            uncertainty=self.settings.uncertainty.measure(),
            limit=limit,
            unknown_cost=settings.screen.unknown_cost,
            num_decisions=self.spec.num_decisions,
            num_particles=settings.screen.num_particles,
            key=key,
        )

    def largest_uncertainty(self, weights: PolicyWeights, rows: Rows, key: PRNGKeyArray) -> Float[Array, ""]:
        """Of what follows each recorded state and action; what leads into another episode is left out."""
        model, measure = weights.model.tree, self.settings.uncertainty.measure()
        states = model.observe(self.settings.learned(rows), key)
        flat_rows = jax.tree.map(lambda leaf: leaf[:, :-1].reshape(-1, *leaf.shape[2:]), states)
        actions = jnp.asarray(rows.action)[:, 1:].reshape(-1, rows.action.shape[-1])
        found = measure(model.disagreement(flat_rows, actions))
        return jnp.max(jnp.where(jnp.asarray(rows.is_first)[:, 1:].ravel(), 0.0, found))

    def learner(self, num_envs: int, num_seeds: int) -> "WorldModelLearner":
        return WorldModelLearner(self, num_envs, num_seeds)

    def operations(self, num_steps: int) -> float:
        """Of the world model alone: every parameter takes two of each row, and its gradient four."""
        num_parameters = eqx.filter_eval_shape(self.init, jax.random.key(0)).model.vector.size
        num_rows = self.settings.batch_size * self.settings.sequence_length
        return 6.0 * num_parameters * num_rows * num_steps * self.settings.updates_per_1000_steps / 1000

    def predict_video(self, state: WorldModelState, rows: Rows, num_seen: int, key: PRNGKeyArray) -> np.ndarray:
        model = state.model.tree
        if not isinstance(model, WorldModel) or len(self.spec.observation_shape) != 3:
            return super().predict_video(state, rows, num_seen, key)
        shown = eqx.filter_jit(predict_video)(model, rows, num_seen, key)
        return np.clip(np.round((np.asarray(shown) + 0.5) * 255.0), 0, 255).astype(np.uint8)

    def may_exploit(self, learned: Mapping[str, Any]) -> bool:
        settings = self.settings
        if not settings.is_handover_checked:
            return True
        return may_take_over(self.algorithm, self.planner_budgets, learned, least_reward=settings.handover_reward)

    @property
    def hands_back(self) -> bool:
        is_meant = self.settings.is_handover_checked and not self.settings.is_handover_final
        return is_meant and self.algorithm.is_constrained and self.algorithm.explores

    def predicted(self, role: Role, learned: Mapping[str, Any], decided: float | None) -> list[dict[str, Any]]:
        """By constraint, means over an epoch's updates of what was imagined of the acting policy.

        `predicted_cost` and `predicted_pessimistic_cost` are of an episode: the mean over imagined decisions, times the
        decisions of an episode. `predicted_return` is the pessimistic discounted cost return, which is what was held
        against `planner_budget`. None where nothing was learned, or who acted was not imagined.
        """
        length, here = self.spec.num_decisions, self.spec
        columns = []
        for number, (name, budget, bound) in enumerate(
            zip(here.cost_names, here.budgets, self.planner_budgets, strict=True)
        ):
            cost, pessimistic, returned = (
                learned.get(f"{role.value}/{entry}_{number}") for entry in ("cost", "pessimistic_cost", "cost_return")
            )
            columns.append(
                {
                    "constraint": name,
                    "budget": budget,
                    "predicted_cost": None if cost is None else cost * length,
                    "predicted_pessimistic_cost": None if pessimistic is None else pessimistic * length,
                    "predicted_return": returned,
                    "planner_budget": bound,
                }
            )
        return columns

    def forecasts(
        self, learner: "WorldModelLearner", state: Any, episodes: Sequence[Rows], *, horizon: int, key: PRNGKeyArray
    ) -> Forecasts:
        return outcome_forecasts(self, state, episodes, horizon=horizon, key=key)

    def promise(self, learner: "WorldModelLearner", state: Any, newest: Newest) -> Promise:
        return imagined_promise(self, newest)

    @property
    def _unroll(self) -> int:
        return self.settings.unroll or (1 if device.is_for_cpu() else UNROLLED)

    @property
    def _acting_dtype(self) -> Any:
        """A CPU decides in single precision: it would have to emulate any other."""
        return jnp.float32 if device.is_for_cpu() else self.dtype

    @property
    def dtype(self) -> Any:
        return PRECISIONS[self.settings.precision]

    @property
    def _model_optimiser(self) -> Any:
        return clipped_adam(self.settings.model_rate)
