"""A model's parameters as one vector: one array to update, to hand on and to store, instead of a hundred small ones."""

from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

Tree = TypeVar("Tree")


class Layout(NamedTuple):
    """Where every parameter is in the vector."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]


class Packed(eqx.Module, Generic[Tree]):
    """Parameters in a row; leading axes, if there are any, are those of several models of one layout."""

    vector: Float[Array, "*lead parameter"]
    layout: Layout = eqx.field(static=True)

    @classmethod
    def of(cls, tree: Tree) -> "Packed[Tree]":
        """One model. All of its arrays must be of floating point."""
        leaves, structure = jax.tree.flatten(tree)
        for leaf in leaves:
            if not eqx.is_inexact_array(leaf):
                raise TypeError(f"parameters must be arrays of floating point, got {leaf!r}")
        return cls(flat(tree), Layout(structure, tuple(leaf.shape for leaf in leaves)))

    @property
    def tree(self) -> Tree:
        """The model; its arrays have the vector's leading axes."""
        sizes = [int(np.prod(shape)) for shape in self.layout.shapes]
        ends = np.cumsum(sizes)
        lead = self.vector.shape[:-1]
        leaves = [
            self.vector[..., end - size : end].reshape(*lead, *shape)
            for end, size, shape in zip(ends, sizes, self.layout.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.layout.structure, leaves)


def flat(tree: PyTree) -> Float[Array, " parameter"]:
    """All arrays of a model as one vector, in the order of `Packed`."""
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])
