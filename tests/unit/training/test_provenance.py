"""What is recorded of a machine, and what is said of another one."""

import pytest

from actsafe.training import provenance


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [(2, 2, ""), (2, 1, "1 core here, and 2 in the session before"), (1, 4, "4 cores here"), (None, 2, "")],
)
def test_another_number_of_cores_is_said(monkeypatch, before, now, said):
    """Sums over more cores have other last bits, from pixels."""
    monkeypatch.setattr(provenance, "num_cores", lambda: now)
    sessions = [{"machine": {"cores": 8}}, {"machine": {"cores": before}}]
    got = provenance.changed_cores(sessions)
    assert got == "" if said == "" else said in got
    assert provenance.changed_cores([]) == ""


def test_a_home_folder_is_not_recorded_and_need_not_be(monkeypatch):
    """In a container the user may have neither HOME nor an entry in the system's list."""
    monkeypatch.setenv("HOME", "/home/ann")
    assert provenance.command_line(["train", "--out", "/home/ann/run"]) == "actsafe train --out '~/run'"
    monkeypatch.setattr(provenance.os.path, "expanduser", lambda path: path)
    assert provenance.command_line(["train", "--out", "/run"]) == "actsafe train --out /run"
    assert provenance.session("actsafe train", 3).keys() == {"command", "machine", "first_epoch"}
