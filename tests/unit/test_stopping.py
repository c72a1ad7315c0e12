"""A request to stop is met, whatever Python is doing when it comes."""

import gc
import importlib
import signal
import sys
import time

import pytest

from actsafe.cli.stopping import Stopped, StopRequests


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_request_stops_at_once_or_at_the_next_check(number, code, capsys):
    before = [signal.getsignal(each) for each in StopRequests.SIGNALS], sys.unraisablehook
    with pytest.raises(Stopped) as raised, StopRequests():
        signal.raise_signal(number)
    assert raised.value.exit_code == code
    with StopRequests(is_patient=True) as requests:
        requests.check()
        signal.raise_signal(number)
        assert "stopping after the computation under way" in capsys.readouterr().err
        with pytest.raises(Stopped):
            requests.check()
        with pytest.raises(Stopped):
            signal.raise_signal(number)
    assert ([signal.getsignal(each) for each in StopRequests.SIGNALS], sys.unraisablehook) == before


def test_what_is_raised_while_garbage_is_collected_is_not_lost(capsys):
    """As in JAX's callback of the garbage collector: Python prints such an exception, and goes on."""
    calls = []

    def callback(phase, info):
        if not calls:
            calls.append(phase)
            signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(callback)
    try:
        with pytest.raises(Stopped), StopRequests():
            gc.collect()
            time.sleep(5.0)
            raise AssertionError("it was lost")
    finally:
        gc.callbacks.remove(callback)
    assert capsys.readouterr().err == ""


def test_an_import_is_finished_first(tmp_path, monkeypatch):
    """What is raised while an extension in C++ is imported may abort the process."""
    (tmp_path / "stopping_in_the_middle.py").write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(0.2)\nis_whole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Stopped), StopRequests():
        importlib.import_module("stopping_in_the_middle")
        time.sleep(5.0)
    assert sys.modules.pop("stopping_in_the_middle").is_whole


def test_other_exceptions_that_cannot_be_raised_are_told_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    class Faulty:
        def __del__(self):
            raise ZeroDivisionError

    with StopRequests():
        faulty = Faulty()
        del faulty
    assert [type(each.exc_value) for each in told] == [ZeroDivisionError]


def test_libraries_that_catch_every_exception_do_not_catch_it():
    with pytest.raises(Stopped), StopRequests():
        try:
            signal.raise_signal(signal.SIGINT)
        except Exception:
            raise AssertionError("caught") from None
