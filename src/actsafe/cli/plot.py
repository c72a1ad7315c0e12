"""`actsafe plot`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.halves import HALVES
from actsafe.cli.working import console
from actsafe.training.settings import ConfigError
from actsafe.training.sweep import open_runs


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the figures of one or more runs.

    Runs of several algorithms on one problem are drawn beside each other.
    """

    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")]
    """The runs' folders; that of a sweep stands for all its runs."""
    seed: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: each run's first)")] = None
    """Whose trajectories are drawn; runs from pixels have one seed each."""
    out: Annotated[
        Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: RUN/figures, of several ./figures)")
    ] = None
    """Where the pictures go."""
    kind: Annotated[str, arg(name="format", metavar="png|svg|pdf")] = "png"
    """File format."""

    def run(self, arguments: Sequence[str]) -> int:
        """Write the pictures, and say where they are."""
        if not self.folders:
            raise ConfigError("got no run folder; expected at least one: actsafe plot RUN [RUN ...]")
        if self.kind not in ("png", "svg", "pdf"):
            raise ConfigError(f"--format must be png, svg or pdf, got {self.kind!r}")
        folders = [folder for path in self.folders for folder in open_runs(path)]
        kinds = {folder.kind for folder in folders}
        if len(kinds) > 1:
            raise ConfigError(f"got runs of the kinds {' and '.join(sorted(kinds))}; plot them one kind at a time")
        half = HALVES[kinds.pop()]
        jax_setup.prepare(is_double=half.is_double)
        target = self.out or (self.folders[0] / "figures" if len(self.folders) == 1 else Path("figures"))
        for path in half.draw(self, folders, target):
            console().print(str(path), markup=False, soft_wrap=True)
        return 0
