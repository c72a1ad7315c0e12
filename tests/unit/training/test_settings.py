"""Settings go to JSON and back, and what will not do is refused with its path."""

import dataclasses
from typing import Any

import pytest

from actsafe.training.kinds import KINDS, kind_of
from actsafe.training.presets import PRESETS
from actsafe.training.settings import ConfigError, build, plain
from actsafe.training.vision_presets import VISION_PRESETS


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    sizes: tuple[int, ...] = (1, 2)
    weights: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str = "outer"
    count: int | None = None
    is_on: bool = False
    inner: Inner = dataclasses.field(default_factory=Inner)
    maybe: Inner | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@pytest.mark.parametrize("name", [*PRESETS, *VISION_PRESETS])
def test_every_preset_survives_json(name):
    config = {**PRESETS, **VISION_PRESETS}[name]()
    again = KINDS[kind_of(config)].config.from_json(config.to_json())
    assert again == config
    assert again.digest == config.digest


def test_nesting_follows_the_type_hints():
    asked = {"count": 3, "inner": {"rate": 1, "weights": [1, 0.5]}, "maybe": {"sizes": [7]}, "options": {"any": [1]}}
    expected = Outer(count=3, inner=Inner(rate=1.0, weights=(1.0, 0.5)), maybe=Inner(sizes=(7,)), options={"any": [1]})
    assert build(Outer, asked) == expected
    assert build(Outer, plain(expected)) == expected


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"nam": "x"}, "Did you mean 'name'"),
        ({"inner": {"rat": 1.0}}, "Did you mean 'inner.rate'"),
        ({"inner": 3}, "inner must be an object"),
        ({"count": 1.5}, "count must be a whole number or null, got 1.5"),
        ({"count": True}, "count must be a whole number or null"),
        ({"is_on": 1}, "is_on must be true or false"),
        ({"inner": {"rate": float("nan")}}, "inner.rate must be a finite number"),
        ({"inner": {"weights": [1.0, "a"]}}, "inner.weights must be a list of finite numbers"),
        ({"options": 3}, "options must be an object with any entries"),
        ([], "config must be an object"),
    ],
)
def test_what_will_not_do_is_refused(asked, said):
    with pytest.raises(ConfigError, match=None) as caught:
        build(Outer, asked)
    assert said in str(caught.value)


def test_the_presets_have_the_papers_numbers():
    dense, sparse = VISION_PRESETS["point-goto-goal"](), VISION_PRESETS["point-goto-goal-sparse"]()
    assert (dense.environment, sparse.environment) == ("PointGotoGoal", "PointGotoGoalSparse")
    # 5 episodes of 1000 steps in 10 environments; a cycle of 50 decisions is 1000 steps.
    assert dense.steps_per_epoch == 5 * 1000 * 10
    assert dense.decisions_per_cycle * dense.num_envs * dense.action_repeat == 1000
    assert dense.num_units == 100
    assert (dense.schedule.warm_up, dense.schedule.expansion) == (200_000, 500_000)
    assert dense.replay_capacity == 1000 * 500
    assert (dense.agent.actor_critic.initial_std, sparse.agent.actor_critic.initial_std) == (5.0, 0.025)
    assert (dense.agent.doubt.intrinsic, dense.agent.doubt.pessimism) == (10.0, 1e-3)
    for name in VISION_PRESETS.keys() - {"vision-tiny"}:
        doubt = VISION_PRESETS[name]().agent.doubt
        is_other = name.endswith(("press-buttons-sparse", "push-box-sparse"))
        assert (doubt.ratio_scale, doubt.intrinsic) == ((25.0, 0.1) if is_other else (1.0, 10.0)), name
    ends = {name: VISION_PRESETS[name]().schedule.expansion for name in VISION_PRESETS if name.endswith("sparse")}
    assert ends["point-goto-goal-sparse"] == 850_000
    assert ends["doggo-press-buttons-sparse"] == ends["cartpole-swingup-sparse"] == 1_000_000
    assert ends["point-push-box-sparse"] == 1_500_000
    assert VISION_PRESETS["point-push-box-sparse"]().schedule.total == 10_000_000
    assert VISION_PRESETS["cartpole-swingup-sparse"]().agent.doubt.pessimism == 50.0


def test_an_epoch_has_one_phase():
    config = VISION_PRESETS["vision-tiny"]()
    assert [config.phase(epoch).value for epoch in (1, 2, 3, 4)] == ["warm_up", "expansion"] + ["exploitation"] * 2
    assert [config.is_evaluated(epoch) for epoch in range(5)] == [False, False, True, False, True]
    with pytest.raises(ConfigError, match="phases change between epochs"):
        dataclasses.replace(config, steps_per_epoch=150)
