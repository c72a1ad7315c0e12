"""`actsafe verify`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.working import console
from actsafe.evidence.verify import differences, read_certificate


@dataclasses.dataclass(frozen=True)
class Verify:
    """Compare a certificate with the run that it is about, field by field.

    The certificate is made again from the run. The exit code is 1 if a field differs; all that do are named.
    """

    certificate: Annotated[Positional[Path], arg(metavar="CERTIFICATE")]
    """A file that `actsafe certify` wrote."""
    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""

    def run(self, arguments: Sequence[str]) -> int:
        """Say whether they agree, and else where not."""
        claimed = read_certificate(self.certificate)
        jax_setup.prepare()
        found = differences(claimed, self.folder)
        for line in found:
            print(line, file=sys.stderr)
        verdict = f"{len(found)} field(s) differ" if found else f"verified: {claimed['standing']}"
        console().print(f"{self.certificate} against {self.folder}: {verdict}")
        return int(bool(found))
