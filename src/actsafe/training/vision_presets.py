"""The paper's experiments from pixels by name, and one that is small enough to try out."""

import functools
from collections.abc import Callable, Iterator, Mapping

from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.agents.phases import StepSchedule
from actsafe.agents.vision import VisionSettings
from actsafe.models.rssm.world_model import WorldModelSettings
from actsafe.objectives.doubt import DoubtSettings
from actsafe.training.vision_config import VisionConfig

EXPANSION_OF_SPARSE = {"GotoGoal": 850_000, "PressButtons": 1_000_000, "PushBox": 1_500_000}
"""When the expansion of a task with a sparse reward ends."""
LENGTH_OF_SPARSE = {"PushBox": 10_000_000}
"""Steps of a run, where they are not five million."""


def safety_gym_dense(environment: str) -> VisionConfig:
    """A Safety-Gym task of the paper with its dense reward: five million steps, of which 500,000 explore."""
    return VisionConfig(environment=environment, agent=VisionSettings(doubt=_doubt(1e-3)))


def safety_gym_sparse(robot: str, task: str) -> VisionConfig:
    """A Safety-Gym task of the paper with its sparse reward: a longer expansion, and a policy that begins calm."""
    schedule = StepSchedule(expansion=EXPANSION_OF_SPARSE[task], total=LENGTH_OF_SPARSE.get(task, 5_000_000))
    is_goto_goal = task == "GotoGoal"
    agent = VisionSettings(
        model=WorldModelSettings(member_noise=0.05) if is_goto_goal else WorldModelSettings(),
        doubt=_doubt(1e-3) if is_goto_goal else _doubt(1e-3, ratio_scale=25.0, intrinsic=0.1),
        actor_critic=ActorCriticSettings(initial_std=0.025),
    )
    return VisionConfig(environment=f"{robot}{task}Sparse", schedule=schedule, agent=agent)


def cartpole_sparse() -> VisionConfig:
    """The paper's cartpole swing-up with a sparse reward; doubt weighs heavily as a cost."""
    agent = VisionSettings(doubt=_doubt(50.0), actor_critic=ActorCriticSettings(initial_std=0.025))
    return VisionConfig(
        environment="cartpole_swingup",
        task="swing_up_sparse",
        schedule=StepSchedule(expansion=1_000_000),
        agent=agent,
    )


def _doubt(pessimism: float, *, ratio_scale: float = 1.0, intrinsic: float = 10.0) -> DoubtSettings:
    """In the released form, which the published weights belong to."""
    return DoubtSettings(form="log_ratio", ratio_scale=ratio_scale, intrinsic=intrinsic, pessimism=pessimism)


def vision_tiny() -> VisionConfig:
    """About a minute on two CPU cores: images of 16 pixels, all three phases. Too small to learn anything."""
    return VisionConfig(
        environment="cartpole_swingup",
        task="swing_up",
        image_size=16,
        num_samples=1,
        num_envs=2,
        options={"num_decisions": 25},
        budget=5.0,
        schedule=StepSchedule(warm_up=100, expansion=200, total=400),
        steps_per_epoch=100,
        decisions_per_cycle=13,
        replay_capacity=100,
        evaluate_every=2,
        evaluation_episodes=2,
        agent=VisionSettings(
            model=WorldModelSettings(
                deterministic=16,
                stochastic=8,
                hidden=16,
                num_members=3,
                image_depth=4,
                image_width=32,
                head_width=16,
                head_depth=1,
            ),
            actor_critic=ActorCriticSettings(horizon=3, actor_width=16, actor_depth=1, critic_width=16, critic_depth=1),
            batch_size=4,
            sequence_length=8,
            precision="float32",
        ),
    )


def _presets() -> Iterator[tuple[str, Callable[[], VisionConfig]]]:
    for robot in ("Point", "Doggo"):
        for task, words in (("GotoGoal", "goto-goal"), ("PressButtons", "press-buttons"), ("PushBox", "push-box")):
            name = f"{robot.lower()}-{words}"
            yield name, functools.partial(safety_gym_dense, f"{robot}{task}")
            yield f"{name}-sparse", functools.partial(safety_gym_sparse, robot, task)
    yield "cartpole-swingup-sparse", cartpole_sparse
    yield "vision-tiny", vision_tiny


VISION_PRESETS: Mapping[str, Callable[[], VisionConfig]] = dict(_presets())
