"""The compiled side of a guarded agent: deployments, one after the other."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode, EpochLearner, Policy
from actsafe.agents.phases import Phase
from actsafe.agents.safe_set import canary
from actsafe.agents.safe_set.episodes import Begun, episodes_of, joined, outcomes_of
from actsafe.agents.safe_set.policy import GuardedPolicy
from actsafe.agents.safe_set.screen import Forecast, forecast_of
from actsafe.agents.safe_set.state import ROLES, GuardedState, Outcomes, SafeSet, put_forward, settled
from actsafe.agents.seeds import over_seeds

LEARNED = (Role.EXPLORATION, Role.TASK)
"""The roles of policies that are learned: these alone are guarded."""


class GuardedLearner:
    """A learner whose policies act from the safe set. Every state has a leading axis seed."""

    def __init__(self, agent: Any, num_envs: int, num_seeds: int) -> None:
        self.agent, self.num_envs, self.num_seeds = agent, num_envs, num_seeds
        self.inner = agent.inner.learner(num_envs, num_seeds)
        here, settings, budgets = agent.spec, agent.safe_set, agent.spec.budgets
        first = jnp.zeros((num_envs, *here.observation_shape), here.observation_dtype)

        def init(state: Any) -> SafeSet:
            return SafeSet.empty(agent.inner.deployable(state, Role.TASK), settings, first, len(budgets))

        def forecast(state: Any, safe_set: SafeSet, role: Role, rows: Any, key: Any) -> Forecast:
            weights, (known_key, dream_key) = agent.inner.deployable(state, role), jax.random.split(key)
            limit = settings.screen.unknown_factor * agent.inner.largest_uncertainty(weights, rows, known_key)
            found = agent.inner.dreamt(weights, safe_set.first, limit, settings, dream_key)
            said = forecast_of(found, settings.screen)
            return jax.tree.map(lambda value: jnp.where(safe_set.has_first, value, jnp.inf), said)

        def put(safe_set: SafeSet, state: Any, role: Role, said: Forecast) -> SafeSet:
            weights = agent.inner.deployable(state, role)
            return put_forward(safe_set, weights, ROLES.index(role), said, settings, budgets)

        self.unasked = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_seeds), Forecast.none(len(budgets)))
        """What a screen says that is switched off."""
        self._init = eqx.filter_jit(over_seeds(init, num_seeds))
        self._forecast = eqx.filter_jit(over_seeds(forecast, num_seeds))
        self._put = eqx.filter_jit(over_seeds(put, num_seeds))
        self._settle = eqx.filter_jit(
            over_seeds(lambda before, came: settled(before, came, settings, budgets), num_seeds)
        )
        self._deployable = eqx.filter_jit(over_seeds(agent.inner.deployable, num_seeds))
        self._newest = eqx.filter_jit(over_seeds(self._newest_of, num_seeds))

    def init(self, keys: Key[Array, " seed"]) -> GuardedState:
        inner = self.inner.init(keys)
        return GuardedState(inner, self._init(inner))

    def policy(self, state: GuardedState, mode: ActMode) -> Policy:
        """For the task: the newest certified policy, else S_0. A guarded policy acts as it was deployed, by draws."""
        if mode.role is Role.UNIFORM:
            return self.inner.policy(state.inner, mode)
        role = mode.role if mode.role in LEARNED else None
        _, is_any = found = self._newest(state.safe_set, role)
        can_act = np.asarray(is_any) & (role is not None)
        levels = jnp.where(can_act, canary.CERTIFIED, canary.SEED)
        return self.guarded(state.safe_set, found, levels)

    def guarded(self, safe_set: SafeSet, certified: Any, levels: Any, candidate: Any = None) -> GuardedPolicy:
        """What acts in environments with these levels; `certified` are weights, and whether there are any.

        The candidate is that of the safe set, unless its weights are given.
        """
        agent = self.agent
        (weights, costs), has_certified = certified
        candidate = safe_set.candidate if candidate is None else candidate
        score = jnp.max(safe_set.forecast.score, axis=-1)
        settings = agent.safe_set
        return GuardedPolicy(
            agent.inner.deployed(candidate),
            agent.inner.deployed(weights),
            jnp.asarray(levels),
            has_certified,
            jnp.stack([jnp.full_like(score, jnp.nan), costs, score], axis=-1),
            jax.vmap(lambda own: own.reserve(settings.governor, agent.spec.budgets))(safe_set.aftermath),
            agent.spec.budgets,
            agent.seed,
            settings.seed_noise,
            settings.governor.is_on,
            agent.spec.action_dim,
        )

    def newest(self, safe_set: SafeSet) -> Any:
        """What is certified, of any role."""
        return self._newest(safe_set, None)

    def _newest_of(self, safe_set: SafeSet, role: Role | None) -> Any:
        """The weights certified last and the mean cost of their episodes, and whether there are any."""
        place, is_any = safe_set.archive.newest(None if role is None else ROLES.index(role))
        counts = jax.tree.map(lambda leaf: leaf[place], safe_set.archive.counts)
        costs = jnp.max(counts.cost) / jnp.maximum(counts.episodes, 1)
        return (safe_set.archive.at(place), costs), is_any

    def epoch(self, state: GuardedState, num_updates: int, keys: Key[Array, " seed"], phase: Phase) -> "GuardedEpoch":
        return GuardedEpoch(self, state, num_updates, keys, phase)

    def compile_ahead(self, state: GuardedState, buffer: Any, phase: Phase) -> None:
        self.inner.compile_ahead(state.inner, buffer, phase)

    def forecast(self, state: GuardedState, buffer: Any, role: Role, keys: Key[Array, " seed"]) -> Forecast:
        """What the newest policies' dreams say; infinite where there is nothing to dream from."""
        split = jax.vmap(jax.random.split, out_axes=1)(keys)
        rows = self.inner.sample(buffer, split[0])
        if rows is None:
            unknown = jnp.full((self.num_seeds, len(self.agent.spec.budgets)), jnp.inf, jnp.float32)
            return Forecast(unknown, unknown, unknown[:, 0])
        return self._forecast(state.inner, state.safe_set, role, rows, split[1])

    def put_forward(self, state: GuardedState, role: Role, forecast: Forecast) -> SafeSet:
        return self._put(state.safe_set, state.inner, role, forecast)

    def deployable(self, state: Any, role: Role) -> Any:
        """The newest weights of the policies with this role."""
        return self._deployable(state, role)

    def settle(self, safe_set: SafeSet, outcomes: Outcomes) -> Any:
        return self._settle(safe_set, jax.tree.map(jnp.asarray, outcomes))


class UnderWay(NamedTuple):
    """A deployment; arrays have the leading axis seed."""

    role: Role
    is_new: Bool[np.ndarray, " seed"]
    """Whether a candidate was put forward for it."""
    stages: Int[np.ndarray, " seed"]
    """Of the candidates."""
    certified: Any
    """Weights, and whether there are any."""
    levels: Int[np.ndarray, "seed environment"]
    policy: GuardedPolicy


class GuardedEpoch(EpochLearner):
    """Learning during an epoch, in which every deployment is settled before the next one begins."""

    def __init__(
        self, learner: GuardedLearner, state: GuardedState, num_updates: int, keys: Key[Array, " seed"], phase: Phase
    ) -> None:
        super().__init__(learner)
        self._learner = learner
        self._inner = learner.inner.epoch(state.inner, num_updates, keys, phase)
        self._safe_set = state.safe_set
        self._blocks: list[Mapping[str, np.ndarray]] = []
        self._mode: ActMode | None = None
        self._under_way: UnderWay | None = None
        self.deployments: list[list[Mapping[str, Any]]] = [[] for _ in range(learner.num_seeds)]

    @property
    def agent(self) -> GuardedState:  # pyright: ignore[reportIncompatibleVariableOverride]
        return GuardedState(self._inner.agent, self._safe_set)

    @property
    def num_updates(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._inner.num_updates

    def begin_deployment(self, mode: ActMode, buffer: Any, keys: Key[Array, " seed"]) -> None:
        """Settle the deployment before; put a candidate forward, and say who acts where."""
        self._settle()
        learner, settings = self._learner, self._learner.agent.safe_set
        self._mode, self._under_way = mode, None
        if mode.role not in LEARNED:
            return
        is_new = np.asarray(jax.vmap(lambda own: own.is_free(ROLES.index(mode.role)))(self._safe_set))
        if is_new.any():
            said = learner.forecast(self.agent, buffer, mode.role, keys) if settings.screen.is_on else learner.unasked
            self._safe_set = learner.put_forward(self.agent, mode.role, said)
        certified = learner.newest(self._safe_set)
        stages = np.asarray(self._safe_set.stage)
        levels = canary.assigned(settings.canary, stages, np.asarray(certified[1]), learner.num_envs)
        policy = learner.guarded(self._safe_set, certified, levels)
        self._under_way = UnderWay(mode.role, is_new, stages, certified, levels, policy)

    @property
    def policy(self) -> Policy:
        """What acts now: during a deployment always the same, where it is frozen."""
        if self._mode is None:
            raise RuntimeError("no deployment has begun; call begin_deployment first")
        if self._under_way is None:
            return self._learner.policy(self.agent, self._mode)
        if self._learner.agent.safe_set.is_frozen:
            return self._under_way.policy
        newest = self._learner.deployable(self._inner.agent, self._mode.role)
        return self._learner.guarded(self._safe_set, self._under_way.certified, self._under_way.levels, newest)

    def catch_up(self, buffer: Any, num_rows: int, num_steps: int) -> None:
        self._inner.catch_up(buffer, num_rows, num_steps)

    def record(self, block: Any) -> None:
        """Take in what a block of the deployment brought."""
        if not self._blocks:
            first = jnp.asarray(block.observations()[:, :, 0])
            has_first = jnp.ones_like(self._safe_set.has_first)
            first = first.astype(self._safe_set.first.dtype)
            self._safe_set = eqx.tree_at(lambda own: (own.first, own.has_first), self._safe_set, (first, has_first))
        level = block.decisions.get("level", np.full(block.is_first.shape, -1, np.int32))
        kept = {"costs": block.costs, "is_first": block.is_first, "is_last": block.is_last, "level": level}
        self._blocks.append(kept)

    def finish(self, buffer: Any, rows: Any, num_rows: int, num_steps: int) -> Mapping[str, Any]:
        self._settle()
        return self._inner.finish(buffer, rows, num_rows, num_steps)

    def _settle(self) -> None:
        """Judge what acted, by its episodes."""
        (blocks, self._blocks), under_way = (self._blocks, []), self._under_way
        if under_way is None or not blocks:
            return
        learner, rows = self._learner, joined(blocks)
        by_seed = [
            [each for env in range(learner.num_envs) for each in episodes_of(_of_one(rows, seed, env))]
            for seed in range(learner.num_seeds)
        ]
        outcomes = outcomes_of(by_seed, learner.agent.spec.budgets, 2 * learner.num_envs)
        forecast, margin = self._safe_set.forecast, self._safe_set.margin
        self._safe_set, verdict = learner.settle(self._safe_set, outcomes)
        known = jax.device_get((forecast, margin, verdict))
        for seed, own in enumerate(self.deployments):
            own.append(self._told(under_way, seed, by_seed[seed], *jax.tree.map(lambda leaf, n=seed: leaf[n], known)))
        self._under_way = None

    def _told(
        self,
        under_way: "UnderWay",
        seed: int,
        episodes: list[Begun],
        forecast: Forecast,
        margin: np.ndarray,
        verdict: canary.Verdict,
    ) -> dict[str, Any]:
        """One deployment of one seed: who acted and why, what was forecast, and what came."""
        stage = int(under_way.stages[seed])
        names, budgets = canary.LEVELS, self._learner.agent.spec.budgets
        came = {}
        for level, name in enumerate(names):
            own = [each for each in episodes if each.level == level]
            if own:
                came[name] = {
                    "episodes": len(own),
                    "over": sum(not np.all(each.cost <= np.asarray(budgets)) for each in own),
                    "taken_over": sum(len(each.taken) > 0 for each in own),
                    "costs": np.mean([each.cost for each in own], axis=0).tolist(),
                }
        if stage == canary.NONE:
            why = "refused by the screen"
        elif verdict.is_recalled:
            why = "recalled"
        else:
            why = "certified" if verdict.is_certified else "goes on"
        return {
            "role": under_way.role.value,
            "stage": None if stage == canary.NONE else stage,
            "is_new": bool(under_way.is_new[seed]),
            "candidate": why,
            "score": forecast.score.tolist(),
            "upper": forecast.upper.tolist(),
            "share_unknown": float(forecast.share_unknown),
            "margin": margin.tolist(),
            "came": came,
        }


def _of_one(rows: Mapping[str, np.ndarray], seed: int, env: int) -> dict[str, np.ndarray]:
    return {name: values[seed, env] for name, values in rows.items()}
