"""Another library's algorithm learns on our environments as they are. Runs where stable-baselines3 is installed.

pip install stable-baselines3
pytest tests/optional/test_stable_baselines3.py
"""

import gymnasium
import numpy as np
import pytest

import actsafe  # noqa: F401, registers the environments

# What other libraries warn about is theirs to mend.
pytestmark = pytest.mark.filterwarnings("default")

NUM_STEPS = 2000


@pytest.fixture
def algorithms():
    """The library, asked for inside a test so that what its import warns about is no error."""
    return pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed (optional)")


def weights(model):
    return {name: value.detach().numpy().copy() for name, value in model.policy.state_dict().items()}


@pytest.mark.parametrize("options", [{"observation": "state"}, {"image_size": 64}], ids=["state", "pixels"])
def test_its_checker_is_content(algorithms, options):
    from stable_baselines3.common.env_checker import check_env  # noqa: PLC0415

    check_env(gymnasium.make("actsafe/PointGotoGoal-v0", **options).unwrapped)


@pytest.mark.parametrize(
    ("policy", "options"),
    [("MlpPolicy", {"observation": "state"}), ("CnnPolicy", {"image_size": 64})],
    ids=["state", "pixels"],
)
def test_ppo_trains_on_an_unchanged_environment(algorithms, policy, options):
    env = gymnasium.make("actsafe/PointGotoGoal-v0", **options)
    model = algorithms.PPO(policy, env, n_steps=500, batch_size=100, n_epochs=2, seed=0, device="cpu")
    before = weights(model)
    model.learn(NUM_STEPS)
    after = weights(model)
    assert model.num_timesteps == NUM_STEPS
    assert [episode["l"] for episode in model.ep_info_buffer] == [1000, 1000], "two whole episodes"
    assert all(np.all(np.isfinite(value)) for value in after.values())
    assert any(np.any(value != before[name]) for name, value in after.items())
    observation, _ = env.reset(seed=1)
    action, _ = model.predict(observation)
    assert action in env.action_space
    env.close()
