"""`actsafe demo`."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from actsafe.agents.gp import GPAgentSettings
from actsafe.cli import jax_setup
from actsafe.cli.options import Flag
from actsafe.cli.plot import write_all
from actsafe.cli.sweep import trained
from actsafe.cli.tables import print_run, verdict
from actsafe.cli.working import console, new_folder
from actsafe.figures.drawing import exploration, swing_up
from actsafe.figures.swing_up import TASK
from actsafe.training import provenance
from actsafe.training.config import Config
from actsafe.training.presets import demo
from actsafe.training.recording import duration
from actsafe.training.run import CONFIG, RunFolder
from actsafe.training.storage import StorageError


@dataclasses.dataclass(frozen=True)
class Demo:
    """Explore a pendulum safely, then swing it up: the whole of ActSafe in under three minutes.

    The exit code is 0 only if no exploration episode had any cost and the swing-up ended upright.
    """

    out: Annotated[Path, arg(metavar="FOLDER")] = Path("demo")
    """Where the runs and the pictures go. A demo that was stopped there goes on."""
    no_comparison: Flag = False
    """Leave away OPAX, which explores alike but ignores the constraint and is run to show the difference."""
    fresh: Flag = False
    """Start anew in a folder FOLDER-N, whatever is in FOLDER."""

    def run(self, arguments: Sequence[str]) -> int:
        """Train, draw, and say what was found."""
        started = time.monotonic()
        jax_setup.prepare()
        base = new_folder(self.out, first=2) if self.fresh and self.out.exists() else self.out
        _require_demo(base)
        out = console()
        settings = demo()
        configs = [settings]
        if not self.no_comparison:
            configs.append(_comparison(settings))
        runs = [(base / config.algorithm, config) for config in configs]
        if all((path / CONFIG).is_file() and RunFolder.open(path).is_finished for path, _ in runs):
            out.print(f"{base} holds a finished demo; here it is again (--fresh trains a new one)")
        else:
            out.print("A pendulum that nothing is known about, and one rule: never turn faster than 6 rad/s.")
        again = provenance.command_line([argument for argument in arguments if argument != "--fresh"])
        folders = [trained(path, config, arguments, to_go_on=again)[0][0] for path, config in runs]
        return _conclude(base, folders, out, time.monotonic() - started)


def _require_demo(base: Path) -> None:
    """Raise unless `base` is new, empty, or an earlier demo."""
    if base.exists() and (not base.is_dir() or (any(base.iterdir()) and not (base / "actsafe").is_dir())):
        raise StorageError(
            f"{base} exists and is no demo of an earlier time; it is left as it is. "
            f"Name another folder: actsafe demo --out FOLDER"
        )


def _conclude(base: Path, folders: Sequence[RunFolder], out: Console, seconds: float) -> int:
    """Print the result and write the pictures; the exit code."""
    figures, strip = exploration(folders), swing_up(folders[0])
    written = write_all(figures if strip is None else {**figures, TASK: strip}, base)
    out.print()
    out.rule("what it found", align="left")
    print_run(folders[0], out)
    evaluation = [found for row in folders[0].rows("metrics") for found in row["evaluation"].items()]
    task = folders[0].spec.task
    last = [found for name, found in evaluation if name == task][-1:]
    is_upright = bool(last) and last[0]["goals"] == last[0]["episodes"]
    paid = [row.max_cost for row in folders[0].ledger()] + [
        c for _, found in evaluation for c in found["costs"].values()
    ]
    is_free = all(cost == 0 for cost in paid)
    for other in folders[1:]:
        out.print(f"for comparison, {verdict(other).safety[0]}")
    out.print()
    for path, what in zip(written, ("where it went", "the swing-up"), strict=False):
        out.print(f"picture  {path}  ({what})")
    out.print(f"runs     {', '.join(str(folder.path) for folder in folders)}")
    out.print(f"time     {duration(seconds)}")
    faults = [*(["there was cost"] * (not is_free)), *(["it is not upright"] * (not is_upright))]
    if faults:
        out.print(f"The demo did not succeed: {' and '.join(faults)}.", style="bold red")
        return 1
    return 0


def _comparison(settings: Config) -> Config:
    """OPAX beside it, to see where it goes: with a search half as wide, as nothing that is kept depends on it."""
    agent = settings.agent
    if not isinstance(agent, GPAgentSettings):
        raise TypeError(f"the demo has an agent of kind {agent.kind}, expected one that plans")
    search = dataclasses.replace(agent.planning.search, num_candidates=32, num_elites=6, num_iterations=2)
    agent = dataclasses.replace(
        agent,
        planning=dataclasses.replace(agent.planning, search=search, preflight_particles=4),
        objective=dataclasses.replace(agent.objective, num_particles=4),
    )
    return dataclasses.replace(settings, algorithm="opax", evaluate_every=0, agent=agent)
