"""The benchmarks run, print what they promise, and compare like with like. No time is asserted."""

import dataclasses
import functools
import importlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.models.base import Model, Prediction
from actsafe.problems.pendulum import Pendulum
from actsafe.training.config import Config
from actsafe.training.presets import PRESETS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

TIMES = {"compile_seconds", "median_ms", "min_ms", "spread_ms", "repeats"}
WORK = {"predictions_per_plan", "flops_per_prediction", "gflop_per_plan", "achieved_gflops"}

COMPARED = (
    "plan_time",
    "data_growth",
    "run_time",
    "fit_time",
    "safety_gym_speed",
    "environment_speed",
    "vision_growth",
    "vision_run",
)
"""Those that always have a ratio to a reference; of the others one needs OpenGL for it, one unrolled loops, one
compares statistics, and one does not time."""
SCRIPTS = (*COMPARED, "render_time", "safety_gym_statistics", "safety_study", "vision_update")
ARGUMENTS = {"vision_growth": ("--only", "seeds")}
"""What is asked for beside --quick: the other sizes go the same way, and each takes ten seconds to compile."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each benchmark printed with --quick, and wrote; all started at once, each in its own process."""
    folder = tmp_path_factory.mktemp("benchmarks")
    processes = {
        name: subprocess.Popen(
            [sys.executable, BENCHMARKS / f"{name}.py", "--quick", "--out", folder / f"{name}.json", *asked],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, asked in {**dict.fromkeys(SCRIPTS, ()), **ARGUMENTS}.items()
    }
    results = {}
    for name, process in processes.items():
        printed, messages = process.communicate()
        assert process.returncode == 0, messages
        results[name] = json.loads(printed)
        assert json.loads((folder / f"{name}.json").read_text()) == results[name]
    return results


@pytest.fixture
def workloads(monkeypatch):
    """The module, imported as the scripts import it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("workloads")


@pytest.fixture
def vision_run(monkeypatch):
    """As `workloads`."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("vision_run")


def ratios(value, is_ratio=False):
    """All numbers under a key that speaks of a ratio."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ratios(item, is_ratio or key.startswith("ratio"))
    elif isinstance(value, list):
        for item in value:
            yield from ratios(item, is_ratio)
    elif is_ratio:
        yield value


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_states_its_claim_and_machine(results, name):
    result = results[name]
    assert {"benchmark", "claim", "method", "machine", "is_quick"} <= result.keys()
    assert result["benchmark"] == name
    assert result["is_quick"] is True
    assert {"platform", "accelerator", "cpu", "cores", "jax", "python"} <= result["machine"].keys()


@pytest.mark.parametrize("name", COMPARED)
def test_each_has_a_ratio_to_a_reference(results, name):
    found = list(ratios(results[name]))
    assert found
    assert all(math.isfinite(number) and number > 0 for number in found)


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_tells_where_it_ran(results, name):
    assert str(BENCHMARKS.parent) not in json.dumps(results[name])
    assert os.uname().nodename not in json.dumps(results[name]["machine"])


def test_plan_time_has_arithmetic_beside_every_point(results):
    result = results["plan_time"]
    for point in result["points"]:
        assert TIMES | WORK | {"preset", "posterior", "num_seeds", "num_data", "ms_per_seed"} <= point.keys()
    for entry in result["references"]:
        assert entry["ours"].keys() >= TIMES | WORK
        assert set(entry["references"]) == set(entry["ratio"]) == {"refactor_per_call", "refactor_per_prediction"}
        assert all(difference < 1e-6 for difference in entry["relative_difference_of_plan_value"].values())


def test_data_growth_fits_an_exponent_to_every_curve(results):
    (workload,) = results["data_growth"]["workloads"]
    for model, points in workload["curves"].items():
        assert [point["num_data"] for point in points] == results["data_growth"]["sizes"]
        assert all(point.keys() >= TIMES | WORK for point in points)
        assert math.isfinite(workload["growth"][model]["exponent"])


def test_run_time_accounts_for_every_second(results):
    run = results["run_time"]["run"]
    assert run["seconds"] == pytest.approx(run["compile_seconds"] + run["steady_seconds"])
    assert run["seconds"] == pytest.approx(sum(phase["seconds"] for phase in run["phases"].values()), rel=0.05)
    assert all(phase["seconds"] > 0 for phase in run["phases"].values())
    assert 0 < run["compile_seconds"] < run["seconds"]
    assert results["run_time"]["reference_extrapolated"]["is_extrapolated"] is True


def test_fit_time_compares_subset_and_all(results):
    for point in results["fit_time"]["points"]:
        for name in ("fit_subset", "fit_all", "condition_exact", "condition_reduced"):
            assert point[name].keys() >= TIMES
        assert {"fit", "condition_reduced"} <= point["ratio"].keys()


def test_environment_speed_compares_both_kinds_of_vector(results):
    result = results["environment_speed"]
    assert {point["observation"] for point in result["points"]} == {"state", "pixels, 1 sample"}
    for point in result["points"]:
        for kind in ("ours", "sync"):
            assert point[kind].keys() == {"first_seconds", "best", "median", "repeats"}
            assert point[kind]["first_seconds"] > 0.0
    assert [entry["over_first"] for entry in result["growth"]] == [{"1": 1.0}, {"1": 1.0}]


def test_vision_update_has_both_phases_and_their_arithmetic(results):
    result = results["vision_update"]
    for name in ("update_ms", "gflop_per_update"):
        assert result[name].keys() == {"expansion", "exploitation"}
        assert all(number > 0 for number in result[name].values())
    assert result["details"]["updates"]["expansion"].keys() == TIMES | {"ms_per_update"}
    # Two policies learn in the expansion, one after it.
    assert result["gflop_per_update"]["expansion"] > result["gflop_per_update"]["exploitation"]
    assert result["act_ms"] > 0


def test_vision_growth_compares_every_row_with_the_reference(results):
    result = results["vision_growth"]
    sizes = [(row["batch_size"], row["num_members"], row["num_seeds"]) for row in result["rows"]]
    assert sizes == [(2, 2, 1), (2, 2, 2)]
    assert tuple(result["reference"].values()) == sizes[0]
    reference, twice = result["rows"]
    assert reference.keys() >= TIMES | {"ms_per_update", "gflop_per_update", "memory_bytes", "peak_bytes"}
    assert set(reference["ratio_to_reference"].values()) == {1.0}
    # The same arithmetic for each of two seeds; the states of both are held, and the replay once.
    assert twice["ratio_to_reference"]["operations"] == pytest.approx(2.0)
    assert 1.0 < twice["ratio_to_reference"]["memory"] <= 2.0
    assert result["exponents"].keys() == {"seeds"}
    assert result["exponents"]["seeds"]["operations"] == pytest.approx(1.0)


def test_the_safety_study_tells_of_every_judged_epoch(results):
    (run,) = results["safety_study"]["runs"]
    assert (run["variant"], run["algorithm"], run["seed"]) == ("actsafe", "actsafe", 0)
    # Two environments, an episode of each per epoch; the warm-up is not judged.
    assert [(epoch["phase"], epoch["episodes"]) for epoch in run["epochs"]] == [("expansion", 2), ("exploitation", 2)]
    assert all(len(epoch["deployments"]) == 1 for epoch in run["epochs"])
    found = results["safety_study"]["summary"]["actsafe"]
    assert found["episodes"] == 4 and found["frozen_episodes"] == run["frozen_episodes"] == 2
    assert found["episodes_over"] == sum(epoch["episodes_over"] for epoch in run["epochs"])
    assert found["screen"]["screened"] == run["deployed"]["screened"] > 0


def test_vision_run_accounts_for_every_second(results):
    result = results["vision_run"]
    assert result["phases"].keys() == {"exploitation"}
    phase = result["phases"]["exploitation"]
    assert 0 < phase["first_epoch"]["compile_seconds"] < phase["first_epoch"]["seconds"]
    assert phase["compile_seconds"] < phase["first_epoch"]["compile_seconds"]
    # Two environments, 25 decisions of 2 steps; 100 updates in 1000 steps.
    assert (phase["num_steps"], phase["num_updates"]) == (100, 10)
    parts = phase["seconds_by_part"]
    assert parts.keys() == {"collect", "finish", "commit"}
    assert all(seconds > 0 for seconds in parts.values())
    assert sum(parts.values()) == pytest.approx(phase["seconds"])
    assert result["extrapolated"]["is_extrapolated"] is True


def test_vision_run_goes_through_the_phases_of_the_preset(vision_run):
    """One epoch to compile and one to time in each; an epoch is an episode."""
    config = vision_run.shortened(PRESETS["point-goto-goal"](), SimpleNamespace(episodes=1, repeats=1))
    assert config.schedule.episodes_per_epoch == 1
    phases = [config.phase(number).value for number in range(1, config.num_units + 1)]
    assert phases == 2 * ["warm_up"] + 2 * ["expansion"] + 2 * ["exploitation"]
    assert all(config.is_evaluated(number) for number in range(1, 7))


def test_vision_run_extrapolates_by_the_schedule_of_the_preset(vision_run):
    rates = {"warm_up": 1000.0, "expansion": 500.0, "exploitation": 2000.0}
    phases = {name: {"steps_per_second": rate} for name, rate in rates.items()}
    preset = PRESETS["point-goto-goal"]()
    found = vision_run.extrapolated(preset, phases, {"seconds": 3.0, "episodes": 10})
    # 200,000 / 1000 + 300,000 / 500 + 500,000 / 2000 = 1050 s of training in 20 epochs; after four of them 50 episodes
    # of 0.3 s, 60 s.
    expected = {"training": 17.5, "evaluation": 1.0, "all": 18.5}
    assert found["minutes_of_first_million"] == pytest.approx(expected)
    assert found["minutes_per_million_steps"]["expansion"] == pytest.approx(1e6 / 500 / 60)


def test_the_runs_behind_the_results_have_settings_that_exist(tmp_path):
    """The script with `echo` for the command: every path of --set is one of the preset's, and what comes out runs."""
    script = BENCHMARKS / "vision_results.sh"
    runs = [line.split()[1] for line in script.read_text().splitlines() if re.match(r"# (goto-goal|cartpole)", line)]
    assert len(runs) == 13
    for run in runs:
        command = ["bash", str(script), run, str(tmp_path)]
        echoed = subprocess.run(
            command, env=os.environ | {"ACTSAFE": "echo"}, capture_output=True, text=True, check=True
        )
        _, preset, *rest = echoed.stdout.split()
        content = PRESETS[preset]().to_json()
        for change in rest[rest.index("--set") + 1 :]:
            path, _, value = change.partition("=")
            *parents, name = path.split(".")
            entries = functools.reduce(lambda entry, parent: entry[parent], parents, content)
            assert name in entries, path
            entries[name] = value_of(value)
        assert Config.from_json(content).schedule.warm_up in (2, 4)


def value_of(text):
    """A value as --set takes it: JSON, or else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("name", ["refactor_per_call", "refactor_per_prediction"])
def test_the_reference_predicts_what_the_exact_posterior_predicts(workloads, key, name):
    problem = Pendulum()
    data = workloads.random_transitions(problem, 60, key)
    asked = workloads.random_transitions(problem, 20, jax.random.key(1))
    ours, reference = (
        jax.jit(jax.vmap(workloads.make_model(problem, data, model).predict))(asked.states, asked.actions)
        for model in ("exact", name)
    )
    for mine, theirs in zip(ours, reference, strict=True):
        assert jnp.max(jnp.abs(mine - theirs)) < 1e-8


def test_the_reference_factors_as_often_as_it_says(workloads, key):
    problem = Pendulum()
    data = workloads.random_transitions(problem, 12, key)

    def factored(name):
        model = workloads.make_model(problem, data, name)
        program = jax.make_jaxpr(jax.vmap(model.predict))(data.states[:5], data.actions[:5])
        return list(_cholesky_shapes(program.jaxpr))

    assert factored("exact") == []
    assert factored("refactor_per_call") == [(3, 12, 12)]
    assert factored("refactor_per_prediction") == [(5, 3, 12, 12)]


def test_predictions_per_plan_counts_what_a_plan_asks_for(workloads, key):
    """Against a model that counts the stds it is asked for; the compiler drops those that nobody reads."""
    search = {"num_candidates": 7, "num_elites": 4, "num_iterations": 2, "horizon": 3}
    config = workloads.shrink(PRESETS["authors-pendulum"](), search, num_particles=2)
    problem, counted = workloads.known_problem(config), []

    class Counting(Model):
        def predict(self, state, action):
            def count(states):
                counted.append(states.size // problem.state_dim)
                return np.full_like(states, 0.1)

            std = jax.pure_callback(count, state, state, vmap_method="broadcast_all")
            return Prediction(problem.step(state, action, key).state, std, std)

    model = workloads.make_model(problem, workloads.random_transitions(problem, 2, key), "exact")
    planner = dataclasses.replace(workloads.make_planner(config, model), model=Counting())
    state, memory = workloads.start_of(planner, key)
    jax.block_until_ready(jax.jit(lambda: planner.plan(state, memory.search, memory.spent, memory.key))())
    assert sum(counted) == workloads.predictions_per_plan(config)


def _cholesky_shapes(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "cholesky":
            yield equation.invars[0].aval.shape
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", None)
            if inner is not None:
                yield from _cholesky_shapes(inner)
