"""Settings go to JSON and back, and what will not do is refused with its path."""

import dataclasses
import sys
import types
from typing import Any, ClassVar

import pytest

from actsafe.agents.algorithms import Algorithm
from actsafe.agents.gp import GPAgentSettings
from actsafe.agents.phases import Schedule
from actsafe.agents.world_model import WorldModelAgentSettings
from actsafe.objectives.confidence import Calibrated, Fixed
from actsafe.training.config import Config
from actsafe.training.presets import PRESETS
from actsafe.training.settings import DEEPEST, LARGEST, ConfigError, build, plain

STEPS_PER_EPISODE = 1000


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    sizes: tuple[int, ...] = (1, 2)
    weights: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Circle:
    kind: ClassVar[str] = "circle"
    radius: float = 1.0


@dataclasses.dataclass(frozen=True)
class Square:
    kind: ClassVar[str] = "square"
    side: int = 1


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str = "outer"
    count: int | None = None
    is_on: bool = False
    inner: Inner = dataclasses.field(default_factory=Inner)
    maybe: Inner | None = None
    shape: Circle | Square = dataclasses.field(default_factory=Circle)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class OwnSettings(GPAgentSettings):
    kind: ClassVar[str] = f"{__name__}:OwnSettings"
    patience: int = 3


OWN_ROW = Algorithm("patient", "Patient")


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
def importable(monkeypatch):
    """This module under its name, as one of the user's on PYTHONPATH would be."""
    module = types.ModuleType("own_module")
    module.OwnSettings, module.OWN_ROW, module.Inner = OwnSettings, OWN_ROW, Inner
    monkeypatch.setattr(OwnSettings, "kind", "own_module:OwnSettings")
    monkeypatch.setitem(sys.modules, "own_module", module)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_json(name):
    config = PRESETS[name]()
    again = Config.from_json(config.to_json())
    assert again == config
    assert again.digest == config.digest


def test_nesting_follows_the_type_hints():
    asked = {"count": 3, "inner": {"rate": 1, "weights": [1, 0.5]}, "maybe": {"sizes": [7]}, "options": {"any": [1]}}
    expected = Outer(count=3, inner=Inner(rate=1.0, weights=(1.0, 0.5)), maybe=Inner(sizes=(7,)), options={"any": [1]})
    assert build(Outer, asked) == expected
    assert build(Outer, plain(expected)) == expected


def test_a_member_of_a_union_is_named_by_its_kind():
    assert build(Outer, {"shape": {"kind": "square", "side": 2}}).shape == Square(2)
    assert build(Outer, {"shape": {"radius": 2}}).shape == Circle(2.0)
    assert plain(Outer(shape=Square(3)))["shape"] == {"kind": "square", "side": 3}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"nam": "x"}, "Did you mean 'name'"),
        ({"inner": {"rat": 1.0}}, "Did you mean 'inner.rate'"),
        ({"inner": 3}, "inner must be an object"),
        ({"count": 1.5}, "count must be a whole number of at most 1e+09 or null, got 1.5"),
        ({"count": True}, "count must be a whole number of at most 1e+09 or null"),
        ({"count": LARGEST + 1}, "count must be a whole number of at most 1e+09"),
        ({"count": 10**23}, "count must be a whole number of at most 1e+09"),
        ({"is_on": 1}, "is_on must be true or false"),
        ({"inner": {"rate": float("nan")}}, "inner.rate must be a finite number"),
        ({"inner": {"weights": [1.0, "a"]}}, "inner.weights must be a list of finite numbers"),
        ({"options": 3}, "options must be an object with any entries"),
        ({"options": {"any": nested(5000)}}, f"config is nested more than {DEEPEST} deep"),
        ({"name": nested(5000)}, f"config is nested more than {DEEPEST} deep"),
        (nested(5000), f"config is nested more than {DEEPEST} deep"),
        ({"shape": {"kind": "squar"}}, "Did you mean 'square'"),
        ({"shape": {"kind": 3}}, "unknown shape.kind 3"),
        ({"shape": {"kind": "square", "radius": 1}}, "Did you mean 'shape.side'"),
        ({"shape": {"kind": "nowhere:Class"}}, "shape.kind: 'nowhere:Class' cannot be imported"),
        (
            {"shape": {"kind": "math:pi"}},
            "shape.kind: 'math:pi' is no dataclass that derives from one of Circle, Squar",
        ),
        ({"shape": []}, "shape must be an object"),
        ([], "config must be an object"),
    ],
)
def test_what_will_not_do_is_refused(asked, said):
    with pytest.raises(ConfigError, match=None) as caught:
        build(Outer, asked)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_rules_of_confidence_and_the_agents_are_named_by_their_kind():
    config = PRESETS["authors-pendulum"]()
    content = config.to_json()
    assert (content["agent"]["kind"], content["agent"]["confidence"]) == ("gp", {"kind": "fixed", "value": 3.0})
    content["agent"]["confidence"] = {"kind": "calibrated", "start": 2.0}
    assert Config.from_json(content).agent.confidence == Calibrated(start=2.0)
    assert isinstance(Config.from_json({"agent": {"kind": "rssm"}}).agent, WorldModelAgentSettings)
    assert isinstance(config.agent.confidence, Fixed)
    for wrong in ({"kind": "GP"}, {"confidence": {"kind": "sure"}}, 3):
        with pytest.raises(ConfigError, match="agent"):
            Config.from_json({"agent": wrong})


def test_an_agent_and_a_row_of_ones_own_are_read_back(importable):
    config = Config(agent=OwnSettings(patience=7), algorithm="own_module:OWN_ROW")
    content = config.to_json()
    assert content["agent"]["kind"] == "own_module:OwnSettings"
    assert content["agent"]["patience"] == 7
    assert Config.from_json(content) == config
    assert config.row is OWN_ROW
    with pytest.raises(ConfigError, match=r"is a type, expected an actsafe\.Algorithm"):
        Config(algorithm="own_module:Inner")
    with pytest.raises(ConfigError, match="no dataclass that derives from one of GPAgentSettings"):
        Config.from_json({"agent": {"kind": "own_module:Inner"}})


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({}, GPAgentSettings),
        ({"env": "cartpole", "budget": 1.0}, GPAgentSettings),
        ({"env": "actsafe/Pendulum-v0"}, GPAgentSettings),
        # Its budget is for a thousand decisions, of which a planner sees too few.
        ({"env": "cartpole_swingup"}, WorldModelAgentSettings),
        ({"env": "pendulum", "observation": "pixels"}, WorldModelAgentSettings),
        ({"env": "pendulum", "algorithm": "uniform"}, WorldModelAgentSettings),
        ({"env": "PointGotoGoal"}, WorldModelAgentSettings),
        ({"env": "Pendulum-v1", "budget": 5.0}, WorldModelAgentSettings),
    ],
)
def test_an_agent_that_is_not_given_is_chosen_for_the_environment(asked, kind):
    config = Config(**asked)
    small = kind.small()
    assert type(config.agent) is kind
    assert {name: getattr(config, name) for name in small} == dict(small)
    assert Config.from_json(config.to_json()) == config
    # What is given stays, and an agent brings what fits it.
    schedule = Schedule(warm_up=4, expansion=4, exploitation=4, episodes_per_epoch=4)
    assert Config(**asked, schedule=schedule).schedule == schedule
    assert Config(**asked, agent=config.agent) == config


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"env": "nowhere:Name"}, "nowhere"),
        ({"env": "pendulum", "options": {"masss": 1}}, "environment pendulum: "),
        ({"env": "pendulum", "options": {"budget": 1.0}}, "environment pendulum: "),
        ({"algorithm": "actsave"}, "Did you mean 'actsafe'"),
        (
            {"algorithm": "uniform", "agent": GPAgentSettings()},
            "uniform needs an agent of kind rssm, got agent.kind = gp",
        ),
    ],
)
def test_what_nothing_can_be_chosen_for_is_refused(asked, said):
    with pytest.raises(ConfigError) as caught:
        Config(**asked)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_presets_have_the_papers_numbers():
    dense, sparse = PRESETS["point-goto-goal"](), PRESETS["point-goto-goal-sparse"]()
    assert (dense.env, sparse.env) == ("PointGotoGoal", "PointGotoGoalSparse")
    # 5 episodes of 1000 steps in 10 environments; a cycle of 50 decisions is 1000 steps.
    assert dense.schedule.episodes_per_epoch * STEPS_PER_EPISODE * dense.num_envs == 5 * 1000 * 10
    assert dense.agent.decisions_per_cycle * dense.num_envs * dense.action_repeat == 1000
    assert dense.num_units == 100

    def ends(config: Config) -> tuple[int, int, int]:
        """The simulator steps of all environments at which warm-up, expansion and exploitation end."""
        steps, phases = STEPS_PER_EPISODE * config.num_envs, config.schedule
        lengths = (phases.warm_up, phases.expansion, phases.exploitation)
        return tuple(sum(lengths[: n + 1]) * steps for n in range(3))

    assert ends(dense)[:2] == (200_000, 500_000)
    assert dense.agent.replay_capacity == 1000 * 500
    assert (dense.agent.actor_critic.initial_std, sparse.agent.actor_critic.initial_std) == (5.0, 0.025)
    assert (dense.agent.uncertainty.intrinsic, dense.agent.uncertainty.pessimism) == (10.0, 1e-3)
    paper = [name for name in PRESETS if name.startswith(("point-", "doggo-", "cartpole-swingup"))]
    assert len(paper) == 13
    for name in paper:
        uncertainty = PRESETS[name]().agent.uncertainty
        is_other = name.endswith(("press-buttons-sparse", "push-box-sparse"))
        assert (uncertainty.ratio_scale, uncertainty.intrinsic) == ((25.0, 0.1) if is_other else (1.0, 10.0)), name
    expansions = {name: ends(PRESETS[name]())[1] for name in PRESETS if name.endswith("sparse")}
    assert expansions["point-goto-goal-sparse"] == 850_000
    assert expansions["doggo-press-buttons-sparse"] == expansions["cartpole-swingup-sparse"] == 1_000_000
    assert expansions["point-push-box-sparse"] == 1_500_000
    assert ends(PRESETS["point-push-box-sparse"]())[2] == 10_000_000
    # A charge for uncertainty where the released configurations have one; sparse rewards are waited for.
    for name in paper:
        agent = PRESETS[name]().agent
        released = {"cartpole-swingup-sparse": 50.0}.get(name, 0.0 if name.endswith("-sparse") else 1e-3)
        assert agent.uncertainty.pessimism == released, name
        assert agent.handover_reward == (0.0 if name.endswith("-sparse") else None), name
    # Policies begin calm where the released configurations say so, and nowhere else.
    calm = {name for name in paper if PRESETS[name]().agent.actor_critic.initial_std == 0.025}
    assert calm == {"point-goto-goal-sparse", "doggo-goto-goal-sparse", "cartpole-swingup-sparse"}


def test_an_epoch_has_one_phase():
    config = PRESETS["vision-tiny"]()
    assert [config.phase(epoch).value for epoch in (1, 2, 3, 4)] == ["warm_up", "expansion"] + ["exploitation"] * 2
    assert [config.is_evaluated(epoch) for epoch in range(5)] == [False, False, True, False, True]
    with pytest.raises(ConfigError, match="phases change between epochs"):
        Config.from_json({**config.to_json(), "schedule": {"warm_up": 1, "expansion": 2, "episodes_per_epoch": 2}})
