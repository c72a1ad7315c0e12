"""Explore a pendulum safely, and print what came of it.

    python examples/train.py runs/pendulum            two minutes on a laptop
    python examples/train.py runs/quick --quick       seconds, too small to learn much

Called again with the same folder it goes on where it was stopped.
"""

import sys
from pathlib import Path

import actsafe


def main(folder: str, *options: str) -> None:
    """Train, or go on where the folder was left, and print the ledger and an evaluation."""
    config = actsafe.presets.tiny() if "--quick" in options else actsafe.presets.demo()
    run = actsafe.train(config, folder, seed=0)
    print(run)
    for found in run.ledger.violations:
        low, high = found.interval
        print(f"{found.num_over} of {found.num_episodes} episodes over budget: rate in [{low:.2f}, {high:.2f}]")
    for row in actsafe.evaluate(run, episodes=1 if "--quick" in options else 5):
        print(f"{row['task']}: return {row['return']:.1f}, cost {row['costs']['cost']:.2f}")
    figures = run.figures()
    for name, figure in figures.items():
        figure.savefig(Path(folder) / f"{name}.png")
    print(f"pictures in {folder}: {', '.join(figures)}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["runs/example-train"]))
