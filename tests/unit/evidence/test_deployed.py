"""What a certificate says of a policy that is deployed from a safe set, with counts by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from actsafe.agents.algorithms import ALGORITHMS, Role
from actsafe.agents.base import Deployed, Newest
from actsafe.agents.phases import Schedule
from actsafe.agents.safe_set.agent import GuardedAgent
from actsafe.agents.safe_set.archive import Counts
from actsafe.agents.safe_set.settings import SafeSetSettings
from actsafe.agents.safe_set.state import ROLES, GuardedState, SafeSet
from actsafe.envs.spec import EnvSpec
from actsafe.evidence.deployed import LARGEST_SHARE, Counted, against, unknown
from actsafe.evidence.screening import tally

BUDGET = (10.0,)


def came(episodes, over=0):
    return {"episodes": episodes, "over": over, "taken_over": 0, "costs": [1.0]}


def deployment(why="recalled", **counts):
    said = {"score": [1.0], "upper": [1.0], "margin": [0.0], "is_new": True, "candidate": why}
    return {**said, "came": counts}


def attempts(num_candidates, num_seeded=0):
    told = [deployment(candidate=came(1)) for _ in range(num_candidates)]
    return tally([*told, deployment("refused by the screen", seed=came(num_seeded))], BUDGET)


def counted(num_episodes, num_over=0, num_candidates=1, *, is_learned=True, num_seeded=0, tolerance=0.05):
    deployed = Deployed(is_learned, num_episodes, num_over, 0, tolerance)
    return Counted.of(0, deployed, attempts(num_candidates, num_seeded))


def test_the_bound_is_exact_for_one_attempt():
    """None of n over: (1 - p)^n = 0.025 at the bound, which is below 5 % from n = 72 on."""
    assert counted(72).largest_share == pytest.approx(1 - 0.025 ** (1 / 72))
    assert counted(72).largest_share < 0.05 < counted(71).largest_share


def test_every_attempt_has_its_part_of_the_error():
    """Of ten candidates that acted, each bound fails once in 200: (1 - p)^n = 0.0025."""
    found = counted(100, num_candidates=10)
    assert found.confidence == pytest.approx(0.995)
    assert found.largest_share == pytest.approx(1 - 0.0025 ** (1 / 100))
    assert found.estimate() == {
        "seed": 0,
        "policy": "newest certified policy of the task",
        "what": LARGEST_SHARE,
        "cost": found.largest_share,
        "bound": 0.05,
    }
    assert found.to_json()["attempts"]["candidates"] == 10


def test_a_promise_is_held_where_its_counts_vouch_for_it():
    assert list(against([counted(72)], [[]])) == list(unknown([counted(72)])) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (counted(71), "71 episodes of the newest certified policy of the task vouch for at most 5.06 % and not 5 %"),
        (counted(72, num_candidates=2), "vouch for at most"),
        (counted(500, 1), "1 of 500 episodes of the newest certified policy of the task were over a budget"),
        (counted(0, is_learned=False, num_seeded=500), "no policy of the task is certified"),
        (counted(500, tolerance=0.0), "and not 0 %"),
    ],
)
def test_what_counts_do_not_vouch_for_is_conditional(found, said):
    assert not list(against([found], [[]]))
    (reason,) = unknown([found])
    assert said in reason


def test_seed_policies_have_the_counts_of_the_record():
    found = counted(0, is_learned=False, num_seeded=500, num_candidates=7)
    assert (found.num_episodes, found.num_over, found.confidence) == (500, 0, 0.95)


def test_a_policy_that_broke_its_budget_too_often_is_refused():
    (reason,) = against([counted(20, 2)], [[]])
    assert reason == (
        "2 of 20 episodes of the newest certified policy of the task were over a budget (seed 0), more than is allowed"
    )
    assert not list(against([counted(20, 1)], [[]])), "one in twenty is allowed"


def test_the_newest_epoch_speaks_against_a_promise_but_for_its_candidates():
    newest = [[deployment(candidate=came(1, over=1), certified=came(9))]]
    assert not list(against([counted(100)], newest))
    newest[0].append(deployment(certified=came(8, over=1), seed=came(1)))
    assert list(against([counted(100)], newest)) == [
        "1 of 18 episodes of the newest epoch that no candidate began were over a budget"
    ]


def guarded_state(role) -> GuardedState:
    """Of two seeds: in the first a policy of that role, certified after 40 episodes, 2 over and 3 taken over."""
    weights, first = jnp.ones(2, jnp.float32), jnp.zeros((1, 3), jnp.float32)
    empty = SafeSet.empty(weights, SafeSetSettings(), first, 1)
    episodes, over, taken_over = (jnp.int32(n) for n in (40, 2, 3))
    counts = Counts(episodes, episodes, over, taken_over, jnp.array([90.0], jnp.float32))
    archive = empty.archive.add(weights, jnp.int32(ROLES.index(role)), counts)
    full = eqx.tree_at(lambda safe_set: safe_set.archive, empty, archive)
    return GuardedState(None, jax.tree.map(lambda *leaves: jnp.stack(leaves), full, empty))


def guarded_agent() -> GuardedAgent:
    spec, settings = EnvSpec("own", (3,), 1, ("cost",), BUDGET, 50), SafeSetSettings()
    return GuardedAgent(spec, ALGORITHMS["actsafe"], None, Schedule(), None, settings, lambda seen: seen)


def test_an_agent_promises_the_counts_of_its_newest_certified_policy():
    newest = Newest(Role.TASK, [{}, {}], lambda: None, jax.random.split(jax.random.key(0)))
    promise = guarded_agent().promise(None, guarded_state(Role.TASK), newest)
    assert promise.deployed == (Deployed(True, 40, 2, 3, 0.05), Deployed(False, 0, 0, 0, 0.05))
    assert (promise.estimates, promise.horizon) == (((), ()), 50)


def test_a_certified_policy_of_exploration_is_not_deployed_for_the_task():
    first, _ = guarded_agent().deployed(guarded_state(Role.EXPLORATION))
    assert not first.is_learned
