"""Several seeds in one program, and a table of what each came to.

    python examples/many_seeds.py runs/seeds            ten minutes on two cores
    python examples/many_seeds.py runs/seeds --quick    seconds

Where seeds cannot share a program, `actsafe train --seeds` gives each a process.
"""

import sys

import actsafe


def main(folder: str, *options: str) -> None:
    """Train all seeds side by side, and print a line for each."""
    config = actsafe.presets.tiny() if "--quick" in options else actsafe.presets.demo()
    run = actsafe.train(config, folder, seeds=range(2 if "--quick" in options else 4))
    last = {row["seed"]: row["evaluation"] for row in run.metrics}
    for seed in run.config.seeds:
        own = [row for row in run.ledger.rows if row.seed == seed and row.is_judged]
        over, episodes = sum(row.num_over for row in own), sum(row.num_episodes for row in own)
        returns = ", ".join(f"{task} {found['return']:.1f}" for task, found in last[seed].items())
        print(f"seed {seed}: {over} of {episodes} episodes over budget; {returns}")
    (found,) = run.ledger.violations
    print(
        f"all seeds: {found.num_over} of {found.num_episodes} over, a rate of at most {found.interval.high:.2f} (95 %)"
    )


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["runs/example-seeds"]))
