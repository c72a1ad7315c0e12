"""The figures of the paper and of a run's safety record, drawn from result data alone."""

from actsafe.figures.drawing import figures_of_results, figures_of_runs
from actsafe.figures.ledger import ledger_figure
from actsafe.figures.phase_plane import phase_plane
from actsafe.figures.states import state_coordinates
from actsafe.figures.style import save
from actsafe.figures.summary import summary
from actsafe.figures.swing_up import swing_up_strip

__all__ = [
    "figures_of_results",
    "figures_of_runs",
    "ledger_figure",
    "phase_plane",
    "save",
    "state_coordinates",
    "summary",
    "swing_up_strip",
]
