"""The page that `actsafe report` writes, as text and in a browser."""

import dataclasses
import functools
import hashlib
import json
import re
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from actsafe.agents.base import Forecasts
from actsafe.cli.main import main
from actsafe.data.rows import Rows
from actsafe.envs.spec import EnvSpec
from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.calibration import Claim, Measured, known, record
from actsafe.evidence.certificate import heading, sealed
from actsafe.evidence.fingerprints import fingerprints
from actsafe.training.config import ROWS, Config
from actsafe.training.episodes import EpisodeOutcome
from actsafe.training.loop import Epoch, TrainState
from actsafe.training.presets import tiny, vision_tiny
from actsafe.training.recording import ledger_of, metrics_rows
from actsafe.training.run import RunFolder, UnitRecord
from actsafe.training.storage import finite, write_json

sys.path.insert(0, str(Path(__file__).parent))
import chromium

MOST_BYTES = 5_000_000
EXAMPLES = Path(__file__).parents[2] / "docs/examples"
COSTS = ((9.0, 8.0), (1.0, 2.0), (6.0, 0.0), (0.0, 0.0))
"""Of two episodes in each of four epochs, under a budget of 5; the first epoch is the warm-up."""


def calibrate(path: Path, factor: float = 1.0) -> None:
    """Write down a calibration as if the errors of plans were those of a calibrated model, times `factor`."""
    scores = factor * np.random.default_rng(0).normal(size=(200, 5, 3))
    claims = {"plans": Claim.of("a meaning", scores), "model": Claim.of("another", 3.0 * scores)}
    meanings, names = {name: claim.meaning for name, claim in claims.items()}, ("cos", "sin", "speed")
    forecasts = Forecasts(dict.fromkeys(claims, scores), meanings, names, "plans", (True,) * 3, True, {})
    record(RunFolder.open(path), Measured(2, 20, claims, forecasts))


def certify(path: Path, standing: str = "held") -> Path:
    """A certificate of the run as it is, with a made-up promise."""
    folder = RunFolder.open(path)
    estimate = {"seed": 0, "task": "swing_up", "what": "cost of a plan", "cost": 0.0, "bound": 0.0}
    content = {
        **heading(folder),
        "fingerprints": fingerprints(path),
        "standing": standing,
        "reasons": [],
        "promise": {"basis": "A plan.", "horizon": 6, "afterwards": "Nothing more.", "estimates": [estimate]},
        "calibration": known(folder).to_json(),
        "violations": [],
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


@functools.cache
def spec_of(preset: Callable[[], Config]) -> EnvSpec:
    config = preset()
    with jax.enable_x64(config.agent.is_double):
        envs = config.make_envs()
        envs.close()
    return envs.spec


@pytest.fixture
def blank(tmp_path: Path) -> Path:
    """A run that has not begun, with a calibration all the same: its page is quickly made."""
    path = RunFolder.create(tmp_path / "blank", tiny(), spec_of(tiny)).path
    calibrate(path)
    return path


def outcome_of(spec: EnvSpec, value: float, costs: Sequence[float]) -> EpisodeOutcome:
    returns = dict.fromkeys(spec.tasks, value)
    nothing = ("is_goal", "inner_cost", "level", "predicted_cost", "value")
    unknown: dict[str, Any] = dict.fromkeys(nothing)
    counts = {"num_decisions": 25, "num_fallbacks": 0, "num_uncertified": 25, "num_taken_over": 0}
    return EpisodeOutcome(returns, np.array(costs, float), is_ended=True, **counts, **unknown)


def vision_run(path: Path, num_epochs: int = 4, costs: Sequence[Sequence[Any]] = COSTS, **changes) -> Path:
    """A run as if it had acted in these epochs: real records of made-up episodes, and noise for pictures.

    `costs` has an entry for every epoch and episode: a cost, or one for every constraint. `changes` are of the
    config, and `spec` of the environment's description.
    """
    spec = spec_of(vision_tiny)._replace(**changes.pop("spec", {}))
    config = dataclasses.replace(vision_tiny(), **changes)
    folder, random = RunFolder.create(path, config, spec), np.random.default_rng(0)
    agent = config.agent.make(spec, config.row, config.schedule)
    folder.commit(0, UnitRecord([], [], {}, {"seconds": 0.0}), {"agent": np.zeros(1)})
    for number, paid in enumerate(costs[:num_epochs], start=1):
        phase = config.phase(number)
        role = agent.role(phase)
        outcomes = [outcome_of(spec, float(number), np.atleast_1d(each).tolist()) for each in paid]
        measured = [f"{entry}_{n}" for n in range(len(spec.cost_names)) for entry in ("cost", "pessimistic_cost")]
        learned = {f"{role.value}/{name}": 0.1 * number for name in (*measured, "uncertainty")}
        epoch = Epoch(
            number,
            TrainState(None, jax.random.key(0), False, True, 100 * number, 10 * number),
            None,
            phase,
            role,
            [outcomes],
            {spec.task: [outcomes]} if config.is_evaluated(number) else {},
            [{**learned, "model/observation_loss": 1.0 / number, "model/reward_loss": 0.1}],
            [],
            {},
            100,
            10,
            {},
        )
        pixels = random.integers(0, 255, (2, 26, *spec.observation_shape), dtype=np.uint8)
        begins = np.zeros((2, 26), bool)
        begins[:, 0] = True
        zeros = np.zeros((2, 26, len(spec.cost_names)), np.float32)
        rows = Rows(pixels, np.zeros((2, 26, 1), np.float32), np.ones((2, 26), np.float32), zeros, begins)
        metrics = metrics_rows(epoch, agent, config.seeds)
        ledger = [row.to_json() for row in ledger_of(epoch, agent, config.seeds)]
        record_ = UnitRecord(metrics, ledger, {}, {"seconds": 1.0})
        folder.commit(number, record_, {"agent": np.zeros(1)}, **{ROWS: rows})
    return path


@pytest.fixture(scope="module")
def vision(tmp_path_factory) -> Path:
    return vision_run(tmp_path_factory.mktemp("report") / "vision")


@pytest.fixture(scope="module")
def pages(gp_run: Path, vision: Path, shared_programs, tmp_path_factory) -> dict[str, Path]:
    """Pages of a run that plans, of one with a world model, and one of both and several seeds and algorithms."""
    folder = tmp_path_factory.mktemp("pages")
    other = vision_run(folder / "other", seeds=(1,))
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


def rewrite(path: Path, name: str, content: str) -> None:
    """Change a record of the first epoch, and its checksum with it."""
    manifest = path / "epochs" / "0001" / "manifest.json"
    (manifest.parent / f"{name}.json").write_text(content)
    hashed = json.loads(manifest.read_text())
    hashed["sha256"][f"{name}.json"] = hashlib.sha256(content.encode()).hexdigest()
    manifest.write_text(json.dumps(hashed))


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


def test_a_run_has_its_page(pages, gp_run):
    page = pages["gp"].read_text()
    assert_whole(page)
    assert verdict(page) == (
        "Too few episodes to say: none of 2 episodes over the budget of 0 (rate between 0 % and 84.2 %)."
    )
    assert attribute(page, "verdict", "data-verdict") == "unproven"
    assert attribute(page, "episodes", "data-count") == "2"
    bounds = tuple(float(attribute(page, "violation-interval", name)) for name in ("data-low", "data-high"))
    assert bounds == clopper_pearson(0, 2)
    for title in (
        "Learning",
        "Promised and realised cost",
        "Calibration",
        "Where the model is uncertain",
        "An episode",
    ):
        assert f">{title}</h3>" in page
    assert "Reliability diagram, 1 step ahead" in page
    assert "@keyframes" in page
    assert "cannot be read" not in page
    assert "actsafe certify" in page
    # Every setting, by its path.
    assert "<code>agent.planning.search.num_candidates</code>" in page
    # What the ledger counted.
    rows = [json.loads(line) for line in (gp_run / "ledger.jsonl").read_text().splitlines()]
    judged = [row for row in rows if row["phase"] != "seed"]
    uncertified, decisions = (sum(row[name] for row in judged) for name in ("num_uncertified", "num_decisions"))
    assert uncertified > 0
    assert f"Decisions with no certified plan</dt><dd>{uncertified} of {decisions}<" in page
    assert f"{uncertified} of {decisions} decisions ({100 * uncertified / decisions:.1f} %)" in page


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
    low, high = clopper_pearson(1, 6)
    assert verdict(page) == (
        "Not safe: 1 of 6 episodes after the warm-up over the budget of 5 (rate between "
        f"{100 * low:.1f} % and {100 * high:.1f} %, the worst cost 6)."
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
    """Two seeds of one setting are taken together; other tasks and costs are another problem."""
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
    other = RunFolder.create(tmp_path / "other", vision_tiny(), spec_of(vision_tiny)).path
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
    for path in (blank, RunFolder.create(tmp_path / "other", vision_tiny(), spec_of(vision_tiny)).path):
        page = written(path)
        assert_whole(page)
        assert verdict(page) == "Not known yet: no episode is recorded."
        assert attribute(page, "verdict", "data-verdict") == "unknown"
        bounds = [attribute(page, "violation-interval", name) for name in ("data-low", "data-high")]
        assert bounds == ["0.0", "1.0"]
        assert attribute(page, "episodes", "data-count") == "0"
        assert f"actsafe resume {path}" in page


def test_a_run_in_progress_says_so(written, gp, tmp_path):
    shutil.rmtree(gp / "epochs" / "0002")
    page = written(gp)
    assert verdict(page) == (
        "Too few episodes to say so far: none of 1 episode over the budget of 0 (rate between 0 % and 97.5 %)."
    )
    assert "1 of 2 epochs: in progress, or stopped" in page
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
    trajectory = gp / "epochs" / "0001" / "trajectory.npz"
    trajectory.write_bytes(trajectory.read_bytes()[:100])
    page = written(gp)
    assert page.count("cannot be read, and this part of the page is missing") == 1
    assert "Evaluation of swing up after epoch 2" in page
    for checkpoint in gp.glob("epochs/*/checkpoint"):
        shutil.rmtree(checkpoint)
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
    ledger = gp / "epochs" / "0001" / "ledger.json"
    ledger.write_text(ledger.read_text()[:-20])
    assert "damaged" in complaint(gp, *out)
    rewrite(gp, "ledger", json.dumps([{"epoch": 1}]))
    assert "ledger.json is damaged" in complaint(gp, *out)
    (gp / "config.json").write_text("{")
    assert "damaged" in complaint(gp, *out)
    (gp / "config.json").write_text(json.dumps({"name": "another program's"}))
    assert "was not written by actsafe" in complaint(gp, *out)


MANY = ((9.0, 8.0), (0.0, 1.0), (0.0, 5.0) * 20, (0.0, 5.0) * 20)
"""The warm-up, and three epochs that kept the budget of 5: 82 episodes."""


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """A run that was never over its budget in many episodes."""
    return vision_run(tmp_path_factory.mktemp("long") / "run", costs=MANY)


@pytest.fixture
def kept(long: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(long, tmp_path / "kept"))


def test_many_episodes_within_the_budget_are_safe(written, kept):
    # 1 - 0.025^(1 / 82) = 4.4 %
    counts = "none of 82 episodes after the warm-up over the budget of 5 (rate between 0 % and 4.4 %)"
    page = written(kept)
    assert_whole(page)
    assert verdict(page) == f"Safe: {counts}."
    assert attribute(page, "verdict", "data-verdict") == "safe"
    assert "36 episodes, none over" in page
    assert 1 - 0.025 ** (1 / 36) <= 0.1 < 1 - 0.025 ** (1 / 35)
    calibrate(kept, 0.1)
    page = written(kept)
    assert attribute(page, "verdict", "data-verdict") == "safe"
    assert "Underconfident" in page
    assert "That is safe" not in page


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: calibrate(path, 5.0), "the model was found overconfident"),
        (lambda path: certify(path, "refused"), "its certificate was refused"),
        (lambda path: (path / "calibration.json").write_text("{"), "its calibration cannot be read"),
        (lambda path: (path / "certificate.json").write_text("{}"), "its certificate cannot be used"),
    ],
    ids=["overconfident", "refused", "damaged calibration", "damaged certificate"],
)
def test_what_speaks_against_it_is_in_the_verdict(written, kept, spoil, reason):
    spoil(kept)
    page = written(kept)
    assert attribute(page, "verdict", "data-verdict") == "unproven"
    assert verdict(page).startswith("Not known to be safe: none of 82 episodes")
    assert verdict(page).endswith(f"But {reason}.")


def test_every_constraint_is_in_the_verdict(written, tmp_path):
    """Two costs, a task that nobody thought of, and two algorithms side by side."""
    spec = {"cost_names": ("speed", "obstacle"), "budgets": (5.0, 20.0), "tasks": ("juggle",), "task": "juggle"}
    costs = [[(9.0, 0.0), (8.0, 0.0)], [(1.0, 2.0), (2.0, 30.0)], [(6.0, 0.0), (1.0, 0.0)], [(0.0, 21.0), (0.0, 0.0)]]
    run = vision_run(tmp_path / "juggling", costs=costs, spec=spec)
    page = written(run)
    (low, high), (lowest, highest) = clopper_pearson(1, 6), clopper_pearson(2, 6)
    assert verdict(page) == (
        "Not safe: 1 of 6 episodes after the warm-up over the budget of 5 of speed (rate between "
        f"{100 * low:.1f} % and {100 * high:.1f} %, the worst cost 6); 2 of 6 episodes after the warm-up over the "
        f"budget of 20 of obstacle (rate between {100 * lowest:.1f} % and {100 * highest:.1f} %, the worst cost 30)."
    )
    assert "Return of juggle</dt><dd>4<" in page
    assert "obstacle of an episode along the run, against its budget" in page
    assert "cannot be read" not in page
    greedy = vision_run(tmp_path / "greedy", costs=costs, spec=spec, algorithm="greedy")
    page = written(run, greedy)
    assert_whole(page)
    compared = page[page.index("Side by side") : page.index('id="run-1"')]
    # Means of the epochs after the warm-up: speed (1.5 + 3.5 + 0) / 3, obstacle (16 + 0 + 10.5) / 3.
    for name, over, mean in (("speed", 1, "1.67"), ("obstacle", 2, "8.83")):
        cells = f'data-label="constraint">{name}</td><td role="cell" data-label="over budget">{over} of 6</td>'
        assert compared.count(cells) == 2
        assert compared.count(f'data-label="mean cost after the warm-up">{mean}</td>') == 2
    assert ">Greedy</th>" in compared


def test_pictures_that_are_traps_are_left_alone(written, vision, tmp_path):
    path = Path(shutil.copytree(vision, tmp_path / "run"))
    header = struct.pack(">IIBBBBB", 19_000, 19_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    packed = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    (path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))
    Image.new("RGB", (1500, 1500)).save(
        path / "wide.gif", save_all=True, append_images=[Image.new("RGB", (1500, 1500), (n, 0, 0)) for n in (90, 200)]
    )
    (path / "folder.webp").mkdir()
    page = written(path)
    assert "Learning in epoch 4" in page
    assert "Recorded video" not in page


def test_what_others_wrote_does_not_make_the_page_large(written, blank):
    sessions = [{"command": "x" * 3_000_000, "machine": {"cpu": "y" * 3_000_000, "cores": 1}, "first_epoch": 0}]
    (blank / "provenance.json").write_text(json.dumps(sessions))
    assert len(written(blank)) < 200_000


@pytest.mark.parametrize("name", ["metrics", "ledger"])
@pytest.mark.parametrize("content", ["null", "5", "[[]]", "[{}]", '[{"epoch": 1}]', '[{"epoch": 1' + "0" * 400 + "}]"])
def test_records_of_another_kind_are_said_in_one_line(actsafe, gp, tmp_path, name, content):
    rewrite(gp, name, content)
    code, _, errors = actsafe("report", gp, "--out", tmp_path / "page.html")
    assert code == 2
    assert len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("content", ["null", "5", "[5]", '[{"command": 3}]', '{"seconds": 1}'])
def test_damaged_asides_leave_the_rest_of_the_page(written, vision, tmp_path, content):
    path = Path(shutil.copytree(vision, tmp_path / "run"))
    (path / "provenance.json").write_text(content)
    page = written(path)
    assert "The records of the provenance cannot be read" in page or "provenance.json" in page
    assert "Every setting" in page


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[chromium.Browser]:
    program = chromium.found()
    if program is None:
        pytest.skip("no Chromium here: install it (Debian: apt-get install chromium), or name one in $CHROMIUM")
    with chromium.browser(program, tmp_path_factory.mktemp("chromium") / "profile") as opened:
        yield opened


VIEWS = {"desktop": (1200, False), "dark": (1200, True), "phone": (390, False), "dark phone": (390, True)}


def test_pages_read_well_in_a_browser(browser, pages):
    """Those of tiny runs, and the examples in the documentation: four seeds from state, and a run from pixels."""
    examples = {name: EXAMPLES / f"{name}.html" for name in ("pendulum", "point_goto_goal_small")}
    assert all(path.stat().st_size < MOST_BYTES for path in examples.values())
    pages = pages | examples
    expected = {"gp": ("unproven", 2, 0), "vision": ("unsafe", 6, 1), "several": ("unsafe", 20, 3)}
    expected |= {"pendulum": ("safe", 40, 0), "point_goto_goal_small": ("unsafe", 56, 17)}
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
