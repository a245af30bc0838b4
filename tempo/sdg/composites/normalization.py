"""Composites: operators that are made of others, which a backend may take whole.

What a composite means is its decomposition: the evaluator computes that, and the pass `decompose` puts it in place of
the composite for a backend that does not take it. The gradient is the composite's own, in terms of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tempo.sdg.call import Call, static_type
from tempo.sdg.composites.activations import FORMS
from tempo.sdg.graph import Edge, Node, TensorType
from tempo.sdg.operators.axes import (
    FLOAT,
    HALF,
    Role,
    along,
    broadcast_axes,
    per_element,
    shape_along,
    shape_of,
    typed,
)
from tempo.sdg.operators.making import Formula, Gradient, Reverse
from tempo.sdg.operators.operator import Builder, Function, Operator
from tempo.symbolic import Expr, const

Decomposition = Callable[[Formula], Edge]


def widened(decompose: Decomposition) -> Decomposition:
    """Halves are computed in float32 and rounded once."""

    def wide(f: Formula) -> Edge:
        dtype = f.dtype(f.x)
        if dtype not in HALF:
            return decompose(f)
        cast = (edge if f.dtype(edge) == "bool" else f.apply("cast", edge, dtype="float32") for edge in f.operands)
        return f.apply("cast", decompose(Formula(f.attrs, tuple(cast), f.maker)), dtype=dtype)

    return wide


def stepwise(decompose: Decomposition) -> Builder:
    """The meaning of a composite: its decomposition, run step by step on arrays; scalars are handed on to the steps."""

    def builder(call: Call) -> Function:
        # The table holds composites, which are made of the others.
        from tempo.sdg.builder import NodeBuilder
        from tempo.sdg.operators.table import OPERATORS, call_for
        from tempo.sdg.rewriter import Tensors

        made, scalars, steps = NodeBuilder(), OPERATORS[call.op].scalars(call.attrs), []
        types = [TensorType(shape_of(each.shape), each.dtype) for each in call.operands]
        operands = tuple(made.declare(Node(-1, "input", (), (type,))) for type in types)
        result = decompose(Formula(call.attrs, operands, Tensors(made, None))).node
        for node in list(made.nodes.values())[len(operands) :]:
            given = [static_type(made.seen_type(edge), Expr.as_int) for edge in node.operands]
            step = call_for(node.op, node.attrs, given, static_type(node.type, Expr.as_int), Expr.as_int)
            steps.append((node, OPERATORS[node.op].numpy(step), OPERATORS[node.op].scalars(step.attrs)))

        def run(*given: Any) -> Any:
            values = dict(enumerate(given[: len(operands)]))
            now = dict(zip(scalars, given[len(operands) :], strict=True))
            for node, function, own in steps:
                values[node.id] = function(*(values[edge.node] for edge in node.operands), *(now[each] for each in own))
            return values[result]

        return run

    return builder


def _composite(
    name: str,
    decompose: Decomposition,
    gradient: Gradient,
    weight: float,
    keeps: bool = True,
    bounded: bool = False,
) -> Operator:
    whole = widened(decompose)
    return Operator(
        name=name,
        kind="composite",
        infer=typed(name, 1, shape_along(name, "axes", not keeps), FLOAT),
        axes=along("axes", Role.OPAQUE, removed=not keeps),
        cost=per_element(weight),
        numpy=stepwise(whole),
        axis_attrs=("axes",),
        least=lambda attrs: 1,
        bounded=bounded,
        gradient=gradient,
        decompose=whole,
    )


# softmax, log_softmax, logsumexp {axes}: e^x / sum(e^x), its logarithm, log(sum(e^x))


def _over(f: Formula, op: str, edge: Edge) -> Edge:
    """A reduction over the axes, which broadcasts to what it is of: of size 1, or in front and gone."""
    axes, shape = f.attrs["axes"], f.shape(edge)
    first = next((axis for axis in range(len(shape)) if axis not in axes), len(shape))
    kept = (const(1) if axis in axes else shape[axis] for axis in range(first, len(shape)))
    return f.reshape(f.apply(op, edge, axes=axes), kept)


def softmax(f: Formula) -> Edge:
    weights = f.apply("exp", f.sub(f.x, _over(f, "reduce_max", f.x)))
    return f.div(weights, _over(f, "reduce_sum", weights))


def _softmax_gradient(r: Reverse) -> tuple[Edge]:
    """y * (g - sum(g * y))"""
    return (r.mul(r.result, r.sub(r.g, _over(r, "reduce_sum", r.mul(r.g, r.result)))),)


def _log_softmax(f: Formula) -> Edge:
    shifted = f.sub(f.x, _over(f, "reduce_max", f.x))
    total = f.sum(f.apply("exp", shifted), f.attrs["axes"])
    return f.sub(shifted, f.spread(f.apply("log", total), f.attrs["axes"], f.shape(f.x)))


def _log_softmax_gradient(r: Reverse) -> tuple[Edge]:
    """g - e^y * sum(g)"""
    return (r.sub(r.g, r.mul(r.apply("exp", r.result), _over(r, "reduce_sum", r.g))),)


def _logsumexp(f: Formula) -> Edge:
    """Shifted by the greatest element, where that is finite."""
    axes = f.attrs["axes"]
    greatest = f.apply("reduce_max", f.x, axes=axes)
    shift = f.where(f.apply("isfinite", greatest), greatest, 0.0)
    terms = f.apply("exp", f.sub(f.x, f.spread(shift, axes, f.shape(f.x))))
    return f.add(f.apply("log", f.sum(terms, axes)), shift)


def _logsumexp_gradient(r: Reverse) -> tuple[Edge]:
    """g * e^(x - y)"""
    axes, shape = r.attrs["axes"], r.shape(r.x)
    weights = r.apply("exp", r.sub(r.x, r.spread(r.result, axes, shape)))
    return (r.mul(r.spread(r.g, axes, shape), weights),)


# layer_norm, rms_norm {axes, epsilon}: z / sqrt(mean(z^2) + epsilon), where z is x - mean(x), or x


def _mean(f: Formula, edge: Edge) -> Edge:
    """Over the axes; it broadcasts to what it is of."""
    sizes = [f.shape(edge)[axis] for axis in f.attrs["axes"]]
    count = f.number(math.prod(size.as_int() for size in sizes if size.is_const), edge)
    for size in sizes:
        if not size.is_const:
            count = f.mul(count, f.apply("cast", f.apply("index_value", expr=size), dtype=f.dtype(edge)))
    return f.div(_over(f, "reduce_sum", edge), count)


def _scale(f: Formula, centred: Edge) -> Edge:
    return f.apply("rsqrt", f.add(_mean(f, f.square(centred)), f.attrs["epsilon"]))


def _layer_norm(f: Formula) -> Edge:
    centred = f.sub(f.x, _mean(f, f.x))
    return f.mul(centred, _scale(f, centred))


def _layer_norm_gradient(r: Reverse) -> tuple[Edge]:
    """s * (g - mean(g) - y * mean(g * y)), s the factor by which x is scaled"""
    scale = _scale(r, r.sub(r.x, _mean(r, r.x)))
    along = r.mul(r.result, _mean(r, r.mul(r.g, r.result)))
    return (r.mul(scale, r.sub(r.sub(r.g, _mean(r, r.g)), along)),)


def _rms_norm(f: Formula) -> Edge:
    return f.mul(f.x, _scale(f, f.x))


def _rms_norm_gradient(r: Reverse) -> tuple[Edge]:
    """s * (g - y * mean(g * y))"""
    along = r.mul(r.result, _mean(r, r.mul(r.g, r.result)))
    return (r.mul(_scale(r, r.x), r.sub(r.g, along)),)


COMPOSITES = (
    _composite("softmax", softmax, _softmax_gradient, 5.0, bounded=True),
    _composite("log_softmax", _log_softmax, _log_softmax_gradient, 5.0),
    _composite("logsumexp", _logsumexp, _logsumexp_gradient, 4.0, keeps=False),
    _composite("layer_norm", _layer_norm, _layer_norm_gradient, 6.0),
    _composite("rms_norm", _rms_norm, _rms_norm_gradient, 4.0),
)
"""Composites. To add one: its decomposition and its gradient, here; a sample; a line for each backend that takes it."""


def _activation(name: str, form: Decomposition) -> Operator:
    decompose = widened(form)
    return Operator(
        name=name,
        kind="composite",
        infer=typed(name, 1, lambda attrs, shape: shape, FLOAT),
        axes=broadcast_axes,
        cost=per_element(8.0),
        gradient_note="the pass `compose` makes it, long after gradients are taken",
        numpy=stepwise(decompose),
        decompose=decompose,
    )


ACTIVATIONS = tuple(_activation(name, form) for name, form in FORMS.items())
"""By the pass `compose` alone."""
