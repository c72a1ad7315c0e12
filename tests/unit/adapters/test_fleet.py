"""Fleets by name, and other people's environments with all that can be wrong with them."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from actsafe.adapters.fleet import GymnasiumFleet, ProblemFleet, RepeatedAction, SafetyGymFleet, make_fleet


class Counter(gymnasium.Env):
    """Counts its steps: observes (episode, steps), pays the steps, costs a tenth of them, ends after `length`."""

    def __init__(self, length=3, dtype=np.float32, shape=(2,), **faults):
        self.length, self.faults, self.episode, self.count = length, faults, -1, 0
        low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
        self.observation_space = gymnasium.spaces.Box(low, high, shape, dtype)
        self.action_space = gymnasium.spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
        self.actions = []

    def _observe(self):
        if "observation" in self.faults and self.count == 2:
            return self.faults["observation"]
        if len(self.observation_space.shape) == 3:
            return np.full(self.observation_space.shape, self.count, self.observation_space.dtype)
        return np.array([self.episode, self.count], self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.count = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action):
        self.count += 1
        self.actions.append(np.array(action))
        is_faulty = self.count == 2
        reward = self.faults["reward"] if is_faulty and "reward" in self.faults else float(self.count)
        info = {"cost": self.count / 10.0, "late": 1.0, **(self.faults.get("info", {}) if is_faulty else {})}
        info = {key: value for key, value in info.items() if value is not None}
        return self._observe(), reward, self.count >= self.length, False, info


def fleet_of(*envs, mode=AutoresetMode.NEXT_STEP, **options):
    vector = SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=mode)
    return GymnasiumFleet(vector, **{"budgets": [1.0], "num_decisions": 3, **options})


def played(fleet, num_ticks):
    arrivals = [fleet.reset(0)]
    arrivals += [fleet.step(np.ones((fleet.num_envs, 2))) for _ in range(num_ticks)]
    return [np.stack(field) for field in zip(*arrivals, strict=True)]


def test_environments_may_end_at_different_times():
    """Episodes of 2 and 3 decisions have 3 and 4 rows."""
    sight, reward, costs, is_first, is_last = played(fleet_of(Counter(2), Counter(3)), 7)
    np.testing.assert_array_equal(sight[:, 0, 1], [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(sight[:, 1, 1], [0, 1, 2, 3, 0, 1, 2, 3])
    np.testing.assert_array_equal(sight[:, 0, 0], [0, 0, 0, 1, 1, 1, 2, 2])
    np.testing.assert_array_equal(reward, sight[..., 1])
    np.testing.assert_allclose(costs[..., 0], sight[..., 1] / 10.0, rtol=1e-6)
    np.testing.assert_array_equal(is_first, sight[..., 1] == 0)
    np.testing.assert_array_equal(is_last, sight[..., 1] == [[2, 3]])


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_modes_agree_where_episodes_end_together(mode):
    """A time limit: the final observation is seen, the first too, and no step is taken in between."""
    runs = (played(fleet_of(Counter(), Counter(), mode=each), 9) for each in (AutoresetMode.NEXT_STEP, mode))
    for expected, got in zip(*runs, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_nothing_is_lost_where_episodes_do_not_end_together(mode):
    """Environment 0 ends at 3. Its next first row comes after a step that pays 1, added to the 2 of the row after."""
    first = Counter(3)
    sight, reward, costs, is_first, is_last = played(fleet_of(first, Counter(5), mode=mode), 7)
    np.testing.assert_array_equal(sight[:, 0], [[0, 0], [0, 1], [0, 2], [0, 3], [1, 1], [1, 2], [1, 3], [2, 1]])
    np.testing.assert_array_equal(reward[:, 0], [0, 1, 2, 3, 0, 1 + 2, 3, 0])
    np.testing.assert_allclose(costs[:, 0, 0], reward[:, 0] / 10.0, rtol=1e-6)
    np.testing.assert_array_equal(is_first[:, 0], [True, False, False, False, True, False, False, True])
    np.testing.assert_array_equal(is_last[:, 0], [False, False, False, True, False, False, True, False])
    # The step nobody chose is the middle of [-2, 2] and [0, 1]; the others were the upper ends.
    np.testing.assert_array_equal(first.actions[3], [0.0, 0.5])
    np.testing.assert_array_equal(first.actions[4], [2.0, 1.0])
    np.testing.assert_array_equal(sight[:7, 1, 1], [0, 1, 2, 3, 4, 5, 1])


def test_an_episode_of_one_step_needs_next_step():
    fleet = fleet_of(Counter(1), Counter(5), mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match=r"environment 0 ended with the step that began it.*NEXT_STEP"):
        played(fleet, 3)


def test_actions_are_stretched_to_their_bounds():
    env = Counter()
    fleet = fleet_of(env)
    fleet.reset(0)
    fleet.step([[0.5, -1.0]])
    fleet.step([[-7.0, 0.0]])
    # -2 + 4 * 0.75 and 0; clipped to -1, hence -2, and the middle of [0, 1].
    np.testing.assert_array_equal(env.actions, [[1.0, 0.0], [-2.0, 0.5]])
    assert env.actions[0].dtype == np.float32


def test_several_costs_are_several_constraints():
    fleet = fleet_of(Counter(), cost_names=("late", "cost"), budgets=(3.0, 1.0))
    _, _, costs, _, _ = played(fleet, 2)
    np.testing.assert_allclose(costs[:, 0], [[0.0, 0.0], [1.0, 0.1], [1.0, 0.2]], rtol=1e-6)
    assert fleet.budgets == (3.0, 1.0)
    with pytest.raises(ValueError, match=r"budgets: got \[1.0\], expected one for each of the costs \['late', "):
        fleet_of(Counter(), cost_names=("late", "cost"))


def test_a_cost_is_named_once():
    """Named twice it would count twice, in the certificate's episodes too."""
    with pytest.raises(ValueError, match=r"cost_names: got \['cost', 'late', 'cost'\], expected each cost once"):
        fleet_of(Counter(), cost_names=("cost", "late", "cost"), budgets=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match=r"cost_names: got \['cost', 'cost'\]"):
        make_fleet("Pendulum-v1", 2, observation="state", budget=1.0, cost_names=["cost", "cost"])
    with pytest.raises(ValueError, match=r"cost_names: got 'cost', expected a list of names; write \['cost'\]"):
        fleet_of(Counter(), cost_names="cost")


FAULTS = {
    "NaN vector": ({"observation": np.float32([np.nan, 0.0])}, r"the observation of environment 1 at tick 2 is nan"),
    "NaN reward": ({"reward": np.nan}, r"the reward of environment 1 at tick 2 is nan, expected a finite number"),
    "NaN cost": ({"info": {"cost": np.nan}}, r"the cost 'cost' of environment 1 at tick 2 is nan"),
    "infinite cost": ({"info": {"cost": np.inf}}, r"the cost 'cost' of environment 1 at tick 2 is inf"),
    "negative cost": ({"info": {"cost": -0.1}}, r"cost 'cost' of environment 1 at tick 2 is -0.1.*of at least 0"),
    "missing cost": (
        {"info": {"cost": None}},
        r"environment 1 at tick 2 has no 'cost'.*There are \['cost', 'late'\]",
    ),
    "changed shape": ({"observation": np.zeros(3, np.float32)}, r"step\(\) failed at tick 2.*shape \(2,\).*float32"),
    "changed dtype": ({"observation": np.array([1j, 0.0])}, r"step\(\) failed at tick 2.*complex"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_faulty_environment_is_named(name, mode):
    """The second step of the second environment is at fault; the tick before it is fine."""
    faults, message = FAULTS[name]
    fleet = fleet_of(Counter(), Counter(**faults), mode=mode)
    played(fleet, 1)
    with pytest.raises(ValueError, match=message):
        fleet.step(np.zeros((2, 2)))


def test_a_fault_in_the_last_step_is_seen():
    """With SAME_STEP what the last step brought is put aside in final_obs and final_info."""
    for faults, message in (FAULTS["NaN vector"], FAULTS["NaN cost"]):
        fleet = fleet_of(Counter(3), Counter(2, **faults), mode=AutoresetMode.SAME_STEP)
        with pytest.raises(ValueError, match=message):
            played(fleet, 2)
    fleet = fleet_of(Counter(3), Counter(2, observation=np.zeros(3, np.float32)), mode=AutoresetMode.SAME_STEP)
    with pytest.raises(
        ValueError, match=r"at tick 2 are float32 of shape \(1, 3\), expected float32 of shape \(1, 2\)"
    ):
        played(fleet, 2)
    fleet = fleet_of(Counter(3), Counter(2, info={"cost": None}), mode=AutoresetMode.SAME_STEP)
    with pytest.raises(ValueError, match=r"environment 1 at tick 2 has no 'cost'.*There are \['late'\]"):
        played(fleet, 2)


def test_pixels_that_are_no_bytes():
    image = {"dtype": np.uint8, "shape": (4, 4, 3)}
    fleet = fleet_of(Counter(**image), Counter(**image, observation=np.full((4, 4, 3), np.nan)))
    assert (fleet.observation_shape, fleet.observation_dtype) == ((4, 4, 3), np.uint8)
    played(fleet, 1)
    with pytest.raises(ValueError, match=r"step\(\) failed at tick 2.*uint8"):
        fleet.step(np.zeros((2, 2)))


class OwnVector(gymnasium.vector.VectorEnv):
    """A vector environment that hands out whatever it likes."""

    def __init__(self, observations, mode=AutoresetMode.NEXT_STEP, reward=(0.0, 0.0)):
        self.num_envs, self.observations, self.reward = 2, iter(observations), np.array(reward)
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        self.metadata = {} if mode is None else {"autoreset_mode": mode}

    def reset(self, *, seed=None, options=None):
        return next(self.observations), {}

    def step(self, actions):
        is_over = np.zeros(2, bool)
        return next(self.observations), self.reward, is_over, is_over, {"cost": np.zeros(2)}


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.zeros((2, 2), np.float32)], ids=["shape", "dtype"])
def test_observations_are_as_declared(wrong):
    fleet = GymnasiumFleet(OwnVector([np.zeros((2, 2)), wrong]), budgets=[1.0], num_decisions=3)
    assert fleet.observation_dtype == np.float32
    assert fleet.reset(0).sight.dtype == np.float32
    with pytest.raises(ValueError, match=r"at tick 1 are float\d+ of shape \(2, [23]\), expected float64 of"):
        fleet.step(np.zeros((2, 1)))


def test_a_reward_for_each_environment():
    vector = OwnVector([np.zeros((2, 2)), np.zeros((2, 2))], reward=[[0.0], [0.0]])
    fleet = GymnasiumFleet(vector, budgets=[1.0], num_decisions=3)
    fleet.reset(0)
    with pytest.raises(ValueError, match=r"the shape of reward at tick 1 is \(2, 1\), expected \(2,\)"):
        fleet.step(np.zeros((2, 1)))


def test_what_cannot_be_a_fleet():
    with pytest.raises(ValueError, match=r"no time limit to take it from; give one"):
        GymnasiumFleet(OwnVector([]), budgets=[1.0])
    with pytest.raises(ValueError, match=r"metadata has no 'autoreset_mode'"):
        GymnasiumFleet(OwnVector([], mode=None), budgets=[1.0], num_decisions=3)
    for space in (gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-np.inf, np.inf, (2,))):
        vector = OwnVector([])
        vector.single_action_space = space
        with pytest.raises(ValueError, match=r"got the action space .*, expected a bounded Box of floats"):
            GymnasiumFleet(vector, budgets=[1.0], num_decisions=3)
    for space in (gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(0.0, 1.0, (4, 4, 3))):
        vector = OwnVector([])
        vector.single_observation_space = space
        with pytest.raises(ValueError, match=r"got the observation space .*, expected a Box of uint8 pixels"):
            GymnasiumFleet(vector, budgets=[1.0], num_decisions=3)


def test_an_action_is_held_until_the_episode_ends():
    """3 steps in decisions of 2: rewards 1 + 2 and 3, costs a tenth; a negative cost is not made up for."""
    env = RepeatedAction(Counter(3), 2, ("cost",))
    env.reset()
    observation, reward, is_terminated, _, info = env.step(np.zeros(2))
    np.testing.assert_array_equal(observation, [0, 2])
    assert (reward, is_terminated) == (3.0, False)
    assert info["cost"] == pytest.approx(0.3)
    assert info["late"] == 1.0
    _, reward, is_terminated, _, info = env.step(np.zeros(2))
    assert (reward, is_terminated, info["cost"]) == (3.0, True, 0.3)
    for cost, expected in ((-0.5, {"cost": -0.5, "late": 1.0}), (None, {"late": 1.0})):
        env = RepeatedAction(Counter(3, info={"cost": cost}), 2, ("cost",))
        env.reset()
        assert env.step(np.zeros(2))[4] == expected


def test_fleets_by_name():
    state = {"observation": "state"}
    fleet = make_fleet("cartpole_swingup", 2, task="keep_down", budget=7.0, **state)
    assert isinstance(fleet, ProblemFleet)
    assert (fleet.task, fleet.budgets, fleet.action_repeat, fleet.num_decisions) == ("keep_down", (7.0,), 2, 500)
    fleet = make_fleet("CartpoleSwingupSparse", 2, image_size=8)
    assert isinstance(fleet, ProblemFleet)
    assert (fleet.task, fleet.observation_shape) == ("swing_up_sparse", (8, 8, 3))
    for name in ("DoggoPressButtonsSparse", "actsafe/DoggoPressButtonsSparse-v0"):
        fleet = make_fleet(name, 2, **state)
        assert isinstance(fleet, SafetyGymFleet)
        assert (fleet.name, fleet.budgets, fleet.action_repeat) == ("DoggoPressButtonsSparse", (25.0,), 2)
        assert (fleet.num_decisions, fleet.num_envs, fleet.action_dim) == (500, 2, 12)


def test_a_gymnasium_id_with_a_time_limit():
    """200 steps in decisions of 3 are 67; gravity does not cost, which an agent with a budget cannot use."""
    fleet = make_fleet("Pendulum-v1", 2, observation="state", budget=(1.0, 2.0), cost_names=("a", "b"), action_repeat=3)
    assert (fleet.num_decisions, fleet.action_repeat, fleet.budgets) == (67, 3, (1.0, 2.0))
    fleet.reset(0)
    with pytest.raises(ValueError, match=r"Pendulum-v1: info of environment 0 at tick 1 has no 'a'"):
        fleet.step(np.zeros((2, 1)))
    fleet.close()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("PointGotoGol", {}, r"environment: got 'PointGotoGol'.*did you mean 'PointGotoGoal'\?"),
        ("Pendulm-v1", {"budget": 1.0}, r"Gymnasium id: got 'Pendulm-v1'.*did you mean 'Pendulum-v1'\?"),
        ("Pendulum-v1", {}, r"budget: 'Pendulum-v1' does not say what it allows"),
        ("Pendulum-v1", {"budget": 1.0}, r"observation: got 'pixels', but 'Pendulum-v1' gives 'state'"),
        ("Pendulum-v1", {"budget": -1.0}, r"budget: got -1.0"),
        ("Pendulum-v1", {"budget": 1.0, "task": "a"}, r"task: got 'a', but 'Pendulum-v1' has one task only"),
        ("PointGotoGoal", {"task": "PushBox"}, r"task: got 'PushBox', but the name 'PointGotoGoal' says the task"),
        ("PointGotoGoal", {"num_samples": 3}, r"num_samples: got 3"),
        ("cartpole_swingup", {"task": "swing"}, r"cartpole_swingup task: got 'swing'"),
        ("pendulum", {}, r"observation: got 'pixels', but pendulum has no look"),
    ],
)
def test_what_is_said_about_names_and_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_fleet(name, 2, **options)
    with pytest.raises(ValueError, match=r"num_envs: got 0"):
        make_fleet(name, 0, **options)
