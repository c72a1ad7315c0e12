"""`actsafe plot`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from matplotlib.figure import Figure
from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.options import given
from actsafe.cli.working import console
from actsafe.figures import figures_of_results, figures_of_runs, style
from actsafe.training.settings import ConfigError, require_known
from actsafe.training.sweep import open_runs


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the figures of one or more runs in one environment, or those of a results file.

    What is drawn goes by what the runs have: returns and costs, promises and what came, and where the state was.
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]|RESULTS.json", help_behavior_hint="")]
    """The runs' folders; that of a sweep stands for all its runs. Or one file that `actsafe reproduce` wrote."""
    seed: Annotated[int | None, given("N", "each algorithm's first")] = None
    """Whose trajectories are drawn."""
    out: Annotated[Path | None, given("FOLDER", "RUN/figures, else ./figures")] = None
    """Where the pictures go."""
    kind: Annotated[str, arg(name="format", metavar="png|svg|pdf")] = "png"
    """File format."""

    def run(self, arguments: Sequence[str]) -> int:
        """Write the pictures, and say where they are."""
        if not self.paths:
            raise ConfigError("got nothing to draw; expected at least one run folder: actsafe plot RUN [RUN ...]")
        require_known("format", self.kind, style.FORMATS)
        jax_setup.prepare()
        (first, *others), target = self.paths, self.out or Path("figures")
        if first.is_file():
            if others or self.seed is not None:
                raise ConfigError(
                    f"{first} is a results file, which has no trajectories of a seed and is drawn by itself; leave out "
                    f"{'--seed' if not others else others[0]}, or name run folders"
                )
            drawn = figures_of_results(first)
        else:
            target = self.out or (Path("figures") if others else first / "figures")
            drawn = figures_of_runs([folder for path in self.paths for folder in open_runs(path)], seed=self.seed)
        for path in write_all(drawn, target, self.kind):
            console().print(str(path))
        return 0


def write_all(figures: Mapping[str, Figure], folder: Path, kind: str = "png") -> list[Path]:
    """Where the pictures are now, which have the names of the figures."""
    return [style.save(figure, folder / f"{name}.{kind}") for name, figure in figures.items()]
