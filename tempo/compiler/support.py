"""What a backend declares that it does not do is refused before anything runs: a wrong number is never acceptable."""

from __future__ import annotations

from tempo.errors import UnsupportedError
from tempo.plugins.descriptors import BackendPlugin, Exclusion
from tempo.plugins.manager import list_backends
from tempo.plugins.messages import unsupported_operator
from tempo.sdg.graph import Graph, Node


def check_supported(graph: Graph, backend: BackendPlugin) -> None:
    """Raises `UnsupportedError` at the user's line for the first operator or dtype that the backend lacks.

    What no output needs is never run, so it may be anything.
    """
    needed = graph.reachable()
    for node in graph.nodes.values():
        if node.id in needed and node.attr("backend", backend.name) != backend.name:
            raise _of_another_backend(node, backend.name)
        exclusion = backend.why_not(node.op, *_dtypes(graph, node)) if node.id in needed else None
        if exclusion is not None:
            raise _refusal(backend, node, exclusion)


def _of_another_backend(node: Node, backend: str) -> UnsupportedError:
    theirs = node.attr("backend")
    return UnsupportedError(
        f"the backend call {node.name} is a function for the backend {theirs!r}, not for {backend!r}",
        location=node.location,
        hint=f'compile with backend="{theirs}" (or "reference"), or write it in the language or as a tp.host_call',
    )


def _dtypes(graph: Graph, node: Node) -> dict[str, None]:
    """Of the results first, then of the operands."""
    read = [graph.nodes[edge.node].results[edge.result] for _, edge in node.reads()]
    return dict.fromkeys(type.dtype for type in (*node.results, *read))


def _refusal(backend: BackendPlugin, node: Node, exclusion: Exclusion) -> UnsupportedError:
    usable = [listing.descriptor for listing in list_backends() if isinstance(listing.descriptor, BackendPlugin)]
    able = [each.name for each in usable if each.why_not(node.op, exclusion.dtype) is None]
    return unsupported_operator(backend.name, exclusion, able, node.location)
