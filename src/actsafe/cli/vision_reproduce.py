"""What `actsafe reproduce` does for the experiments from pixels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from actsafe.agents.recipes import VISION_RECIPES
from actsafe.cli import jax_setup, vision_pictures
from actsafe.cli.sweep import carry_on_all, require_jobs, stay_off_devices
from actsafe.cli.train import assignment, override
from actsafe.cli.working import console
from actsafe.training import provenance, results, vision_results
from actsafe.training.settings import ConfigError, require_known
from actsafe.training.sweep import SweepFolder, is_sweep, require_different
from actsafe.training.vision_config import VisionConfig
from actsafe.training.vision_presets import VISION_PRESETS


def reproduce(asked: Any, arguments: Sequence[str]) -> int:
    """The exit code after training what is missing, one algorithm after the other and its seeds side by side."""
    if asked.quick:
        raise ConfigError("--quick does not apply from pixels; expected --set with smaller settings")
    require_jobs(asked.jobs)
    algorithms = tuple(VISION_RECIPES) if asked.algorithms is None else asked.algorithms
    base = asked.out or Path("runs") / asked.experiment
    target = asked.results or base / "results.json"
    configs = {name: _configs(asked, name) for name in dict.fromkeys(algorithms)}
    stay_off_devices()
    jax_setup.prepare()
    command = provenance.command_line(arguments)
    sweeps = [_open_or_create(base / name, of_seeds, command) for name, of_seeds in configs.items()]
    if target.exists():
        results.read(target)
    out, content, code = console(), {}, 0
    for sweep in sweeps:
        if not sweep.is_finished:
            out.print(
                f"training {sweep.config.algorithm} on {sweep.config.subject}, seeds {sweep.listed}", markup=False
            )
            code = max(code, carry_on_all(sweep, jobs=asked.jobs, log=()))
        runs = [entry for run in sweep.runs.values() for entry in vision_results.entries(run)]
        content = results.merge(target, runs, command=command, kind=vision_results.VISION)
    out.print()
    out.print(algorithm_table(content["summary"]))
    out.print(f"results  {target}", markup=False, soft_wrap=True)
    drawn = [run for sweep in sweeps for run in sweep.runs.values() if run.rows("metrics")]
    for path in vision_pictures.draw_all(drawn, base / "figures") if drawn else ():
        out.print(f"picture  {path}", markup=False, soft_wrap=True)
    return code


def _configs(asked: Any, algorithm: str) -> list[VisionConfig]:
    """The settings of an algorithm's runs, one per seed."""
    require_known("algorithm", algorithm, VISION_RECIPES)
    preset = VISION_PRESETS[asked.experiment]()
    seeds = (preset.seed,) if asked.seeds is None else asked.seeds
    require_different(seeds)
    found = []
    for seed in seeds:
        plain = preset.to_json()
        for path, value in (assignment(text) for group in asked.changes for text in group):
            override(plain, path, value)
        found.append(VisionConfig.from_json({**plain, "algorithm": algorithm, "seed": seed}))
    return found


def _open_or_create(path: Path, configs: Sequence[VisionConfig], command: str) -> SweepFolder:
    """The runs of `configs` in `path`; runs of other settings raise."""
    if not is_sweep(path):
        return SweepFolder.create(path, configs, command=command)
    sweep = SweepFolder.open(path)
    there = {seed: run.config for seed, run in sweep.runs.items()}
    if there != {config.seed: config for config in configs}:
        raise ConfigError(
            f"{path} holds runs with other settings or seeds ({sweep.listed}) and is left as it is. Choose another "
            "folder with --out, or ask for the same settings again"
        )
    return sweep


def algorithm_table(summary: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row per algorithm."""
    table = Table()
    table.add_column("algorithm", no_wrap=True)
    for name in ("seeds", "steps", "epochs over\nbudget", "random\nreturn", "late\nreturn", "late\ncost", "minutes"):
        table.add_column(name, justify="right")
    for name, found in summary.items():
        table.add_row(
            VISION_RECIPES[name].label,
            str(found["seeds"]),
            f"{max(found['steps']):,}",
            f"{found['epochs_over_budget']} of {found['epochs_after_warm_up']}",
            *(_number(found[key]) for key in ("random_return", "late_return", "late_cost")),
            _number(None if None in found["minutes"] else max(found["minutes"])),
            style="red" if found["epochs_over_budget"] else None,
        )
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
