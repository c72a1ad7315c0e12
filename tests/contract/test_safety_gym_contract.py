"""What the Safety-Gym environments promise: Gymnasium's own checks, and that a batch is its members."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from actsafe.envs.gymnasium_safety_gym import SafetyGymEnv, SafetyGymVectorEnv
from actsafe.envs.registration import register

register()

IDS = [
    f"actsafe/{robot}{task}{suffix}-v0"
    for robot in ("Point", "Doggo")
    for task in ("GotoGoal", "PressButtons", "PushBox")
    for suffix in ("", "Sparse")
]
SMALL = {"image_size": 16, "render_size": 24, "num_samples": 1}
# Gymnasium advises against unbounded observations, but nothing bounds an accelerometer.
UNBOUNDED = ".*A Box observation space (minimum|maximum) value is"
INFO = {"cost", "cost_hazards", "cost_vases", "cost_pillars", "goals_met", "is_broken"}


def vector(num_envs, **options):
    return SafetyGymVectorEnv(num_envs, **{"observation": "state", **options})


@pytest.mark.parametrize("name", IDS)
def test_gymnasiums_checker_is_content_with_state(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=UNBOUNDED)
        check_env(gymnasium.make(name, observation="state").unwrapped, skip_render_check=True)


def test_gymnasiums_checker_is_content_with_pixels():
    """One of all: they are made by the same code, and each is half a minute to compile."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("actsafe/DoggoPressButtonsSparse-v0", render_mode="rgb_array", **SMALL).unwrapped)


def test_pixels_are_what_the_robot_sees():
    """Its own red body fills the lower middle of the picture, sky the top; the state is not in it."""
    env = SafetyGymEnv(image_size=32, num_samples=1)
    observation, _ = env.reset(seed=3)
    assert (observation.shape, observation.dtype) == ((32, 32, 3), np.uint8)
    assert env.observation_space.contains(observation)
    red, green, blue = observation.astype(int)[28:, 12:20].reshape(-1, 3).mean(axis=0)
    assert red > 200
    assert green < 30
    assert blue < 30
    sky = observation.astype(int)[:4].reshape(-1, 3).mean(axis=0)
    np.testing.assert_allclose(sky, (89, 97, 172), atol=25)


def test_a_press_is_seen_at_once():
    """The lit button is green. The robot is put onto it: the step that presses it already shows all buttons in pink."""
    env = SafetyGymEnv("Point", "PressButtons", observation="state", action_noise=0.0, num_vases=0)
    env.reset(seed=0)
    simulation = env._stage.batch.simulations[0]
    geoms = simulation.anatomy.button_geoms

    def is_green():
        return env.model.geom_rgba[geoms][:, 1] == 1.0

    (lit,) = np.flatnonzero(is_green())
    env.model.body_pos[env.model.body("robot").id, :2] = np.add(simulation.button(int(lit)), (0.15, 0.0))
    _, reward, *_, info = env.step(np.zeros(2))
    assert info["goals_met"] == 1
    assert reward > 0.5
    assert not np.any(is_green())


@pytest.mark.parametrize("seed", [3, [11, 5, 2**33]], ids=["one seed", "a list"])
@pytest.mark.parametrize("robot", ["Point", "Doggo"])
def test_a_batch_is_its_members(robot, seed):
    """Over three short episodes, autoresets included, against Gymnasium's own vector of single environments."""
    options = {"num_envs": 3, "observation": "state", "episode_length": 7, "action_repeat": 2}
    name = f"actsafe/{robot}PushBox-v0"
    ours = gymnasium.make_vec(name, vectorization_mode="vector_entry_point", **options)
    theirs = gymnasium.make_vec(name, vectorization_mode="sync", **options)
    assert isinstance(ours, SafetyGymVectorEnv)
    assert ours.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP is theirs.metadata["autoreset_mode"]
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    np.testing.assert_array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
    rng, num_ended = np.random.default_rng(0), 0
    for _ in range(15):
        actions = rng.uniform(-1.2, 1.2, ours.action_space.shape).astype(np.float32)
        mine, expected = ours.step(actions), theirs.step(actions)
        for own, other in zip(mine[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(own, other)
        num_ended += int(np.sum(mine[3]))
        assert {key for key in mine[4] if not key.startswith("_")} == INFO
        for key in INFO:
            mask = mine[4][f"_{key}"]
            np.testing.assert_array_equal(mask, expected[4].get(f"_{key}", np.zeros(3, bool)))
            np.testing.assert_array_equal(mine[4][key][mask], np.asarray(expected[4].get(key, np.zeros(3)))[mask])
    # Seven environment steps at two a decision are four decisions; the fifth resets.
    assert num_ended == 3 * 3
    ours.close()
    theirs.close()


def test_a_batch_that_resets_in_the_same_step_is_its_members():
    """Over three short episodes, one of which ends early because its physics are broken."""
    options = {"num_envs": 3, "observation": "state", "episode_length": 7, "action_repeat": 2}
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    ours = gymnasium.make_vec("actsafe/PointPushBox-v0", **same_step, **options)
    theirs = gymnasium.make_vec(
        "actsafe/PointPushBox-v0", vectorization_mode="sync", vector_kwargs=same_step, **options
    )
    assert isinstance(ours, SafetyGymVectorEnv)
    assert ours.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP is theirs.metadata["autoreset_mode"]
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    rng, num_ended = np.random.default_rng(0), np.zeros(3, int)
    for tick in range(12):
        if tick == 2:
            for each in (ours.batch.simulations[1], theirs.envs[1].unwrapped):
                each.data.qvel[0] = np.inf
        actions = rng.uniform(-1.2, 1.2, ours.action_space.shape).astype(np.float32)
        mine, expected = ours.step(actions), theirs.step(actions)
        for own, other in zip(mine[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(own, other)
        ended = mine[2] | mine[3]
        num_ended += ended
        assert ("final_obs" in mine[4]) == np.any(ended)
        for info, others, mask in (
            (mine[4], expected[4], ~ended),
            (mine[4].get("final_info", {}), expected[4].get("final_info", {}), ended),
        ):
            for key in INFO & info.keys():
                np.testing.assert_array_equal(info[f"_{key}"], mask)
                np.testing.assert_array_equal(info[key][mask], np.asarray(others.get(key, np.zeros(3)))[mask])
        for number in np.flatnonzero(ended):
            np.testing.assert_array_equal(mine[4]["final_obs"][number], expected[4]["final_obs"][number])
            assert set(mine[4]["final_info"]) == {name for key in INFO for name in (key, f"_{key}")}
    # Four decisions an episode; 3 + 4 + 4 where the first one broke.
    np.testing.assert_array_equal(num_ended, [3, 3, 3])
    ours.close()
    theirs.close()


def test_the_number_of_threads_changes_nothing():
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (20, 5, 2))
    runs = []
    for num_threads in (1, 3):
        envs = vector(5, num_threads=num_threads)
        envs.reset(seed=1)
        runs.append([envs.step(action)[:2] for action in actions])
        envs.close()
    for (first, first_rewards), (second, second_rewards) in zip(*runs, strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first_rewards, second_rewards)


def test_a_broken_simulation_ends_alone():
    """One robot's speed is made infinite: its episode terminates with a cost, the others go on, and it starts anew."""
    envs, reference = vector(3, action_noise=0.0), vector(3, action_noise=0.0)
    for each in (envs, reference):
        each.reset(seed=5)
    envs.batch.simulations[1].data.qvel[0] = np.inf
    still = np.zeros((3, 2))
    observations, rewards, terminations, truncations, info = envs.step(still)
    expected = reference.step(still)
    np.testing.assert_array_equal(terminations, [False, True, False])
    np.testing.assert_array_equal(truncations, [False] * 3)
    np.testing.assert_array_equal(info["is_broken"], [False, True, False])
    assert (rewards[1], info["cost"][1]) == (-10.0, 1.0)
    assert np.all(np.isfinite(observations))
    for others in (0, 2):
        np.testing.assert_array_equal(observations[others], expected[0][others])
    *_, terminations, _, info = envs.step(still)
    assert not np.any(terminations)
    np.testing.assert_array_equal(info["_cost"], [True, False, True])
    _, rewards, terminations, _, info = envs.step(still)
    assert not np.any(terminations)
    assert rewards[1] > -1.0
    assert np.all(info["_cost"])


def test_copies_are_seeded_and_reset_by_themselves():
    envs = vector(3)
    start, _ = envs.reset(seed=[1, 2, 3])
    np.testing.assert_array_equal(start[1], SafetyGymEnv(observation="state").reset(seed=2)[0])
    again, _ = envs.reset(seed=[9, 9, 7], options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(again[[0, 2]], start[[0, 2]])
    assert np.any(again[1] != start[1])
    np.testing.assert_array_equal(again[1], SafetyGymEnv(observation="state").reset(seed=9)[0])


def test_info_tells_costs_apart():
    """Put into a hazard, the robot pays for the hazard alone, once for each of the steps an action is held."""
    env = SafetyGymEnv(observation="state", action_repeat=2, action_noise=0.0)
    env.reset(seed=0)
    hazard = env.model.body("hazards0").pos
    env.data.qpos[:2] = 0.0
    body = env.model.body("robot").id
    env.model.body_pos[body, :2] = hazard[:2]
    *_, info = env.step(np.zeros(2))
    assert (info["cost"], info["cost_hazards"], info["cost_vases"], info["cost_pillars"]) == (2.0, 2.0, 0.0, 0.0)


def test_exposes_mujoco():
    env = SafetyGymEnv(observation="state", motor_gear=3.0, floor_damping=0.001)
    assert env.model.actuator_gear[0, 0] == 3.0
    np.testing.assert_array_equal(env.model.dof_damping[:2], [0.001, 0.001])
    env.reset(seed=0)
    time = env.data.time
    env.step(np.zeros(2))
    assert env.data.time > time


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "GotoGaol"}, "task: got 'GotoGaol', expected one of .* did you mean 'GotoGoal'?"),
        ({"robot": "Dogo"}, "robot: got 'Dogo', expected one of .* did you mean 'Doggo'?"),
        ({"observation": "pixel"}, "observation: got 'pixel', expected one of .* did you mean 'pixels'?"),
        ({"render_camera": "tracking"}, "camera: got 'tracking', expected one of .* did you mean 'track'?"),
        ({"renderer": "opengl"}, "renderer: got 'opengl', expected one of"),
        ({"render_mode": "human"}, "render mode: got 'human'"),
        ({"image_size": 0}, "image_size: got 0, expected a whole number of at least 1"),
        ({"num_samples": 3}, r"num_samples: got 3, expected one of \[1, 4\]"),
        ({"action_noise": -1.0}, "action_noise: got -1.0"),
        ({"robot": "Doggo", "motor_gear": 3.0}, "motor_gear: got 3.0 for Doggo"),
        ({"num_hazards": 500}, "500|room|place"),
        ({"num_hazard": 2}, r"option: got 'num_hazard', expected one of .* did you mean 'num_hazards'\?"),
        ({"render_camara": "track"}, r"option: got 'render_camara', expected one of .* did you mean 'render_camera'\?"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named_with_what_was_expected(options, message):
    with pytest.raises(ValueError, match=message):
        SafetyGymEnv(**{"observation": "state", **options}).reset(seed=0)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros(3), r"got shape \(3,\); expected finite numbers in \[-1, 1\] of shape \(2,\)"),
        (np.array([0.0, np.nan]), r"got \[nan\]"),
        ("left", "not an array of real numbers"),
    ],
    ids=str,
)
def test_a_bad_action_raises_and_changes_nothing(action, message):
    env = SafetyGymEnv(observation="state")
    env.reset(seed=0)
    before = env.data.qpos.copy()
    with pytest.raises(ValueError, match=message):
        env.step(action)
    np.testing.assert_array_equal(env.data.qpos, before)
    envs = vector(2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="got"):
        envs.step(np.full((2, 2), np.nan))


def test_a_wrong_mask_or_number_of_seeds_is_refused():
    envs = vector(2)
    with pytest.raises(ValueError, match="got 3 seeds, expected 2"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match=r"reset_mask: got float64 of shape \(2,\), expected bool"):
        envs.reset(options={"reset_mask": np.ones(2)})
    with pytest.raises(ValueError, match=r"reset options: got \['hard'\]"):
        envs.reset(options={"hard": True})


def test_order_of_calls():
    env = SafetyGymEnv(observation="state", render_mode="rgb_array", episode_length=1, **SMALL)
    for act in (lambda: env.step(np.zeros(2)), env.render):
        with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
            act()
    env.reset(seed=0)
    assert env.step(np.zeros(2))[3] is True
    with pytest.raises(gymnasium.error.ResetNeeded, match="after the episode's end"):
        env.step(np.zeros(2))
    assert env.render().shape == (24, 24, 3)
    env.close()
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.reset(seed=0)
    envs = vector(2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        envs.step(np.zeros((2, 2)))
    envs.reset(seed=0)
    envs.close()
    with pytest.raises(RuntimeError, match="closed"):
        envs.step(np.zeros((2, 2)))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_pictures_of_a_batch_are_those_of_its_members(num_threads):
    """Three pictures by two threads are two shares of two, one of them filled up."""
    envs = vector(3, render_mode="rgb_array", num_threads=num_threads, **SMALL)
    envs.reset(seed=4)
    pictures = envs.render()
    assert len(pictures) == 3
    for seed, picture in zip((4, 5, 6), pictures, strict=True):
        single = SafetyGymEnv(observation="state", render_mode="rgb_array", **SMALL)
        single.reset(seed=seed)
        difference = np.abs(single.render().astype(int) - picture.astype(int))
        assert np.mean(difference > 1) < 0.01
    assert np.any(pictures[0] != pictures[1])
    envs.close()


def test_gymnasiums_wrappers_work():
    env = gymnasium.make("actsafe/PointGotoGoal-v0", observation="state", render_mode="rgb_array", **SMALL)
    wrapped = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.TimeLimit(env, 3))
    wrapped = gymnasium.wrappers.RenderCollection(wrapped)
    wrapped.reset(seed=0)
    for _ in range(3):
        *_, truncated, info = wrapped.step(wrapped.action_space.sample())
    assert truncated
    assert info["episode"]["l"] == 3
    assert len(wrapped.render()) == 4
