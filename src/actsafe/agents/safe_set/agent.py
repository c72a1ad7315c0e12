"""Any agent with learned policies, deployed only from the safe set.

for every deployment, an episode long:
    put forward   the newest policy, if its whole-episode dreams pass the screen
    deploy        it in few environments, what is certified in the others, else S_0; the governor watches
    settle        certify it, let it go on, or recall it, by its own episodes

Learning goes on as it would: what acts is a copy that does not change during a deployment.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.agents.algorithms import Role
from actsafe.agents.base import Agent, Deployed, Forecasts, Learner, Newest, Policy, Promise
from actsafe.agents.phases import Phase
from actsafe.agents.safe_set.archive import Counts
from actsafe.agents.safe_set.learner import GuardedLearner
from actsafe.agents.safe_set.policy import SeedFunction, seed_function
from actsafe.agents.safe_set.screen import Dreamt
from actsafe.agents.safe_set.settings import SafeSetSettings
from actsafe.agents.safe_set.state import ROLES, GuardedState, SafeSet
from actsafe.data.rows import Rows

DOES_NOT_PROMISE = (
    "That a screen sees what is wrong with a policy: it refuses and ranks, and certifies nothing.",
    "Anything about a single episode: what is bounded is the share of episodes over budget.",
    "Anything about a policy that is deployed later: a candidate may be over budget in the episodes that it is tried "
    "in, before it is recalled.",
    "That the governor always acts in time: what an episode costs once it is taken over is estimated.",
)


@runtime_checkable
class Deployable(Protocol):
    """What an agent gives for its policies to be deployed from a safe set."""

    def deployable(self, state: Any, role: Role) -> Any:
        """The weights that the policy with this role acts with, of one seed: a pytree of arrays, alike for all
        roles."""
        ...

    def deployed(self, weights: Any) -> Policy:
        """What acts by these weights."""
        ...

    def dreamt(
        self,
        weights: Any,
        observations: Array,
        limit: Float[Array, ""],
        settings: SafeSetSettings,
        key: PRNGKeyArray,
    ) -> Dreamt:
        """Whole episodes of the policy, in the model that its weights come with."""
        ...

    def largest_uncertainty(self, weights: Any, rows: Rows, key: PRNGKeyArray) -> Float[Array, ""]:
        """Of the model, on recorded sequences (batch, time)."""
        ...


@dataclasses.dataclass(frozen=True)
class GuardedAgent(Agent):
    """An agent whose policies are deployed from a safe set."""

    inner: Any
    """An `Agent` that is `Deployable`."""
    safe_set: SafeSetSettings
    seed: SeedFunction

    @classmethod
    def around(cls, inner: Agent, settings: SafeSetSettings) -> "GuardedAgent":
        """`inner`, guarded; raises ValueError where it has no policies that could be."""
        if not isinstance(inner, Deployable):
            raise ValueError(
                f"safe_set: got parts that are on, but a {type(inner).__name__} has no learned policies to deploy; "
                "switch them off"
            )
        seed = seed_function(settings.seed_policy, inner.spec.action_dim)
        return cls(inner.spec, inner.algorithm, inner.settings, inner.schedule, inner, settings, seed)

    is_certifying = True  # pyright: ignore[reportAssignmentType]

    @property
    def keeps_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.keeps_rows

    @property
    def num_seen(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.num_seen

    @property
    def usual_episodes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.usual_episodes

    @property
    def usual_horizon(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.usual_horizon

    @property
    def does_not_promise(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return DOES_NOT_PROMISE

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.inner.tasks

    @property
    def num_ticks_at_once(self) -> int:
        return self.inner.num_ticks_at_once

    @property
    def ticks_per_deployment(self) -> int | None:
        return self.spec.num_decisions + 1

    def role(self, phase: Phase) -> Role:
        """As the algorithm has it, but that S_0 may take the place of random actions."""
        is_seeded = phase is Phase.WARM_UP and self.safe_set.start == "seed"
        return Role.SEED if is_seeded else self.inner.role(phase)

    def acting_part(self, state: GuardedState) -> Any:
        """The safe set."""
        return GuardedState(jax.tree.map(lambda leaf: None, state.inner), state.safe_set)

    def learner(self, num_envs: int, num_seeds: int) -> Learner:
        return GuardedLearner(self, num_envs, num_seeds)

    def operations(self, num_steps: int) -> float:
        return self.inner.operations(num_steps)

    def predict_video(self, state: GuardedState, rows: Any, num_seen: int, key: PRNGKeyArray) -> Any:
        return self.inner.predict_video(state.inner, rows, num_seen, key)

    def may_exploit(self, learned: Mapping[str, Any]) -> bool:
        return self.inner.may_exploit(learned)

    def predicted(self, role: Role, learned: Mapping[str, Any], decided: float | None) -> list[dict[str, Any]]:
        return self.inner.predicted(role, learned, decided)

    def forecasts(
        self, learner: Any, state: GuardedState, episodes: Sequence[Any], *, horizon: int, key: Any
    ) -> Forecasts:
        return self.inner.forecasts(learner.inner, state.inner, episodes, horizon=horizon, key=key)

    def promise(self, learner: Any, state: GuardedState, newest: Newest) -> Promise:
        """Of the policy that is deployed for the task, from where episodes begin: the counts of its own episodes."""
        return Promise(
            "counted in real episodes of the policy that would be deployed, the governor's fallbacks included",
            self.spec.num_decisions,
            "That is the whole episode, from its beginning.",
            tuple(() for _ in newest.learned),
            {"archive_size": self.safe_set.archive_size, "seed_policy": self.safe_set.seed_policy},
            self.deployed(state),
        )

    def deployed(self, state: GuardedState) -> tuple[Deployed, ...]:
        """By seed, the newest certified policy of the task with its counts, or S_0 where there is none."""
        are_learned, counts = jax.device_get(certified_counts(state, Role.TASK))
        tolerance = self.safe_set.tolerance
        return tuple(
            Deployed(True, int(episodes), int(over), int(taken), tolerance)
            if is_learned
            else Deployed(False, 0, 0, 0, tolerance)
            for is_learned, episodes, over, taken in zip(
                are_learned, counts.episodes, counts.over, counts.taken_over, strict=True
            )
        )


def certified_counts(state: GuardedState, role: Role) -> tuple[Any, Counts]:
    """By seed: whether a policy of this role is certified, and the counts of the newest."""

    def one(safe_set: SafeSet) -> tuple[Any, Counts]:
        place, is_any = safe_set.archive.newest(ROLES.index(role))
        return is_any, jax.tree.map(lambda leaf: leaf[place], safe_set.archive.counts)

    return jax.vmap(one)(state.safe_set)
