"""Our robots against rollouts of the simulator that the paper used (MuJoCo 3.1.3), and objects that sleep against none.

Golden numbers are printed to six digits; ours must agree to 1e-4 over the first environment steps and where listed.
"""

import copy

import mujoco
import numpy as np
import pytest

from actsafe.problems.safety_gym import SafetyGymSettings, Simulation
from actsafe.problems.safety_gym.world import world_xml

TOLERANCE = 1e-4
EMPTY = {"num_hazards": 0, "num_vases": 0, "num_pillars": 0, "action_noise": 0.0}

SLIPPERY, STRONG = {"floor_damping": 0.001}, {"motor_gear": 3.0}

# Environment steps: position and velocity along the arrow, thrust 1 from rest.
THRUST = {
    "nominal": ({}, {1: (0.000682, 0.056504), 10: (0.051836, 0.478270), 50: (0.835807, 1.280055)}),
    "damping": (SLIPPERY, {1: (0.000693, 0.057683), 10: (0.058193, 0.566954), 50: (1.361641, 2.628428)}),
    "motor": (STRONG, {1: (0.006815, 0.565035), 10: (0.518355, 4.782704), 50: (8.358065, 12.800546)}),
}

# Environment steps: joint coordinates and their velocities, full turn command from rest.
TURN = {
    1: ((1.5e-5, -0.000850, 0.045035), (0.001804, -0.052633, 2.817981)),
    10: ((0.002758, -0.008779, 0.583750), (0.025898, -0.031495, 2.998425)),
    50: ((0.016689, 0.007743, 2.982707), (-0.023025, 0.042077, 2.998556)),
}

# Turn command: mean yaw rate of the servo's limit cycle.
YAW_RATES = {
    0.1: -0.0004,
    0.2: 0.022,
    0.3: 0.591,
    0.4: 0.942,
    0.5: 1.000,
    0.6: 1.396,
    0.8: 2.196,
    0.9: 2.735,
    1.0: 2.998,
}

# Environment steps without control: height of Doggo's root, and how far it has moved ahead.
DOGGO = {
    1: (0.188733, 0.0111),
    2: (0.167258, 0.0702),
    5: (0.165519, 0.0762),
    10: (0.164870, 0.0771),
    50: (0.161781, 0.0809),
    100: (0.160798, 0.0820),
}


def started(seed=0, **options):
    simulation = Simulation(SafetyGymSettings(**options))
    simulation.reset(seed)
    return simulation


def at_origin(**options):
    """Point at the origin, facing +x: turned, its yaw servo begins to chatter from the rounding of sines alone."""
    simulation = started(**EMPTY, **options)
    body = simulation.model.body("robot")
    body.pos, body.quat = (0.0, 0.0, 0.1), (1.0, 0.0, 0.0, 0.0)
    mujoco.mj_resetData(simulation.model, simulation.data)
    mujoco.mj_forward(simulation.model, simulation.data)
    return simulation


def rollout(simulation, action, steps):
    """(qpos, qvel) after each of the environment steps asked for."""
    rows = {}
    for step in range(1, max(steps) + 1):
        simulation.step(np.asarray(action, float))
        if step in steps:
            rows[step] = (simulation.data.qpos.copy(), simulation.data.qvel.copy())
    return rows


@pytest.mark.parametrize("is_sleeping", [True, False])
@pytest.mark.parametrize("case", THRUST)
def test_point_thrust(case, is_sleeping):
    shifts, golden = THRUST[case]
    rows = rollout(at_origin(is_sleeping=is_sleeping, **shifts), (1.0, 0.0), golden)
    for step, (position, velocity) in golden.items():
        np.testing.assert_allclose(rows[step][0][:3], [position, 0.0, 0.0], rtol=0.0, atol=TOLERANCE)
        np.testing.assert_allclose(rows[step][1][:3], [velocity, 0.0, 0.0], rtol=0.0, atol=TOLERANCE)


def test_point_turn():
    rows = rollout(at_origin(), (0.0, 1.0), TURN)
    for step, (positions, velocities) in TURN.items():
        np.testing.assert_allclose(rows[step][0][:3], positions, rtol=0.0, atol=TOLERANCE)
        np.testing.assert_allclose(rows[step][1][:3], velocities, rtol=0.0, atol=TOLERANCE)


def test_thrust_saturates_at_a_twentieth():
    full, little = (rollout(at_origin(), (thrust, 0.0), {10})[10][0] for thrust in (1.0, 0.05))
    np.testing.assert_array_equal(full, little)


@pytest.mark.parametrize("command", YAW_RATES)
def test_point_yaw_chatters_as_it_did(command):
    simulation = at_origin()
    model, data = simulation.model, simulation.data
    data.ctrl[:] = (0.0, command)
    angles = []
    for steps in (500, 5000):
        mujoco.mj_step(model, data, steps)
        angles.append(float(data.qpos[2]))
    rate = (angles[1] - angles[0]) / (5000 * 0.004)
    assert rate == pytest.approx(YAW_RATES[command], abs=0.01)


@pytest.mark.parametrize(
    ("shifts", "seconds", "speed"),
    # 1.5 and 15 m/s are reached to within 1e-5 after 12 time constants of 0.519 s; that of the slippery floor is ten
    # times as long, and its speed after 10.38 s is 15 (1 - exp(-2)).
    [({}, 6.3, 1.5), (STRONG, 6.3, 15.0), (SLIPPERY, 63.0, 15.0), (SLIPPERY, 10.38, 15.0 * (1.0 - np.exp(-2.0)))],
)
def test_terminal_speeds(shifts, seconds, speed):
    simulation = at_origin(**shifts)
    simulation.data.ctrl[:] = (1.0, 0.0)
    mujoco.mj_step(simulation.model, simulation.data, round(seconds / 0.004))
    assert float(simulation.data.qvel[0]) == pytest.approx(speed, rel=2e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_doggo_settles(seed):
    simulation = started(seed, robot="Doggo", **EMPTY)
    start, heading = simulation.data.qpos[:3].copy(), simulation.data.xmat[1][[0, 3]].copy()
    assert start[2] == 0.22
    for step, (qpos, _) in rollout(simulation, np.zeros(12), DOGGO).items():
        height, ahead = DOGGO[step]
        assert qpos[2] == pytest.approx(height, abs=TOLERANCE)
        assert (qpos[:2] - start[:2]) @ heading == pytest.approx(ahead, abs=TOLERANCE)


def test_masses_joints_and_actuators():
    point = started(task="PushBox").model
    assert point.body("robot").mass[0] == pytest.approx(0.00518879, abs=1e-8)
    assert point.body("robot").ipos[0] == pytest.approx(0.0192723, abs=1e-7)
    assert point.body("vases0").mass[0] == pytest.approx(8e-6)
    assert point.body("box").mass[0] == pytest.approx(1.28e-4)
    doggo = started(robot="Doggo").model
    root = doggo.body("robot").id
    assert doggo.body_subtreemass[root] == pytest.approx(0.0396796, abs=1e-7)
    order = ["1_z", "1_y", "1", "4_z", "4_y", "4", "2_z", "2_y", "2", "3_z", "3_y", "3"]
    hinges = [f"hip_{name}" if "_" in name else f"ankle_{name}" for name in order]
    assert [doggo.joint(number).name for number in range(1, 14)] == [*hinges[:6], "waist_x", *hinges[6:]]
    assert [doggo.actuator(number).name for number in range(12)] == [
        *(f"hip_{leg}_z" for leg in (1, 2, 3, 4)),
        *(f"hip_{leg}_y" for leg in (1, 2, 3, 4)),
        *(f"ankle_{leg}" for leg in (1, 2, 3, 4)),
    ]


def test_looks():
    model = started(task="PushBox").model
    vision = model.camera("vision")
    np.testing.assert_allclose(vision.quat, [0.585532, 0.396424, -0.396424, -0.585532], atol=1e-6)
    np.testing.assert_allclose(vision.pos, [0.0, 0.0, 0.15])
    assert vision.fovy[0] == 90.0
    assert started(robot="Doggo").model.camera("vision").fovy[0] == 100.0
    assert {model.camera(number).name for number in range(model.ncam)} == {"vision", "track", "fixednear", "fixedfar"}
    colours = {"goal": (0, 1, 0, 0.25), "hazards0": (0, 0, 1, 0.25), "vases0": (0, 1, 1, 1), "box": (1, 1, 0, 0.25)}
    colours |= {"pillars0": (0.5, 0.5, 1, 1), "robot": (1, 0, 0, 1), "box_part4": (1, 1, 0, 0.25)}
    for name, colour in colours.items():
        np.testing.assert_allclose(model.geom(name).rgba, colour)
    # Only contacts with robot or floor have torsional and rolling friction.
    assert {name: model.geom(name).condim[0] for name in ("floor", "pointarrow", "vases0", "box")} == {
        "floor": 6,
        "pointarrow": 6,
        "vases0": 3,
        "box": 3,
    }


def steering_to(simulation, target):
    """Full thrust, and the turn command that heads for `target`."""
    body = simulation.data.body("robot")
    wanted = np.arctan2(target[1] - body.xpos[1], target[0] - body.xpos[0])
    error = wanted - np.arctan2(body.xmat[3], body.xmat[0])
    return np.array([1.0, np.clip(3.0 * np.angle(np.exp(1j * error)), -1.0, 1.0)])


def compiled_in_place(simulation):
    """A model in which every object, and the robot, was already where the simulation has put it."""
    settings, data = simulation.settings, simulation.data
    spec = mujoco.MjSpec.from_string(world_xml(settings.body, settings.drive, settings.instances, True))
    for spot in settings.spots:
        body = spec.body(spot.name)
        body.pos, body.quat = data.body(spot.name).xpos, data.body(spot.name).xquat
    return spec.compile()


@pytest.mark.parametrize("seed", range(3))
def test_a_pillar_put_in_place_is_as_solid_as_one_compiled_there(seed):
    simulation = started(seed, **{**EMPTY, "num_pillars": 1})
    pillar = simulation.data.body("pillars0").xpos.copy()
    model = compiled_in_place(simulation)
    data = mujoco.MjData(model)
    num_touched = 0
    # The two differ in the last bit of a sine, of which going on to push against the pillar would make more.
    for _ in range(300):
        action = steering_to(simulation, pillar)
        data.ctrl[:] = action
        mujoco.mj_step(model, data, 5)
        num_touched += simulation.step(action).sources[2]
        np.testing.assert_allclose(simulation.data.qpos[:3], data.qpos, rtol=0.0, atol=TOLERANCE)
        if num_touched == 3:
            break
    assert num_touched == 3


@pytest.mark.parametrize("seed", range(4))
def test_sleeping_changes_nothing_until_something_is_touched(seed):
    awake, sleeping = (started(seed, is_sleeping=is_sleeping) for is_sleeping in (False, True))
    assert awake.goal == sleeping.goal
    actions = np.random.default_rng(seed).uniform(-1.0, 1.0, (150, 2))
    actions[:, 0] = 1.0
    num_compared = 0
    for action in actions:
        outcomes = [simulation.step(action) for simulation in (awake, sleeping)]
        # Up to and with the first contact; what follows a collision is chaotic with and without sleep.
        assert outcomes[0].sources == outcomes[1].sources
        np.testing.assert_allclose(sleeping.data.qpos[:3], awake.data.qpos[:3], rtol=0.0, atol=1e-5)
        num_compared += 1
        if outcomes[0].sources[1] or outcomes[0].sources[2]:
            break
    assert num_compared > 20
    assert sleeping.data.ntree_awake < awake.data.ntree_awake


def test_a_touched_vase_wakes_and_sleeps_again():
    simulation = started(3, num_hazards=0, num_vases=1, num_pillars=0, action_noise=0.0)
    vase = simulation.data.body("vases0").xpos.copy()
    awake, touched = [], 0
    for _ in range(400):
        touched += simulation.step(steering_to(simulation, vase)).sources[1]
        awake.append(int(simulation.data.ntree_awake))
    moved = np.linalg.norm(simulation.data.body("vases0").xpos - vase)
    assert touched and moved > 0.01
    # The robot never sleeps. The vase does until it is hit.
    assert set(awake) == {1, 2} and awake[10] == 1


@pytest.mark.parametrize("robot", ["Point", "Doggo"])
def test_the_split_physics_step_is_mujocos_own(robot):
    simulation = started(1, robot=robot, action_noise=0.0)
    model, data = simulation.model, copy.copy(simulation.data)
    num_substeps = simulation.settings.body.num_substeps
    for action in np.random.default_rng(0).uniform(-1.0, 1.0, (40, simulation.settings.body.num_actions)):
        data.ctrl[:] = action
        mujoco.mj_step(model, data, num_substeps)
        simulation.step(action)
        np.testing.assert_array_equal(simulation.data.qpos, data.qpos)
        np.testing.assert_array_equal(simulation.data.qvel, data.qvel)
