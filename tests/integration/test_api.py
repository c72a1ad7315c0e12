"""The front door: train, look, load, act; both kinds of agent, and a problem that nobody knows of."""

import base64
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

import actsafe
from actsafe.cli.main import main
from actsafe.training.settings import ConfigError
from actsafe.training.storage import StorageError

EXAMPLES = Path(__file__).parents[2] / "examples"
COSTS = ["cost_speed", "cost_torque"]


@pytest.fixture(scope="module", autouse=True)
def own_modules():
    """The folder of the examples on Python's path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def planned(folders):
    """Of the Gaussian-process agent, in a problem that it knows."""
    config = dataclasses.replace(
        actsafe.presets.tiny(), schedule=actsafe.Schedule(seed_decisions=1, expansion=1), options={"num_decisions": 12}
    )
    return actsafe.train(config, folders / "planned", seed=3)


@pytest.fixture(scope="module")
def dreamt(folders):
    """Of the world-model agent, in a Gymnasium environment of one's own whose actions are not in [-1, 1]."""
    config = dataclasses.replace(
        actsafe.presets.vision_tiny(),
        algorithm="actsafe_released",
        env="arm:Arm-v0",
        task=None,
        observation="state",
        action_repeat=None,
        budget=(5.0, 10.0),
        options={"cost_names": COSTS, "max_episode_steps": 14},
        schedule=actsafe.Schedule(warm_up=2, expansion=0, exploitation=2, episodes_per_epoch=2),
        evaluate_every=0,
    )
    return actsafe.train(config, folders / "dreamt", progress=False)


COMPARING = """
import sys
import jax, numpy as np
import actsafe
from actsafe.training.loop import make_loop

for path, task in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    policy = actsafe.load(path, task=task or None)
    loop, num_envs = make_loop(policy.config), policy.config.num_envs
    # Two episodes of every environment, with what is between them.
    found, _ = loop.evaluate(policy.state, policy.task, 2 * num_envs, epoch=policy.epoch, stream=policy.stream)
    rows, said = jax.tree.map(lambda leaf: np.asarray(leaf)[0], found.rows), found.decisions
    num_ticks = rows.reward.shape[1]
    assert num_ticks == 2 * (policy.spec.num_decisions + 1) and np.any(rows.action)
    memory = policy.begin(num_envs)
    for tick in range(num_ticks - 1):
        brought = {"reward": rows.reward[:, tick], "costs": rows.costs[:, tick], "is_first": rows.is_first[:, tick]}
        decision, memory = policy.act(rows.observation[:, tick], memory, **brought)
        # No action led to a first row.
        led_here = ~rows.is_first[:, tick + 1]
        expected = policy.spec.own_actions(rows.action[:, tick + 1])
        np.testing.assert_array_equal(decision.action[led_here], expected[led_here])
        for what in ("is_certified", "is_fallback", "predicted_cost", "value"):
            np.testing.assert_array_equal(getattr(decision, what), said[what][0, :, tick])
    if num_envs == 1:
        # The cost is known from the state, so that observations are all that a planner needs.
        memory, own = policy.begin(), []
        for observation in rows.observation[0, : policy.spec.num_decisions]:
            decision, memory = policy.act(observation, memory)
            own.append(decision.action)
        assert own[0].shape == (1,) and own[0].dtype == np.float32
        np.testing.assert_array_equal(np.stack(own), np.float32(rows.action[0, 1 : len(own) + 1]))
"""


def test_a_loaded_policy_acts_as_evaluations_do(planned, dreamt):
    """In a process of its own: to the last bit this holds with the compiler options of users, not those of tests."""
    users = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    paths = [str(planned.path), "swing_up", str(dreamt.path), ""]
    found = subprocess.run(
        [sys.executable, "-c", COMPARING, *paths],
        capture_output=True,
        text=True,
        check=False,
        env={**users, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])},
    )
    assert found.returncode == 0, found.stderr


def test_actions_are_in_the_environments_own_range(dreamt):
    policy = actsafe.load(dreamt, is_greedy=False)
    env = gymnasium.make("arm:Arm-v0")
    observation, _ = env.reset(seed=0)
    memory, actions = policy.begin(key=jax.random.key(1)), []
    for _ in range(20):
        decision, memory = policy.act(observation, memory)
        actions.append(decision.action)
        observation, *_ = env.step(decision.action)
    assert all(env.action_space.contains(action) for action in actions)
    # Its torque goes up to 2: draws of a policy that has learned nothing fill more than [-1, 1].
    assert np.max(np.abs(actions)) > 1.0
    again, _ = policy.act(env.reset(seed=0)[0], policy.begin(key=jax.random.key(1)))
    np.testing.assert_array_equal(again.action, actions[0])


def test_what_a_policy_cannot_act_on_is_refused(planned, dreamt):
    policy = actsafe.load(planned)
    memory = policy.begin()
    for wrong in (np.zeros(2), np.zeros((1, 3)), np.array([1.0, 0.0, np.nan])):
        with pytest.raises(ValueError, match="expected finite numbers of shape"):
            policy.act(wrong, memory)
    with pytest.raises(ValueError, match="for every environment"):
        actsafe.load(dreamt).act(np.zeros(3), actsafe.load(dreamt).begin(2))
    with pytest.raises(ConfigError, match="unknown task 'fly'"):
        actsafe.load(planned, task="fly")
    with pytest.raises(ConfigError, match="unknown seed '4'; expected one of 3"):
        actsafe.load(planned, seed=4)
    with pytest.raises(StorageError, match="is not a run folder"):
        actsafe.load(planned.path / "nothing")


LOADING = """
import sys, numpy as np, gymnasium
def refuse(*args, **kwargs): raise AssertionError("an environment was made")
gymnasium.make = gymnasium.make_vec = refuse
import actsafe
policy = actsafe.load(sys.argv[1])
decision, memory = policy.act(np.zeros(3), policy.begin())
assert decision.action.shape == (1,)
assert "arm" not in sys.modules
"""


def test_loading_needs_neither_the_environment_nor_its_module(dreamt):
    found = subprocess.run(
        [sys.executable, "-c", LOADING, str(dreamt.path)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_a_run_says_what_it_came_to(planned, dreamt):
    assert planned.is_finished
    assert [row["epoch"] for row in planned.metrics] == [0, 1]
    assert planned.config.seeds == (3,)
    (found,) = planned.ledger.violations
    assert (found.num_episodes, found.constraint) == (1, "cost")
    # Clopper and Pearson by hand, no hit in one trial: (0, 1 - 0.025).
    assert found.interval == pytest.approx((0.0, 0.975))
    assert [found.constraint for found in dreamt.ledger.violations] == COSTS
    # The warm-up's random actions are not the agent's. Two environments have 102 ticks, and 15 of an episode: six whole
    # ones, and one that is cut off.
    assert [found.num_episodes for found in dreamt.ledger.violations] == [14, 14]
    (entry,) = dreamt.results
    assert entry["budgets"] == {"cost_speed": 5.0, "cost_torque": 10.0}
    assert "actsafe on pendulum, seeds [3], 1 of 1 epochs" in repr(planned)


def test_figures_are_matplotlibs_and_shown_by_notebooks(planned):
    figures = planned.figures()
    assert {"summary", "ledger"} <= set(figures)
    assert all(isinstance(figure, Figure) for figure in figures.values())
    shown = figures._repr_html_()
    images = [base64.b64decode(part.partition('"')[0]) for part in shown.split("base64,")[1:]]
    assert len(images) == len(figures)
    assert all(image.startswith(b"\x89PNG") for image in images)


def test_the_report_is_that_of_the_command(planned, tmp_path):
    path = planned.report(tmp_path / "page.html")
    assert main(["report", str(planned.path), "--out", str(tmp_path / "other.html")]) == 0
    assert path.read_text() == (tmp_path / "other.html").read_text()


def test_evaluating_a_policy_or_a_run_gives_the_same(planned, dreamt):
    by_run = {row["task"]: row for row in actsafe.evaluate(planned, episodes=1)}
    assert set(by_run) == {"swing_up", "keep_down"}
    assert by_run["keep_down"]["uncertified"] is not None
    (by_policy,) = actsafe.evaluate(actsafe.load(planned, task="keep_down"), episodes=1)
    assert by_policy == by_run["keep_down"]
    (row,) = actsafe.evaluate(dreamt.path, episodes=3)
    assert (row["seed"], row["episodes"], set(row["costs"])) == (0, 3, set(COSTS))
    with pytest.raises(ConfigError, match="episodes must be at least 1"):
        actsafe.evaluate(planned, episodes=0)


def test_training_again_goes_on_or_says_what_differs(planned, capsys):
    before = (planned.path / "metrics.jsonl").read_bytes()
    again = actsafe.train(planned.config, planned.path)
    assert capsys.readouterr().out == ""
    assert (again.path / "metrics.jsonl").read_bytes() == before
    with pytest.raises(ConfigError, match="seeds differ"):
        actsafe.train(planned.config, planned.path, seed=4)
    assert actsafe.resume(planned.path).is_finished


def test_progress_is_a_plain_line_an_epoch(tmp_path, capsys):
    config = dataclasses.replace(actsafe.presets.tiny(), options={"num_decisions": 6}, evaluate_every=0)
    actsafe.train(dataclasses.replace(config, schedule=actsafe.Schedule(1, expansion=2)), tmp_path / "run")
    lines = [line.split("  ")[:2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [["epoch 0 of 2", "seed"], ["epoch 1 of 2", "expansion"], ["epoch 2 of 2", "expansion"]]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"seed": 1, "seeds": (1, 2)}, "expected one of the two"),
        ({"seeds": (0, 0)}, "different numbers"),
        ({"seeds": (0, 1)}, "do not share a program"),
    ],
)
def test_seeds_that_cannot_be_are_refused(tmp_path, asked, said):
    config = actsafe.Config(env="Pendulum-v1", budget=1.0, options={"cost_names": ["cost"]})
    with pytest.raises(ConfigError, match=said):
        actsafe.train(config, tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


def test_settings_of_the_wrong_kind_are_refused_before_there_is_a_folder(tmp_path):
    for wrong in ({"budget": "5"}, {"num_envs": 10**23}, {"options": {"num_decisions": 0}}):
        with pytest.raises((ConfigError, TypeError)):
            actsafe.train(actsafe.Config(**wrong), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_planner_needs_data_before_it_plans(tmp_path):
    config = dataclasses.replace(actsafe.presets.tiny(), schedule=actsafe.Schedule(expansion=2))
    with pytest.raises(ConfigError, match=r"schedule\.seed_decisions must be at least 1, got 0"):
        actsafe.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_planner_refuses_a_second_cost_in_a_sentence(tmp_path):
    config = actsafe.Config(
        env="arm:Arm-v0", budget=5.0, options={"cost_names": COSTS}, agent=actsafe.GPAgentSettings()
    )
    with pytest.raises(ConfigError, match="plans of a Gaussian-process agent keep to one budget") as caught:
        actsafe.train(config, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_certificates_are_made_and_verified(planned):
    assert actsafe.calibrate(planned, episodes=1, horizon=2)["verdict"]
    content = actsafe.certify(planned)
    assert json.loads((planned.path / "certificate.json").read_text()) == content
    assert actsafe.verify(planned) == []
    altered = planned.path.parent / "altered.json"
    altered.write_text(json.dumps({**content, "standing": "held" if content["standing"] != "held" else "refused"}))
    assert actsafe.verify(planned, altered)
