"""`actsafe theorem`."""

import concurrent.futures
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
from tyro.conf import arg

from actsafe.cli import jax_setup
from actsafe.cli.options import given
from actsafe.cli.working import console
from actsafe.evidence.binomial import clopper_pearson
from actsafe.figures import save
from actsafe.figures.theorem import Growth, safe_set_growth
from actsafe.theory.idealised import Run, TheoremSettings, run
from actsafe.theory.small_world import World, WorldSettings
from actsafe.theory.verdict import Tally, bound_on_episodes, sizes
from actsafe.training import provenance
from actsafe.training.settings import ConfigError, require_at_least
from actsafe.training.storage import write_json

SCHEMA_VERSION = 2
RUNS_AT_ONCE = 10
"""Runs in one program: enough to fill its vectors, few enough that a slow one holds up few others."""


@dataclasses.dataclass(frozen=True)
class Theorem:
    """Try the paper's theorem: is the idealised algorithm safe in every episode, and what does it find?

    Algorithm 1 of the paper as it is written, on systems drawn from a known function space: is it safe in every
    episode, does its safe set come to contain all that is reachable, is its final policy near the best there?
    The same systems with beta = 0 and with a tighter D show whether the count could have come out otherwise.
    The exit code is 1 if what came out contradicts the theorem.
    """

    runs: Annotated[int, arg(metavar="N")] = 100
    """Independent draws of a system and its noise."""
    delta: Annotated[float, arg(metavar="P")] = TheoremSettings.delta
    """The probability with which the theorem may fail."""
    epsilon: Annotated[float, arg(metavar="X")] = TheoremSettings.epsilon
    """The error allowed in the costs and the reward of an episode."""
    max_episodes: Annotated[int, arg(metavar="N")] = TheoremSettings.max_episodes
    """Where a run ends that has not come to know its safe set to epsilon."""
    seed: Annotated[int, arg(metavar="N")] = 0
    out: Annotated[Path, arg(metavar="FILE")] = Path("runs/theorem.json")
    """The results file."""
    picture: Annotated[Path | None, given("FILE", "FILE of --out, as .png")] = None
    """How the safe set of the first run grew."""

    def run(self, arguments: Sequence[str]) -> int:
        """Run, judge, write the results and the picture, and say what came out."""
        require_at_least(1, self, "runs", prefix="--")
        try:
            settings = TheoremSettings(delta=self.delta, epsilon=self.epsilon, max_episodes=self.max_episodes)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        jax_setup.prepare()
        with jax.enable_x64(True):
            return self._run(settings, arguments)

    def _run(self, settings: TheoremSettings, arguments: Sequence[str]) -> int:
        started = time.perf_counter()
        world = World.create(WorldSettings())
        trusting = dataclasses.replace(settings, is_mean_trusted=True)
        worlds, rules = {"paper": world, "tight": world.tightened}, {"theory": settings, "zero": trusting}
        programs = {rule: self._compiled(world, each) for rule, each in rules.items()}
        outcomes, rows = {}, []
        for distance, each in worlds.items():
            for rule, rule_settings in rules.items():
                found = outcomes[distance, rule] = self._outcomes(each, programs[rule], f"beta {rule}, D {distance}")
                rows.append({"multiplier": rule, "distance": distance, **_row(found, each, rule_settings)})
        tally = Tally.count(outcomes["paper", "theory"], settings.epsilon)
        failures = [failure for row in rows for failure in row["contradictions"]]
        bound = bound_on_episodes(world, settings)
        content = {
            "schema": SCHEMA_VERSION,
            # The theorem's statements, each with whether it was so in every run.
            "runs": tally.runs,
            "violating_runs": tally.violating_runs,
            "delta": settings.delta,
            "epsilon": settings.epsilon,
            "safe_set_shrank": tally.shrinking_runs > 0,
            "contains_seed": tally.runs_with_seed == tally.runs,
            "contains_reachable_set": tally.runs_with_reachable_set == tally.runs,
            "epsilon_optimal": tally.epsilon_optimal_runs == tally.runs,
            "tally": dataclasses.asdict(tally),
            "contradictions": failures,
            "sizes": rows[0]["sizes"],
            "rows": rows,
            "bound_on_episodes": bound if math.isfinite(bound) else None,
            "settings": {"theorem": dataclasses.asdict(settings), "world": dataclasses.asdict(world.settings)},
            "constants": {
                **dataclasses.asdict(world.smoothness),
                "distance_of_neighbours": {
                    name: [float(distance[0, 1]) for distance in each.distances] for name, each in worlds.items()
                },
                "kernel_rank": world.kernel.rank,
            },
            "seconds": round(time.perf_counter() - started, 1),
            "command": provenance.command_line(arguments),
            "machine": provenance.machine(),
        }
        write_json(self.out, content)
        picture = save(
            safe_set_growth(growth_of(outcomes["paper", "theory"], world, 0)),
            self.picture or self.out.with_suffix(".png"),
        )
        _report(content, picture, self.out)
        return 1 if failures else 0

    @property
    def _keys(self) -> jax.Array:
        """Of all runs, in batches: the same systems and noise for every row."""
        size = min(self.runs, RUNS_AT_ONCE)
        num_batches = math.ceil(self.runs / size)
        return jax.random.split(jax.random.key(self.seed), num_batches * size).reshape(num_batches, size)

    def _compiled(self, world: World, settings: TheoremSettings) -> Callable[[World, jax.Array], Run]:
        """A batch of runs as one program, for any D."""
        runs = jax.vmap(lambda world, key: run(world, settings, key), in_axes=(None, 0))
        return jax.jit(runs).lower(world, self._keys[0]).compile()

    def _outcomes(self, world: World, program: Callable[[World, jax.Array], Run], what: str) -> Run:
        """All runs, stacked; one batch per core at a time."""
        keys = self._keys
        num_batches, size = keys.shape
        workers = min(num_batches, provenance.machine()["cores"])

        def batch(index: int) -> Run:
            # Contexts are of one thread.
            with jax.enable_x64(True):
                outcome = program(world, keys[index])
            # A key is no NumPy array; what the run's own was is of no more use.
            outcome = outcome._replace(progress=outcome.progress._replace(key=np.zeros(size)))
            return jax.tree.map(np.asarray, jax.block_until_ready(outcome))

        with concurrent.futures.ThreadPoolExecutor(workers) as pool, console().status("") as status:
            batches = []
            for outcome in pool.map(batch, range(num_batches)):
                batches.append(outcome)
                status.update(f"{what}: {min(len(batches) * size, self.runs)} of {self.runs} runs")
        return jax.tree.map(lambda *parts: np.concatenate(parts)[: self.runs], *batches)


def growth_of(outcomes: Run, world: World, index: int) -> Growth:
    """What the picture needs of one run."""
    progress = outcomes.progress
    deployed = np.asarray(progress.deployed[index])
    return Growth(
        actions=np.asarray(world.lattice.actions),
        joined=np.asarray(progress.joined[index]),
        is_reachable=np.asarray(outcomes.is_reachable[index]),
        is_unsafe=~(np.asarray(outcomes.truth.most_cost[index]) <= world.settings.budget),
        deployed=deployed[deployed >= 0],
        final=int(outcomes.final[index]),
    )


def _row(outcomes: Run, world: World, settings: TheoremSettings) -> dict[str, Any]:
    """What came of one multiplier with one D; with beta = 0 nothing contradicts the theorem, which does not hold."""
    tally = Tally.count(outcomes, settings.epsilon)
    return {
        "violating_runs": tally.violating_runs,
        "interval": list(clopper_pearson(tally.violating_runs, tally.runs)),
        "contradictions": [] if settings.is_mean_trusted else tally.failures(settings.delta),
        "tally": dataclasses.asdict(tally),
        "sizes": sizes(outcomes, world),
    }


def _power(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    name = f"beta {'= 0' if row['multiplier'] == 'zero' else 'of the theory'}, {row['distance']} D"
    return f"               {name:28} {row['violating_runs']:4d} of {row['tally']['runs']}  [{low:.1%}, {high:.1%}]"


def _report(content: dict[str, Any], picture: Path, results: Path) -> None:
    out, tally, found = console(), content["tally"], content["sizes"]
    num = tally["runs"]
    least, median, most = found["episodes_least_median_most"]
    bound = content["bound_on_episodes"]
    lines = [
        f"violations   {tally['violating_runs']} of {num} runs deployed a policy that breaks the budget; "
        f"the theorem allows {content['delta'] * num:g}",
        f"safe set     shrank in {tally['shrinking_runs']} runs, kept S_0 in {tally['runs_with_seed']}, "
        f"contains the reachable set in {tally['runs_with_reachable_set']}",
        f"sizes        S_0 {found['policies_in_seed']} of {found['policies']} policies; reachable "
        f"{found['median_share_reachable']:.0%}, known to be safe in the end {found['median_share_in_safe_set']:.0%}, "
        f"truly safe {found['median_share_truly_safe']:.0%} (medians)",
        f"final policy within epsilon = {content['epsilon']:g} of the best reachable in "
        f"{tally['epsilon_optimal_runs']} runs; largest gap {found['largest_reward_gap']:.3f}",
        f"episodes     {least} to {most}, median {median:.0f}; the theorem's own bound is "
        + ("out of reach" if bound is None else f"{bound:.2g}"),
        f"calibrated   the truth stayed within the plausible models in {tally['calibrated_runs']} of {num} runs",
        "power        runs that break the budget, and the probability of one (95 %, exact):",
        *map(_power, content["rows"]),
    ]
    for line in lines:
        out.print(line)
    out.print()
    if content["contradictions"]:
        out.print(f"NOT as the theorem says: {'; '.join(content['contradictions'])}.", style="bold red")
    else:
        out.print(f"Nothing in {num} runs contradicts the theorem.", style="bold green")
    out.print(f"results  {results}")
    out.print(f"picture  {picture}")
