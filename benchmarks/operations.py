"""How many floating-point operations a program asks for: the products of matrices and convolutions in its trace."""

import math
from collections.abc import Callable
from typing import Any

import jax


def count(function: Callable[..., Any], *args: Any) -> float:
    """Two for every multiplication and addition in a product or convolution; loops count as often as they turn."""
    return _in(jax.make_jaxpr(function)(*args).jaxpr)


def _in(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            outputs = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
            total += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) / outputs
        else:
            turns = equation.params.get("length", 1) if name == "scan" else 1
            total += turns * sum(_in(inner) for inner in _inner(equation.params))
    return total


def _inner(params: dict[str, Any]) -> list[Any]:
    """The traces inside an equation: bodies of loops, of compiled functions and of custom derivatives."""
    found = []
    for value in params.values():
        for entry in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(entry, "jaxpr", entry)
            if hasattr(inner, "eqns"):
                found.append(inner)
    return found
