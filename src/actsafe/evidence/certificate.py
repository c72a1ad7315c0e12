"""The certificate of a run: what its policy promises, what that rests on, and what it does not promise.

A certificate is JSON that can be made again from the run alone, which is how it is verified (verifying.py).
"""

import json
from collections.abc import Mapping
from typing import Any

import actsafe
from actsafe.evidence.binomial import clopper_pearson
from actsafe.evidence.calibration import IS_CONSTRAINED, Known, known
from actsafe.evidence.fingerprints import fingerprints
from actsafe.evidence.promises import RECKONINGS, Promise
from actsafe.evidence.reliability import Verdict
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError, finite, sha256

CERTIFICATE = "certificate.json"
SCHEMA_VERSION = 1
CONFIDENCE = 0.95
"""Of the interval of the violation rate."""

HELD, CONDITIONAL, REFUSED = "held", "conditional", "refused"
"""How a promise stands: all that it rests on was measured; something was not; something was, and speaks against it."""

NOT_PROMISED = (
    "That a system outside the simulator behaves as the one that the run was made with.",
    "That the model is right where no held-out episode has been: calibration is measured on the policy's own path.",
    "Other plans than those listed: the policy plans anew at every decision, and checks each plan when it is made.",
    "A worst case: a pessimistic cost is the largest of finitely many particles, or a mean with a charge for doubt.",
    "That further episodes are like the recorded ones: the interval of the violation rate takes episodes as "
    "independent and alike, and the policy changed from one to the next.",
    "Anything about costs between decisions, or about harm that no cost counts.",
)


def certificate(folder: RunFolder) -> dict[str, Any]:
    """The certificate of the newest committed policy. `StorageError` where its checkpoint is not sound."""
    newest = folder.num_committed - 1
    if newest < 0:
        raise StorageError(
            f"{folder.path} has no committed {folder.config.unit}, so there is no policy to certify. "
            f"Compute some first: actsafe resume {folder.path}"
        )
    prints, calibration = fingerprints(folder.path), known(folder)
    promise = RECKONINGS[folder.kind].promise(folder, newest)
    standing, reasons = _standing(promise, calibration, is_constrained=IS_CONSTRAINED[folder.kind](folder.config))
    content = {
        **heading(folder),
        "fingerprints": prints,
        "standing": standing,
        "reasons": reasons,
        "promise": {"basis": promise.basis, "estimates": promise.estimates, **promise.details},
        "calibration": calibration.to_json(),
        "violations": violations(folder),
        "does_not_promise": list(NOT_PROMISED),
    }
    return sealed(finite(content))


def heading(folder: RunFolder) -> dict[str, Any]:
    """What can be told without a sound checkpoint."""
    config = folder.config
    return {
        "schema": SCHEMA_VERSION,
        "kind": "certificate",
        "actsafe": actsafe.__version__,
        "run": {
            "kind": folder.kind,
            "subject": config.subject,
            "algorithm": config.algorithm,
            f"newest_{config.unit}": folder.num_committed - 1,
        },
        "budget": RECKONINGS[folder.kind].budget(config),
    }


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with a hash of it as the last entry: a certificate that was altered by accident shows by itself."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    canonical = json.dumps(rest, sort_keys=True, allow_nan=False)
    return {**rest, "sha256": sha256(canonical.encode())}


def violations(folder: RunFolder) -> list[dict[str, Any]]:
    """Recorded episodes that were not within the budget, for every constraint, and exact bounds on their rate."""
    counts: dict[str, tuple[int, int]] = {}
    for row in folder.rows("ledger"):
        outcome = RECKONINGS[folder.kind].outcome(row)
        over, episodes = counts.get(outcome.constraint, (0, 0))
        counts[outcome.constraint] = over + outcome.num_over_budget, episodes + outcome.num_episodes
    return [
        {
            "constraint": constraint,
            "episodes": episodes,
            "over_budget": over,
            "rate": over / episodes if episodes else None,
            "interval": list(clopper_pearson(over, episodes, confidence=CONFIDENCE)),
            "confidence": CONFIDENCE,
        }
        for constraint, (over, episodes) in counts.items()
    ]


def _standing(promise: Promise, calibration: Known, *, is_constrained: bool) -> tuple[str, list[str]]:
    """How the promise stands, and why not better. What is not known is not within a budget."""
    against = []
    if not is_constrained:
        against.append("the algorithm keeps to no budget")
    if not promise.estimates or not all(_is_within(estimate) for estimate in promise.estimates):
        against.append("a pessimistic cost is over its budget, or not known")
    if calibration.verdict is Verdict.OVERCONFIDENT:
        against.append("the model was found overconfident")
    if against:
        return REFUSED, against
    if calibration.verdict is Verdict.UNKNOWN:
        return CONDITIONAL, ["the model's calibration is not known"]
    if not calibration.is_current:
        return CONDITIONAL, ["the model's calibration was measured before it learned more"]
    return HELD, []


def _is_within(estimate: Mapping[str, Any]) -> bool:
    cost = estimate["pessimistic_cost"]
    return cost is not None and cost <= estimate["budget"]
