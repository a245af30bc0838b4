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
from tempo.lowering.emit import Emitter
from tempo.lowering.loop_ir import Buffer, Compute, LoopProgram, PointIndex, Read, Segment, Statement, Write, walk
from tempo.lowering.picks import Pick, picks
from tempo.lowering.releases import used
from tempo.lowering.scalar_forms import OPERATOR, TYPES, applied, form_of, uses
from tempo.sdg.cache_blocks import BYTES, block_of, cache_blocks, empty
from tempo.sdg.call import Call
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Symbol

Shape = tuple[int, ...]

_NO_ARRAY = frozenset({"dot", "gather", "index_value", "condition_value", "reduce_sum", "reduce_prod", "reduce_max",
                      "reduce_min", "reduce_any", "reduce_all", "argmax", "argmin", "backend_call"})  # fmt: skip
"""Operators beside NumPy's own functions whose result, where it has no axes, is a scalar already, or a tuple."""

_LARGE = 2 * BYTES
"""Bytes of a result from which on it is made in blocks."""


@dataclass
class _Chain:
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


class NumpyEmitter(Emitter):
    """Emits segments for NumPy."""

    def __init__(
        self, program: LoopProgram, sizes: Mapping[Symbol, int], operator: Callable[[Call], Callable[..., Any]]
    ) -> None:
        super().__init__(program, sizes, operator)
        self._uses: Counter[str] = Counter()
        self._blocks: dict[tuple[Shape, int, tuple[Shape, ...]], str] = {}
        self._makers: dict[tuple[Shape, str], str] = {}
        self._own: dict[str, str] = {}
        self._types: dict[str, str] = {}
        self._slots: dict[str, Read] = {}
        self._opened: dict[int, tuple[str, ast.stmt]] = {}
        self._replaced: frozenset[int] = frozenset()
        self._before: list[ast.stmt] = []
        self._picks: Mapping[str, Pick] = {}

    def segment(self, segment: Segment) -> str:
        every = tuple(walk((segment.loop,) if segment.loop else segment.body))
        self._uses = Counter(name for statement in every for name in used(statement))
        self._slots = {each.result: each for each in every if isinstance(each, Read) and self._is_scalar_slot(each)}
        self._picks = picks(segment)
        self._opened = {}
        self._replaced = frozenset(each.buffer for each in every if isinstance(each, Write) and not each.index)
        return super().segment(segment)

    # -- scalars -------------------------------------------------------------------------------------------------------

    def prologue(self) -> list[ast.stmt]:
        return [statement for _, statement in self._opened.values()]

    def _is_scalar_slot(self, read: Read) -> bool:
        buffer = self._buffer(read.buffer)
        return buffer.is_slot and not buffer.shape

    def read(self, read: Read, array: ast.expr) -> ast.expr:
        buffer = self._buffer(read.buffer)
        scalar = bool(read.index) and not buffer.shape and all(isinstance(entry, PointIndex) for entry in read.index)
        return self._partial(read, buffer, array) if scalar else super().read(read, array)  # which is a copy anyway

    def value(self, name: str) -> ast.expr:
        """A value by its name; a scalar that is read from a slot as a scalar."""
        if name not in self._held or name not in self._slots:
            return super().value(name)
        self._held.pop(name)
        return _name(self._scalar_in(self._buffer(self._slots[name].buffer)))

    def _scalar_in(self, buffer: Buffer) -> str:
        """The name of what a slot holds: where the segment writes to the slot its own, else another one."""
        if buffer.id not in self._opened:
            name = buffer.label if buffer.id in self._replaced else self.names.fresh(f"{buffer.label}_scalar")
            self._opened[buffer.id] = name, _assign(name, _index(_name(buffer.label), ()))
        return self._opened[buffer.id][0]

    def compute(self, compute: Compute) -> ast.expr:
        if compute.result in self._picks:  # without the axis that the reshape would drop
            return self._picked(self._picks[compute.result])
        if compute.operands and compute.operands[0] in self._picks:
            return self.value(compute.operands[0])
        form = form_of(compute)
        if form is not None:
            return self._formed(compute, form)
        operands = [self._as_it_lies(name) for name in compute.operands]
        if compute.op == "reshape" and not compute.type.shape:
            return _index(operands[0], (0,) * len(compute.operand_types[0].shape))
        function = self.function_of(compute)
        tree = self.applied(compute, function, operands)
        if compute.op == "gather" and not compute.operand_types[1].shape:
            return self._element(compute, operands, tree)
        no_array = compute.type.shape or isinstance(function, np.ufunc) or compute.op in _NO_ARRAY
        return tree if no_array else _index(tree, ())

    def _picked(self, pick: Pick) -> ast.expr:
        array, place = self.value(pick.operand), self._expr(pick.place)
        if not pick.inside:
            function = _name(self.named(picked, "picked"))
            return ast.Call(function, [array, ast.Constant(pick.axis), place], [])
        return _along(array, pick.axis, place)

    def _element(self, compute: Compute, operands: list[ast.expr], call: ast.expr) -> ast.expr:
        """One position of an axis; what is out of range is left to the operator."""
        axis, size = compute.attrs["axis"], self._resolve(compute.operand_types[0].shape[compute.attrs["axis"]])
        place = self.names.fresh("place")
        known = ast.NamedExpr(_name(place, ast.Store()), ast.Call(_name("int"), [operands[1]], []))
        inside = ast.Compare(ast.Constant(0), [ast.LtE(), ast.Lt()], [known, ast.Constant(size)])
        found = _along(operands[0], axis, _name(place))
        if compute.type.shape:
            found = ast.Call(ast.Attribute(found, "copy", ast.Load()), [], [])
        return ast.IfExp(inside, found, call)

    def _as_it_lies(self, name: str) -> ast.expr:
        """An operand of NumPy's functions: with an array they take one without axes in less time than a scalar."""
        return super().value(name)

    def _formed(self, compute: Compute, form: str) -> ast.expr:
        counts = uses(form)
        operands = [self._scalar(name, counts.get(place, 0)) for name, place in zip(compute.operands, "xyz")]
        names = {name: self._type(name) for name in counts if name in TYPES}
        if OPERATOR in counts:
            names[OPERATOR] = self.named(self.function_of(compute), compute.op)
        return applied(form, operands, names)

    def _scalar(self, name: str, uses: int) -> ast.expr:
        """An operand; what is read gets a name first where it is used more than once."""
        tree = self.value(name)
        if uses < 2 or isinstance(tree, ast.Name):
            return tree
        self._before.append(ast.Assign([_name(name, ast.Store())], tree, lineno=0))
        return _name(name)

    def _type(self, dtype: str) -> str:
        """The name of a type of scalars."""
        if dtype not in self._types:
            self._types[dtype] = self.names.fresh(dtype)
            self.namespace[self._types[dtype]] = TYPES[dtype]
        return self._types[dtype]

    def _statement(self, statement: Statement) -> list[ast.stmt]:
        trees = super()._statement(statement)
        before, self._before = self._before, []
        return [*before, *trees]

    # -- large arrays --------------------------------------------------------------------------------------------------

    def block(self, statements: tuple[Statement, ...]) -> list[ast.stmt]:
        if not any(self._is_large(each) for each in statements):
            return super().block(statements)
        entries = self._chained(statements)
        gone = self._last_uses(statements, entries)
        trees: list[ast.stmt] = []
        for each, names in zip(entries, gone, strict=True):
            trees += [*(self._chain(each) if isinstance(each, _Chain) else self._statement(each)), *_let_go(names)]
        return trees

    def _last_uses(self, statements: Iterable[Statement], entries: Sequence[Statement | _Chain]) -> list[list[str]]:
        """For each entry what may be let go of after it: of what could be in the old order, what no later one needs."""
        left = {name for each in statements for name in self._releases.get(id(each), ())}
        gone: list[list[str]] = []
        for entry in reversed(entries):
            parts = entry.members if isinstance(entry, _Chain) else walk((entry,))
            here = {name for part in parts for name in used(part)} & left
            left -= here
            internal = entry.made - {each.result for each in self._kept(entry)} if isinstance(entry, _Chain) else set()
            gone.append(sorted(here - internal))
        return gone[::-1]

    def _is_large(self, statement: Statement) -> bool:
        if not isinstance(statement, Compute) or OPERATORS[statement.op].kind != "elementwise":
            return False
        return _LARGE <= self._bytes(statement.type) < math.inf

    def _chained(self, statements: Iterable[Statement]) -> list[Statement | _Chain]:
        """Chains as long as can be: what does not depend on an open one goes before it.

        Open chains do not depend on one another. Only operators and reads pass: whatever else comes ends all chains.
        """
        found: list[Statement | _Chain] = []
        chains: dict[Shape, _Chain] = {}
        for statement in statements:
            names, passes = set(used(statement)), isinstance(statement, Compute | Read)
            shape = self._shape(statement.type) if isinstance(statement, Compute) else ()
            ended = [each for each in chains if each != shape and (not passes or names & chains[each].made)]
            found += [chains.pop(each) for each in ended]
            if isinstance(statement, Compute) and self._is_large(statement):
                chains.setdefault(shape, _Chain(shape)).members.append(statement)
                continue
            found += [chains.pop(shape)] if shape in chains and names & chains[shape].made else []
            found.append(statement)
        return [*found, *chains.values()]

    def _shape(self, type: TensorType) -> Shape:
        return tuple(self._resolve(size) for size in type.shape)

    def _chain(self, chain: _Chain) -> list[ast.stmt]:
        if len(chain.members) == 1:
            return self._statement(chain.members[0])
        kept = self._kept(chain)
        operands = {name: self._shape(type) for name, type in chain.operands().items()}
        trees = [_assign(name, self.value(name)) for name in operands if name in self._held]
        like = [_name(name) for name, shape in operands.items() if shape == chain.shape][:1]
        trees += [_assign(self._whole(each), _call(self._maker(chain.shape, each.type.dtype), like)) for each in kept]
        trees.append(self._over_blocks(chain, kept, operands))
        trees += [_assign(each.result, _name(self._whole(each))) for each in kept]
        return [*trees, *_let_go(self._whole(each) for each in kept)]

    def _whole(self, member: Compute) -> str:
        return self._named(f"{member.result}_0")

    def _named(self, name: str) -> str:
        """What the source calls it: the name itself where nothing else has it."""
        if name not in self._own:
            self._own[name] = self.names.fresh(name)
        return self._own[name]

    def _kept(self, chain: _Chain) -> list[Compute]:
        """What is used outside of the chain, too."""
        inner = Counter(name for member in chain.members for name in used(member))
        return [each for each in chain.members if self._uses[each.result] > inner[each.result]]

    def _over_blocks(self, chain: _Chain, kept: Sequence[Compute], operands: Mapping[str, Shape]) -> ast.stmt:
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
            body += _let_go(name for name in mine if name in made and last[name] is member)
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


def _name(text: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(text, context or ast.Load())


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([_name(name, ast.Store())], value, lineno=0)


def _call(function: str, arguments: Iterable[ast.expr] = ()) -> ast.Call:
    return ast.Call(_name(function), list(arguments), [])


def picked(array: np.ndarray[Any, Any], axis: int, place: int) -> Any:
    """The place of the axis, clamped into it; a view. Of an axis without places: something that nobody looks at."""
    if not array.shape[axis]:
        return np.zeros((*array.shape[:axis], *array.shape[axis + 1 :]), array.dtype)[()]
    return array[(*(slice(None),) * axis, min(max(place, 0), array.shape[axis] - 1))]


def _index(array: ast.expr, index: tuple[int, ...]) -> ast.expr:
    places: list[ast.expr] = [ast.Constant(place) for place in index]
    return ast.Subscript(array, places[0] if len(places) == 1 else ast.Tuple(places, ast.Load()), ast.Load())


def _along(array: ast.expr, axis: int, place: ast.expr) -> ast.expr:
    index = [*(ast.Slice() for _ in range(axis)), place]
    return ast.Subscript(array, place if not axis else ast.Tuple(index, ast.Load()), ast.Load())


def _at(name: str, key: str, context: ast.expr_context | None = None) -> ast.Subscript:
    return ast.Subscript(_name(name), _name(key), context or ast.Load())


def _let_go(names: Iterable[str]) -> list[ast.stmt]:
    trees: list[ast.expr] = [_name(name, ast.Del()) for name in names]
    return [ast.Delete(trees)] if trees else []
