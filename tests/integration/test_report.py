"""The page that `actsafe report` writes, as text and in a browser."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from actsafe.agents.recipes import Policy
from actsafe.cli.main import main
from actsafe.data.rows import Rows
from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.calibration import Claim, Measured, known, record
from actsafe.evidence.certificate import heading, sealed, violations
from actsafe.evidence.fingerprints import fingerprints
from actsafe.training.presets import tiny
from actsafe.training.recording import Outcome, constraint_columns, ledger_rows, means
from actsafe.training.run import Episode, RunFolder
from actsafe.training.storage import finite, write_json
from actsafe.training.vision_config import ROWS
from actsafe.training.vision_presets import vision_tiny

sys.path.insert(0, str(Path(__file__).parent))
import chromium

MOST_BYTES = 5_000_000
EXAMPLES = Path(__file__).parents[2] / "docs/examples"
POLICIES = {"warm_up": Policy.UNIFORM, "expansion": Policy.EXPLORATION, "exploitation": Policy.TASK}
COSTS = ((9.0, 8.0), (1.0, 2.0), (6.0, 0.0), (0.0, 0.0))
"""Of two episodes in each of four epochs, under a budget of 5; the first epoch is the warm-up."""


def calibrate(path: Path) -> None:
    """Write down a calibration as if the errors of plans were those of a calibrated model."""
    scores = np.random.default_rng(0).normal(size=(200, 5, 3))
    claims = {"plans": Claim.of("a meaning", scores), "model": Claim.of("another", 3.0 * scores)}
    record(RunFolder.open(path), Measured(2, 20, ("cos", "sin", "speed"), claims, "plans", {}))


def certify(path: Path) -> Path:
    """A certificate of the run as it is, with a made-up promise."""
    folder = RunFolder.open(path)
    estimate = {"task": "swing_up", "seed": 0, "pessimistic_cost": 0.0, "budget": 0.0}
    content = {
        **heading(folder),
        "fingerprints": fingerprints(path),
        "standing": "held",
        "reasons": [],
        "promise": {"basis": "a plan", "estimates": [estimate]},
        "calibration": known(folder).to_json(),
        "violations": violations(folder),
        "does_not_promise": ["Anything else."],
    }
    write_json(path / "certificate.json", sealed(finite(content)))
    return path / "certificate.json"


@pytest.fixture(scope="module")
def gp_run(tiny_run: Path, tmp_path_factory) -> Path:
    """A finished run with a calibration. Copy it before changing anything."""
    path = Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("report") / "gp"))
    calibrate(path)
    return path


@pytest.fixture
def gp(gp_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(gp_run, tmp_path / "gp"))


@pytest.fixture
def blank(tmp_path: Path) -> Path:
    """A run that has not begun, with a calibration all the same: its page is quickly made."""
    path = RunFolder.create(tmp_path / "blank", tiny()).path
    calibrate(path)
    return path


def vision_run(path: Path, num_epochs: int = 4, **changes) -> Path:
    """A run as if it had acted in these epochs: real records of made-up episodes, and noise for pictures."""
    config = dataclasses.replace(vision_tiny(), **changes)
    folder, fleet = RunFolder.create(path, config), config.make_envs()
    agent, random = config.make_agent(fleet), np.random.default_rng(0)
    folder.commit(0, Episode([], [], {}, {"seconds": 0.0}), {"agent": np.zeros(1)})
    for epoch, costs in enumerate(COSTS[:num_epochs], start=1):
        phase = config.phase(epoch).value
        heading = {"epoch": epoch, "seed": config.seed, "phase": phase}
        outcomes = [Outcome(float(epoch), np.array([cost])) for cost in costs]
        policy = POLICIES[phase]
        learned = {f"{policy.value}/{name}": 0.1 * epoch for name in ("cost_0", "pessimistic_cost_0", "uncertainty")}
        metrics = {
            **heading,
            "steps": 100 * epoch,
            "updates": 10 * epoch,
            "skipped_updates": 0,
            **means(outcomes, fleet.spec.cost_names),
            **(means(outcomes, fleet.spec.cost_names, "evaluation_") if config.is_evaluated(epoch) else {}),
            "learning": {**learned, "model/observation_loss": 1.0 / epoch, "model/reward_loss": 0.1},
        }
        ledger = ledger_rows(heading, outcomes, constraint_columns(agent, fleet.spec.cost_names, policy, learned))
        pixels = random.integers(0, 255, (2, 26, *fleet.spec.observation_shape), dtype=np.uint8)
        begins = np.zeros((2, 26), bool)
        begins[:, 0] = True
        rows = Rows(pixels, np.zeros((2, 26, 1), np.float32), np.ones((2, 26)), np.zeros((2, 26, 1)), begins)
        episode = Episode([metrics], ledger, {}, {"seconds": 1.0})
        folder.commit(epoch, episode, {"agent": np.zeros(1)}, **{ROWS: rows})
    fleet.close()
    return path


@pytest.fixture(scope="module")
def vision(tmp_path_factory) -> Path:
    return vision_run(tmp_path_factory.mktemp("report") / "vision")


@pytest.fixture(scope="module")
def pages(gp_run: Path, vision: Path, shared_programs, tmp_path_factory) -> dict[str, Path]:
    """Pages of a run of each half, and one of both halves and several seeds and algorithms."""
    folder = tmp_path_factory.mktemp("pages")
    other = vision_run(folder / "other", seed=1)
    strict = vision_run(folder / "strict", algorithm="actsafe_strict")
    runs = {"gp": [gp_run], "vision": [vision], "several": [vision, gp_run, other, strict]}
    for name, chosen in runs.items():
        assert main(["report", *map(str, chosen), "--out", str(folder / f"{name}.html")]) == 0
    return {name: folder / f"{name}.html" for name in runs}


@pytest.fixture
def written(actsafe, tmp_path):
    """The page about some runs, which must go well."""

    def _written(*runs: Path) -> str:
        path = tmp_path / "page.html"
        code, _, errors = actsafe("report", *runs, "--out", path)
        assert code == 0, errors
        return path.read_text()

    return _written


def attribute(page: str, identity: str, name: str) -> str:
    element = re.search(rf'<\w+[^>]* id="{identity}"[^>]*>', page)
    assert element is not None, identity
    return re.findall(rf' {name}="([^"]*)"', element.group())[0]


def verdict(page: str) -> str:
    return re.findall(r'id="verdict"[^>]*>([^<]*)<', page)[0]


def assert_whole(page: str) -> None:
    """It fetches nothing, is small, and what it mentions is there once."""
    assert len(page.encode()) < MOST_BYTES
    assert not re.findall(r"https?://|<script|<link|@import|src=", page)
    assert set(re.findall(r"url\(([a-z]+:)", page)) <= {"data:"}
    identities = re.findall(r'\sid="([^"]*)"', page)
    assert len(identities) == len(set(identities))
    mentioned = re.findall(r'(?:href="#|url\(#|labelledby="|for=")([^")]+)', page)
    assert set(mentioned) <= set(identities)


def test_a_run_has_its_page(pages):
    page = pages["gp"].read_text()
    assert_whole(page)
    assert verdict(page) == "Safe: none of 2 planned episodes cost more than the budget of 0."
    assert attribute(page, "verdict", "data-verdict") == "safe"
    assert attribute(page, "episodes", "data-count") == "2"
    bounds = tuple(float(attribute(page, "violation-interval", name)) for name in ("data-low", "data-high"))
    assert bounds == clopper_pearson(0, 2)
    for title in ("Learning", "Promised and realised cost", "Calibration", "Where the model is unsure", "An episode"):
        assert f">{title}</h3>" in page
    assert "Reliability diagram, 1 step ahead" in page
    assert "@keyframes" in page
    assert "cannot be read" not in page
    assert "actsafe certify" in page
    # Every setting, by its path.
    assert "<code>planning.search.num_candidates</code>" in page


def test_the_page_is_all_that_is_written(actsafe, blank, tree_of):
    before = tree_of(blank)
    code, output, errors = actsafe("report", blank)
    assert code == 0, errors
    after = tree_of(blank)
    assert after.keys() - before.keys() == {"report.html"}
    assert before.items() <= after.items()
    assert "ActSafe on pendulum: Not known yet" in output


def test_what_was_not_measured_is_said(written, blank):
    (blank / "calibration.json").unlink()
    page = written(blank)
    assert f"actsafe calibrate {blank}" in page
    assert "not measured" in page
    assert "Reliability diagram" not in page


def test_warm_ups_are_held_against_nobody(pages):
    page = pages["vision"].read_text()
    assert_whole(page)
    # Six episodes after the warm-up, of which one cost 6.
    assert verdict(page) == (
        "Not safe: 1 of 6 episodes after the warm-up (16.7 %) cost more than the budget of 5; the worst cost 6."
    )
    assert attribute(page, "verdict", "data-verdict") == "unsafe"
    assert attribute(page, "episodes", "data-count") == "6"
    assert float(attribute(page, "violation-interval", "data-high")) == clopper_pearson(1, 6).high
    assert "2 episodes of the warm-up" in page
    # Their means are 1.5, 3 and 0.
    assert "3 of 3" in page
    assert "data:image/webp;base64," in page
    assert "cannot be read" not in page


def test_a_video_in_the_folder_is_shown(written, vision, tmp_path):
    path = Path(shutil.copytree(vision, tmp_path / "run"))
    frames = [Image.new("RGB", (32, 32), (40 * n, 0, 0)) for n in range(5)]
    frames[0].save(path / "seen.gif", save_all=True, append_images=frames[1:], duration=40)
    (path / "broken.webp").write_bytes(b"RIFF")
    page = written(path)
    assert "Recorded video seen.gif" in page
    assert "steps(5,jump-none)" in page


def test_several_runs_are_compared(pages):
    """Two seeds of one setting are taken together; another half is another problem."""
    page = pages["several"].read_text()
    assert_whole(page)
    assert verdict(page).startswith("Not safe: 3 of 4 runs broke a budget: ActSafe on cartpole_swingup (vision), ")
    assert attribute(page, "episodes", "data-count") == str(6 + 2 + 6 + 6)
    assert attribute(page, "violation-interval", "data-over") == "3"
    compared = page[page.index("Side by side") : page.index('id="run-1"')]
    # Costs after the warm-up: (1.5 + 3 + 0) / 3 = 1.5 in both seeds; the last evaluation's return is 4.
    assert '>ActSafe</th><td role="cell" data-label="seeds">2</td>' in compared
    assert "1.5 [1.5, 1.5]" in compared
    assert "4 [4, 4]" in compared
    assert ">ActSafe, strict LBSGD</th>" in compared
    assert "2 of 12" in compared
    assert "Nothing to compare with: pendulum." in compared
    assert page.count('class="verdict"') == 1 + 4


def test_pages_of_many_runs_stay_small(written, vision, tmp_path, monkeypatch):
    monkeypatch.setattr("actsafe.report.page.MOST_IN_FULL", 1)
    other = Path(shutil.copytree(vision, tmp_path / "other"))
    page = written(vision, other)
    assert page.count("data:image/webp") == 1
    assert page.count(f"For all of this one: <code>actsafe report {other}</code>") == 2


def test_several_runs_go_to_a_page_of_their_own(actsafe, blank, tmp_path, monkeypatch):
    other = RunFolder.create(tmp_path / "other", vision_tiny()).path
    monkeypatch.chdir(tmp_path)
    assert actsafe("report", blank, other)[0] == 0
    assert (tmp_path / "report.html").is_file()


def test_names_and_settings_are_text(written, tmp_path):
    evil = "<script>alert(1)<"
    path = vision_run(tmp_path / evil)
    (path / "calibration.json").write_text(json.dumps({"kind": evil}))
    sessions = [{"command": evil, "machine": {"cpu": evil, "cores": 1}, "first_epoch": evil}]
    (path / "provenance.json").write_text(json.dumps(sessions))
    page = written(path)
    assert_whole(page)
    assert "&lt;script&gt;alert(1)&lt;" in page


def test_a_run_that_has_not_begun_has_a_page(written, blank, tmp_path):
    for path in (blank, RunFolder.create(tmp_path / "other", vision_tiny()).path):
        page = written(path)
        assert_whole(page)
        assert verdict(page) == "Not known yet: no episode is recorded."
        assert attribute(page, "verdict", "data-verdict") == "unknown"
        bounds = [attribute(page, "violation-interval", name) for name in ("data-low", "data-high")]
        assert bounds == ["0.0", "1.0"]
        assert attribute(page, "episodes", "data-count") == "0"
        assert f"actsafe resume {path}" in page


def test_a_run_in_progress_says_so(written, gp, tmp_path):
    shutil.rmtree(gp / "episodes" / "0002")
    page = written(gp)
    assert verdict(page) == "Safe so far: the only planned episode cost no more than the budget of 0."
    assert "1 of 2 episodes: in progress, or stopped" in page
    assert "of an earlier model" in page
    only_warm_up = vision_run(tmp_path / "begun", num_epochs=1)
    page = written(only_warm_up)
    assert verdict(page) == "Not known yet: no episode of the learned policy is recorded."
    assert "Only random actions so far" in page


@pytest.mark.parametrize("content", ["", "{}", '{"kind": "calibration", "schema": 1, "verdict": 3}', "[1"])
def test_a_damaged_calibration_is_said_on_the_page(written, blank, content):
    (blank / "calibration.json").write_text(content)
    page = written(blank)
    assert "calibration.json cannot be used" in page
    assert f"actsafe calibrate {blank}" in page


def test_a_calibration_with_missing_parts_is_said_on_the_page(written, blank):
    content = json.loads((blank / "calibration.json").read_text())
    del content["claims"]["plans"]["steps"][0]["reliability"]
    (blank / "calibration.json").write_text(json.dumps(content))
    page = written(blank)
    assert "The records of the calibration cannot be read" in page


def test_certificates_are_shown_and_altered_ones_are_not(written, blank):
    paper = certify(blank)
    page = written(blank)
    assert "What it does not promise" in page
    assert "before" not in re.findall(r"<dt>Certificate</dt><dd>(.*?)</dd>", page)[0]
    content = json.loads(paper.read_text())
    paper.write_text(json.dumps(content | {"standing": "held", "reasons": ["none at all"]}))
    page = written(blank)
    assert "was altered after it was written" in page
    assert "What it does not promise" not in page
    paper.write_text("{")
    assert "certificate.json cannot be used" in written(blank)
    paper.write_text(json.dumps(content))
    (blank / "calibration.json").unlink()
    assert "of the run as it was before" in written(blank)


def test_damaged_records_leave_the_rest_of_the_page(written, gp):
    trajectory = gp / "episodes" / "0001" / "trajectory.npz"
    trajectory.write_bytes(trajectory.read_bytes()[:100])
    page = written(gp)
    assert page.count("cannot be read, and this part of the page is missing") == 1
    assert "Zero-shot swing-up after episode 2" in page
    for checkpoint in gp.glob("episodes/*/checkpoint.npz"):
        checkpoint.write_bytes(b"")
    assert "cannot be read" in written(gp)


def test_folders_that_are_no_runs_are_refused(actsafe, gp, tmp_path):
    def complaint(*arguments) -> str:
        code, _, errors = actsafe("report", *arguments)
        assert code == 2
        assert not (tmp_path / "page.html").exists()
        return errors

    out = ("--out", tmp_path / "page.html")
    assert "there is nothing of that name" in complaint(tmp_path / "missing", *out)
    (tmp_path / "empty").mkdir()
    assert "it has no config.json" in complaint(tmp_path / "empty", *out)
    assert "expected at least one" in complaint(*out)
    assert "more than once" in complaint(gp, gp, *out)
    assert ".html" in complaint(gp, "--out", gp / "config.json")
    ledger = gp / "episodes" / "0001" / "ledger.json"
    ledger.write_text(ledger.read_text()[:-20])
    assert "damaged" in complaint(gp, *out)
    ledger.write_text(json.dumps([{"episode": 1}]))
    assert "the ledger of" in complaint(gp, *out)
    (gp / "config.json").write_text("{")
    assert "damaged" in complaint(gp, *out)
    (gp / "config.json").write_text(json.dumps({"name": "another program's"}))
    assert "was not written by actsafe" in complaint(gp, *out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[chromium.Browser]:
    program = chromium.found()
    if program is None:
        pytest.skip("no Chromium here: install it (Debian: apt-get install chromium), or name one in $CHROMIUM")
    with chromium.browser(program, tmp_path_factory.mktemp("chromium") / "profile") as opened:
        yield opened


VIEWS = {"desktop": (1200, False), "dark": (1200, True), "phone": (390, False), "dark phone": (390, True)}


def test_pages_read_well_in_a_browser(browser, pages):
    """Those of tiny runs, and the examples in the documentation: ten seeds from state, and a run from pixels."""
    examples = {name: EXAMPLES / f"{name}.html" for name in ("pendulum", "point_goto_goal_small")}
    assert all(path.stat().st_size < MOST_BYTES for path in examples.values())
    pages = pages | examples
    expected = {"gp": ("safe", 2, 0), "vision": ("unsafe", 6, 1), "several": ("unsafe", 20, 3)}
    expected |= {"pendulum": ("safe", 100, 0), "point_goto_goal_small": ("unsafe", 144, 35)}
    for name, (state, episodes, over) in expected.items():
        grounds = set()
        for width, is_dark in VIEWS.values():
            browser.show(pages[name], width=width, is_dark=is_dark)
            assert browser.value("document.getElementById('verdict').dataset.verdict") == state
            assert browser.value("document.getElementById('episodes').textContent") == str(episodes)
            bounds = "(({low, high}) => [Number(low), Number(high)])"
            bounds = browser.value(f"{bounds}(document.getElementById('violation-interval').dataset)")
            assert bounds == list(clopper_pearson(over, episodes))
            # Nothing sticks out of the page, and figures and tables have a size.
            assert browser.value("document.documentElement.scrollWidth") <= width
            shown = "[...document.querySelectorAll('figure svg, table')].filter(each => !each.closest('details'))"
            assert browser.value(f"Math.min(...{shown}.map(each => each.getBoundingClientRect().width))") > 200
            grounds.add(browser.value("getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 2
    assert browser.complaints == []
    fetched = {url for url in browser.requests if not url.startswith("data:")}
    assert fetched == {path.as_uri() for path in pages.values()}


def test_films_stop_when_they_are_told(browser, pages):
    state = "getComputedStyle(document.querySelector('.film .moving')).animationPlayState"
    browser.show(pages["gp"])
    assert browser.value(state) == "running"
    browser.value("document.querySelector('.film .still').click()")
    assert browser.value(state) == "paused"
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    assert browser.value(state) == "running"
    browser.value("document.querySelector('.film .still').click()")
    assert browser.value(state) == "paused"


def test_the_test_would_see_a_request_and_an_error(browser, tmp_path):
    """What the page must not do is noticed when it is done."""
    page = tmp_path / "bad.html"
    page.write_text("<body style='width:900px'><img src='http://localhost:9/x.png'><script>fail()</script>")
    browser.show(page, width=390)
    assert "http://localhost:9/x.png" in browser.requests
    assert any("fail is not defined" in complaint for complaint in browser.complaints)
    assert browser.value("document.documentElement.scrollWidth") > 390
