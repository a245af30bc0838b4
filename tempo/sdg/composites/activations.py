"""Activations as programs spell them out: backends that have a kernel make one pass instead of five.

The pass `compose` makes operators of them, long after gradients are taken, where it finds what they are made of
(`tempo.passes.composites`); nothing else does, so they have no gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tempo.sdg.graph import Edge
from tempo.sdg.operators.making import Formula


def _silu(f: Formula) -> Edge:
    return f.mul(f.x, f.apply("logistic", f.x))


def _gelu(f: Formula) -> Edge:
    """Hendrycks and Gimpel 2016, section 2."""
    return f.mul(f.mul(f.add(f.apply("erf", f.mul(f.x, 0.7071067811865476)), 1.0), 0.5), f.x)


def _gelu_by_tanh(f: Formula) -> Edge:
    cubed = f.mul(f.mul(f.x, f.x), f.x)
    inside = f.mul(f.add(f.x, f.mul(cubed, 0.044715)), 0.7978845608028654)
    return f.mul(f.mul(f.add(f.apply("tanh", inside), 1.0), 0.5), f.x)


FORMS: Mapping[str, Callable[[Formula], Edge]] = {"silu": _silu, "gelu": _gelu, "gelu_by_tanh": _gelu_by_tanh}
"""How programs spell them out. To add one: its form, here; a sample; a line for each backend that takes it."""
