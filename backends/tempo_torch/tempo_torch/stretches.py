"""What a segment is cut into for CUDA graphs (`tempo_torch.graphs`): stretches that are recorded, loops and choices
around them, and operators for which the host waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import torch

from tempo import dtypes
from tempo.backends.emission import operands
from tempo.backends.loop_ir import (
    Assign,
    Block,
    Branch,
    Buffer,
    Compute,
    Guard,
    Loop,
    PointIndex,
    Read,
    Segment,
    Statement,
    Stop,
    WindowIndex,
    Write,
    nested,
    walk,
)
from tempo.symbolic import Condition, Expr, Symbol
from tempo_torch.emitter import CudaEmitter
from tempo_torch.flow import Flow
from tempo_torch.moving import Points, bucket, evaluated
from tempo_torch.operators import Operation
from tempo_torch.waits import why_waits

LARGEST = 8192
"""Operators of a stretch, at most."""
LITTLE = 1 << 12
"""Elements of an array that is copied for each call, so that it may lie anywhere: they seldom lie where they did."""
REMEMBERED = 1 << 16
"""Positions for which it is remembered what is chosen."""


@dataclass(eq=False)
class Stretch:
    """Statements that are recorded in one. `kept`: names that something outside of it looks at. `asked`: conditions and
    lengths that loops around it decide, each with the positions of the loops written out around it. `size`: operators.
    """

    statements: Block
    size: int
    asked: tuple[tuple[Condition | Expr, Points], ...]
    symbols: tuple[Symbol, ...]
    kept: tuple[str, ...] = ()
    found: dict[tuple[int, ...], Hashable] = field(default_factory=dict)

    def outcomes(self, points: Points) -> Hashable:
        """What its conditions and lengths are: with the same outcomes it is the same graph."""
        at = tuple(points[symbol] for symbol in self.symbols)
        if at not in self.found:
            if len(self.found) >= REMEMBERED:
                self.found.clear()
            self.found[at] = tuple(_outcome(asked, {**points, **inner}) for asked, inner in self.asked)
        return self.found[at]


def _outcome(asked: Condition | Expr, points: Points) -> int:
    found = evaluated(asked, points)
    return bool(found) if isinstance(asked, Condition) else bucket(int(found))


@dataclass(eq=False)
class Repeated:
    loop: Loop
    body: tuple[Item, ...]

    @property
    def stretch(self) -> Stretch | None:
        """All of its body, where that is one."""
        return self.body[0] if len(self.body) == 1 and isinstance(self.body[0], Stretch) else None


@dataclass(eq=False)
class Chosen:
    branch: Branch
    then: tuple[Item, ...]
    otherwise: tuple[Item, ...]


@dataclass(eq=False)
class Guarded:
    guard: Guard
    body: tuple[Item, ...]


@dataclass(eq=False)
class Waiting:
    """An operator for which the host waits, and why."""

    compute: Compute
    why: str


Item = Stretch | Repeated | Chosen | Guarded | Waiting | Stop


class Operators:
    """The functions of a segment's operators, each made once; of one whose indices are looked at on the device the one
    that clamps them."""

    def __init__(self, emitter: CudaEmitter) -> None:
        self.emitter = emitter
        self._made: dict[int, Callable[..., Any]] = {}

    def __call__(self, compute: Compute) -> Callable[..., Any]:
        if id(compute) not in self._made:
            attrs = {**compute.attrs, "checked": False}
            clamping = replace(compute, attrs=attrs) if compute.attrs.get("checked") else compute
            self._made[id(compute)] = self.emitter.operator(self.emitter.call_of(clamping))
        return self._made[id(compute)]


def is_copied(plan: Planner, buffer: Buffer, array: Any) -> bool:
    """Whether an array goes into a cell for a call: what is replaced as a whole, and what is small and no constant."""
    if buffer.id in plan.replaced:
        return True
    return buffer.role != "constant" and isinstance(array, torch.Tensor) and array.numel() <= LITTLE


class Planner:
    """Cuts a segment into items."""

    def __init__(self, segment: Segment, sizes: Points, operator: Operators) -> None:
        """`sizes`: of the executable, and those that a call is given."""
        self.segment, self.sizes, self.operator = segment, sizes, operator
        self.emitter, self.buffers = operator.emitter, operator.emitter.program.buffers
        every = tuple(walk(self.segment.body))
        self._makers = {each.result: each for each in every if isinstance(each, Read | Compute | Assign)}
        self.reads = {name: each for name, each in self._makers.items() if isinstance(each, Read)}
        self.written = frozenset(each.buffer for each in every if isinstance(each, Write))
        self.replaced = frozenset(id for id in self.written if self.buffers[id].is_slot)
        self._uses = Counter(name for each in every for name in operands(each))
        self._last: dict[int, Sequence[tuple[str, ...]]] = {}
        self.flow = Flow.of(self.segment)
        self.is_varied = False  # whether more graphs were asked for than are of use
        self.stretches: list[Stretch] = []
        self.items = self._items(self.segment.body, frozenset(self.sizes))
        for stretch in self.stretches:
            stretch.kept = self._kept(stretch)
        moving = {*self.segment.arguments, *(loop.var for loop in repeated(self.items))} - self.sizes.keys()
        points = ((each.buffer, entry) for each in self.reads.values() for entry in each.index)
        self.at_moving = frozenset(
            buffer for buffer, entry in points if isinstance(entry, PointIndex) and entry.index.symbols() & moving
        )
        """The buffers that are read at points that vary."""

    @cached_property
    def size(self) -> int:
        """The operators of one pass through it, those of inner loops once."""
        return _sizes_of(self.items)

    @cached_property
    def looks(self) -> bool:
        """Whether some index is looked at on the device."""
        every = (each for stretch in self.stretches for each in walk(stretch.statements))
        return any(isinstance(each, Compute) and each.attrs.get("checked") for each in every)

    @cached_property
    def rounds(self) -> bool:
        """Whether sums have other bits than operator by operator, since what lies behind a length is in them as zeros.
        Then it is not to depend on earlier calls which way a call is run."""
        every = (self.operator(each) for each in walk(self.segment.body) if isinstance(each, Compute))
        return any(isinstance(each, Operation) and each.bounded for each in every)

    def why_waits(self, compute: Compute) -> str | None:
        return why_waits(self.operator(compute))

    @cached_property
    def in_cells(self) -> int:
        """The bytes of slots and values that lie in cells beside where they are made."""
        kept = dict.fromkeys(name for stretch in self.stretches for name in stretch.kept)
        slots = (self.buffers[id] for id in self.replaced)
        types = [*map(self._type, kept), *((slot.shape, slot.dtype) for slot in slots)]
        return sum(self._bytes(*type) for type in types if type is not None)

    def _bytes(self, shape: Sequence[Expr], dtype: str) -> int:
        return prod(max(0, int(size.evaluate(self.sizes))) for size in shape) * dtypes.itemsize(dtype)

    def _type(self, name: str) -> tuple[Sequence[Expr], str] | None:
        """The shape and dtype of a value."""
        while isinstance(made := self._makers[name], Assign):
            name = made.value
        if isinstance(made, Compute):
            return (made.type.shape, made.type.dtype)
        buffer, windows = self.buffers[made.buffer], (each for each in made.index if isinstance(each, WindowIndex))
        return (*(each.extent for each in windows), *buffer.shape), buffer.dtype

    def waited_for(self, compute: Compute, given: Sequence[Any], points: Points) -> Any:
        """The result of an operator for which the host waits; an error says the point, as where source was generated:
        from the variables of whoever calls."""
        function = self.emitter.function_of(compute)
        symbols = {symbol for _, index in compute.point for symbol in index.symbols()}
        variables = {self.emitter.names(symbol): points[symbol] for symbol in symbols}
        scalars = [evaluated(scalar, points) for scalar in compute.scalars]
        return eval("function(*given)", {"function": function, "given": [*given, *scalars]}, variables)  # noqa: S307

    def last(self, block: Block) -> Sequence[tuple[str, ...]]:
        """After each statement of a block, the names made in it that nothing needs any more."""
        if id(block) not in self._last:
            made = {each.result for each in walk(block) if isinstance(each, Read | Compute | Assign)}
            uses = [Counter(name for each in walk((statement,)) for name in operands(each)) for statement in block]
            inside = sum(uses, Counter[str]())
            left, found = {name for name in made if inside[name] == self._uses[name]}, list[tuple[str, ...]]()
            for each in reversed(uses):
                found.append(tuple(name for name in each if name in left))
                left.difference_update(each)
            self._last[id(block)] = found[::-1]
        return self._last[id(block)]

    def _items(self, block: Block, known: frozenset[Symbol]) -> tuple[Item, ...]:
        found: list[Item] = []
        run: list[Statement] = []
        size = 0

        def close() -> None:
            nonlocal size
            if any(not isinstance(each, Read) for each in run):
                found.append(self._stretch(tuple(run), size, known))
            run.clear()
            size = 0

        for statement in block:
            more = self._size(statement, known)
            if more is None or size + more > LARGEST:
                close()
            if more is None:
                found.append(self._item(statement, known))
                continue
            run.append(statement)
            size += more
        close()
        return tuple(found)

    def _item(self, statement: Statement, known: frozenset[Symbol]) -> Item:
        match statement:
            case Loop(body=body):
                return Repeated(statement, self._items(body, known))
            case Branch(then=then, otherwise=otherwise):
                return Chosen(statement, self._items(then, known), self._items(otherwise, known))
            case Guard(body=body):
                return Guarded(statement, self._items(body, known))
            case Compute():
                return Waiting(statement, self.why_waits(statement) or "")
            case Stop():
                return statement
        raise AssertionError(statement)

    def _size(self, statement: Statement, known: frozenset[Symbol]) -> int | None:
        """How many operators are launched, at most; None where it cannot be recorded with what is around it."""
        match statement:
            case Compute():
                return None if self.why_waits(statement) else 1
            case Write():
                return 1
            case Read() | Assign():
                return 0
            case Branch(then=then, otherwise=otherwise):
                return self._sum((*then, *otherwise), known)
            case Loop(var=var, lo=lo, hi=hi, body=body) if statement is not self.segment.loop:
                if not (lo.symbols() | hi.symbols()) <= self.sizes.keys():
                    return None
                inside = self._sum(body, known | {var})
                count = max(0, int(hi.evaluate(self.sizes)) - int(lo.evaluate(self.sizes)))
                return None if inside is None or inside * count > LARGEST else inside * count
        return None

    def _sum(self, block: Block, known: frozenset[Symbol]) -> int | None:
        sizes = [self._size(each, known) for each in block]
        return None if None in sizes else sum(each or 0 for each in sizes)

    def _stretch(self, statements: Block, size: int, known: frozenset[Symbol]) -> Stretch:
        asked = tuple(self._asked(statements, {}))
        symbols = {symbol for each, inner in asked for symbol in each.symbols() - inner.keys() - self.sizes.keys()}
        self.stretches.append(Stretch(statements, max(1, size), asked, tuple(sorted(symbols))))
        return self.stretches[-1]

    def _asked(self, block: Block, inner: Points) -> Iterator[tuple[Condition | Expr, Points]]:
        known = self.sizes.keys() | inner.keys()
        for each in block:
            if isinstance(each, Branch) and not each.condition.symbols() <= known:
                yield each.condition, inner
            if isinstance(each, Compute):
                bounded = getattr(self.operator(each), "bounded", False)
                asked = (scalar for scalar in each.scalars if bounded or isinstance(scalar, Condition))
                yield from ((scalar, inner) for scalar in asked if not scalar.symbols() <= known)
            if isinstance(each, Loop):
                lo, hi = int(each.lo.evaluate(self.sizes)), int(each.hi.evaluate(self.sizes))
                for point in range(lo, hi):
                    yield from self._asked(each.body, {**inner, each.var: point})
            else:
                for nest in nested(each):
                    yield from self._asked(nest, inner)

    def _kept(self, stretch: Stretch) -> tuple[str, ...]:
        every = tuple(walk(stretch.statements))
        uses = Counter(name for each in every for name in operands(each))
        made = dict.fromkeys(each.result for each in every if isinstance(each, Compute | Assign))
        return tuple(name for name in made if self._uses[name] > uses[name])


def _sizes_of(items: Sequence[Item]) -> int:
    return sum(_size_of(item) for item in items)


def _size_of(item: Item) -> int:
    match item:
        case Stretch(size=size):
            return size
        case Repeated(body=body) | Guarded(body=body):
            return _sizes_of(body)
        case Chosen(then=then, otherwise=otherwise):
            return _sizes_of(then) + _sizes_of(otherwise)
    return 1


def repeated(items: Sequence[Item]) -> Iterator[Loop]:
    """The loops that are not written out."""
    for item in items:
        match item:
            case Repeated(loop, body):
                yield loop
                yield from repeated(body)
            case Guarded(body=body):
                yield from repeated(body)
            case Chosen(then=then, otherwise=otherwise):
                yield from repeated((*then, *otherwise))
