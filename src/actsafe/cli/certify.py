"""`actsafe certify`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape
from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.options import given
from actsafe.cli.working import console
from actsafe.evidence.certificate import CONDITIONAL, HELD, REFUSED, write_certificate
from actsafe.training.run import RunFolder

COLOURS = {HELD: "green", CONDITIONAL: "yellow", REFUSED: "bold red"}


@dataclasses.dataclass(frozen=True)
class Certify:
    """Write down what a run's policy promises, what that rests on, and what it does not promise.

    The exit code is 1 if the promise is refused: a pessimistic cost over its bound, an overconfident model, or a policy
    that broke its budget in the newest epoch.
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    out: Annotated[Path | None, given("FILE", "RUN/certificate.json")] = None
    """Where the certificate goes. A file that is no certificate is not replaced."""

    def run(self, arguments: Sequence[str]) -> int:
        """Write the certificate, and say the most of it."""
        folder, out = RunFolder.open(self.folder), console()
        jax_setup.prepare()
        path, content = write_certificate(folder, self.out)
        print_certificate(content, out)
        out.print(f"written to {path}")
        return int(content["standing"] == REFUSED)


def print_certificate(content: Mapping[str, Any], out: Console) -> None:
    """The promise, how it stands, and what episodes came to."""
    promise = content["promise"]
    for estimate in promise["estimates"]:
        cost = estimate["cost"]
        whose = ", ".join(str(estimate[name]) for name in ("policy", "task", "role", "constraint") if name in estimate)
        said = "not known" if cost is None else f"{cost:.3g}"
        out.print(f"{whose}, seed {estimate['seed']}: {estimate['what']}: {said}, bound {estimate['bound']:.3g}")
    out.print(f"costs are computed for {promise['horizon']} decisions. {promise['afterwards']}")
    for found in content["violations"]:
        low, high = found["interval"]
        out.print(
            f"{found['constraint']}: {found['over_budget']} of {found['episodes']} recorded episodes over budget; rate "
            f"in [{low:.3f}, {high:.3f}] with {found['confidence']:.0%} confidence (Clopper-Pearson)"
        )
    out.print(f"calibration of the model: {content['calibration']['verdict']}")
    reasons = f" ({'; '.join(content['reasons'])})" if content["reasons"] else ""
    out.print(f"the promise: [{COLOURS[content['standing']]}]{content['standing']}[/]{escape(reasons)}", markup=True)
