"""Load the policy of a run and act with it in a loop of one's own, which knows nothing of training.

    python examples/train.py runs/quick --quick
    python examples/load_and_act.py runs/quick

The environment is here for its observations alone: `load` makes none.
"""

import sys

import gymnasium

import actsafe


def main(folder: str) -> None:
    """One episode of Gymnasium's interface, with an agent from the folder."""
    policy = actsafe.load(folder)
    env = gymnasium.make("actsafe/Pendulum-v0", dtype="float64")
    observation, _ = env.reset(seed=0)
    memory = policy.begin()
    total, spent, num_uncertified, is_over = 0.0, 0.0, 0, False
    while not is_over:
        decision, memory = policy.act(observation, memory)
        observation, reward, terminated, truncated, info = env.step(decision.action)
        total, spent, is_over = total + float(reward), spent + info["cost"], terminated or truncated
        num_uncertified += not decision.is_certified
    print(f"return {total:.1f}, cost {spent:.2f}; no plan passed the check in {num_uncertified} decisions")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["runs/quick"]))
