"""Calling a function of another backend: its arrays are made of NumPy's, and its results NumPy's again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tempo.plugins.manager import get_backend
from tempo.sdg.call import Call, StaticType
from tempo.sdg.graph import Node

Array = np.ndarray[Any, Any]


def call_backend(node: Node, arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> tuple[Array, ...]:
    """The results of a `backend_call` node, by the operator table of the backend that it names.

    Raises `BackendCallError`, and `UnknownBackendError` where that backend is not installed.
    """
    backend = get_backend(node.attr("backend"))
    types = tuple(StaticType(shape, type.dtype) for shape, type in zip(shapes, node.results, strict=True))
    function = backend.operator(Call("backend_call", node.attributes, (), types[0]))
    values = function(*map(backend.from_host, arrays))
    picks = (backend.operator(_result(node, at, type)) for at, type in enumerate(types))
    return tuple(np.array(backend.to_host(pick(values))) for pick in picks)


def _result(node: Node, at: int, type: StaticType) -> Call:
    return Call("backend_result", {"fn": node.attr("fn"), "at": at}, (), type)
