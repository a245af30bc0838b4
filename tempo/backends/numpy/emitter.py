"""The core's emitter, with operators on scalars as Python's own, and with elementwise operators on large arrays run
together, block by block of the cache.

    v2 = exp(v1)                      v3_0 = empty_0(v1)
    v3 = mul(v2, b0)        is        for k_0, k_1 in blocks_0:
                                          v2 = exp(v1[k_0])
                                          v3_0[k_0] = mul(v2, b0[k_1])
                                      v3 = v3_0

Each element is computed as before, so every bit is the same. A value without axes is one of NumPy's scalars, never an
array: what is read out of an array is one, what an operator gives is made one, and what a slot holds becomes one before
the loops.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.backends.emission import (
    BLOCK_BYTES,
    Pick,
    ScalarEmitter,
    Step,
    along,
    assign,
    block_of,
    cache_blocks,
    call,
    deleted,
    empty,
    form_of,
    is_element,
    is_scalar_slot,
    operands,
    picks,
    subscript,
)
from tempo.backends.emission import name as _name
from tempo.backends.loop_ir import Buffer, Compute, LoopProgram, Read, Segment, Statement, Write, walk
from tempo.backends.operators import OPERATORS, Call, TensorType
from tempo.symbolic import Symbol

Shape = tuple[int, ...]

_NO_ARRAY = frozenset({"dot", "gather", "index_value", "condition_value", "reduce_sum", "reduce_prod", "reduce_max",
                      "reduce_min", "reduce_any", "reduce_all", "argmax", "argmin", "backend_call"})  # fmt: skip
"""Operators beside NumPy's own functions whose result, where it has no axes, is a scalar already, or a tuple."""

_LARGE = 2 * BLOCK_BYTES
"""Bytes of a result from which on it is made in blocks."""


@dataclass
class _ElementwiseRun:
    """Elementwise operators whose results have one shape, in order, and what they need from elsewhere."""

    shape: Shape
    members: list[Compute] = field(default_factory=list)

    @property
    def made(self) -> set[str]:
        return {member.result for member in self.members}

    def operands(self) -> dict[str, TensorType]:
        made = self.made
        pairs = (pair for each in self.members for pair in zip(each.operands, each.operand_types, strict=True))
        return {name: type for name, type in pairs if name not in made}


class NumpyEmitter(ScalarEmitter):
    """Emits segments for NumPy."""

    def __init__(
        self, program: LoopProgram, sizes: Mapping[Symbol, int], operator: Callable[[Call], Callable[..., Any]]
    ) -> None:
        super().__init__(program, sizes, operator)
        self._uses: Counter[str] = Counter()
        self._blocks: dict[tuple[Shape, int, tuple[Shape, ...]], str] = {}
        self._makers: dict[tuple[Shape, str], str] = {}
        self._own: dict[str, str] = {}
        self._slots: dict[str, Buffer] = {}  # by the name of what was read of them last, those without axes
        self._opened: dict[int, tuple[str, ast.stmt]] = {}
        self._replaced: frozenset[int] = frozenset()
        self._picks: Mapping[str, Pick] = {}

    def segment(self, segment: Segment) -> str:
        every = tuple(walk((segment.loop,) if segment.loop else segment.body))
        self._uses = Counter(name for statement in every for name in operands(statement))
        self._slots = {}
        self._picks = picks(segment)
        self._opened = {}
        self._replaced = frozenset(each.buffer for each in every if isinstance(each, Write) and not each.index)
        return super().segment(segment)

    # -- scalars -------------------------------------------------------------------------------------------------------

    def prologue(self) -> list[ast.stmt]:
        return [statement for _, statement in self._opened.values()]

    def _read(self, read: Read) -> ast.expr:
        """Another place may read another buffer under the same name."""
        self._slots.pop(read.result, None)
        if is_scalar_slot(buffer := self._buffer(read.buffer)):
            self._slots[read.result] = buffer
        return super()._read(read)

    def read(self, read: Read, array: ast.expr) -> ast.expr:
        """An element is a copy anyway."""
        buffer = self._buffer(read.buffer)
        return self._partial(read, buffer, array) if is_element(read, buffer) else super().read(read, array)

    def value(self, value: str) -> ast.expr:
        """A value by its name; what a slot without axes holds is a scalar."""
        if value not in self._held or value not in self._slots:
            return super().value(value)
        self._held.pop(value)
        return _name(self._scalar_in(self._slots[value]))

    def _scalar_in(self, buffer: Buffer) -> str:
        """The name of what a slot holds: where the segment writes to the slot its own, else another one."""
        if buffer.id not in self._opened:
            label = buffer.label if buffer.id in self._replaced else self.names.fresh(f"{buffer.label}_scalar")
            self._opened[buffer.id] = label, _assign(label, subscript(_name(buffer.label), []))
        return self._opened[buffer.id][0]

    def compute(self, compute: Compute) -> ast.expr:
        if compute.result in self._picks:  # without the axis that the reshape would drop
            return self._picked(self._picks[compute.result])
        if compute.operands and compute.operands[0] in self._picks:
            return self.value(compute.operands[0])
        form = form_of(compute)
        return self._applied(compute) if form is None else self.formed(compute, form)

    def _applied(self, compute: Compute) -> ast.expr:
        """With an array, functions of NumPy take one without axes in less time than a scalar: slots as they lie."""
        operands = [super(ScalarEmitter, self).value(each) for each in compute.operands]
        if compute.op == "reshape" and not compute.type.shape:
            return subscript(operands[0], [ast.Constant(0)] * len(compute.operand_types[0].shape))
        function = self.function_of(compute)
        tree = self.applied(compute, function, operands)
        if compute.op == "gather" and not compute.operand_types[1].shape and not compute.type.shape:
            return self.element(compute, operands, tree)
        no_array = compute.type.shape or isinstance(function, np.ufunc) or compute.op in _NO_ARRAY
        return tree if no_array else subscript(tree, [])

    def _picked(self, pick: Pick) -> ast.expr:
        array, place = self.value(pick.operand), self._expr(pick.place)
        if pick.inside:
            return along(array, pick.axis, place)
        return call(self.named(picked, "picked"), [array, ast.Constant(pick.axis), place])

    # -- large arrays --------------------------------------------------------------------------------------------------

    def steps(self, statements: tuple[Statement, ...]) -> list[Step]:
        if not any(self._is_large(each) for each in statements):
            return super().steps(statements)
        entries = self._chained(statements)
        gone = self._last_uses(statements, entries)
        return [self._as_step(each, names) for each, names in zip(entries, gone, strict=True)]

    def _as_step(self, entry: Statement | _ElementwiseRun, gone: Sequence[str]) -> Step:
        if not isinstance(entry, _ElementwiseRun):
            return Step((entry,), tuple(gone))
        return Step(tuple(entry.members), tuple(gone), tuple(self._kept(entry)) if len(entry.members) > 1 else None)

    def step(self, step: Step) -> list[ast.stmt]:
        return super().step(step) if step.kept is None else self._chain(step)

    def _last_uses(
        self, statements: Iterable[Statement], entries: Sequence[Statement | _ElementwiseRun]
    ) -> list[list[str]]:
        """For each entry what may be let go of after it: of what could be in the old order, what no later one needs."""
        left = {name for each in statements for name in self._releases.get(id(each), ())}
        gone: list[list[str]] = []
        for entry in reversed(entries):
            parts = entry.members if isinstance(entry, _ElementwiseRun) else walk((entry,))
            here = {name for part in parts for name in self.lookups(part)} & left
            left -= here
            internal = (
                entry.made - {each.result for each in self._kept(entry)}
                if isinstance(entry, _ElementwiseRun)
                else set()
            )
            gone.append(sorted(here - internal))
        return gone[::-1]

    def _is_large(self, statement: Statement) -> bool:
        if not isinstance(statement, Compute) or OPERATORS[statement.op].kind != "elementwise":
            return False
        return _LARGE <= self._bytes(statement.type) < math.inf

    def _chained(self, statements: Iterable[Statement]) -> list[Statement | _ElementwiseRun]:
        """Chains as long as can be: what does not depend on an open one goes before it.

        Open chains do not depend on one another. Only operators and reads pass: whatever else comes ends all chains.
        """
        found: list[Statement | _ElementwiseRun] = []
        chains: dict[Shape, _ElementwiseRun] = {}
        for statement in statements:
            names, passes = set(operands(statement)), isinstance(statement, Compute | Read)
            shape = self._shape(statement.type) if isinstance(statement, Compute) else ()
            ended = [each for each in chains if each != shape and (not passes or names & chains[each].made)]
            found += [chains.pop(each) for each in ended]
            if isinstance(statement, Compute) and self._is_large(statement):
                chains.setdefault(shape, _ElementwiseRun(shape)).members.append(statement)
                continue
            found += [chains.pop(shape)] if shape in chains and names & chains[shape].made else []
            found.append(statement)
        return [*found, *chains.values()]

    def _shape(self, type: TensorType) -> Shape:
        return tuple(self._resolve(size) for size in type.shape)

    def _chain(self, step: Step) -> list[ast.stmt]:
        members = [each for each in step.statements if isinstance(each, Compute)]
        chain, kept = _ElementwiseRun(self._shape(members[0].type), members), step.kept or ()
        operands = {name: self._shape(type) for name, type in chain.operands().items()}
        held = [name for name in operands if name in self._held]
        trees = [_assign(name, self.value(name)) for name in held]
        like = [name for name, shape in operands.items() if shape == chain.shape][:1]
        trees += [
            _assign(self._whole(each), call(self._maker(chain.shape, each.type.dtype), [*map(_name, like)]))
            for each in kept
        ]
        trees.append(self._over_blocks(chain, kept, operands))
        trees += [_assign(each.result, _name(self._whole(each))) for each in kept]
        return [*trees, *deleted((*map(self._whole, kept), *held))]

    def _whole(self, member: Compute) -> str:
        return self._named(f"{member.result}_0")

    def _named(self, name: str) -> str:
        """What the source calls it: the name itself where nothing else has it."""
        if name not in self._own:
            self._own[name] = self.names.fresh(name)
        return self._own[name]

    def _kept(self, chain: _ElementwiseRun) -> list[Compute]:
        """What is used outside of the chain, too."""
        inner = Counter(name for member in chain.members for name in operands(member))
        return [each for each in chain.members if self._uses[each.result] > inner[each.result]]

    def _over_blocks(self, chain: _ElementwiseRun, kept: Sequence[Compute], operands: Mapping[str, Shape]) -> ast.stmt:
        every = dict.fromkeys((chain.shape, *operands.values()))
        shapes = {shape: self._named(f"k_{place}") for place, shape in enumerate(every)}
        last = {name: member for member in chain.members for name in (member.result, *member.operands)}
        made, names = chain.made, {each.result for each in kept}
        parts: dict[str, ast.expr] = {name: _at(name, shapes[shape]) for name, shape in operands.items() if shape}
        body: list[ast.stmt] = []
        for member in chain.members:
            arguments: list[ast.expr] = [parts.get(name, _name(name)) for name in member.operands]
            body.append(_assign(member.result, self.applied(member, self.function_of(member), arguments)))
            if member.result in names:
                place = _at(self._whole(member), shapes[chain.shape], ast.Store())
                body.append(ast.Assign([place], _name(member.result), lineno=0))
            mine = dict.fromkeys((member.result, *member.operands))
            body += deleted(name for name in mine if name in made and last[name] is member)
        target = ast.Tuple([_name(key, ast.Store()) for key in shapes.values()], ast.Store())
        widest = max(dtypes.itemsize(member.type.dtype) for member in chain.members)
        return ast.For(target, _name(self._table_of_blocks(chain.shape, widest, tuple(shapes))), body, [], lineno=0)

    def _table_of_blocks(self, shape: Shape, itemsize: int, operands: tuple[Shape, ...]) -> str:
        """The name of the indices of all blocks, for each of the operands' shapes."""
        key = (shape, itemsize, operands)
        if key not in self._blocks:
            self._blocks[key] = self._named(f"blocks_{len(self._blocks)}")
            self.namespace[self._blocks[key]] = tuple(
                tuple(block_of(index, shape, operand) for operand in operands)
                for index in cache_blocks(shape, itemsize)
            )
        return self._blocks[key]

    def _maker(self, shape: Shape, dtype: str) -> str:
        """The name of what makes an array of that shape, given an operand."""
        if (shape, dtype) not in self._makers:
            self._makers[shape, dtype] = self._named(f"empty_{len(self._makers)}")
            self.namespace[self._makers[shape, dtype]] = partial(empty, shape, dtypes.to_numpy(dtype))
        return self._makers[shape, dtype]


def _assign(result: str, value: ast.expr) -> ast.stmt:
    return assign(_name(result, ast.Store()), value)


def picked(array: np.ndarray[Any, Any], axis: int, place: int) -> Any:
    """The place of the axis, clamped into it; a view. Of an axis without places: something that nobody looks at."""
    if not array.shape[axis]:
        return np.zeros((*array.shape[:axis], *array.shape[axis + 1 :]), array.dtype)[()]
    return array[(*(slice(None),) * axis, min(max(place, 0), array.shape[axis] - 1))]


def _at(array: str, key: str, context: ast.expr_context | None = None) -> ast.expr:
    return subscript(_name(array), [_name(key)], context)
