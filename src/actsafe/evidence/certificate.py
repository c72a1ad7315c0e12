"""The certificate of a run: what its policies promise, what that rests on, and what it does not promise.

A certificate is JSON that can be made again from the run alone, which is how it is verified (verify.py). What is not
known counts against a promise, which stands as

refused       where the algorithm keeps to no budget; an estimate is over its bound, unknown or not finite; the model
              was found overconfident; or an episode of the newest epoch, its evaluations included, was over a budget
conditional   where calibration is not known, was measured before the model learned more, or has no power, as it could
              hardly have failed; where the record has no episode of the newest epoch that the agent answers for;
              decisions of it had no certified plan; or an earlier episode that the agent answers for was over a budget
held          otherwise

Where policies are deployed from a safe set, the promise is of the policy that would be deployed, and rests on the
counts of its own episodes instead of on a model; what is refused and conditional then is said in deployed.py.

A policy that broke its budget in the record is thus never said to keep its promise, whatever it was predicted to cost.
The agent answers for expansion and exploitation, not for the seed and the random warm-up (ledger.py).
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import actsafe
from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode, Newest, Promise
from actsafe.evidence import deployed
from actsafe.evidence.calibration import CALIBRATION, Known, known
from actsafe.evidence.fingerprints import fingerprints
from actsafe.evidence.ledger import LedgerRow, violations
from actsafe.evidence.reliability import Verdict
from actsafe.training.loop import rollout_keys
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.storage import StorageError, finite, read_json, write_json

CERTIFICATE = "certificate.json"
SCHEMA_VERSION = 2
CONFIDENCE = 0.95
"""Of the interval of the violation rate."""
STREAM = 3000
"""The random stream of certified plans; nothing else uses it."""

HELD, CONDITIONAL, REFUSED = "held", "conditional", "refused"
"""How a promise stands."""

NOT_PROMISED = (
    "That a system outside the simulator behaves as the one that the run was made with.",
    "That the model is right where no held-out episode has been: calibration is measured on the policy's own path.",
    "That further episodes are like the recorded ones: the interval of the violation rate takes episodes as "
    "independent and alike, and the policy changed from one to the next.",
    "Anything about costs between decisions, or about harm that no cost counts.",
)
"""Of any agent's; each adds its own."""


def certificate(folder: RunFolder) -> dict[str, Any]:
    """The certificate of the newest committed policy. Raises `StorageError` unless its checkpoint is sound."""
    newest = folder.num_committed - 1
    if newest < 0:
        raise StorageError(
            f"{folder.path} has no committed epoch, so there is no policy to certify. Compute some first: "
            f"actsafe resume {folder.path}"
        )
    prints, calibration = fingerprints(folder.path), known(folder)
    metrics = [row for row in folder.rows("metrics") if row["epoch"] == newest]
    ledger = folder.ledger()
    promise, does_not_promise = _promise(folder, newest, metrics)
    counted = deployed.counted_of(folder, promise.deployed)
    against = list(_against(folder, newest, promise, calibration, metrics, ledger, counted))
    unknown = list(deployed.unknown(counted) if counted else _unknown(newest, calibration, ledger))
    content = {
        **heading(folder),
        "fingerprints": prints,
        "standing": REFUSED if against else CONDITIONAL if unknown else HELD,
        "reasons": against or unknown,
        "promise": {
            "basis": promise.basis,
            "horizon": promise.horizon,
            "afterwards": promise.afterwards,
            "estimates": [
                {"seed": seed, **estimate.of, "what": estimate.what, "cost": estimate.cost, "bound": estimate.bound}
                for seed, own in zip(folder.config.seeds, promise.estimates, strict=True)
                for estimate in own
            ]
            + [each.estimate() for each in counted],
            **promise.details,
            **({"deployed": [each.to_json() for each in counted]} if counted else {}),
        },
        "calibration": calibration.to_json(),
        "violations": _violations(ledger),
        "does_not_promise": [*does_not_promise, *NOT_PROMISED],
    }
    return sealed(finite(content))


def heading(folder: RunFolder) -> dict[str, Any]:
    """What can be told without a sound checkpoint."""
    config, spec = folder.config, folder.spec
    return {
        "schema": SCHEMA_VERSION,
        "kind": "certificate",
        "actsafe": actsafe.__version__,
        "run": {
            "subject": config.subject,
            "algorithm": config.algorithm,
            "agent": config.agent.kind,
            "seeds": list(config.seeds),
            "newest_epoch": folder.num_committed - 1,
        },
        "budgets": dict(zip(spec.cost_names, spec.budgets, strict=True)),
    }


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with a hash of it as the last entry: a certificate that was altered by accident shows by itself."""
    rest = {name: value for name, value in content.items() if name != "sha256"}
    canonical = json.dumps(rest, sort_keys=True, allow_nan=False)
    return {**rest, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}


def write_certificate(folder: RunFolder, path: Path | None = None) -> tuple[Path, dict[str, Any]]:
    """Certify a run, and write that to `path`, or into its folder; returns the path and what was written.

    Raises `StorageError`, before anything is computed, where a certificate has no place: at a file that is none, at
    what is no regular file, or among the run's own files.
    """
    path = folder.path / CERTIFICATE if path is None else path
    _require_free(path, folder)
    with folder.locked():
        content = certificate(folder)
    write_json(path, content)
    return path, content


def is_certificate(content: Any) -> bool:
    """Whether JSON is a certificate, of any schema."""
    return isinstance(content, dict) and content.get("kind") == "certificate" and "schema" in content


def _require_free(path: Path, folder: RunFolder) -> None:
    advice = "name another file for the certificate"
    if path.is_dir():
        raise StorageError(f"{str(path)!r} is a folder; {advice}, for instance {path / CERTIFICATE}")
    if path.parent.resolve() != folder.path.resolve() and path.resolve().is_relative_to(folder.path.resolve()):
        raise StorageError(f"{path} lies among the epochs of the run, which nothing else may be part of; {advice}")
    if path.name == CALIBRATION and path.parent.resolve() == folder.path.resolve():
        raise StorageError(f"{path} is where the run's calibration goes; {advice}")
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not path.is_file():
        raise StorageError(f"{path} is no regular file, and is left as it is; {advice}")
    try:
        is_ours = is_certificate(read_json(path))
    except StorageError:
        is_ours = False
    if not is_ours:
        raise StorageError(f"{path} is there already and no certificate: it is left as it is; {advice}")


def _promise(folder: RunFolder, newest: int, metrics: Sequence[Mapping[str, Any]]) -> tuple[Promise, tuple[str, ...]]:
    """What the agent promises, and what it says that it does not."""
    trainer = Trainer(folder)
    agent, loop = trainer.agent, trainer.loop
    with contextlib.closing(loop.envs), agent.precision():
        number, state = trainer.newest()
        if number != newest:
            raise StorageError(
                f"{folder.path}: the checkpoint of epoch {newest} is truncated or altered, so there is nothing to "
                f"certify. Compute it again: actsafe resume {folder.path}"
            )

        def first_rows() -> Any:
            mode = ActMode(Role.TASK, agent.tasks[0])
            (block,) = loop.rollout(state, mode, 1, epoch=newest, stream=STREAM)
            return block.rows()

        keys = rollout_keys(state, newest, STREAM)
        role = Role(metrics[0]["role"]) if metrics else Role.SEED
        learned = [row["learning"] for row in metrics] or [{} for _ in folder.config.seeds]
        promise = agent.promise(loop.learner, state.agent, Newest(role, learned, first_rows, keys))
    return promise, agent.does_not_promise


def _against(
    folder: RunFolder,
    newest: int,
    promise: Promise,
    calibration: Known,
    metrics: Sequence[Mapping[str, Any]],
    ledger: Sequence[LedgerRow],
    counted: Sequence[deployed.Counted],
) -> Iterator[str]:
    """Why the promise is refused."""
    if not folder.config.row.is_constrained:
        yield "the algorithm keeps to no budget"
    estimates = [estimate for own in promise.estimates for estimate in own]
    for what in dict.fromkeys(each.what for each in estimates if not each.is_within):
        yield f"a pessimistic cost is over its bound, or not known: {what}"
    if not estimates and not counted:
        yield "no pessimistic cost is known"
    if calibration.verdict is Verdict.OVERCONFIDENT:
        yield "the model was found overconfident"
    if counted:
        yield from deployed.against(counted, [row["deployments"] for row in metrics])
    else:
        yield from _over(newest, ledger)
    evaluated = [each for row in metrics for each in row["evaluation"].values()]
    if num_over := sum(each["over"] for each in evaluated):
        num_episodes = sum(each["episodes"] for each in evaluated)
        yield f"{num_over} of {num_episodes} evaluated episodes of the newest policies were over a budget"


def _over(newest: int, ledger: Sequence[LedgerRow]) -> Iterator[str]:
    """Reasons against a promise from episodes of the newest epoch that were over a budget."""
    for found in violations(row for row in ledger if row.epoch == newest):
        if found.num_over:
            over = f"{found.num_over} of {found.num_episodes}"
            yield f"{over} episodes of the newest epoch were over the budget of {found.constraint}"


def _unknown(newest: int, calibration: Known, ledger: Sequence[LedgerRow]) -> Iterator[str]:
    """Why the promise is conditional, where nothing speaks against it."""
    if calibration.verdict is Verdict.UNKNOWN:
        yield "the model's calibration is not known"
    elif not calibration.is_current:
        yield "the model's calibration was measured before it learned more"
    elif not calibration.has_power:
        yield "the model's calibration has no power here: it could hardly have failed"
    # Rows of a seed differ by the constraint alone.
    own = {row.seed: row for row in ledger if row.epoch == newest and row.is_judged}.values()
    if not sum(row.num_episodes for row in own):
        yield "no episode of the newest policies is recorded"
    if num_uncertified := sum(row.num_uncertified or 0 for row in own):
        num_decisions = sum(row.num_decisions for row in own)
        yield f"{num_uncertified} of {num_decisions} decisions of the newest epoch had no certified plan"
    for found in violations(ledger):
        if found.num_over:
            over = f"{found.num_over} of {found.num_episodes}"
            yield f"{over} recorded episodes were over the budget of {found.constraint}"


def _violations(ledger: Sequence[LedgerRow]) -> list[dict[str, Any]]:
    """Recorded episodes over budget, for every constraint, and exact bounds on their rate."""
    return [
        {
            "constraint": found.constraint,
            "episodes": found.num_episodes,
            "over_budget": found.num_over,
            "rate": found.num_over / found.num_episodes if found.num_episodes else None,
            "interval": list(found.interval),
            "confidence": CONFIDENCE,
        }
        for found in violations(ledger)
    ]
