"""What a backend declares that it does not do is refused before anything runs: a wrong number is never acceptable."""

from __future__ import annotations

from tempo.errors import UnsupportedError
from tempo.plugins.descriptors import DTYPES, BackendPlugin
from tempo.plugins.manager import list_backends
from tempo.plugins.messages import unsupported_operator
from tempo.sdg.graph import Graph, Node


def check_supported(graph: Graph, backend: BackendPlugin) -> None:
    """Raises `UnsupportedError` at the user's line for the first operator or dtype that the backend lacks."""
    for node in graph.nodes.values():
        for dtype in _dtypes(graph, node):
            why = _why_not(backend, node.op, dtype)
            if why is not None:
                raise _refusal(backend, node, dtype, why)


def _dtypes(graph: Graph, node: Node) -> dict[str, None]:
    """Of the results first, then of the operands."""
    read = [graph.nodes[edge.node].results[edge.result] for _, edge in node.reads()]
    return dict.fromkeys(type.dtype for type in (*node.results, *read))


def _why_not(backend: BackendPlugin, operator: str, dtype: str) -> str | None:
    if dtype in DTYPES and dtype not in backend.dtypes:
        return f"it has no {dtype}"
    return backend.capabilities.why_not(operator, dtype)


def _refusal(backend: BackendPlugin, node: Node, dtype: str, why: str) -> UnsupportedError:
    usable = [listing.descriptor for listing in list_backends() if isinstance(listing.descriptor, BackendPlugin)]
    able = [each.name for each in usable if _why_not(each, node.op, dtype) is None]
    return unsupported_operator(backend.name, node.op, dtype, why, able, node.location)
