"""Runs whose policies are deployed from a safe set: in the loop, stopped in the middle of a canary, and loaded."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import actsafe
from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode, Percept
from actsafe.agents.phases import Schedule
from actsafe.agents.safe_set.settings import ALL_PARTS, CanarySettings, ScreenSettings
from actsafe.training import runner
from actsafe.training.config import Config
from actsafe.training.presets import tiny, vision_tiny
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.settings import ConfigError

ADVISED = dataclasses.replace(
    ALL_PARTS, screen=ScreenSettings(is_advisory=True, num_particles=4), canary=CanarySettings(stages=(0.5, 0.5, 0.5))
)
"""Every candidate acts, through three deployments in one of two environments."""


def configured(safe_set=ADVISED, **changes):
    """Four epochs of a deployment each: a warm-up, two that explore, one of the task."""
    schedule = Schedule(warm_up=1, expansion=4)
    few = {"observation": "state", "schedule": schedule, "evaluate_every": 0, "evaluation_episodes": 2}
    return dataclasses.replace(vision_tiny(), **few, safe_set=safe_set, **changes)


@pytest.fixture(scope="module")
def whole(shared_programs, tmp_path_factory):
    path = tmp_path_factory.mktemp("safe-set") / "run"
    runner.train(path, configured(), command="train")
    return path


def deployments(path):
    return [row for epoch in RunFolder.open(path).rows("metrics") for row in epoch["deployments"]]


def test_a_candidate_goes_through_its_stages_epoch_by_epoch(whole):
    told = deployments(whole)
    assert [(row["stage"], row["is_new"], row["candidate"]) for row in told] == [
        (0, True, "goes on"),
        (1, False, "goes on"),
        (2, False, "certified"),
        (0, True, "goes on"),
    ]
    # Before anyone is certified S_0 acts beside the candidate, and afterwards the certified policy.
    assert [sorted(row["came"]) for row in told] == [["candidate", "seed"]] * 3 + [["candidate", "certified"]]
    assert all(part["episodes"] == 1 for row in told for part in row["came"].values())
    scores = [row["score"][0] for row in told]
    assert scores[0] == scores[1] == scores[2] and np.isfinite(scores).all() and scores[3] != scores[0]


def state_of(path):
    folder = RunFolder.open(path)
    trainer = Trainer(folder)
    with trainer.agent.precision():
        return trainer.newest()[1].agent


def test_a_run_stopped_in_the_middle_of_a_canary_goes_on_bit_for_bit(whole, tmp_path):
    def stop(rows):
        if rows[0]["epoch"] == 3:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        runner.train(path, configured(), command="train", on_epoch=stop)
    assert int(state_of(path).safe_set.stage[0]) == 2
    runner.resume(path, command="resume")
    for name in ("metrics.jsonl", "ledger.jsonl"):
        assert (path / name).read_bytes() == (whole / name).read_bytes(), name
    got, expected = jax.tree.leaves(state_of(path)), jax.tree.leaves(state_of(whole))
    assert len(got) == len(expected) > 20
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_the_task_has_no_certified_policy_so_that_the_seed_policy_is_evaluated(whole):
    # Those certified so far explore: for the task S_0 acts, and zero input costs nothing.
    (row,) = actsafe.evaluate(whole, episodes=2)
    assert row["costs"] == {"cost": 0.0} and row["fallbacks"] == 2 * 25
    policy = actsafe.load(whole)
    decision, _ = policy.act(np.array([0.0, -1.0, 0.0, 0.0, 0.0]), policy.begin())
    np.testing.assert_array_equal(decision.action, [0.0])
    assert bool(decision.is_fallback) and bool(decision.is_certified)


def test_a_certified_policy_acts_as_it_did_whatever_is_learned_meanwhile(whole):
    """A policy that explores, certified while the agent explored, is the same policy once the task's may act."""
    trainer = Trainer(RunFolder.open(whole))
    agent, learner = trainer.agent, trainer.loop.learner
    with agent.precision():
        state = trainer.newest()[1].agent
        certified = learner.newest(state.safe_set)
        one = jax.tree.map(lambda leaf: leaf[0], certified[0][0])
        seen = jnp.array([[0.1, -0.9, 0.1, 0.3, 0.2]], jnp.float32)
        percept = Percept(jnp.zeros(1, jnp.float32), jnp.zeros((1, 1), jnp.float32), jnp.ones(1, bool))

        def acted(policy):
            return policy.act(policy.begin(1, jax.random.key(1)), policy.encode(seen), percept)[0].action

        inner = jax.tree.map(lambda leaf: leaf[0], state.inner)
        explores, task = (
            agent.inner.policy(inner.policy_weights, ActMode(role)) for role in (Role.EXPLORATION, Role.TASK)
        )
        newest = agent.inner.deployed(agent.inner.deployable(inner, Role.EXPLORATION))
        np.testing.assert_array_equal(acted(newest), acted(explores))
        assert not np.array_equal(acted(newest), acted(task))
        # What is kept has no actor but its own.
        assert one.actors.vector.shape[0] == 1


def test_without_a_warm_up_the_run_begins_with_the_seed_policy_alone(shared_programs, tmp_path):
    seeded = dataclasses.replace(ALL_PARTS, start="seed", seed_noise=0.01)
    config = dataclasses.replace(configured(seeded), schedule=Schedule(warm_up=1, expansion=1))
    runner.train(tmp_path / "run", config, command="train")
    first, second = (row for row in RunFolder.open(tmp_path / "run").rows("metrics") if row["epoch"])
    assert first["role"] == "seed" and first["costs"] == {"cost": 0.0}
    # An untrained model expects costs everywhere: its policies do not pass, and S_0 goes on.
    assert [row["candidate"] for row in second["deployments"]] == ["refused by the screen"]
    assert list(second["deployments"][0]["came"]) == ["seed"]


def test_rows_have_a_safe_set_by_default_or_by_choice():
    small = vision_tiny()
    assert small.deployed_from == ALL_PARTS
    for name in ("actsafe_released", "greedy", "opax"):
        assert not dataclasses.replace(small, algorithm=name).deployed_from.is_on
    guarded = dataclasses.replace(small, algorithm="greedy", safe_set=ALL_PARTS)
    assert guarded.deployed_from.is_on and Config.from_json(guarded.to_json()) == guarded
    assert not tiny().deployed_from.is_on


def test_a_planner_is_refused_a_safe_set():
    with pytest.raises(ConfigError, match="checks every decision by itself and has no learned policies to deploy"):
        dataclasses.replace(tiny(), safe_set=ALL_PARTS)


EARLY = """
import gymnasium
import numpy as np


class Early(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 8))
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        seen = np.array([self.left, action[0]], np.float32)
        return seen, 1.0, self.left == 0, False, {"cost_near": 0.0, "cost_far": 0.5}


gymnasium.register("Early-v0", Early, max_episode_steps=12)
"""


def test_environments_that_end_early_and_two_costs(shared_programs, tmp_path, monkeypatch):
    """An episode is 3 to 7 decisions and a deployment 12: what it cuts off counts for what it cost until then."""
    (tmp_path / "early.py").write_text(EARLY)
    monkeypatch.syspath_prepend(tmp_path)
    config = dataclasses.replace(
        configured(dataclasses.replace(ADVISED, canary=CanarySettings(stages=(0.3,)))),
        env="early:Early-v0",
        task=None,
        num_envs=3,
        action_repeat=None,
        options={"cost_names": ["cost_near", "cost_far"]},
        budget=(1.0, 3.0),
        schedule=Schedule(warm_up=3, expansion=3, exploitation=3, episodes_per_epoch=3),
    )
    run = actsafe.train(config, tmp_path / "run", progress=False)
    told = deployments(tmp_path / "run")
    assert len(told) == 6 and {row["role"] for row in told} == {"exploration", "task"}
    for row in told:
        assert len(row["score"]) == len(row["margin"]) == 2
        # One environment in three for the candidate, and at least one whole episode and a second begun in each.
        assert row["came"]["candidate"]["episodes"] >= 2
        near, far = row["came"]["candidate"]["costs"]
        assert near == 0.0 and 0.5 <= far <= 3.5
        assert (row["candidate"] == "recalled") == bool(
            row["came"]["candidate"]["over"] or row["came"]["candidate"]["taken_over"]
        )
    # Half of 3 is the reserve: an episode is taken over once it has cost 1.5, which most do.
    assert sum(row["came"]["candidate"]["taken_over"] for row in told) > 0
    assert [found.constraint for found in run.ledger.violations] == ["cost_near", "cost_far"]
