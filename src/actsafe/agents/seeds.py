"""Seeds as a leading axis."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


def over_seeds(function: Callable[..., Any], num_seeds: int) -> Callable[..., Any]:
    """`function` of one seed, for arrays with a leading axis of so many; what is no array is shared.

    One seed is not mapped: a map over one would be another program than the seed's own, and kernels that cannot be
    mapped remain usable.
    """
    by_seed = eqx.if_array(0)

    def of_one(*arguments: Any) -> Any:
        first = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, arguments)
        return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, function(*first))

    return of_one if num_seeds == 1 else eqx.filter_vmap(function, in_axes=by_seed)
