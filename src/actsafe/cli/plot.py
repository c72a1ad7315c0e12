"""`actsafe plot`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from actsafe.cli import jax_setup, pictures
from actsafe.cli.working import console
from actsafe.experiments.config import ConfigError
from actsafe.experiments.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the figures of one or more runs.

    Runs of several algorithms on one problem are drawn beside each other.
    """

    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")]
    """The runs' folders."""
    seed: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: each run's first)")] = None
    """Whose trajectories are drawn."""
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
        folders = [RunFolder.open(path) for path in self.folders]
        pictures.require_drawable(folders)
        algorithms = [folder.config.algorithm for folder in folders]
        if len(set(algorithms)) < len(algorithms):
            raise ConfigError(
                f"got more than one run of the same algorithm ({', '.join(algorithms)}); expected different ones, "
                "as they are drawn by algorithm: plot them one at a time"
            )
        jax_setup.prepare()
        target = self.out or (folders[0].path / "figures" if len(folders) == 1 else Path("figures"))
        written = [self._write(target, "phase_plane", pictures.exploration(folders, self.seed))]
        written.append(self._write(target, "summary", pictures.performance(folders)))
        for folder in folders:
            ending = "" if len(folders) == 1 else f"_{folder.config.algorithm}"
            written.append(self._write(target, f"ledger{ending}", pictures.ledger(folder)))
            strip = pictures.swing_up(folder, self.seed)
            if strip is not None:
                written.append(self._write(target, f"swing_up{ending}", strip))
        for path in written:
            console().print(str(path), markup=False, soft_wrap=True)
        return 0

    def _write(self, target: Path, name: str, figure: pictures.Figure) -> Path:
        return pictures.write(figure, target / f"{name}.{self.kind}")
