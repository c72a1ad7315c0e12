"""`actsafe reproduce`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, UseAppendAction, arg

from actsafe.agents.recipes import RECIPES, VISION_RECIPES
from actsafe.cli import gp_tables, jax_setup, pictures, vision_reproduce
from actsafe.cli.options import Flag
from actsafe.cli.sweep import Jobs
from actsafe.cli.train import ALL_PRESETS
from actsafe.cli.working import carry_on, console
from actsafe.training import provenance, results
from actsafe.training.config import Config, ConfigError, require_known
from actsafe.training.presets import PRESETS, demo
from actsafe.training.reference import reference_returns
from actsafe.training.run import RunFolder
from actsafe.training.vision_presets import VISION_PRESETS

REFERENCE_EPISODES = 20
"""Single returns of the planner differ by tens: a median over a few would not be a mark to measure against."""


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper: every algorithm, every seed, one results file.

    The seeds of an algorithm are computed side by side, from state in one program, from pixels in a process each. What
    is finished in the folder is not computed again, what was stopped there goes on.
    """

    experiment: Annotated[Positional[str], arg(metavar="EXPERIMENT")]
    """gp-pendulum, gp-cartpole or authors-pendulum; or a preset from pixels, such as point-goto-goal."""
    algorithms: Annotated[
        tuple[str, ...] | None, arg(metavar="NAME [NAME ...]", help_behavior_hint="(default: all)")
    ] = None
    """Rows of the table of algorithms."""
    seeds: Annotated[
        tuple[int, ...] | None, arg(metavar="N [N ...]", help_behavior_hint="(default: the experiment's)")
    ] = None
    """Independent repetitions, computed side by side."""
    quick: Flag = False
    """A planner and a model of the demo's size, and fewer evaluations: for a CPU. The numbers will be worse."""
    changes: Annotated[
        tuple[tuple[str, ...], ...], UseAppendAction, arg(name="set", metavar="KEY.PATH=VALUE [...]")
    ] = ()
    """From pixels, any entry of the settings, as for `actsafe train`."""
    jobs: Jobs = None
    """From pixels, how many of several seeds run at once."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/EXPERIMENT)")] = None
    """A folder with one run per algorithm."""
    results: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: FOLDER/results.json)")] = None
    """The results file; entries of the same algorithm and seed are replaced, others stay."""

    def run(self, arguments: Sequence[str]) -> int:
        """Train what is missing, write the results file and the figures."""
        require_known("experiment", self.experiment, ALL_PRESETS)
        if self.algorithms is not None and not self.algorithms:
            raise ConfigError(f"--algorithms got nothing; expected some of {', '.join({**RECIPES, **VISION_RECIPES})}")
        if self.experiment in VISION_PRESETS:
            return vision_reproduce.reproduce(self, arguments)
        if self.changes or self.jobs is not None:
            raise ConfigError("--set and --jobs do not apply from state; expected them with an experiment from pixels")
        algorithms = tuple(RECIPES) if self.algorithms is None else self.algorithms
        base = self.out or Path("runs") / (self.experiment + ("-quick" if self.quick else ""))
        target = self.results or base / "results.json"
        configs = [self._config(algorithm) for algorithm in dict.fromkeys(algorithms)]
        folders = [_open_or_create(base / config.algorithm, config) for config in configs]
        if target.exists():
            results.read(target)
        jax_setup.prepare()

        out, command = console(), provenance.command_line(arguments)
        width = max(len(config.algorithm) for config in configs)
        for folder in folders:
            if not folder.is_finished:
                carry_on(folder, arguments, label=folder.config.algorithm.ljust(width), to_go_on=command)
            results.merge(target, results.entries(folder), command=command, kind=results.GP)
        out.print("planning with the true dynamics, for reference")
        reference = reference_returns(configs[0], REFERENCE_EPISODES)
        content = results.merge(target, [], command=command, kind=results.GP, reference=reference)
        out.print()
        out.print(gp_tables.algorithm_table(content["summary"]))
        for rule, found in reference.get("swing_up", {}).items():
            out.print(
                f"true dynamics, {rule}: swing-up return {found['median_return']:.0f}, cost {max(found['costs']):.3g}"
            )
        _warn_of_mixed_settings(content["summary"], out)
        out.print(f"results  {target}", markup=False, soft_wrap=True)
        for path in _draw(folders, base / "figures", reference):
            out.print(f"picture  {path}", markup=False, soft_wrap=True)
        return 0

    def _config(self, algorithm: str) -> Config:
        config = PRESETS[self.experiment]()
        if self.quick:
            small = demo()
            search = dataclasses.replace(small.planning.search, horizon=config.planning.search.horizon)
            config = dataclasses.replace(
                config,
                evaluate_every=small.evaluate_every,
                capacity_step=small.capacity_step,
                gp=small.gp,
                planning=dataclasses.replace(small.planning, search=search),
                objective=dataclasses.replace(config.objective, num_particles=small.objective.num_particles),
            )
        return dataclasses.replace(
            config, algorithm=algorithm, seeds=config.seeds if self.seeds is None else self.seeds
        )


def _open_or_create(path: Path, config: Config) -> RunFolder:
    """The run of `config` in `path`; one of other settings raises."""
    if not (path / "config.json").is_file():
        return RunFolder.create(path, config)
    folder = RunFolder.open(path)
    if folder.config != config:
        wanted, there = config.to_json(), folder.config.to_json()
        different = ", ".join(key for key in wanted if wanted[key] != there.get(key))
        raise ConfigError(
            f"{path} holds a run with other settings ({different} differ) and is left as it is. "
            "Choose another folder with --out, or ask for the same settings again"
        )
    return folder


def _warn_of_mixed_settings(summary: dict[str, dict], out: Console) -> None:
    mixed = [name for name, found in summary.items() if found["different_settings"] > 1]
    if mixed:
        out.print(
            f"warning: runs of {', '.join(mixed)} in the results file were made with different settings", style="yellow"
        )


def _draw(folders: Sequence[RunFolder], target: Path, reference: dict) -> list[Path]:
    best = reference.get("swing_up", {}).get("constrained", {}).get("median_return")
    ledgers = {f"ledger_{folder.config.algorithm}": pictures.ledger(folder) for folder in folders}
    figures = {
        "phase_plane": pictures.exploration(folders),
        "summary": pictures.performance(folders, reference_return=best),
        **ledgers,
    }
    return [pictures.write(figure, target / f"{name}.png") for name, figure in figures.items()]
