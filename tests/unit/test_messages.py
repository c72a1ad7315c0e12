"""What goes wrong outside our code is told in a line that says what to do."""

import re

import pytest

from actsafe.cli import main as entry


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module named 'optax'", name="optax"), "the package optax is not installed"),
        (ImportError("cannot allocate memory", name="jaxlib.xla"), r"jaxlib\.xla cannot be loaded .*limits on memory"),
        (MemoryError("how much memory is free is not known"), "^error: how much memory is free is not known$"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_one_line(monkeypatch, capsys, error, said):
    def fail(arguments):
        raise error

    monkeypatch.setattr(entry, "_run", fail)
    assert entry.main(["doctor"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(said, line)
