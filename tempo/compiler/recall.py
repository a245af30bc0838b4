"""Plans of earlier processes: what planning ends with, the loops for all sizes, is kept on disk as text.

A file is named after all that a plan follows from: the graph, the options, the passes, the scheduler, the backend, and
the state of the sources of all that takes part. It holds the text of the loops with what is no part of that (arrays,
and by number the lines of the user's source). What is read is parsed and verified; a file that is broken,
or of something else, counts as absent. A program with functions in it is planned in each process.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.caches import CACHE_VARIABLE, base_folder, digest, private, read, stamps, versions, write
from tempo.compiler.once import Once
from tempo.compiler.plan import Plan
from tempo.errors import Location
from tempo.logs import is_asked_for, say
from tempo.loop_ir.ir import Buffer, Compute, LoopProgram
from tempo.loop_ir.parse import parse
from tempo.loop_ir.text import placeholders
from tempo.loop_ir.verify import verify
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Graph
from tempo.sdg.text import arrays_told
from tempo.sdg.text import placeholders as placeholders_of_graph

_FORMAT = "plans 2"
_MADE_OF = ("tempo-sdg", "numpy")
_MOST_BYTES = 1 << 20
"""Arrays of more are rather made again."""
_PLACEHOLDER = re.compile(r"!(\w+)")


class RecalledPlan(Plan):
    """A plan of which the loops were found: all else is planned when it is asked for (`explain()`, streams)."""

    def __init__(self, loops: LoopProgram, known: Mapping[str, Any], whole: Callable[[], Plan]) -> None:
        """`known`: fields that were asked for."""
        self.__dict__.update(known, loops=loops, _known=known, _whole=whole)

    def __getattr__(self, name: str) -> Any:
        if name not in Plan.__dataclass_fields__:
            raise AttributeError(name)
        return getattr(self.__dict__["_whole"](), name)

    def with_loops(self, loops: LoopProgram) -> Plan:
        return RecalledPlan(loops, self.__dict__["_known"], self.__dict__["_whole"])


def recalled(key: str | None, graph: Graph, known: Mapping[str, Any], make: Callable[[], Plan]) -> Plan:
    """The plan of this graph, by its key; what `make` makes where there is none, which is then kept. `known`: fields of
    the plan that are what was asked for."""
    folder = None if key is None else _folder()
    if key is None or folder is None:
        return make()
    path = folder / f"{key}.plan"
    looked_at = any(map(is_asked_for, ("passes", "schedule")))  # of which there is nothing to say where a plan is found
    loops = None if looked_at else _read(path, graph)
    if loops is not None:
        say("plans", lambda: f"found {path}")
        once: Once[None, Plan] = Once()
        return RecalledPlan(loops, known, lambda: once.get(None, make))
    made = make()
    text = _text(made.loops, graph)
    say("plans", lambda: f"made; {'too large to keep' if text is None else f'kept as {path}'}")
    if text is not None:
        write(path, text.encode())
    return made


def _folder() -> Path | None:
    base = base_folder()
    return None if base is None else private(base, ("plans",), "plans", CACHE_VARIABLE)


# -- what a plan follows from ------------------------------------------------------------------------------------------


def key_of(graph: Graph, parts: Mapping[str, str], makers: Sequence[Any], backend: object) -> str | None:
    """What tells the plan of this graph from all others. `parts`: what else it follows from, as text; `makers`: the
    objects that take part, told apart by their fields. Of their packages and the backend's the sources count.

    None where it cannot be told: a graph with functions in it, a maker that does not print what it is.
    """
    arrays = arrays_told(placeholders_of_graph(graph))
    described = [f"{type(each)} {getattr(each, '__dict__', {})}" for each in makers]
    if arrays is None or any(" at 0x" in each for each in described):
        return None
    try:
        packages = {"tempo", *(type(each).__module__.partition(".")[0] for each in (*makers, backend))}
        sources = stamps(tuple(sorted(packages)))
    except (LookupError, ValueError, OSError):
        return None
    told = [f"{name} {text}" for name, text in sorted(parts.items())]
    numbers = _numbered(graph)
    lines = str([each and numbers[each] for each in _places(graph)])
    return digest(_FORMAT, versions(*_MADE_OF), sources, *described, *told, arrays, str(graph), lines)


def _places(graph: Graph) -> Iterator[Location | None]:
    """The lines of all that knows one, in order."""
    for node in graph.nodes.values():
        yield node.location
        yield from (case.location for case in node.cases)
    yield from (output.location for output in graph.outputs)


def _numbered(graph: Graph) -> dict[Location, int]:
    """The lines of a program by which of them it is: where they stand does not matter to a plan."""
    return {place: at for at, place in enumerate(dict.fromkeys(each for each in _places(graph) if each))}


# -- files -------------------------------------------------------------------------------------------------------------


def _text(loops: LoopProgram, graph: Graph) -> str | None:
    """None for what cannot be kept."""
    arrays = placeholders(loops)
    if not all(isinstance(each, ArrayValue) for each in arrays.values()):
        return None
    if sum(each.array.nbytes for each in arrays.values()) > _MOST_BYTES:
        return None
    numbers, places = _numbered(graph), [each.location for each in _located(loops)]
    if not numbers.keys() >= {place for place in places if place is not None}:
        return None
    stored = {
        "loops": str(loops),
        "lines": [place and numbers[place] for place in places],
        "arrays": {name: _array_text(each) for name, each in arrays.items()},
    }
    return json.dumps(stored)


def _read(path: Path, graph: Graph) -> LoopProgram | None:
    contents = read(path)
    if contents is None:
        return None
    try:
        stored = json.loads(contents)
        arrays = {name: _array(*each) for name, each in stored["arrays"].items()}
        if not arrays.keys() >= set(_PLACEHOLDER.findall(stored["loops"])):
            return None
        loops = parse(stored["loops"], arrays)
        verify(loops)
        lines = list(_numbered(graph))
        for each, at in zip(_located(loops), stored["lines"], strict=True):
            object.__setattr__(each, "location", None if at is None else lines[at])  # nobody else has seen it yet
    except Exception:  # noqa: BLE001 - whatever the reader raises, the file is at fault, and the plan is made again
        return None
    return loops


def _located(loops: LoopProgram) -> Iterator[Buffer | Compute]:
    """All that knows a line of the user's."""
    yield from loops.buffers.values()
    yield from loops.registers
    yield from (each for each in loops.statements() if isinstance(each, Compute))


def _array_text(value: ArrayValue) -> tuple[str, tuple[int, ...], str]:
    return value.dtype, value.shape, base64.b64encode(value.array.tobytes()).decode()


def _array(dtype: str, shape: list[int], text: str) -> ArrayValue:
    return ArrayValue(np.frombuffer(base64.b64decode(text), dtypes.to_numpy(dtype)).reshape(shape))
