"""`actsafe reproduce`."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from tyro.conf import Positional, arg

from actsafe.agents.algorithms import ALGORITHMS, label
from actsafe.agents.gp import GPAgentSettings
from actsafe.cli import jax_setup
from actsafe.cli.options import Changes, Flag, Jobs, Whole, given
from actsafe.cli.plot import write_all
from actsafe.cli.sweep import stay_off_devices, trained
from actsafe.cli.tables import plain_table
from actsafe.cli.train import Train
from actsafe.cli.working import console
from actsafe.figures import figures_of_runs
from actsafe.training import provenance, results
from actsafe.training.config import Config
from actsafe.training.presets import PRESETS
from actsafe.training.reference import reference_returns
from actsafe.training.run import CONFIG, RunFolder
from actsafe.training.settings import ConfigError, require_at_least, require_known
from actsafe.training.sweep import SweepFolder, is_sweep

REFERENCE_EPISODES = 20
"""Single returns of the planner differ by tens: a median over a few would not be a mark to measure against."""


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Run an experiment: a preset, every algorithm that its agent can have, every seed; one results file.

    The seeds of an algorithm are computed side by side, in one program where that can be, else in a process each. What
    is finished in the folder is not computed again, what was stopped there goes on.
    """

    experiment: Annotated[Positional[str], arg(metavar="EXPERIMENT")]
    """A preset: gp-pendulum, gp-cartpole and authors-pendulum are the paper's from state, point-goto-goal and the like
    those from pixels; `actsafe train --help` lists all."""
    algorithms: Annotated[tuple[str, ...] | None, given("NAME [NAME ...]", "all")] = None
    """Rows of the table of algorithms, or module:NAME of rows of your own."""
    seeds: Annotated[tuple[Whole, ...] | None, given("N [N ...]", "the preset's")] = None
    """Independent repetitions."""
    quick: Flag = False
    """A planner and a model of the demo's size, and fewer evaluations: for a CPU. The numbers will be worse."""
    changes: Changes = ()
    """Any entry of the settings, as for `actsafe train`."""
    jobs: Jobs = None
    """How many of several processes run at once."""
    out: Annotated[Path | None, given("FOLDER", "runs/EXPERIMENT")] = None
    """A folder with one run per algorithm."""
    results: Annotated[Path | None, given("FILE", "FOLDER/results.json")] = None
    """The results file; entries of the same algorithm and seed are replaced, others stay."""

    def run(self, arguments: Sequence[str]) -> int:
        """Train what is missing, write the results file and the figures."""
        require_at_least(1, self, "jobs", prefix="--")
        configs = self.configs()
        base = self.out or Path("runs") / (self.experiment + ("-quick" if self.quick else ""))
        target = self.results or base / "results.json"
        paths = {base / re.sub(r"[^\w.-]+", "-", config.algorithm): config for config in configs}
        for path, config in paths.items():
            _require_same(path, config)
        if target.exists():
            results.read(target)
        if any(len(config.programs) > 1 for config in configs):
            stay_off_devices()
        jax_setup.prepare()
        out, command = console(), provenance.command_line(arguments)
        code, folders, content = 0, [], {}
        for path, config in paths.items():
            own, failed = trained(path, config, arguments, to_go_on=command, jobs=self.jobs)
            code, folders = max(code, failed), [*folders, *own]
            content = results.merge(target, [run for each in own for run in results.entries(each)], command=command)
        reference = reference_returns(configs[0], REFERENCE_EPISODES)
        if reference is not None:
            content = results.merge(target, [], command=command, reference=reference)
        out.print()
        out.print(algorithm_table(content["summary"], content["runs"][0]["task"]), soft_wrap=False)
        for task, by_rule in (reference or {}).get("tasks", {}).items():
            for rule, found in by_rule.items():
                paid = f"return {found['median_return']:.4g}, cost {max(found['costs']):.3g}"
                out.print(f"planning with the true dynamics, {task}, {rule}: {paid}")
        mixed = [name for name, found in content["summary"].items() if found["different_settings"] > 1]
        if mixed:
            out.print(
                f"warning: runs of {', '.join(mixed)} in the results file were made with different settings",
                style="yellow",
            )
        out.print(f"results  {target}")
        begun = [folder for folder in folders if folder.num_committed > 1]
        for path in write_all(figures_of_runs(begun, reference=reference), base / "figures") if begun else ():
            out.print(f"picture  {path}")
        return code

    def configs(self) -> list[Config]:
        """The settings of every algorithm's runs."""
        require_known("preset", self.experiment, PRESETS)
        if self.quick and self.changes:
            raise ConfigError("got --quick and --set; expected one of them: --quick would undo what --set asks for")
        config = Train(preset=self.experiment, seeds=self.seeds, changes=self.changes).config()
        config = quick(config) if self.quick else config
        names = [name for name, row in ALGORITHMS.items() if row.takes(config.agent.kind)]
        chosen = names if self.algorithms is None else self.algorithms
        return [dataclasses.replace(config, algorithm=name) for name in dict.fromkeys(chosen)]


def quick(config: Config) -> Config:
    """The same experiment with the planner and the model of the demo, and as few evaluations, or `ConfigError`."""
    small, agent = PRESETS["demo"](), config.agent
    if not isinstance(agent, GPAgentSettings) or not isinstance(small.agent, GPAgentSettings):
        raise ConfigError("--quick does not apply to an agent that does not plan; expected --set with smaller settings")
    search = dataclasses.replace(small.agent.planning.search, horizon=agent.planning.search.horizon)
    agent = dataclasses.replace(
        agent,
        capacity_step=small.agent.capacity_step,
        gp=small.agent.gp,
        planning=dataclasses.replace(small.agent.planning, search=search),
        objective=dataclasses.replace(agent.objective, num_particles=small.agent.objective.num_particles),
    )
    return dataclasses.replace(config, evaluate_every=small.evaluate_every, agent=agent)


def _require_same(path: Path, config: Config) -> None:
    """Raise `ConfigError` where there are runs of other settings."""
    if is_sweep(path):
        runs = SweepFolder.open(path).runs
        if tuple(runs) != config.seeds:
            raise ConfigError(
                f"{path} holds runs of other seeds ({', '.join(map(str, runs))}) and is left as it is. Choose another "
                "folder with --out, or ask for the same seeds again"
            )
        for seed, run in runs.items():
            run.require_same(dataclasses.replace(config, seeds=(seed,)))
    elif (path / CONFIG).is_file():
        RunFolder.open(path).require_same(config)


def algorithm_table(summary: Mapping[str, Mapping[str, Any]], task: str) -> Table:
    """A row per algorithm of a results file and constraint: what it cost, and what its last evaluations came to."""
    table = plain_table()
    table.add_column("algorithm", no_wrap=True)
    is_certifying = any(found["share_uncertified"] is not None for found in summary.values())
    is_guarded = any(found.get("deployed") for found in summary.values())
    columns = ["seeds", "episodes\nover budget\n(95 %)", "total cost\nmedian, max", f"return of\n{task}\n(quartiles)"]
    columns += ["at the\ngoal", *["decisions\nwithout a\ncertified plan\n(fallbacks)"] * is_certifying]
    columns += ["learned policies\nover budget\n(95 %)", "candidates tried,\nrecalled, refused"] * is_guarded
    for name in columns:
        table.add_column(name, justify="right")
    for name, found in summary.items():
        evaluation = found["evaluation"].get(task) or {}
        goals = "" if evaluation.get("goals") is None else f"{evaluation['goals']} of {evaluation['episodes']}"
        decisions = f"{_percent(found['share_uncertified'])}\n({_percent(found['share_fallbacks'])})"
        for place, (constraint, paid) in enumerate(found["costs"].items()):
            low, high = paid["interval"]
            table.add_row(
                (label(name) if place == 0 else "") + (f" ({constraint})" if len(found["costs"]) > 1 else ""),
                str(found["seeds"]),
                f"{paid['episodes_over']} of {paid['episodes']}\n({100 * low:.3g} to {_percent(high)})",
                f"{_number(paid['total_cost_median'])}, {_number(paid['total_cost_max'])}",
                _returned(evaluation, found["late_return"]),
                goals,
                *[decisions] * is_certifying,
                *(_deployed(found.get("deployed")) if is_guarded else []),
                style="red" if paid["episodes_over"] else None,
            )
    return table


def _deployed(found: Mapping[str, Any] | None) -> list[str]:
    """What the deployments from a safe set come to; nothing where there is none."""
    if found is None:
        return ["", ""]
    learned, (low, high) = found["learned"], found["learned"]["interval"]
    over = f"{learned['over']} of {learned['episodes']}\n({100 * low:.3g} to {_percent(high)})"
    return [over, f"{found['candidates']}, {found['recalled']}, {found['refused']}"]


def _returned(evaluation: Mapping[str, Any], late: float | None) -> str:
    """Of the last evaluations, or where there are none of the last epochs."""
    if evaluation.get("return_median") is None:
        return "" if late is None else f"{late:.3g}\n(in training)"
    low, high = evaluation["return_quartiles"]
    return f"{evaluation['return_median']:.4g}\n({low:.4g}, {high:.4g})"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.3g} %"


def _number(value: float | None) -> str:
    """Null in a results file is a sum that is not finite."""
    return "unbounded" if value is None else f"{value:.3g}"
