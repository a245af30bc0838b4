"""What a page knows: frozen, and plain enough to become JSON. Places, lines, stages and buffers are told by number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

NOWHERE = -1
"""In the place of a number: there is none."""


@dataclass(frozen=True)
class File:
    """Of the user's source the lines that are referred to, and those around them, by number. `short` tells it apart."""

    path: str
    short: str
    lines: Mapping[int, str]


@dataclass(frozen=True)
class Lines:
    """Every text that any stage has, once: of a node or a statement. `reads`: the nodes that a node's text reads."""

    text: tuple[str, ...]
    place: tuple[int, ...]
    node: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Snapshot:
    """A program as it was at some time: the numbers of its lines. `ir`: "graph" or "loops"."""

    title: str
    ir: str
    lines: tuple[int, ...]


@dataclass(frozen=True)
class PassRun:
    """One run of a pass, between two stages (the same one twice where nothing changed)."""

    name: str
    milliseconds: float
    items: str
    before: int
    after: int
    given: int
    made: int
    decisions: tuple[str, ...]


@dataclass(frozen=True)
class DimUse:
    """A dim of the program: at how many points it is run, and how that is done, in words."""

    name: str
    size: str
    points: int
    how: str


@dataclass(frozen=True)
class StatementOf:
    """A statement of the schedule: the nodes that run together, by number."""

    name: str
    names: str
    nodes: tuple[int, ...]
    place: int


@dataclass(frozen=True)
class Step:
    """A node of the schedule. `kind`: "for", "if" or "run"; of a loop `points` says how often, where that is known."""

    kind: str
    text: str
    host: bool = False
    points: int | None = None
    statement: int = NOWHERE
    body: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Reader:
    """What reads a buffer: the tensor that is made of it, and its line."""

    name: str
    place: int


@dataclass(frozen=True)
class Why:
    """What asks for a buffer to be kept as long as it is, and the line of the read."""

    text: str
    place: int


@dataclass(frozen=True)
class BufferUse:
    """A buffer. `kept`: of what it holds how much, and until when, in words; `way`: the same as one of "given",
    "returned", "full" (all points of a dim), "window" (the last ones), "point"; `anew`: the variables of the loops of
    which each iteration replaces it."""

    id: int
    label: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    storage: str
    role: str
    place: int
    kept: str
    way: str
    anew: tuple[str, ...]
    why: tuple[Why, ...]
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class Track:
    """Memory that is one thing to the user, over the moments of a run: of a buffer, or of values that are alike.

    `spans`: from which moment to which it lives, pairs in a row. `bytes`: the most that live at once.
    """

    name: str
    buffer: int
    place: int
    shape: tuple[int, ...]
    dtype: str
    role: str
    bytes: int
    pieces: int
    spans: tuple[int, ...]


@dataclass(frozen=True)
class Band:
    """A stretch of the moments: a segment, or a loop, with the moments at which its iterations begin, and which."""

    text: str
    depth: int
    host: bool
    start: int
    stop: int
    begins: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True)
class Lifetimes:
    """`live`: the bytes after each moment. `peak`: the moment of the most; `at_peak`: tracks and their bytes there.

    `estimated`: the code is compiled by what arranges its memory itself, so that this is what the core's would hold.
    """

    live: tuple[int, ...]
    bands: tuple[Band, ...]
    tracks: tuple[Track, ...]
    peak: int
    at_peak: tuple[tuple[int, int], ...]
    estimated: bool


@dataclass(frozen=True)
class Totals:
    """Bytes, as `run.memory` tells them."""

    peak: int
    given: int
    returned: int
    working: int
    pool: int


@dataclass(frozen=True)
class Maker:
    """What a line of code is of: what it does, of which tensor, made at which place."""

    op: str
    name: str
    place: int


@dataclass(frozen=True)
class Code:
    """Source that was made: its lines, and of each the number of what it is of."""

    title: str
    lines: tuple[str, ...]
    makers: tuple[int, ...]


@dataclass(frozen=True)
class Exchange:
    """What devices of a mesh do together."""

    text: str
    place: int


@dataclass(frozen=True)
class Placed:
    """How it lies on a mesh."""

    mesh: str
    cut: tuple[str, ...]
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True)
class Measured:
    """Of a profile: what the code of one origin took."""

    op: str
    name: str
    place: int
    seconds: float


@dataclass(frozen=True)
class Contents:
    """All of it. `places` are pairs of a file's number and a line. `profile`: None where nothing was measured."""

    program: str
    backend: str
    scheduler: str
    sizes: Mapping[str, int]
    versions: Mapping[str, str]
    dims: tuple[DimUse, ...]
    files: tuple[File, ...]
    places: tuple[tuple[int, int], ...]
    lines: Lines
    stages: tuple[Snapshot, ...]
    passes: tuple[PassRun, ...]
    statements: tuple[StatementOf, ...]
    schedule: tuple[Step, ...]
    notes: tuple[str, ...]
    choices: tuple[str, ...]
    buffers: tuple[BufferUse, ...]
    memory: Totals
    lifetimes: Lifetimes
    makers: tuple[Maker, ...]
    code: tuple[Code, ...]
    seconds: tuple[tuple[str, float], ...]
    placement: Placed | None
    profile: tuple[Measured, ...] | None

    def as_json(self) -> str:
        """As text that may stand in a script of a page: nothing in it ends that."""
        found = json.dumps(self, default=vars, separators=(",", ":"))
        return found.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
