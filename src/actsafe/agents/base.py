"""What every agent is: a policy to act with, and a learner that turns experience into a better one.

A training loop, an evaluation, a calibration and a certificate know an agent by this alone:

    state  = agent.init(key)                        all that changes while it learns
    policy = learner.policy(state, mode)            what decisions are made with
    memory = policy.begin(num_envs, key)
    decision, memory = policy.act(memory, policy.encode(observation), percept)
"""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from actsafe.agents.algorithms import Algorithm, Role
from actsafe.agents.phases import Phase, Schedule
from actsafe.envs.spec import EnvSpec
from actsafe.problems.base import Problem


class ActMode(NamedTuple):
    """Whose decisions are made, and how."""

    role: Role
    task: str | None = None
    """The task to maximise, where the role is `Role.TASK`; None for the environment's own."""
    is_greedy: bool = False
    """Whether to take the policy's median instead of a draw from it."""


class Percept(NamedTuple):
    """What arrives in every environment beside its observation."""

    reward: Float[Array, " environment"]
    costs: Float[Array, "environment constraint"]
    is_first: Bool[Array, " environment"]
    """The observation begins an episode: what was remembered is of another."""


class Decision(NamedTuple):
    """One decision in every environment."""

    action: Float[Array, "environment action"]
    value: Float[Array, " environment"]
    """What the decision maker expects of the objective; NaN where it does not say."""
    predicted_cost: Float[Array, " environment"]
    """Pessimistic cost of the episode so far and of what is planned; NaN where nothing was checked."""
    is_certified: Bool[Array, " environment"]
    """A check found the predicted cost within the budget before the action was taken."""
    is_fallback: Bool[Array, " environment"]
    """Something else than what the search or the network chose is executed."""
    level: Int[Array, " environment"] | None = None
    """Of who acts: the seed policy, a certified one or a candidate; None where there is no safe set."""


class Policy(eqx.Module):
    """What decisions are made with: a pytree, whose static fields choose the program."""

    @abc.abstractmethod
    def begin(self, num_envs: int, key: PRNGKeyArray) -> Any:
        """The memory before the first observation, which holds the random stream of all decisions."""

    def encode(self, observation: Array) -> Array:
        """What `act` needs of observations; row by row, so that it may be computed in parts."""
        return observation

    @abc.abstractmethod
    def act(self, memory: Any, encoded: Array, percept: Percept) -> tuple[Decision, Any]:
        """A decision for every environment, and the memory after it."""

    def executed(self, memory: Any, action: Float[Array, "environment action"]) -> Any:
        """The memory after `act`, where these actions were executed instead of its own."""
        return memory


class Estimate(NamedTuple):
    """A predicted cost beside the bound that it is compared with, in the same unit."""

    what: str
    """What the two numbers are, for people."""
    of: Mapping[str, Any]
    """Whose they are: a task, or a role and a constraint."""
    cost: float | None
    """None where it is not known."""
    bound: float

    @property
    def is_within(self) -> bool:
        """Whether the cost is known, finite and within the bound.

        Costs are at least 0. An estimate further below 0 than the bound is above is off by more than what it is held
        against: nothing is known from it.
        """
        return self.cost is not None and abs(self.cost) <= self.bound < float("inf")


class Newest(NamedTuple):
    """The newest epoch, as far as a promise rests on it."""

    role: Role
    """Who acted."""
    learned: Sequence[Mapping[str, Any]]
    """By seed, what its updates measured."""
    first_rows: Callable[[], Any]
    """Makes the environments begin new episodes, and returns the rows (seed, environment, time) of it."""
    keys: PRNGKeyArray
    """One per seed."""


class Deployed(NamedTuple):
    """The policy that would be deployed for the task, and its own real episodes."""

    is_learned: bool
    """Else it is S_0, whose episodes nobody but the record counts."""
    num_episodes: int
    num_over: int
    """Over a budget, or of a cost that is not known."""
    num_taken_over: int
    """That a fallback took over."""
    tolerance: float
    """The share of episodes over budget that is allowed."""


class Promise(NamedTuple):
    """What an agent's policies are held to: by its own estimates, or by the counts of their episodes."""

    basis: str
    """What was estimated, and how."""
    horizon: int
    """Decisions for which costs were computed."""
    afterwards: str
    """What is known of the decisions after these."""
    estimates: tuple[tuple[Estimate, ...], ...]
    """By seed."""
    details: Mapping[str, Any]
    """Particles or members, multipliers, margins."""
    deployed: tuple[Deployed, ...] = ()
    """By seed, what is promised of instead, where policies are deployed from a safe set; empty elsewhere."""


class Forecasts(NamedTuple):
    """Errors of a model's forecasts on episodes that nothing was learned from."""

    scores: Mapping[str, Float[Any, "n time coordinate"]]
    """(truth - mean) / std by claim."""
    meanings: Mapping[str, str]
    """What the std of each claim is."""
    coordinates: tuple[str, ...]
    deciding: str
    """The claim that the constraint relies on."""
    is_safety: tuple[bool, ...]
    """Of each coordinate, whether the constraint relies on it."""
    has_power: bool
    """Whether passing is evidence; False where the deciding claim is so wide that it can hardly fail."""
    details: Mapping[str, Any]
    """Particles, multipliers, and what else the scores depend on."""


class EpochLearner(abc.ABC):
    """Learning during one epoch, and who acts meanwhile."""

    agent: Any
    num_updates: int
    deployments: Any = ()
    """By seed, what is told of every deployment; empty where nothing is."""

    def __init__(self, learner: "Learner") -> None:
        self.learner = learner
        self._acting: tuple[ActMode, Any, Policy] | None = None

    def begin_deployment(self, mode: ActMode, buffer: Any, keys: Key[Array, " seed"]) -> None:
        """From now on policies of this mode act, in environments that begin anew."""
        self._acting = (mode, self.agent, self.learner.policy(self.agent, mode))

    @property
    def policy(self) -> Any:
        """The `Policy` that decides now."""
        if self._acting is None:
            raise RuntimeError("no deployment has begun; call begin_deployment first")
        mode, agent, policy = self._acting
        if agent is not self.agent:
            policy = self.learner.policy(self.agent, mode)
            self._acting = (mode, self.agent, policy)
        return policy

    def record(self, block: Any) -> None:  # noqa: B027
        """Take in what a block of a deployment brought; most have no use for it."""

    @abc.abstractmethod
    def catch_up(self, buffer: Any, num_rows: int, num_steps: int) -> None:
        """Do the updates that are due after so many rows of an environment and simulator steps of all."""

    @abc.abstractmethod
    def finish(self, buffer: Any, rows: Any, num_rows: int, num_steps: int) -> Mapping[str, Any]:
        """Do what is due at the end, given all rows of the epoch; returns means of what was measured, by seed."""


@runtime_checkable
class Learner(Protocol):
    """The compiled side of an agent. Every state has a leading axis seed."""

    def init(self, keys: Key[Array, " seed"]) -> Any:
        """States of agents that have learned nothing."""
        ...

    def policy(self, state: Any, mode: ActMode) -> Policy:
        """What decisions are made with in these states."""
        ...

    def epoch(self, state: Any, num_updates: int, keys: Key[Array, " seed"], phase: Phase) -> EpochLearner:
        """Learning from here on, in an epoch of this phase."""
        ...

    def compile_ahead(self, state: Any, buffer: Any, phase: Phase) -> None:
        """Have a phase's programs compiled in the background, where that pays."""
        ...


@dataclasses.dataclass(frozen=True)
class AgentSettings(abc.ABC):
    """A kind of agent and its settings: a member of the union `Config.agent`, by its tag `kind`.

    The kind of an agent of one's own is "module:Class", the place of its settings.
    """

    kind: ClassVar[str]
    is_double: ClassVar[bool] = False
    """Whether it computes in double precision."""
    is_one_program: ClassVar[bool] = False
    """Whether several seeds are an axis of one program in any environment."""
    takes_safe_set: ClassVar[bool] = False
    """Whether its policies can be deployed from a safe set; one that checks every decision by itself needs none."""
    sequence_length: ClassVar[int] = 1
    """Rows of each sequence that is learned from."""
    for_a_try: ClassVar[str] = "fewer episodes"
    """What to ask for where a run is too long for a CPU."""
    more_cautious: ClassVar[str] = "with other settings of the agent"
    """How to train anew where the model was found overconfident."""

    @property
    def replay_rows(self) -> Mapping[str, int]:
        """Settings that count rows of the buffer, of all environments together; none where there is no buffer."""
        return {}

    @abc.abstractmethod
    def make(self, spec: EnvSpec, algorithm: Algorithm, schedule: Schedule) -> "Agent":
        """The agent for such an environment; raises ValueError where it cannot have one."""

    @classmethod
    def small(cls) -> Mapping[str, Any]:
        """Entries of a config that are enough for a small environment: agent, schedule, num_envs, evaluations."""
        once = {"num_envs": 1, "evaluate_every": 1, "evaluation_episodes": 1}
        return {"agent": cls(), "schedule": Schedule(), **once}

    @classmethod
    def suits(cls, problem: Problem | None, num_costs: int) -> bool:
        """Whether this agent is a sensible default for `problem`; None stands for unknown dynamics."""
        return True


@dataclasses.dataclass(frozen=True)
class Agent(abc.ABC):
    """The unchanging part: an environment's description, a row of the table, and settings."""

    spec: EnvSpec
    algorithm: Algorithm
    settings: Any
    schedule: Schedule

    is_certifying: ClassVar[bool] = False
    """Whether decisions depend on what is left of the budget."""
    predicts_reward: ClassVar[bool] = False
    """Whether decisions depend on the reward of the last one, where that does not follow from the observation."""
    keeps_rows: ClassVar[bool] = True
    """Whether it learns from a buffer of rows, or keeps what it needs in its state."""
    is_drawn: ClassVar[bool] = False
    """Whether its policy is a distribution, of which `ActMode.is_greedy` takes the median."""
    num_seen: ClassVar[int] = 1
    """Rows of an episode that its model sees before it forecasts."""
    usual_episodes: ClassVar[int]
    """Episodes of every task, of all seeds together, that a calibration has unless it is told otherwise."""
    usual_horizon: ClassVar[int]
    """Decisions ahead that a calibration forecasts unless it is told otherwise."""
    does_not_promise: ClassVar[tuple[str, ...]]
    """What nobody should read into its certificates, beside what holds for all agents."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it can be evaluated on."""
        return (self.spec.task,)

    @property
    def ticks_per_deployment(self) -> int | None:
        """Ticks after which all environments begin anew and another policy may be deployed; None where an epoch is one
        deployment, during which policies change."""
        return None

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which JAX computes as precisely as this agent needs."""
        return jax.enable_x64(self.settings.is_double)

    def role(self, phase: Phase) -> Role:
        return self.algorithm.role(phase)

    def acting_part(self, state: Any) -> Any:
        """The part of a state that `Learner.policy` needs for the task's policy; None in place of the rest."""
        return state

    @property
    @abc.abstractmethod
    def num_ticks_at_once(self) -> int:
        """Decisions of every environment between two stretches of learning, or in one compiled call."""

    @abc.abstractmethod
    def learner(self, num_envs: int, num_seeds: int) -> Learner:
        """The compiled learner for `num_envs` environments and `num_seeds` seeds."""

    def operations(self, num_steps: int) -> float:
        """A lower bound on the floating-point operations of learning from `num_steps` steps; 0 if negligible."""
        return 0.0

    def predict_video(self, state: Any, rows: Any, num_seen: int, key: PRNGKeyArray) -> Any:
        """Images (batch, time, height, width, 3) that one seed's model expects in rows (batch, time).

        It sees the first `num_seen` observations, and of the others the actions that led there. Raises ValueError
        unless the model is of images.
        """
        raise ValueError("this run's model predicts no images")

    @abc.abstractmethod
    def may_exploit(self, learned: Mapping[str, Any]) -> bool:
        """Whether the task's policy may act in place of the exploration's, by what an epoch's updates measured."""

    @property
    def hands_back(self) -> bool:
        """Whether the exploration acts again after an epoch in which the task's policy broke a budget in the mean."""
        return False

    @abc.abstractmethod
    def predicted(self, role: Role, learned: Mapping[str, Any], decided: float | None) -> list[dict[str, Any]]:
        """For every constraint, what an epoch's acting policy was predicted to cost: columns of the ledger.

        `decided` is the largest predicted cost of the epoch's decisions, where they were checked.
        """

    @abc.abstractmethod
    def forecasts(self, learner: Learner, state: Any, episodes: Sequence[Any], *, horizon: int, key: Any) -> Forecasts:
        """How far the model's forecasts of these episodes, 1 to `horizon` decisions ahead, are off.

        `episodes` are rows (seed, environment, time).
        """

    @abc.abstractmethod
    def promise(self, learner: Learner, state: Any, newest: Newest) -> Promise:
        """What the task's policy, and the one that acted in the newest epoch, are predicted to cost."""
