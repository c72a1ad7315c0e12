"""How options look that several commands have."""

from typing import Annotated

from tyro.conf import FlagCreatePairsOff, arg

Flag = Annotated[FlagCreatePairsOff[bool], arg(help_behavior_hint="")]
"""An option without a value: off unless it is named."""

Log = Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]", help_behavior_hint="(default: nowhere)")]
"""Where metrics go beside the run folder."""
