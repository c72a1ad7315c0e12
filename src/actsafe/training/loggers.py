"""Where else a run's metrics go as they come, on request: TensorBoard and Weights & Biases.

The run folder has everything in any case; what is logged here is a copy for those who watch.
"""

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError, by_path, require_known


class TensorBoard:
    """Event files in RUN/tensorboard, for `tensorboard --logdir RUN`."""

    package = "tensorboardX"

    def __init__(self, folder: RunFolder) -> None:
        writer = importlib.import_module(self.package).SummaryWriter
        # What a session before this one logged and lost again is struck out.
        rows = folder.rows("metrics")
        first = rows[-1]["steps"] + 1 if rows else 0
        self._writer = writer(str(folder.path / "tensorboard"), purge_step=first)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project "actsafe", kept in RUN/wandb until `wandb sync`; WANDB_MODE=online sends it at once."""

    package = "wandb"

    def __init__(self, folder: RunFolder) -> None:
        wandb = importlib.import_module(self.package)
        self._run = wandb.init(
            project="actsafe",
            name=folder.path.name,
            id=f"{folder.path.name}-{folder.config.digest}",
            resume="allow",
            dir=str(folder.path),
            # Nothing leaves the machine unless asked for.
            mode=os.environ.get("WANDB_MODE") or "offline",
            config=folder.config.to_json(),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


LOGGERS: Mapping[str, type[TensorBoard | WeightsAndBiases]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def require_loggers(names: Sequence[str]) -> None:
    """Raise `ConfigError` unless these are names of loggers whose packages are installed."""
    for name in names:
        require_known("logger", name, LOGGERS)
        package = LOGGERS[name].package
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--log {name} needs the package {package}, which is not installed: pip install 'actsafe[{name}]'"
            ) from error


@contextlib.contextmanager
def logging(names: Sequence[str], folder: RunFolder) -> Iterator[Callable[[Sequence[Mapping[str, Any]]], None]]:
    """A context with a function that takes committed metrics, a row per seed, to the loggers of these names."""
    require_loggers(names)
    with contextlib.ExitStack() as opened:
        loggers = [LOGGERS[name](folder) for name in dict.fromkeys(names)]
        for logger in loggers:
            opened.callback(logger.close)

        def note(rows: Sequence[Mapping[str, Any]]) -> None:
            for row in rows:
                prefix = f"seed_{row['seed']}/" if len(rows) > 1 else ""
                for logger in loggers:
                    logger.log(row["steps"], scalars(row, prefix))

        yield note


def scalars(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a row of metrics; nested ones have their path as a name."""
    return {
        name: float(value)
        for name, value in by_path(row, "/", prefix).items()
        if not isinstance(value, str | Mapping | None) and getattr(value, "ndim", 0) == 0
    }
