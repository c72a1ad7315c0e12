"""The benchmarks run, print what they promise, and compare like with like. No time is asserted."""

import dataclasses
import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actsafe.experiments.presets import PRESETS
from actsafe.models.base import Model, Prediction
from actsafe.problems.pendulum import Pendulum

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

TIMES = {"compile_seconds", "median_ms", "min_ms", "spread_ms", "repeats"}
WORK = {"predictions_per_plan", "flops_per_prediction", "gflop_per_plan", "achieved_gflops"}

COMPARED = ("plan_time", "data_growth", "run_time", "fit_time", "safety_gym_speed", "environment_speed")
"""Those that always have a ratio to a reference; of the others one needs OpenGL for it, and one compares statistics."""
SCRIPTS = (*COMPARED, "render_time", "safety_gym_statistics")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each benchmark printed with --quick, and wrote; all started at once, each in its own process."""
    folder = tmp_path_factory.mktemp("benchmarks")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    processes = {
        name: subprocess.Popen(
            [sys.executable, BENCHMARKS / f"{name}.py", "--quick", "--out", folder / f"{name}.json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name in SCRIPTS
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
    problem, counted = config.make_problem(), []

    class Counting(Model):
        def predict(self, state, action):
            def count(states):
                counted.append(states.size // problem.state_dim)
                return np.full_like(states, 0.1)

            std = jax.pure_callback(count, state, state, vmap_method="broadcast_all")
            return Prediction(problem.step(state, action, key).state, std, std)

    model = workloads.make_model(problem, workloads.random_transitions(problem, 2, key), "exact")
    planner = dataclasses.replace(workloads.make_planner(config, model), model=Counting())
    start = planner.begin(key)
    jax.block_until_ready(jax.jit(lambda: planner.plan(start.state, start.memory, start.spent, start.key))())
    assert sum(counted) == workloads.predictions_per_plan(config)


def _cholesky_shapes(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "cholesky":
            yield equation.invars[0].aval.shape
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", None)
            if inner is not None:
                yield from _cholesky_shapes(inner)
