"""A heap without contents, on which code is run to tell what it will hold: pieces of memory, and who holds each.

A piece lives as long as a name holds it, as an array does in Python: this is an abstract interpretation with counted
references. Nothing is computed, and of a loop only so many iterations are run as it takes until they hold no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from tempo.errors import Location

Name = TypeVar("Name")
Role = Literal["given", "returned", "between"]


@dataclass(frozen=True, eq=False)
class Piece:
    """Memory of one array: what the user calls it, and where the user's source makes it; and of which buffer."""

    bytes: int
    name: str
    role: Role = "between"
    shape: tuple[int, ...] = ()
    dtype: str = ""
    location: Location | None = None
    buffer: int | None = None

    def __str__(self) -> str:
        where = "" if self.location is None else f"  {self.location.path}:{self.location.line}"
        return f"{self.name or 'a value'} {self.dtype}{list(self.shape)} {self.bytes} B, {self.role}{where}"


@dataclass(frozen=True)
class Moment:
    """After a piece was made or let go of: where the program is, and the bytes that live then."""

    place: tuple[str, ...]
    bytes: int
    piece: Piece
    made: bool


@dataclass(frozen=True)
class Begin:
    """Before the moment with this number an iteration of the innermost loop of `place` began; `at` is its value of the
    loop's variable, where that is known."""

    moment: int
    place: tuple[str, ...]
    at: int | None


class Heap:
    """`moments` and `begins` in order; `at_peak`: the pieces that live when the most bytes do, for the first time.

    `stored`: the buffers whose value a piece was that was made as something else.
    """

    def __init__(self) -> None:
        self.live = self.peak = 0
        self.moments: list[Moment] = []
        self.begins: list[Begin] = []
        self.stored: dict[Piece, int] = {}
        self.at_peak: tuple[Piece, ...] = ()
        self._counts: dict[Piece, int] = {}
        self._place: tuple[str, ...] = ()

    @contextmanager
    def within(self, place: str) -> Iterator[None]:
        around = self._place
        self._place = (*around, place)
        try:
            yield
        finally:
            self._place = around

    def begin(self, at: int | None) -> None:
        """An iteration of the innermost loop begins."""
        self.begins.append(Begin(len(self.moments), self._place, at))

    def store(self, piece: Piece | None, buffer: int) -> None:
        """It is the value of a buffer from now on; of several the first counts."""
        if piece is not None and piece.buffer is None:
            self.stored.setdefault(piece, buffer)

    @property
    def held(self) -> Counter[tuple[str, tuple[int, ...], int]]:
        """What lives, by name, shape and bytes: iterations make pieces of their own that are alike."""
        return Counter((piece.name, piece.shape, piece.bytes) for piece in self._counts)

    def take(self, piece: Piece) -> None:
        """One more holds it."""
        count = self._counts.get(piece, 0)
        self._counts[piece] = count + 1
        if not count:
            self._lives(piece, True)
        if self.live > self.peak:
            self.peak, self.at_peak = self.live, tuple(self._counts)

    def leave(self, piece: Piece) -> None:
        """One less does."""
        self._counts[piece] -= 1
        if not self._counts[piece]:
            del self._counts[piece]
            self._lives(piece, False)

    def _lives(self, piece: Piece, made: bool) -> None:
        if piece.bytes:
            self.live += piece.bytes if made else -piece.bytes
            self.moments.append(Moment(self._place, self.live, piece, made))


class Frame(Generic[Name]):
    """The variables of one function, or the entries of one list: what each holds."""

    def __init__(self, heap: Heap, held: Mapping[Name, Piece | None] | None = None) -> None:
        self.heap = heap
        self._held: dict[Name, Piece] = {}
        for name, piece in (held or {}).items():
            self[name] = piece

    def __setitem__(self, name: Name, piece: Piece | None) -> None:
        """Let a name hold a piece, then let go of what it held; None: it holds nothing."""
        if piece is not None:
            self.heap.take(piece)
        if (old := self._held.pop(name, None)) is not None:
            self.heap.leave(old)
        if piece is not None:
            self._held[name] = piece

    def get(self, name: Name) -> Piece | None:
        return self._held.get(name)

    @property
    def held(self) -> dict[Name, Piece]:
        """What all names hold."""
        return dict(self._held)

    def become(self, held: Mapping[Name, Piece]) -> None:
        """Hold this, and nothing else."""
        for name in self._held.keys() - held.keys():
            self[name] = None
        for name, piece in held.items():
            self[name] = piece

    def __enter__(self) -> Frame[Name]:
        return self

    def __exit__(self, *_: object) -> None:
        """All names are gone."""
        self.become({})
