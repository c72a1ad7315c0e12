"""What the episodes of a deployment came to, from its rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from actsafe.agents.safe_set.archive import Counts
from actsafe.agents.safe_set.canary import CANDIDATE, CERTIFIED
from actsafe.agents.safe_set.state import Outcomes, Taken
from actsafe.data.rows import episode_spans


class Begun(NamedTuple):
    """One episode."""

    level: int
    """Of who acted at its beginning."""
    cost: np.ndarray
    is_ended: bool
    taken: tuple[tuple[int, np.ndarray], ...]
    """The level of every fallback that took it over, and what it cost from then on."""


def episodes_of(rows: Mapping[str, np.ndarray]) -> list[Begun]:
    """The episodes of one environment; a row has the level that decided after it, and the costs that led to it."""
    found = []
    for span in episode_spans(rows["is_first"]):
        levels, costs = rows["level"][span][:-1], rows["costs"][span]
        changes = [tick for tick in range(1, len(levels)) if levels[tick] < levels[tick - 1]]
        taken = tuple((int(levels[tick]), np.sum(costs[tick + 1 :], axis=0)) for tick in changes)
        found.append(Begun(int(levels[0]), np.sum(costs, axis=0), bool(rows["is_last"][span][-1]), taken))
    return found


def outcomes_of(by_seed: Sequence[Sequence[Begun]], budgets: Sequence[float], num_entries: int) -> Outcomes:
    """Of all seeds, as arrays; of the episodes taken over, the first `num_entries`."""
    bounds, num_seeds = np.asarray(budgets), len(by_seed)
    counts = {}
    for level in (CANDIDATE, CERTIFIED):
        own = [[each for each in episodes if each.level == level] for episodes in by_seed]
        costs = np.array([np.sum([each.cost for each in of_seed], axis=0) + 0.0 * bounds for of_seed in own])
        counts[level] = Counts(
            np.array([len(of_seed) for of_seed in own], np.int32),
            np.array([sum(each.is_ended for each in of_seed) for of_seed in own], np.int32),
            np.array([sum(not np.all(each.cost <= bounds) for each in of_seed) for of_seed in own], np.int32),
            np.array([sum(len(each.taken) > 0 for each in of_seed) for of_seed in own], np.int32),
            costs.astype(np.float32),
        )
    shape = (num_seeds, num_entries)
    taken = Taken(np.zeros(shape, np.int32), np.zeros((*shape, len(bounds)), np.float32), np.zeros(shape, bool))
    for seed, episodes in enumerate(by_seed):
        entries = [entry for each in episodes for entry in each.taken][:num_entries]
        for place, (level, cost) in enumerate(entries):
            taken.level[seed, place], taken.cost[seed, place], taken.is_real[seed, place] = level, cost, True
    return Outcomes(counts[CANDIDATE], counts[CERTIFIED], taken)


def joined(blocks: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Arrays (seed, environment, time, ...) of blocks that follow each other."""
    return {name: np.concatenate([block[name] for block in blocks], axis=2) for name in blocks[0]}
