"""`actsafe certify`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.halves import HALVES
from actsafe.cli.working import console
from actsafe.evidence.certificate import CERTIFICATE, CONDITIONAL, HELD, REFUSED, certificate
from actsafe.training.run import RunFolder
from actsafe.training.storage import write_json

COLOURS = {HELD: "green", CONDITIONAL: "yellow", REFUSED: "bold red"}


@dataclasses.dataclass(frozen=True)
class Certify:
    """Write down what a run's policy promises, what that rests on, and what it does not promise.

    The exit code is 1 if the promise is refused: a pessimistic cost over its budget, or an overconfident model.
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: RUN/certificate.json)")] = None
    """Where the certificate goes."""

    def run(self, arguments: Sequence[str]) -> int:
        """Write the certificate, and say the most of it."""
        folder = RunFolder.open(self.folder)
        jax_setup.prepare(is_double=HALVES[folder.kind].is_double)
        with folder.locked():
            content = certificate(folder)
        path = self.out or folder.path / CERTIFICATE
        write_json(path, content)
        out = console()
        print_certificate(content, out)
        out.print(f"written to {path}", markup=False, soft_wrap=True)
        return int(content["standing"] == REFUSED)


def print_certificate(content: Mapping[str, Any], out: Console) -> None:
    """The promise, how it stands, and what episodes came to."""
    for estimate in content["promise"]["estimates"]:
        cost = estimate["pessimistic_cost"]
        what = ", ".join(str(estimate[name]) for name in ("task", "policy", "constraint") if name in estimate)
        seed = f", seed {estimate['seed']}" if "seed" in estimate else ""
        said = "not known" if cost is None else f"{cost:.3g}"
        out.print(f"{what}{seed}: pessimistic cost {said}, budget {estimate['budget']:.3g}", markup=False)
    for found in content["violations"]:
        low, high = found["interval"]
        out.print(
            f"{found['constraint']}: {found['over_budget']} of {found['episodes']} recorded episodes over budget; rate "
            f"in [{low:.3f}, {high:.3f}] with {found['confidence']:.0%} confidence (Clopper-Pearson)",
            markup=False,
        )
    out.print(f"calibration of the model: {content['calibration']['verdict']}")
    reasons = f" ({'; '.join(content['reasons'])})" if content["reasons"] else ""
    out.print(f"the promise: [{COLOURS[content['standing']]}]{content['standing']}[/]{reasons}")
