"""Composites that a backend takes whole, found in what is spelled out, or came apart for what other passes do with it.

This comes late: gradients, lifting and splitting know primitives. Only values of varying length are still as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from tempo.passes.attention_form import Attention, Extra, find_attention
from tempo.passes.axes import ONE, GraphViews
from tempo.passes.dce import without_dead_nodes
from tempo.passes.manager import PassContext
from tempo.passes.rewriting import Rewriter, Tensors
from tempo.passes.sweep import Draft
from tempo.sdg.graph import Edge, Graph, Node
from tempo.symbolic import Expr, as_expr

Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class Compose:
    """`PassContext.options["composites"]` names what the backend takes. What others read, too, is left as it is."""

    name: ClassVar[str] = "compose"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        if "attention" not in context.options.get("composites", ()):
            return graph
        views, new = GraphViews(graph), Rewriter(graph)
        made = [made for node in graph.nodes.values() if (made := _composed(graph, node, views))]
        for node, found in made:
            new.put(node, _attention(found, node, Tensors(new, node.location)))
        return without_dead_nodes(replace(graph, nodes=new.nodes)) if made else graph


def _composed(graph: Graph, node: Node, views: GraphViews) -> tuple[Node, Attention] | None:
    if node.op != "dot" or not node.dtype.endswith(("float16", "float32", "float64")):
        return None
    found = find_attention(Draft(node.op, node.operands, node.attrs, node.type), views)
    if found is None or not _has_numbers(found, views) or not _is_alone(graph, node, found):
        return None
    return node, found


def _has_numbers(found: Attention, views: GraphViews) -> bool:
    """Rows are merged into one axis, whose size is an expression where at most one of theirs is not a number."""
    shape = views.type_of(found.queries.edge).shape
    sizes = [shape[axis] for axis in found.queries.free]
    return sum(not size.is_const for size in sizes) <= 1


def _is_alone(graph: Graph, node: Node, found: Attention) -> bool:
    """Whether nobody else reads what lies between the operands of attention and its result."""
    ends = {edge.node for edge in found.given()}
    values = {found.values.edge.node}
    pending = [edge.node for edge in node.operands if edge.node not in values]
    inside: set[int] = set()
    while pending:
        id = pending.pop()
        operands = graph.nodes[id].operands
        if id in inside or id in ends or not operands:
            continue
        inside.add(id)
        pending.extend(edge.node for edge in operands)
    readers = graph.consumers()
    outside = any(reader not in inside and reader != node.id for id in inside for reader, _ in readers[id])
    return not outside and inside.isdisjoint(output.edge.node for output in graph.outputs)


def _attention(found: Attention, node: Node, tensors: Tensors) -> Edge:
    """The operator, and its result as `node` has it."""
    queries, keys, values = found.queries, found.keys, found.values
    count = len(queries.batch)
    free = count + len(keys.free) if found.keys_first else count
    batch = [found.places[axis] for axis in found.batch]
    rows = [queries.free[found.places[axis] - free] for axis in found.rows]
    order = (*(queries.batch[at] for at in batch), *rows, *queries.contracted)
    given = tensors.transpose(queries.edge, order)
    shape = tensors.shape(given)
    own = shape[count:-1]
    merged = as_expr(prod(size.as_int() for size in own if size.is_const))
    for size in own:
        merged = merged if size.is_const else size * merged.as_int()
    given = tensors.reshape(given, (*shape[:count], merged, shape[-1]))
    extras = [_extra(extra, found, own, tensors) for extra in (*_sum(found, tensors), *found.mask)]
    made = tensors.apply(
        "attention",
        given,
        keys.edge,
        values.edge,
        *extras,
        key_axes=(*(keys.batch[at] for at in batch), *keys.free, *keys.contracted),
        value_axes=(*values.batch, *values.contracted, *values.free),
        scale=found.scale,
        biased=bool(found.bias),
        masked=bool(found.mask),
        fill=found.fill,
        length=tensors.shape(keys.edge)[keys.free[0]],
    )
    out = tensors.shape(made)[-1]
    made = tensors.reshape(made, (*shape[:count], *own, out))
    if not found.values_first:
        return made
    return tensors.moved(made, len(found.batch) + len(own), len(found.batch))


def _sum(found: Attention, tensors: Tensors) -> tuple[Extra, ...]:
    """All biases as one."""
    if len(found.bias) < 2:
        return found.bias
    rank = len(found.places)
    parts = [_aligned(extra, range(rank), tensors) for extra in found.bias]
    total = parts[0]
    for part in parts[1:]:
        total = tensors.add(total, part)
    return (Extra(total, tuple(None if size == ONE else at for at, size in enumerate(tensors.shape(total)))),)


def _aligned(extra: Extra, order: Sequence[int], tensors: Tensors) -> Edge:
    """With an axis for each of these of the scores, in order; of size 1 where it repeats."""
    shape = tensors.shape(extra.edge)
    shown = [extra.axes[at] for at in order]
    kept = [axis for axis in shown if axis is not None]
    rest = [axis for axis in range(len(shape)) if axis not in kept]
    edge = tensors.transpose(extra.edge, (*kept, *rest))
    return tensors.reshape(edge, tuple(ONE if axis is None else shape[axis] for axis in shown))


def _extra(extra: Extra, found: Attention, rows: Shape, tensors: Tensors) -> Edge:
    """As the operator takes it: batch, rows as one axis, keys."""
    edge = _aligned(extra, (*found.batch, *found.rows, found.keys_axis), tensors)
    shape, count = tensors.shape(edge), len(found.batch)
    before, own, last = shape[:count], shape[count:-1], shape[-1]
    if len(own) == 1:
        return edge
    if all(size == ONE for size in own):
        return tensors.reshape(edge, (*before, ONE, last))
    edge = tensors.broadcast(edge, (*before, *rows, last))
    merged = as_expr(prod(size.as_int() for size in rows if size.is_const))
    for size in rows:
        merged = merged if size.is_const else size * merged.as_int()
    return tensors.reshape(edge, (*before, merged, last))
