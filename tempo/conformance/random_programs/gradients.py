"""Statements that differentiate: a loss of a value with respect to others, and parameters that descend.

Where a derivative jumps, rounding decides which side is taken. So losses that are compared between backends have such
points only in what every backend computes to the same bits, and those compared with differences have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tempo.conformance.random_programs.description import Statement
from tempo.conformance.random_programs.pointwise import reduced
from tempo.conformance.random_programs.session import Session, Value
from tempo.language.program import Program
from tempo.sdg.graph import Edge, Node
from tempo.sdg.operators import OPERATORS

_DTYPES = ("float32", "float64")
_MOST = 3  # in one program: each makes the program as long again
_LOSSES = ("tp.tanh({})", "{} * 0.5", "tp.sin({})", "{} * {}")
_JUMPS = frozenset(
    {"abs", "sign", "maximum", "minimum", "reduce_max", "reduce_min", "sort", "mod", "floordiv", "floor", "ceil"}
    | {"round"}
)
"""Operators whose derivative jumps at points that programs do reach; `_UNBOUNDED` are those where it has no bound."""
_UNBOUNDED = frozenset({"sqrt", "rsqrt", "pow"})
_REFUSED = frozenset({"backend_call"})  # by `tp.grad`, with an error
_EXACT = frozenset(
    {"neg", "cast", "where", "input", "merge", "gather", "gather_pairs", "argsort", "argmax", "argmin", "copy"}
)


def gradient(session: Session) -> Value | None:
    """`tp.grad(loss, x)`, of a loss and a float tensor that were made before."""
    if session.opened or session.gradients >= _MOST:
        return None
    loss = total_loss(session, session.pick(lambda value: value.dtype in _DTYPES and not value.open))
    x = session.pick(lambda value: value.dtype in _DTYPES and value.tensor.is_identity and not value.open)
    if loss is None or x is None or not comparable(session.program, loss):
        return None
    session.gradients += 1
    return session.assign(f"tp.grad({loss.name}, {x.name})", (x,), prefix="g", exact=False)


def descent(session: Session) -> Value | None:
    """A parameter that each step moves against the gradient of a loss that reads it there."""
    if session.opened or not session.dims or session.gradients >= _MOST:
        return None
    x = session.pick(lambda value: value.dtype == "float32" and not value.ragged_axes)
    if x is None:
        return None
    session.gradients += 1
    i, name, x = session.choices.choice(tuple(session.dims)), session.fresh("w"), session.discharged(x)
    declared = f'{name} = tp.parameter("{name}", (), init=0.5, dims=({i},))'
    session.run(Statement(declared, (name,)))
    w = Value(name, session.lookup(name), exact=False)
    product = session.assign(f"tp.tanh({x.name} * {name})", (x, w), exact=False)
    loss = total_loss(session, product)
    if loss is None or not comparable(session.program, loss):
        return None
    slope = session.assign(f"tp.grad({loss.name}, {name})", (w,), prefix="g", exact=False)
    if slope is None:
        return None
    session.run(Statement(f"{name}[{i} + 1] = {name} - 0.125 * tp.tanh({slope.name})", extends=name))
    session.values.append(w)
    return w


def total_loss(session: Session, value: Value | None) -> Value | None:
    """A number that depends on the value, at every point; None where none can be made of it."""
    if value is None:
        return None
    whole: Value | None = session.discharged(value)
    while whole is not None and whole.rank > 0:
        whole = reduced(session, whole, 0) if whole.ragged_axes or session.choices.chance(30) else _sum(session, whole)
    if whole is None or whole.needs or whole.dtype not in _DTYPES:
        return None
    source = session.choices.choice(_LOSSES)
    return session.assign(source.replace("{}", whole.name), (whole,), prefix="loss", exact=False)


def _sum(session: Session, value: Value) -> Value | None:
    return session.assign(f"tp.mean({value.name})" if _mean(session, value) else f"tp.sum({value.name})", (value,))


def _mean(session: Session, value: Value) -> bool:
    return not value.may_be_empty and session.choices.chance(50)


# -- where derivatives can be compared --------------------------------------------------------------------------------


def comparable(program: Program, loss: Value) -> bool:
    """Whether there are derivatives of the loss, and every backend takes the same side wherever one jumps."""
    nodes = program.builder.nodes
    found = list(_reached(nodes, [loss.tensor.edge]))
    if any(node.op in _UNBOUNDED | _REFUSED for node in found):
        return False
    before = [node.operands for node in found if node.op in _JUMPS]
    return all(_makes_same_bits(node) for operands in before for node in _reached(nodes, operands))


def smooth(program: Program, loss: Value) -> bool:
    """Whether differences of the loss approach its derivative: nothing jumps, or hides what depends on the inputs."""
    nodes = program.builder.nodes
    return not any(
        node.op in _JUMPS | _UNBOUNDED
        or node.attr("role") == "parameter"  # a leaf, whatever defines it
        or (_reads_floats(nodes, node) and (node.op in ("host_call", "backend_call") or not _floats(node)))
        for node in _reached(nodes, [loss.tensor.edge], floats_only=False)
    )


def depends(program: Program, loss: Value, x: Value) -> bool:
    """Whether the loss may vary with `x`."""
    return any(node.id == x.tensor.edge.node for node in _reached(program.builder.nodes, [loss.tensor.edge]))


def _floats(node: Node) -> bool:
    return any("float" in type.dtype for type in node.results)


def _reads_floats(nodes: Mapping[int, Node], node: Node) -> bool:
    return any(_floats(nodes[edge.node]) for edge in node.operands)


def _makes_same_bits(node: Node) -> bool:
    kind = OPERATORS[node.op].kind if node.op in OPERATORS else ""
    return node.op in _EXACT | _JUMPS or kind in ("movement", "creation")


def _reached(nodes: Mapping[int, Node], edges: Iterable[Edge], floats_only: bool = True) -> Iterator[Node]:
    """The nodes that the edges depend on; what integers and bools depend on only where asked for."""
    pending, seen = [edge.node for edge in edges], set[int]()
    while pending:
        id = pending.pop()
        node = nodes[id]
        if id in seen or node.op == "stop_gradient" or (floats_only and not _floats(node)):
            continue
        seen.add(id)
        yield node
        pending += [edge.node for _, edge in node.reads()]
        if node.op == "gradient":
            pending.append(node.attr("loss").node)
