"""Deployments on a report's page, and nothing of them where there is no safe set."""

from pathlib import Path
from typing import Any

import pytest

from actsafe.envs.spec import EnvSpec
from actsafe.evidence.ledger import LedgerRow, violations
from actsafe.report.deployments import deployed_fact, deployments_section
from actsafe.report.evidence import certificate_section
from actsafe.report.findings import Evidence, Findings
from actsafe.report.markup import join
from actsafe.report.page import page
from actsafe.report.sections import decisions_note
from actsafe.report.sheet import Sheet
from actsafe.training.presets import tiny
from actsafe.training.run import RunFolder

ACTED = {"num_by_candidate": 1, "num_by_certified": 2, "num_by_seed_policy": 1}


class Folder(RunFolder):
    """A run folder without files."""

    @property
    def num_committed(self) -> int:
        return 3

    def __init__(self) -> None:
        super().__init__(Path("run"), tiny(), EnvSpec("own", (3,), 1, ("cost",), (5.0,), 50))


def deployment(why: str, score: float | None, **came: Any) -> dict[str, Any]:
    names = ("episodes", "over", "taken_over", "costs")
    counts = {level: dict(zip(names, (*own[:3], [own[3]]), strict=True)) for level, own in came.items()}
    said = {"role": "task", "is_new": True, "candidate": why, "margin": [0.5]}
    return {**said, "score": [score], "upper": [score], "came": counts}


TOLD = [
    deployment("refused by the screen", 12.0, seed=(4, 0, 0, 0.0)),
    deployment("certified", 2.0, candidate=(1, 0, 0, 3.0), seed=(3, 0, 0, 0.0)),
    deployment("recalled", 4.0, candidate=(1, 1, 0, 9.0), certified=(3, 0, 2, 1.0)),
]


def findings(*, is_guarded: bool = True, told: Any = TOLD) -> Findings:
    """Of a run of one seed that acted in one epoch."""
    acted = {**ACTED, "num_taken_over": 2, "num_fallback_episodes": 3} if is_guarded else {}
    made = {"num_decisions": 200, "num_fallbacks": 50, "num_uncertified": 20}
    row = LedgerRow(1, 0, "expansion", "task", "cost", 5.0, 4, 1, 2.0, 9.0, None, None, **made, **acted)
    metrics = {
        "epoch": 1,
        "seed": 0,
        "phase": "expansion",
        "steps": 50,
        "return": 1.0,
        "evaluation": {},
        "learning": {},
    }
    metrics |= {"costs": {"cost": 2.0}, "deployments": told if is_guarded else []}
    return Findings(Folder(), [metrics], [row], tuple(violations([row])), Evidence(), Evidence(), {})


def test_every_deployment_has_a_line():
    said = join(deployments_section(Sheet(), findings()))
    cells = [">task<", ">refused by the screen<", ">12<", ">0.5<", ">0 of 4<", ">1 of 1<", ">0 of 3, 2 t<"]
    assert [cell for cell in cells if cell not in said] == []
    assert said.count('scope="row"') == 3
    assert "The screen was asked 3 times and refused 1. 2 candidates acted: 1 certified, 1 recalled." in said
    assert "over a budget in 1 of 5 episodes" in said
    assert "S_0 began 7 episodes" in said
    # 3 - 2 and 9 - 4.
    assert "Of 2 deployments with a score 100 % cost more than it; on average they cost 3 more." in said
    assert said.count("<svg") == 1


def test_a_figure_wants_a_candidate_that_acted():
    said = join(deployments_section(Sheet(), findings(told=TOLD[:1])))
    assert "<svg" not in said
    assert said.count('scope="row"') == 1


def test_a_damaged_deployment_is_said_where_it_would_have_been():
    for made in (deployments_section(Sheet(), findings(told=[{}])), deployed_fact(findings(told=[{}]))[1]):
        assert "The records of deployments cannot be read" in join(made)


def test_the_summary_has_the_exact_interval():
    title, said = deployed_fact(findings())
    assert title == "Learned policies over a budget"
    # One of five: 0.51 and 71.64 % (Clopper and Pearson).
    assert join(said).startswith("0.5 % to 71.6 %<small>1 of 5 episodes; a fallback acted in 9 episodes")


def test_decisions_of_candidates_are_not_called_plans():
    said = join(decisions_note(findings()))
    assert "200 decisions: 20 by candidates" in said
    assert "50 (25.0 %) by a fallback" in said
    assert "no certified plan" in join(decisions_note(findings(is_guarded=False)))


@pytest.mark.parametrize("is_guarded", [True, False])
def test_a_page_has_the_section_only_where_there_is_a_safe_set(is_guarded):
    said = page([findings(is_guarded=is_guarded)])
    assert (">Deployments</h3>" in said) is is_guarded
    assert ("Learned policies over a budget" in said) is is_guarded


def test_a_certificate_lists_the_attempts():
    counts = {"screened": 9, "refused": 4, "candidates": 5, "recalled": 2, "certified": 3}
    own = {"seed": 0, "policy": "newest certified policy of the task", "episodes": 80, "over_budget": 0}
    deployed = {**own, "taken_over": 1, "confidence": 0.99, "attempts": counts}
    promise = {"basis": "counted.", "horizon": 50, "afterwards": "", "estimates": [], "deployed": [deployed]}
    content = {"standing": "held", "reasons": [], "promise": promise, "does_not_promise": []}
    found = findings()
    said = join(certificate_section(Findings(**{**vars(found), "certificate": Evidence(content, "held", True)})))
    assert "80 episodes of its own, 0 over a budget, 1 taken over." in said
    assert "9 screened, 4 refused, 5 tried, 2 recalled, 3 certified; the bound is made at 99 %" in said
