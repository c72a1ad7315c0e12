"""Where the newest Gaussian process is unsure, and how far exploration went."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from actsafe.figures.coordinates import view
from actsafe.figures.unsure import PLACES, doubt_slice, plane_states, reach_of, visited_over_time
from actsafe.models.gp.dynamics import GPDynamics
from actsafe.report.findings import Findings
from actsafe.report.gp_sections import phase_spans
from actsafe.report.markup import Child, percent, tag
from actsafe.report.sheet import Sheet, note, side_by_side
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer

MOST_EPISODES = 40
"""So many trajectories are drawn in a plane at most, the newest."""
KNOWN_SHARE = 0.1
"""Where doubt is less than this share of the doubt without data, a state counts as known."""
INPUTS = {"no input": 0.0, "full input": 1.0, "full input, other way": -1.0}
"""Of the slices, by their title."""


def unsure_section(sheet: Sheet, findings: Findings) -> Child:
    """Slices of the newest model's doubt through the state plane, over the states that were visited."""
    folder = findings.folder
    name = folder.config.problem
    if name not in PLACES:
        return note(f"No state plane is known for {name}, so that there is no slice of the model's doubt.")
    by_seed = trajectories(folder)
    plane = view(name)
    reach = reach_of(plane, [states for episodes in by_seed for states in episodes])
    trainer = Trainer(folder)
    newest, _, models = trainer.believed()
    model = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, models)
    _, values, states = plane_states(name, reach)
    dim = trainer.problem.action_dim
    doubts = {title: doubt(model, states, np.full(dim, action)) for title, action in INPUTS.items()}
    is_safe = np.abs(values) <= plane.limit
    share = float(np.mean(doubts["no input"][is_safe] < KNOWN_SHARE))
    figures = [
        sheet.figure(
            doubt_slice(name, found, by_seed[0][-MOST_EPISODES:], title=title, reach=reach),
            f"Doubt of the model in the state plane, {title}",
            None,
        )
        for title, found in doubts.items()
    ]
    spans = phase_spans([row for row in findings.metrics if row["episode"] > 0])
    figures.append(
        sheet.figure(
            visited_over_time(name, by_seed, spans),
            "Share of the state plane that was visited, over the episodes",
            None,
        )
    )
    rest = " Velocities are 0 in the slices." if name == "cartpole" else ""
    return [
        tag(
            "p",
            f"Seed {findings.seeds[0]}, model after episode {newest}. Doubt is the epistemic standard deviation of the "
            "next state, as a share of what it is without data, in the coordinate where that is largest. ",
            f"Within the safety limit and without input, the model knows {percent(share)} of the plane to less than "
            f"{100 * KNOWN_SHARE:.0f} % of that doubt.{rest} Dashed: the limit.",
        ),
        side_by_side(*figures),
    ]


def trajectories(folder: RunFolder) -> list[list[np.ndarray]]:
    """States [time, state] of every planned episode, by seed."""
    episodes = [folder.trajectory(number)["states"] for number in range(1, folder.num_committed)]
    return [[states[seed] for states in episodes] for seed in range(len(folder.config.seeds))]


def doubt(
    model: GPDynamics, states: Float[np.ndarray, "*lead state"], action: Float[np.ndarray, " action"]
) -> Float[np.ndarray, "*lead"]:
    """The epistemic std of what follows `states` over that of a model without data, largest of all coordinates."""
    flat = jnp.asarray(states.reshape(-1, states.shape[-1]))
    return np.asarray(_doubt(model, flat, jnp.asarray(action))).reshape(states.shape[:-1])


@eqx.filter_jit
def _doubt(model: GPDynamics, states: Float[Array, "n state"], action: Float[Array, " action"]) -> Float[Array, " n"]:
    prior_variance = jax.vmap(lambda posterior: posterior.kernel.variance)(model.posteriors)
    prior_std = model.change_normaliser.scale * jnp.sqrt(prior_variance)
    return jax.vmap(lambda state: jnp.max(model.predict(state, action).epistemic_std / prior_std))(states)
