"""Safety-Gym's rewards, costs, layouts, lidars and batches, against arithmetic done by hand."""

import dataclasses
import math

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actsafe.problems.safety_gym import ROBOTS, TASKS, Batch, LayoutError, SafetyGymSettings, Simulation, layout
from actsafe.problems.safety_gym.layout import Spot, draw_goal, place
from actsafe.problems.safety_gym.observation import lidar, num_features
from actsafe.problems.safety_gym.rules import Place, PressButton, PushToGoal, ReachGoal

BARE = {"num_hazards": 0, "num_vases": 0, "num_pillars": 0, "action_noise": 0.0}


@dataclasses.dataclass
class FakeScene:
    """Targets from lists, so that every draw is known; `log` has what was shown."""

    goals: list = dataclasses.field(default_factory=list)
    buttons: tuple = ()
    draws: list = dataclasses.field(default_factory=list)
    box_at: tuple = (0.0, 0.0)
    goal: tuple = (0.0, 0.0)
    log: list = dataclasses.field(default_factory=list)

    @property
    def num_buttons(self):
        return len(self.buttons)

    def draw_goal(self):
        self.goal = self.goals.pop(0)

    def draw_button(self):
        return self.draws.pop(0)

    def button(self, number):
        return self.buttons[number]

    def light(self, number):
        self.log.append(number)

    def box(self):
        return self.box_at


def started(seed=0, **options):
    simulation = Simulation(SafetyGymSettings(**options))
    simulation.reset(seed)
    return simulation


def rest(simulation):
    return np.zeros(simulation.settings.body.num_actions)


def put_point(simulation, x, y):
    """Point at (x, y) and at rest, with everything that depends on it brought up to date."""
    body = simulation.model.body("robot")
    body.pos, body.quat = (x, y, 0.1), (1.0, 0.0, 0.0, 0.0)
    simulation.data.qpos[:3] = 0.0
    simulation.data.qvel[:3] = 0.0
    mujoco.mj_forward(simulation.model, simulation.data)


class TestRewards:
    def test_reaching_a_goal(self):
        scene = FakeScene(goals=[(2.0, 0.0), (0.0, 3.0)])
        rule = ReachGoal()
        rule.begin(scene, Place(0.0, 0.0, 0.1))
        # Planar before the first step: 2. Then sqrt(1^2 + 0.06^2) = 1.0017984.
        reward, is_met = rule.pay(scene, Place(1.0, 0.0, 0.1), 0)
        assert reward == pytest.approx(2.0 - math.sqrt(1.0036)) and not is_met
        # 0.294 across and 0.06 up are 0.30006 away, just too far; 0.2939 across is 0.29996.
        assert not rule.pay(scene, Place(1.706, 0.0, 0.1), 0)[1]
        reward, is_met = rule.pay(scene, Place(1.7061, 0.0, 0.1), 0)
        expected = math.hypot(0.294, 0.06) - math.hypot(0.2939, 0.06) + 1.0
        assert is_met and reward == pytest.approx(expected)
        # The next goal is 3.448 away in the plane, and the robot stays where it is.
        assert scene.goal == (0.0, 3.0)
        before, now = math.hypot(1.7061, 3.0), math.sqrt(1.7061**2 + 9.0 + 0.0036)
        assert rule.pay(scene, Place(1.7061, 0.0, 0.1), 0)[0] == pytest.approx(before - now)

    def test_sparse_goal_pays_progress_only_when_near(self):
        scene = FakeScene(goals=[(2.0, 0.0), (9.0, 9.0)])
        rule = ReachGoal(gate=0.45)
        rule.begin(scene, Place(0.0, 0.0, 0.16))
        assert rule.pay(scene, Place(1.54, 0.0, 0.16), 0) == (0.0, False)
        # The gate is on the distance arrived at, its rim included; the distance left may be beyond it.
        assert rule.pay(scene, Place(1.55, 0.0, 0.16), 0)[0] == pytest.approx(0.46 - 0.45)
        reward, is_met = rule.pay(scene, Place(1.75, 0.0, 0.16), 0)
        assert reward == pytest.approx(0.45 - 0.25 + 1.0) and is_met

    def test_pressing_buttons(self):
        scene = FakeScene(buttons=((1.0, 0.0), (0.0, 2.0)), draws=[0, 1, 1])
        rule = PressButton(is_dense=True)
        rule.begin(scene, Place(0.0, 0.0, 0.1))
        assert rule.pay(scene, Place(0.25, 0.0, 0.1), 0b00)[0] == pytest.approx(0.25)
        # The wrong button pays nothing more and takes nothing away.
        assert rule.pay(scene, Place(0.25, 0.0, 0.1), 0b10) == (0.0, False)
        assert rule.pay(scene, Place(0.75, 0.0, 0.1), 0b01) == (pytest.approx(0.5 + 1.0), True)
        # From now on progress is towards button 1, from the place of the press.
        moved = math.hypot(0.75, 2.0) - math.hypot(0.75, 1.0)
        assert rule.pay(scene, Place(0.75, 1.0, 0.1), 0b00)[0] == pytest.approx(moved)

    def test_sparse_buttons_pay_for_presses_alone(self):
        scene = FakeScene(buttons=((1.0, 0.0), (0.0, 2.0)), draws=[0, 1])
        rule = PressButton(is_dense=False)
        rule.begin(scene, Place(0.0, 0.0, 0.1))
        assert rule.pay(scene, Place(0.9, 0.0, 0.1), 0b10) == (0.0, False)
        assert rule.pay(scene, Place(0.9, 0.0, 0.1), 0b11) == (1.0, True)

    def test_the_pause_after_a_press(self):
        scene = FakeScene(buttons=((1.0, 0.0),), draws=[0] * 9)
        rule = PressButton(is_dense=False)
        rule.begin(scene, Place(0.0, 0.0, 0.1))
        shown = []
        presses = [False, True, False, False, False, False, False, False]
        for is_pressed in presses:
            rule.pay(scene, Place(0.0, 0.0, 0.1), int(is_pressed))
            shown.append(scene.log[-1])
        # Dark on the press and four steps after it, lit on the fifth.
        assert shown == [0, None, None, None, None, None, 0, 0]
        # A press during the pause pays, and the pause begins anew.
        scene.log.clear()
        paid = [rule.pay(scene, Place(0.0, 0.0, 0.1), touched)[0] for touched in (1, 0, 1, 0, 0, 0, 0, 0)]
        assert paid == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        assert scene.log == [None, None, 0]

    def test_pushing_the_box(self):
        scene = FakeScene(goals=[(0.0, 2.0), (5.0, 0.0)], box_at=(0.0, 1.0))
        rule = PushToGoal()
        rule.begin(scene, Place(0.0, 0.0, 0.1))
        # b: 1 -> 0.5, q: 1 -> 0.8.
        scene.box_at = (0.0, 1.2)
        assert rule.pay(scene, Place(0.0, 0.7, 0.1), 0) == (pytest.approx(0.5 + 0.2), False)
        # b: 0.5 -> 0.6, q: 0.8 -> 0.25, reached; then q is to the new goal and the box stays.
        scene.box_at = (0.0, 1.75)
        assert rule.pay(scene, Place(0.0, 1.15, 0.1), 0) == (pytest.approx(-0.1 + 0.55 + 1.0), True)
        assert rule.pay(scene, Place(0.0, 1.15, 0.1), 0) == (pytest.approx(0.0), False)

    @pytest.mark.parametrize(("form", "paid"), [("paper", 0.0), ("released", 0.095)])
    def test_sparse_pushing_as_the_paper_and_as_the_released_simulator_have_it(self, form, paid):
        rule = TASKS["PushBoxSparse"].rule(form)
        scene = FakeScene(goals=[(0.0, 3.0)], box_at=(0.0, 1.0))
        rule.begin(scene, Place(0.0, 0.4, 0.1))
        # b: 0.6 -> 0.505, between the paper's gate of 0.5 and the simulator's of 0.51.
        assert rule.pay(scene, Place(0.0, 0.495, 0.1), 0)[0] == pytest.approx(paid)
        # Within both gates, b: 0.505 -> 0.45; moving the box towards the goal always pays.
        scene.box_at = (0.0, 1.1)
        assert rule.pay(scene, Place(0.0, 0.65, 0.1), 0)[0] == pytest.approx(0.055 + 0.1)

    @pytest.mark.parametrize("form", ["paper", "released"])
    def test_the_other_forms_agree(self, form):
        assert vars(TASKS["GotoGoalSparse"].rule(form))["_gate"] == 0.45
        assert vars(TASKS["PushBox"].rule(form))["_gate"] == math.inf
        assert not vars(TASKS["PressButtonsSparse"].rule(form))["_is_dense"]


class TestCosts:
    @pytest.mark.parametrize(("distance", "charged"), [(0.1999, 1), (0.2, 1), (0.2001, 0)])
    def test_a_hazard_charges_up_to_its_rim(self, distance, charged):
        simulation = started(num_hazards=1, num_vases=0, num_pillars=0, action_noise=0.0)
        simulation._hazards = [[0.0, 0.0]]
        put_point(simulation, distance, 0.0)
        outcome = simulation.step(rest(simulation))
        assert (outcome.cost, outcome.sources) == (charged, (charged, 0, 0))

    @pytest.mark.parametrize(("name", "reach", "source"), [("vases0", 0.19, 1), ("pillars0", 0.29, 2)])
    def test_contact_charges(self, name, reach, source):
        simulation = started(num_hazards=0, num_vases=1, num_pillars=1, action_noise=0.0)
        assert simulation.step(rest(simulation)).cost == 0.0
        x, y, _ = simulation.data.body(name).xpos
        turn = 2.0 * math.acos(np.clip(simulation.data.body(name).xquat[0], -1.0, 1.0))
        # Along a face's normal; behind the arrow, so that the ball touches.
        put_point(simulation, x + reach * math.cos(turn), y + reach * math.sin(turn))
        body = simulation.model.body("robot")
        body.quat = (math.cos(turn / 2.0), 0.0, 0.0, math.sin(turn / 2.0))
        mujoco.mj_forward(simulation.model, simulation.data)
        outcome = simulation.step(rest(simulation))
        assert outcome.cost == 1.0 and outcome.sources[source] == 1

    def test_two_sources_in_one_step_are_one_cost(self):
        simulation = started(num_hazards=1, num_vases=0, num_pillars=1, action_noise=0.0, action_repeat=2)
        x, y, _ = simulation.data.body("pillars0").xpos
        simulation._hazards = [[x + 0.25, y]]
        put_point(simulation, x + 0.25, y)
        outcome = simulation.step(rest(simulation))
        assert outcome.sources[0] == 2 and outcome.sources[2] >= 1 and outcome.cost == 2.0

    def test_buttons_cost_nothing_and_pay_on_contact(self):
        simulation = started(task="PressButtonsSparse", num_buttons=1, **BARE)
        x, y = simulation.button(0)
        put_point(simulation, x + 0.199, y)
        outcome = simulation.step(rest(simulation))
        assert (outcome.reward, outcome.cost, outcome.num_met) == (1.0, 0.0, 1)

    def test_the_first_state_charges_nothing(self):
        for seed in range(20):
            simulation = started(seed, action_noise=0.0)
            assert simulation.step(rest(simulation)).cost == 0.0


class TestLayout:
    @pytest.mark.parametrize("robot", ROBOTS)
    @pytest.mark.parametrize("task", TASKS)
    def test_objects_keep_out_of_each_others_way(self, robot, task):
        settings = SafetyGymSettings(robot=robot, task=task)
        generator = np.random.default_rng(0)
        keepouts = np.array([spot.keepout for spot in settings.spots])
        apart = keepouts[:, None] + keepouts[None, :] + settings.body.margin
        others = ~np.eye(len(keepouts), dtype=bool)
        for _ in range(30):
            positions = place(settings.spots, settings.body.margin, generator)
            distances = np.linalg.norm(positions[:, None] - positions[None, :], axis=-1)
            assert np.all((distances >= apart - 1e-12)[others])
            halves = np.array([spot.extent - spot.keepout for spot in settings.spots])
            assert np.all(np.abs(positions) <= halves[:, None])

    def test_counts_and_boxes_are_those_of_the_table(self):
        boxes = {spot.name: spot.extent - spot.keepout for spot in SafetyGymSettings().spots}
        assert len(boxes) == 1 + 9 + 10 + 1 + 1
        expected = {"robot": 1.6, "hazards8": 1.8, "vases9": 1.85, "pillars0": 1.7, "goal": 1.1}
        assert {name: boxes[name] for name in expected} == pytest.approx(expected)
        for task, name, half in (
            ("PressButtons", "buttons3", 1.15),
            ("PressButtonsSparse", "buttons3", 1.55),
            ("PushBox", "box", 1.25),
            ("PushBoxSparse", "box", 1.70),
        ):
            spots = {spot.name: spot for spot in SafetyGymSettings(task=task).spots}
            assert spots[name].extent - spots[name].keepout == pytest.approx(half)
        assert len(SafetyGymSettings(task="PressButtons").spots) == 1 + 6 + 8 + 4
        assert len(SafetyGymSettings(task="PushBox").spots) == 1 + 2 + 3 + 1 + 2

    @given(seed=st.integers(0, 2**32 - 1))
    def test_the_goal_keeps_clear_wherever_it_ends_up(self, seed):
        generator = np.random.default_rng(seed)
        others = generator.uniform(-1.5, 1.5, (15, 2))
        keepouts = np.full(15, 0.2)
        goal = draw_goal(Spot("goal", 1.5, 0.4), others, keepouts, generator)
        assert np.all(np.linalg.norm(others - goal, axis=1) >= 0.6 - 1e-12)

    def test_the_goals_box_grows_with_every_refusal(self):
        # All within 2 m of the middle is taken: 1.5 * 1.01^k - 0.4 must exceed 2 before a corner or edge is free.
        taken = np.array([[0.0, 0.0]])
        goals = [
            draw_goal(Spot("goal", 1.5, 0.4), taken, np.array([1.6]), np.random.default_rng(seed)) for seed in range(50)
        ]
        reach = np.max(np.abs(goals), axis=1)
        assert np.all(np.hypot(*np.transpose(goals)) >= 2.0) and np.all(reach < 4.0)

    def test_a_met_goal_moves_away_from_where_things_are_now(self):
        simulation = started(1, action_noise=0.0)
        first = simulation.goal
        put_point(simulation, *first)
        outcome = simulation.step(rest(simulation))
        assert outcome.num_met == 1 and outcome.reward > 1.0
        assert simulation.goal != first
        np.testing.assert_array_equal(simulation.data.body("goal").xpos[:2], simulation.goal)
        np.testing.assert_array_equal(simulation.data.geom("goal").xpos[:2], simulation.goal)
        robot = simulation.data.body("robot").xpos[:2]
        assert np.linalg.norm(robot - simulation.goal) >= 0.8

    @pytest.mark.parametrize("num_hazards", [80, 200])
    def test_what_does_not_fit_is_refused_in_bounded_time(self, num_hazards, monkeypatch):
        # 200 keep-outs have more area than the floor and are refused at once; 80 have not, but nobody packs so tightly.
        monkeypatch.setattr(layout, "MAX_LAYOUTS", 5)
        simulation = Simulation(SafetyGymSettings(num_hazards=num_hazards))
        with pytest.raises(LayoutError, match="fewer objects or a larger extent"):
            simulation.reset(0)
        assert not simulation.is_ready


class TestObservation:
    def test_lidar_by_hand(self):
        # Ahead at 1 m: start of bin 0, closeness 0.8, nothing into bin 1, all of it into bin 15.
        # At 45 degrees and 5 sqrt(2) m: out of range. At 101.25 degrees (4.5 bins) and 2.5 m: 0.5, and 0.25 each side.
        angle = math.radians(101.25)
        offsets = np.array([[1.0, 0.0], [5.0, 5.0], [2.5 * math.cos(angle), 2.5 * math.sin(angle)]])
        readings = lidar(offsets, np.array([0, 0, 2]), np.zeros(3, np.intp), 1).reshape(3, 16)
        expected = np.zeros((3, 16))
        expected[0, [0, 15]] = 0.8
        expected[2, [3, 4, 5]] = (0.25, 0.5, 0.25)
        np.testing.assert_allclose(readings, expected, atol=1e-12)

    def test_a_bin_shows_its_nearest(self):
        (readings,) = lidar(np.array([[1.0, 1e-9], [2.0, 1e-9]]), *[np.zeros(2, np.intp)] * 2, 1)
        assert readings[0] == pytest.approx(0.8)

    @pytest.mark.parametrize(("robot", "size"), [("Point", 60), ("Doggo", 104)])
    def test_sizes(self, robot, size):
        simulation = started(robot=robot)
        assert simulation.observe().shape == (size,) and num_features(ROBOTS[robot]) == size

    def test_point_senses_itself_and_the_goal(self):
        simulation = started(**BARE)
        put_point(simulation, 0.0, 0.0)
        simulation.data.mocap_pos[0, :2] = (0.0, 2.5)
        observation = simulation.observe()
        # To the left: start of bin 4. No obstacles, no objects.
        assert not observation[:32].any()
        assert np.flatnonzero(observation[32:48]).tolist() == [3, 4]
        assert observation[36] == pytest.approx(0.5)
        # At rest, facing +x: no velocity, and a magnetic field of (0, -0.5, 0).
        np.testing.assert_allclose(observation[51:57], 0.0, atol=1e-12)
        np.testing.assert_allclose(observation[57:60], [0.0, -0.5, 0.0], atol=1e-12)

    def test_doggo_ends_with_sines_and_cosines(self):
        observation = started(robot="Doggo").observe()
        pairs = observation[-24:].reshape(12, 2)
        np.testing.assert_allclose(np.sum(pairs**2, axis=1), 1.0)
        np.testing.assert_allclose(pairs[:, 1], 1.0)

    def test_lit_button_is_green_and_the_goal_and_hides_after_a_press(self):
        simulation = started(task="PressButtons", action_noise=0.0)
        colours = simulation.model.geom_rgba[simulation.anatomy.button_geoms]
        lit = np.flatnonzero(colours[:, 1] == 1.0)
        assert len(lit) == 1 and colours[lit[0]].tolist() == [0.0, 1.0, 0.0, 1.0]
        before = simulation.observe()
        assert before[16:32].any() and before[32:48].any()
        x, y = simulation.button(int(lit[0]))
        put_point(simulation, x + 0.199, y)
        assert simulation.step(rest(simulation)).num_met == 1
        after = simulation.observe()
        assert not after[16:48].any()
        colours = simulation.model.geom_rgba[simulation.anatomy.button_geoms]
        np.testing.assert_allclose(colours, np.tile([1.0, 105 / 255, 180 / 255, 1.0], (4, 1)), rtol=1e-6)

    @pytest.mark.parametrize("robot", ROBOTS)
    def test_looking_changes_nothing(self, robot):
        seen, unseen = (started(2, robot=robot) for _ in range(2))
        for action in np.random.default_rng(0).uniform(-1.0, 1.0, (30, seen.settings.body.num_actions)):
            seen.observe()
            assert seen.step(action) == unseen.step(action)
        np.testing.assert_array_equal(seen.data.qpos, unseen.data.qpos)


class TestSettings:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"robot": "Piont"}, "did you mean 'Point'"),
            ({"task": "goto_goal"}, "did you mean 'GotoGoal'"),
            ({"reward": "dense"}, "expected one of"),
            ({"action_noise": -0.1}, "action_noise: got -0.1"),
            ({"action_noise": math.nan}, "action_noise: got nan"),
            ({"action_repeat": 0}, "at least 1"),
            ({"episode_length": 0}, "at least 1"),
            ({"num_vases": -1}, "num_vases: got -1"),
            ({"num_buttons": 2}, "expected none"),
            ({"task": "PressButtons", "num_buttons": 0}, "expected at least 1"),
            ({"floor_damping": math.inf}, "floor_damping: got inf"),
            ({"extent": 0.3}, "leaves no room"),
            ({"target_extent": 0.4}, "leaves no room"),
            ({"robot": "Doggo", "motor_gear": 3.0}, "Shifted dynamics are Point's"),
            ({"robot": "Doggo", "floor_damping": 0.001}, "Shifted dynamics are Point's"),
        ],
    )
    def test_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            SafetyGymSettings(**options)

    def test_overrides_are_heard(self):
        settings = SafetyGymSettings(num_hazards=2, num_vases=1, num_pillars=0, extent=3.0, target_extent=2.0)
        assert [spot.name for spot in settings.spots] == ["robot", "hazards0", "hazards1", "vases0", "goal"]
        assert [spot.extent for spot in settings.spots] == [3.0, 3.0, 3.0, 3.0, 2.0]
        assert hash(settings) == hash(dataclasses.replace(settings))

    def test_noise_has_the_std_asked_for_and_is_clipped(self):
        simulation = started(action_noise=0.5, **{name: 0 for name in BARE if name != "action_noise"})
        applied = []
        for _ in range(500):
            simulation.step(np.array([0.0, 1.0]))
            applied.append(simulation.data.ctrl.copy())
        applied = np.array(applied)
        assert np.std(applied[:, 0]) == pytest.approx(0.48, abs=0.06)
        assert applied[:, 1].max() == 1.0 and applied.min() >= -1.0


def trajectory(batch, actions):
    results = [batch.step(row) for row in actions]
    rewards, costs = np.array([r.rewards for r in results]), np.array([r.costs for r in results])
    positions = np.array([simulation.data.qpos for simulation in batch.simulations])
    return rewards, costs, positions, batch.observe()


class TestBatch:
    @pytest.mark.parametrize(("robot", "task"), [("Point", "PressButtons"), ("Doggo", "GotoGoal")])
    def test_a_row_is_a_lone_simulation_whatever_the_threads(self, robot, task):
        settings = SafetyGymSettings(robot=robot, task=task, action_repeat=2)
        actions = np.random.default_rng(0).uniform(-1.0, 1.0, (25, 5, settings.body.num_actions))
        seeds = [3, 1, 4, 1, 5]
        runs = []
        for num_threads in (1, 2, 5):
            batch = Batch(settings, 5, num_threads)
            batch.reset(seeds)
            runs.append(trajectory(batch, actions))
            batch.close()
        for other in runs[1:]:
            for one, another in zip(runs[0], other, strict=True):
                np.testing.assert_array_equal(one, another)
        for row, seed in enumerate(seeds):
            lone = Simulation(settings)
            lone.reset(seed)
            rewards = [lone.step(action[row]).reward for action in actions]
            np.testing.assert_array_equal(rewards, runs[0][0][:, row])
            np.testing.assert_array_equal(lone.observe(), runs[0][3][row])

    def test_a_reset_simulation_is_as_good_as_new(self):
        used, new = (
            Simulation(SafetyGymSettings(task="PressButtons")),
            Simulation(SafetyGymSettings(task="PressButtons")),
        )
        used.reset(7)
        generator = np.random.default_rng(0)
        for action in generator.uniform(-1.0, 1.0, (60, 2)):
            used.step(action)
        used.reset(8)
        new.reset(8)
        np.testing.assert_array_equal(used.model.geom_rgba, new.model.geom_rgba)
        np.testing.assert_array_equal(used.data.tree_asleep, new.data.tree_asleep)
        for action in generator.uniform(-1.0, 1.0, (60, 2)):
            assert used.step(action) == new.step(action)
        np.testing.assert_array_equal(used.data.qpos, new.data.qpos)
        np.testing.assert_array_equal(used.data.tree_asleep, new.data.tree_asleep)

    def test_seeds_decide_and_streams_go_on_without(self):
        batch = Batch(SafetyGymSettings(), 2, 1)
        batch.reset([0, 0])
        goals = [simulation.goal for simulation in batch.simulations]
        assert goals[0] == goals[1]
        batch.reset([None, 1], np.array([True, False]))
        assert batch.simulations[0].goal != goals[0] and batch.simulations[1].goal == goals[1]

    def test_held_actions_sum_and_episodes_end(self):
        batch = Batch(SafetyGymSettings(action_repeat=2, episode_length=5), 2, 1)
        batch.reset([0, 1])
        single = started(0)
        action = np.array([1.0, 0.3])
        expected = single.step(action).reward + single.step(action).reward
        results = [batch.step(np.tile(action, (2, 1))) for _ in range(3)]
        assert results[0].rewards[0] == expected
        assert [result.is_truncated.tolist() for result in results] == [[False] * 2, [False] * 2, [True] * 2]
        assert batch.simulations[0].num_taken == 5
        with pytest.raises(RuntimeError, match="reset them first"):
            batch.step(np.zeros((2, 2)))
        batch.reset([0, 0], np.array([True, False]))
        result = batch.step(np.zeros((2, 2)), np.array([True, False]))
        assert result.is_truncated.tolist() == [False, True] and result.rewards[1] == 0.0

    def test_a_broken_simulation_ends_alone(self, tmp_path, monkeypatch):
        # MuJoCo writes a log of its warnings to the current folder.
        monkeypatch.chdir(tmp_path)
        batch, sound = Batch(SafetyGymSettings(), 3, 2), Batch(SafetyGymSettings(), 3, 1)
        for each in (batch, sound):
            each.reset([0, 1, 2])
        actions = np.full((3, 2), 0.5)
        batch.simulations[1].data.qvel[0] = np.nan
        result, expected = batch.step(actions), sound.step(actions)
        assert result.is_broken.tolist() == [False, True, False]
        assert (result.rewards[1], result.costs[1]) == (-10.0, 1.0)
        np.testing.assert_array_equal(result.rewards[[0, 2]], expected.rewards[[0, 2]])
        others = np.array([True, False, True])
        np.testing.assert_array_equal(batch.step(actions, others).rewards[others], sound.step(actions).rewards[others])
        batch.reset([0, 1, 2])
        sound.reset([0, 1, 2])
        np.testing.assert_array_equal(batch.step(actions).rewards, sound.step(actions).rewards)
        assert not batch.step(actions).is_broken.any()

    @pytest.mark.parametrize(
        ("actions", "message"),
        [
            (np.zeros(2), "shape"),
            (np.zeros((2, 3)), "shape"),
            ([[0.0, math.nan], [0.0, 0.0]], r"simulations \[0\]"),
            ([[0.0, 0.0], [math.inf, 0.0]], r"simulations \[1\]"),
            ("forward", "not real numbers"),
            ([[0.0, 0.0], [0.0]], "not real numbers"),
            (np.zeros((2, 2), complex), "not real numbers"),
        ],
    )
    def test_bad_actions_are_refused_before_anything_changes(self, actions, message):
        batch = Batch(SafetyGymSettings(), 2, 1)
        batch.reset([0, 1])
        before = [simulation.data.qpos.copy() for simulation in batch.simulations]
        with pytest.raises(ValueError, match=message):
            batch.step(actions)
        for simulation, qpos in zip(batch.simulations, before, strict=True):
            np.testing.assert_array_equal(simulation.data.qpos, qpos)
            assert simulation.num_taken == 0

    def test_misuse_is_named(self):
        with pytest.raises(ValueError, match="num_simulations: got 0"):
            Batch(SafetyGymSettings(), 0)
        batch = Batch(SafetyGymSettings(), 2, 2)
        with pytest.raises(RuntimeError, match="have not begun"):
            batch.step(np.zeros((2, 2)))
        with pytest.raises(ValueError, match="one for each simulation"):
            batch.reset([0])
        with pytest.raises(ValueError, match="at least 0"):
            batch.reset([-1, 0])
        with pytest.raises(ValueError, match="expected a mask"):
            batch.reset([0, 1], np.array([0, 1]))
        batch.reset([0, 1])
        batch.close()
        batch.close()
        for use in (lambda: batch.reset([0, 1]), lambda: batch.step(np.zeros((2, 2))), batch.observe):
            with pytest.raises(RuntimeError, match="closed"):
                use()
