"""What the screen said of candidates, beside what their episodes cost."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from actsafe.evidence.screening import Deployment, candidates_of
from actsafe.figures import panels, style

WENT_WELL, WENT_WRONG, AS_SAID, ALLOWED = "went well", "over budget, or taken over", "cost as scored", "budget"


def score_against_outcome(deployments: Sequence[Deployment], constraint: int, budget: float, name: str) -> Figure:
    """Score and mean cost of every deployment of a candidate, of one constraint by its place.

    Above the diagonal an episode cost more than the screen had said. A score that is not known lies at the right edge;
    a cost that is not known is left out.
    """
    tried = [(each["score"][constraint], each["came"]["candidate"]) for each in candidates_of(deployments)]
    score = style.finite([said for said, _ in tried])
    cost = style.finite([came["costs"][constraint] for _, came in tried])
    is_wrong = np.array([came["over"] + came["taken_over"] > 0 for _, came in tried], bool)
    figure, axes = panels.blank(height=3.2)
    style.clean(axes, title=f"{name}: scored and paid", xlabel="score, before", ylabel="mean cost, after")
    most = 1.05 * style.most(score, cost, budget)
    axes.set(xlim=(-0.02 * most, most), ylim=(-0.02 * most, most))
    axes.plot([0, most], [0, most], color=style.GREY, linewidth=1.0, label=AS_SAID)
    axes.axvline(budget, **style.LIMIT)
    axes.axhline(budget, label=f"{ALLOWED} {budget:g}", **style.LIMIT)
    edge = np.where(np.isfinite(score), score, most)
    looks = ((~is_wrong, style.BLUE, "o", WENT_WELL), (is_wrong, style.DANGER, "X", WENT_WRONG))
    for is_meant, colour, marker, label in looks:
        if np.any(is_meant):
            look = {"color": colour, "alpha": 0.75, "markersize": 5, "linestyle": "", "clip_on": False}
            axes.plot(edge[is_meant], cost[is_meant], marker, label=label, **look)
    panels.legend(axes)
    return figure
