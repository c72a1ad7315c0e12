"""Action repeat for anybody's environments."""

from collections.abc import Sequence
from typing import Any

import gymnasium


class RepeatedAction(gymnasium.Wrapper):
    """An environment that holds each action for some steps, or until its episode ends, and sums rewards and costs."""

    def __init__(self, env: gymnasium.Env, num_steps: int, cost_names: Sequence[str]):
        super().__init__(env)
        self._num_steps, self._cost_names = num_steps, tuple(cost_names)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """What holding the action brings, with the last observation."""
        outcomes = []
        for _ in range(self._num_steps):
            outcomes.append(self.env.step(action))
            if outcomes[-1][2] or outcomes[-1][3]:
                break
        observation, _, is_terminated, is_truncated, info = outcomes[-1]
        info = {name: value for name, value in info.items() if name not in self._cost_names}
        for name in self._cost_names:
            costs = [each[4].get(name) for each in outcomes]
            if None not in costs:
                # A negative cost is handed on as it is: another must not make up for it.
                info[name] = float(min(costs) if min(costs) < 0.0 else sum(costs))
        return observation, float(sum(each[1] for each in outcomes)), is_terminated, is_truncated, info
