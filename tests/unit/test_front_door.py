"""`import actsafe` is cheap, and offers what it says."""

import inspect
import subprocess
import sys

import pytest

import actsafe

PROGRAM = """
import sys, time
started = time.perf_counter()
import actsafe
seconds = time.perf_counter() - started
heavy = {"jax", "equinox", "matplotlib", "mujoco", "scipy", "optax"} & set(sys.modules)
import gymnasium
assert not heavy, heavy
assert "actsafe/Pendulum-v0" in gymnasium.registry
assert set(actsafe.__all__) <= set(dir(actsafe))
print(seconds)
"""


def test_importing_is_cheap_and_registers_the_environments():
    runs = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False) for _ in range(3)
    ]
    for run in runs:
        assert run.returncode == 0, run.stderr
    # The best of three: other processes may be busy.
    assert min(float(run.stdout) for run in runs) < 0.7


@pytest.mark.parametrize("name", actsafe.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(actsafe, name)
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        assert value.__doc__
        assert not value.__doc__.startswith(f"{name}("), "a docstring that nobody wrote"
    assert name in dir(actsafe)


def test_an_unknown_name_is_answered_with_those_there_are():
    with pytest.raises(AttributeError, match=r"no attribute 'trian'; it offers .* train"):
        _ = actsafe.trian


def test_the_public_names_are_few():
    assert len(actsafe.__all__) <= 30
    assert sorted(set(actsafe.__all__)) == sorted(actsafe.__all__)
