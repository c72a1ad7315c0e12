"""`actsafe report`."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.options import given
from actsafe.cli.working import console
from actsafe.report.findings import find, sentence
from actsafe.report.page import page
from actsafe.training.settings import ConfigError
from actsafe.training.storage import StorageError, write_text
from actsafe.training.sweep import open_runs

NAME = "report.html"
SUFFIXES = (".html", ".htm")


@dataclasses.dataclass(frozen=True)
class Report:
    """Write one page about one or more runs: the verdict, what it rests on, and what is not known.

    The page is one HTML file that needs no network. Several runs are compared side by side, those of one
    environment, its tasks and its costs.
    """

    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")]
    """The runs' folders; that of a sweep stands for all its runs."""
    out: Annotated[Path | None, given("FILE", f"RUN/{NAME}, of several ./{NAME}")] = None
    """The page; one that is there is replaced."""

    def run(self, arguments: Sequence[str]) -> int:
        """Write the page, and say where it is."""
        if not self.folders:
            raise ConfigError("got no run folder; expected at least one: actsafe report RUN [RUN ...]")
        count = Counter(path.resolve() for path in self.folders)
        for path in self.folders:
            if count[path.resolve()] > 1:
                raise ConfigError(f"got {path} more than once; expected different runs: name each once")
        target = self.out or (self.folders[0] / NAME if len(self.folders) == 1 else Path(NAME))
        if target.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"--out: got {str(target)!r}; expected a name that ends in {' or '.join(SUFFIXES)}")
        if target.is_dir():
            raise StorageError(f"{target} is a folder; name a file in it")
        folders = [folder for path in self.folders for folder in open_runs(path)]
        jax_setup.prepare()
        found = [find(folder) for folder in folders]
        write_text(target, page(found))
        out = console()
        for findings in found:
            out.print(f"{findings.title}: {sentence(findings)}")
        out.print(f"written to {target} ({target.stat().st_size / 1e6:.2f} MB)")
        return 0
