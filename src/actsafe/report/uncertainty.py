"""Where the newest model is uncertain, how far exploration went, and what was recorded of either along the run."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from actsafe.agents.algorithms import Role
from actsafe.agents.gp import GPLearner
from actsafe.figures import panels, style
from actsafe.figures.coordinates import View, problem_of, view_of
from actsafe.figures.uncertainty import plane_states, uncertainty_slice, visited_over_time
from actsafe.models.gp.dynamics import GPDynamics
from actsafe.report.findings import Findings
from actsafe.report.markup import Child, percent, tag
from actsafe.report.sections import along, band, panel
from actsafe.report.sheet import Sheet, note, side_by_side
from actsafe.training.runner import Trainer
from actsafe.training.trajectories import has_trajectories, learned_from

MOST_EPISODES = 40
"""Trajectories that are drawn in a plane at most, the newest."""
KNOWN_SHARE = 0.1
"""Where uncertainty is less than this share of that without data, a state counts as known."""
INPUTS = {"no input": 0.0, "full input": 1.0, "full input, other way": -1.0}
"""Of the slices, by their title."""
LOSSES = {
    "observation": ("model/observation_loss", style.BLUE),
    "reward": ("model/reward_loss", style.GREEN),
    "cost": ("model/cost_loss", style.VERMILION),
}
ROLES = {Role.EXPLORATION: (style.ORANGE, "D"), Role.TASK: (style.BLUE, "o")}


def uncertainty_section(sheet: Sheet, findings: Findings) -> Child:
    """What there is of: slices of the model's uncertainty through the state plane, and measures along the run."""
    folder = findings.folder
    view = view_of(problem_of(folder.config)) if has_trajectories(folder) else None
    found = [None if view is None else _plane(sheet, findings, view), _measured(sheet, findings)]
    if not any(found):
        return note("Nothing that says how uncertain the model is was recorded yet.")
    return found


def _measured(sheet: Sheet, findings: Findings) -> Child:
    """Figures of what learning recorded."""

    def line(label: str, name: str, **look: Any) -> panels.Curve | None:
        return band(label, along(findings, lambda row: row["learning"].get(name)), **look)

    looks = {role.value: {"colour": colour, "marker": marker} for role, (colour, marker) in ROLES.items()}
    disagreement = [line(f"{role} policy", f"{role}/uncertainty", **look) for role, look in looks.items()]
    losses = [line(label, name, colour=colour) for label, (name, colour) in LOSSES.items()]
    of_ensemble = (
        "Disagreement of the ensemble in the imagination of each policy, in the unit of its features: mean over an "
        "epoch's updates."
    )
    of_losses = "How far its predictions were off, as recorded in every epoch. Smaller is better."
    drawn = [
        panel(sheet, findings, "Uncertainty in imagination", disagreement, caption=of_ensemble),
        panel(sheet, findings, "Losses of the world model", losses, is_cost=True, caption=of_losses),
    ]
    return side_by_side(*drawn) if any(drawn) else None


def _plane(sheet: Sheet, findings: Findings, view: View) -> Child:
    """Slices of the newest model's uncertainty, over the states that were visited, and how those became more."""
    folder = findings.folder
    visited = [[episode.observations for episode in episodes] for episodes in learned_from(folder)]
    reaches = view.reaches(states for episodes in visited for states in episodes)
    spans = panels.phase_spans(findings.metrics, findings.axis.entry)
    share = sheet.figure(
        visited_over_time(view, visited, spans),
        "Share of the state plane that was visited, over the episodes",
        "Cells of the plane within the limit, a line for every environment.",
    )
    trainer = Trainer(folder)
    learner = trainer.loop.learner
    if not isinstance(learner, GPLearner):
        return side_by_side(share)
    with trainer.agent.precision():
        newest, state = trainer.newest()
        models = learner.believe(state.agent)
        model = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, models)
        _, _, states = plane_states(view, reaches)
        actions = {title: jnp.full(folder.spec.action_dim, action) for title, action in INPUTS.items()}
        found = {
            title: np.asarray(relative_uncertainty(model, jnp.asarray(states), action))
            for title, action in actions.items()
        }
    known = float(np.mean(found["no input"][~view.is_outside(states)] < KNOWN_SHARE))
    figures = [
        sheet.figure(
            uncertainty_slice(view, each, visited[0][-MOST_EPISODES:], title=title, reaches=reaches),
            f"Uncertainty of the model in the state plane, {title}",
        )
        for title, each in found.items()
    ]
    rest = " Other velocities are 0 in the slices." if view.state_dim > 3 else ""
    return [
        tag(
            "p",
            f"Seed {findings.seeds[0]}, model after epoch {newest}. Uncertainty is the epistemic standard deviation of "
            "the next state, as a share of what it is without data, in the coordinate where that is largest. ",
            f"Within the safety limit and without input, the model knows {percent(known)} of the plane to less than "
            f"{100 * KNOWN_SHARE:.0f} % of that.{rest} Dashed: the limit.",
        ),
        side_by_side(*figures, share),
    ]


@eqx.filter_jit
def relative_uncertainty(
    model: GPDynamics, states: Float[Array, "y x state"], action: Float[Array, " action"]
) -> Float[Array, "y x"]:
    """The epistemic std of what follows `states` over that of a model without data, largest of all coordinates."""
    prior_variance = jax.vmap(lambda posterior: posterior.kernel.variance)(model.posteriors)
    prior_std = model.change_normaliser.scale * jnp.sqrt(prior_variance)
    return jax.vmap(jax.vmap(lambda state: jnp.max(model.predict(state, action).epistemic_std / prior_std)))(states)
