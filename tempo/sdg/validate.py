"""The invariants of the graph, checked. What breaks one is a bug of Tempo or of a plugin, never of a user."""

from __future__ import annotations

from tempo.errors import InternalError, Location, TempoError
from tempo.sdg.builder import varying_dims
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import Edge, Element, Graph, Node, Output, Point, TensorType
from tempo.sdg.operators import OPERATORS
from tempo.sdg.text import node_text, output_text
from tempo.symbolic import Context, Expr, Symbol, const


def validate(graph: Graph) -> None:
    """Raises InternalError, with the node, when an invariant does not hold.

    Edges name nodes that exist through maps of the right length over dims that the reader has; domains are canonical
    and, for pure nodes, exactly the dims that vary; the type of a pure node is what the operator's rule infers, that of
    a case what the case reads; declarations are unique; cycles run through merges; the layout of an output names each
    dim of its domain and each axis once.
    """
    contexts: dict[tuple[Symbol, ...], Context] = {}
    declared: dict[int, int] = {}
    for id, node in graph.nodes.items():
        try:
            _check_node(graph, id, node, contexts)
            _check_declaration(node, declared)
        except _BrokenError as broken:
            raise _failure(str(broken), node_text(node), node.location) from None
    for output in graph.outputs:
        try:
            _check_output(graph, output, contexts)
        except _BrokenError as broken:
            raise _failure(str(broken), output_text(output), output.location) from None
    _check_sinks(graph)
    _check_cycles(graph)


class _BrokenError(Exception):
    """What is wrong with the node at hand; `validate` adds which node."""


def _failure(problem: str, text: str, location: Location | None = None) -> InternalError:
    return InternalError(f"{problem}, in\n    {text}", location=location)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise _BrokenError(problem)


def _context(graph: Graph, domain: tuple[Symbol, ...], contexts: dict[tuple[Symbol, ...], Context]) -> Context:
    if domain not in contexts:
        contexts[domain] = Context.of(graph.dim(symbol) for symbol in domain)
    return contexts[domain]


def _check_node(graph: Graph, id: int, node: Node, contexts: dict[tuple[Symbol, ...], Context]) -> None:
    _require(node.id == id, f"the node under number {id} has number {node.id}")
    _require(node.op in OPERATORS, f"there is no operator {node.op!r}")
    _check_domain(graph, node.domain)
    for _, edge in node.reads():
        _check_edge(graph, edge, node.domain)
    _require(tuple(sorted(key for key, _ in node.attrs)) == tuple(key for key, _ in node.attrs), "unsorted attributes")
    _require(node.is_merge or not node.cases, "only a merge has cases")
    _require(bool(node.results) or node.op == "sink", "no result")
    varying = varying_dims(node)
    _require(varying <= set(node.domain), f"{_names(graph, varying - set(node.domain))} vary outside the domain")
    context = _context(graph, node.domain, contexts)
    if node.is_merge:
        _check_cases(graph, node, context)
    if node.is_nominal:
        return _check_nominal(node)
    is_constant = varying != set(node.domain) and node.op != "copy"  # which is made wherever an output is
    _require(not is_constant, f"nothing varies along {_names(graph, set(node.domain) - varying)}")
    _require(len(node.results) == 1, "a pure node has one result")
    _require_same_type(node.type, _inferred(graph, node), context, "the operator's rule gives")


def _inferred(graph: Graph, node: Node) -> TensorType:
    try:
        return OPERATORS[node.op].infer(node.attributes, tuple(graph.seen_type(edge) for edge in node.operands))
    except TempoError as error:
        raise _BrokenError(f"the operator's rule refuses this ({error.message})") from error


def _names(graph: Graph, symbols: set[Symbol] | frozenset[Symbol]) -> str:
    return ", ".join(sorted(symbol.name for symbol in symbols)) or "nothing"


def _check_domain(graph: Graph, domain: tuple[Symbol, ...]) -> None:
    _require(graph.canonical(domain) == domain, f"domain {tuple(s.name for s in domain)} is not canonical")


def _check_edge(graph: Graph, edge: Edge, domain: tuple[Symbol, ...]) -> None:
    _require(edge.node in graph.nodes, f"node %{edge.node}, which is read, does not exist")
    producer = graph.nodes[edge.node]
    _require(0 <= edge.result < len(producer.results), f"%{edge.node} has no result {edge.result}")
    wanted = len(producer.domain)
    _require(len(edge.map) == wanted, f"the map to %{edge.node} has {len(edge.map)} positions for {wanted} dims")
    _require(edge.dims() <= set(domain), f"the map to %{edge.node} uses {_names(graph, edge.dims() - set(domain))}")
    slices = [index for index in edge.map if not isinstance(index, Point)]
    extents = [index.extent for index in slices if index.extent is not None]
    _require(not any(extent.dims() for extent in extents), f"an extent of the map to %{edge.node} varies")


def _check_cases(graph: Graph, node: Node, context: Context) -> None:
    _require(not node.operands, "a merge has cases, no operands")
    for case in node.cases:
        found = graph.seen_type(case.edge)
        if case.part is not None:
            _check_part(case.part, node, found)
            continue
        _require_same_type(node.type, found, context.assume(case.condition), f"the case at %{case.edge.node} gives")


def _check_part(part: Element, node: Node, row: TensorType) -> None:
    _require(sorted(part.order) == list(range(len(row.shape))), f"{part.order} is no order of the row's axes")
    _require(part.at.dims() <= set(node.domain), "the element varies outside the domain")
    kept = [row.shape[axis] for axis in part.order[1:]]
    same = [size for size in kept if size != const(1)] == [size for size in node.shape if size != const(1)]
    _require(same and row.dtype == node.dtype, f"an element of the row is {row.dtype}[{', '.join(map(str, kept))}]")


def _require_same_type(wanted: TensorType, found: TensorType, context: Context, who: str) -> None:
    same = wanted.dtype == found.dtype and len(wanted.shape) == len(found.shape)
    same = same and all(_equal(a, b, context) for a, b in zip(wanted.shape, found.shape))
    _require(same, f"{who} {found.dtype}[{', '.join(map(str, found.shape))}]")


def _equal(a: Expr, b: Expr, context: Context) -> bool:
    if a == b:
        return True
    return context.simplify(a) == context.simplify(b) or context.implies(a.eq(b))


def _check_nominal(node: Node) -> None:
    ordered = set(node.attr("ordered_by", ()))
    _require(ordered <= set(node.domain), "a call is ordered by a dim that is not in its domain")
    if node.is_input and node.attr("layout") is not None:
        _check_layout(node.attr("layout"), node.domain, node.shape)


def _check_layout(layout: tuple[Symbol | int, ...], domain: tuple[Symbol, ...], shape: tuple[Expr, ...]) -> None:
    wanted = {*domain, *range(len(shape))}
    exact = len(layout) == len(wanted) and set(layout) == wanted
    _require(exact, f"layout {layout} does not name each dim and axis once")


def _check_declaration(node: Node, declared: dict[int, int]) -> None:
    if not node.is_nominal:
        return _require(node.declaration is None, "a pure node has no declaration number")
    if node.declaration is None:
        raise _BrokenError("a nominal node needs a declaration number")
    other = declared.setdefault(node.declaration, node.id)
    return _require(other == node.id, f"declaration {node.declaration} is also that of %{other}")


def _check_output(graph: Graph, output: Output, contexts: dict[tuple[Symbol, ...], Context]) -> None:
    _check_domain(graph, output.domain)
    _check_edge(graph, output.edge, output.domain)
    found = graph.seen_type(output.edge)
    _require_same_type(output.type, found, _context(graph, output.domain, contexts), "the edge gives")
    seen = tuple(symbol for symbol in output.domain if output.role in ("output", "watch") or symbol in output.layout)
    _check_layout(output.layout, seen, output.type.shape)


def _check_sinks(graph: Graph) -> None:
    for id in graph.sinks:
        if id not in graph.nodes:
            raise _failure(f"sink %{id} does not exist", f"sinks {graph.sinks}")
        if graph.nodes[id].op != "sink":
            raise _failure("a node that is no sink is listed as one", node_text(graph.nodes[id]))


def _check_cycles(graph: Graph) -> None:
    """Reads of merges wait for nothing: these have no operands."""
    operands = {id: [edge.node for edge in node.operands] for id, node in graph.nodes.items()}
    for component in strongly_connected(operands, operands):
        if len(component) > 1 or component[0] in operands[component[0]]:
            raise _failure("a cycle runs through no merge", node_text(graph.nodes[component[0]]))
