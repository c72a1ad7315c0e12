"""A Gymnasium environment of one's own with two costs; `arm:Arm-v0` is its id wherever this file can be imported."""

import gymnasium


class Arm(gymnasium.Wrapper):
    """Gymnasium's pendulum, whose speed above 6 rad/s and whose torque are costs."""

    def __init__(self, **options):
        super().__init__(gymnasium.make("Pendulum-v1", **options))

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        costs = {"cost_speed": max(0.0, abs(float(observation[2])) - 6.0), "cost_torque": 0.1 * abs(float(action[0]))}
        return observation, reward, terminated, truncated, info | costs


gymnasium.register("Arm-v0", Arm, max_episode_steps=50)
