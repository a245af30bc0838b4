"""What must be the same where a run goes on, as digests (BLAKE2b) and words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from importlib.metadata import requires
from typing import Any

import numpy as np

from tempo.backends.base import Backend
from tempo.backends.by_point import parts_of
from tempo.caches import digest, versions
from tempo.compiler.options import Options
from tempo.plugins.manager import CORE_DISTRIBUTION, list_backends
from tempo.runtime.arguments.call import Arguments
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Graph

_BYTES = 16


def digests(arguments: Arguments, on_host: Callable[[Any], np.ndarray[Any, Any]]) -> dict[str, str]:
    """Of dtype, shape and elements of all that a run is given, by role and name."""
    found = {}
    for port, value in arguments.arrays.items():
        if port.role != "seed":
            made = hashlib.blake2b(digest_size=_BYTES)
            for array in map(on_host, parts_of(value)):
                made.update(f"{array.dtype}{array.shape}".encode())
                made.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            found[f"{port.role} {port.name}"] = made.hexdigest()
    return found


def identity(graph: Graph, backend: Backend, options: Options) -> dict[str, str]:
    """Of what computes; on which device of its kind makes no difference."""
    device = re.sub(r":\d+$", "", str(getattr(backend, "device", "cpu")))
    return {
        "program": digest(str(graph), *_constants(graph)),
        "backend": f"{backend.info.name} on {device}",
        "options": repr(options),
        "versions": _versions(backend.info.name),
    }


def _constants(graph: Graph) -> Iterator[str]:
    """Digests of the arrays, of which the text of a graph shows no more than a few elements."""
    for node in graph.nodes.values():
        if isinstance(value := node.attr("value"), ArrayValue):
            yield value.digest.hex()


def _versions(backend: str) -> str:
    """Of what computes: the core, the backend, and what this is made on."""
    listed = {each.name: each.distribution.split(" ")[0] for each in list_backends()}
    found = [CORE_DISTRIBUTION, "numpy"]
    if (distribution := listed.get(backend)) not in (None, CORE_DISTRIBUTION):
        assert distribution is not None
        found.append(distribution)
        needed = (re.match(r"[\w.-]+", each) for each in requires(distribution) or () if "extra ==" not in each)
        found += [each[0] for each in needed if each is not None]
    return versions(*dict.fromkeys(found))
