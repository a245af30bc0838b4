"""The core's emitter, with what eager PyTorch is slow at taken out of loops.

An eager operator costs a microsecond or two beside its arithmetic, and so does a view. Values that nobody needs any
more give their memory to the next result; views that do not change are made once, before the loops; what has no axes is
computed on NumPy's scalars (`scalars.py`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from tempo.backends import ByPoint
from tempo.backends.emission import Pick, ScalarEmitter, along, assign, call, has_scalars, picks, subscript
from tempo.backends.emission import name as _name
from tempo.backends.loop_ir import Assign, Buffer, Compute, Loop, Read, Segment, Statement, WindowIndex, Write, walk
from tempo.backends.operators import OPERATORS
from tempo.symbolic import Symbol
from tempo_torch.flow import Flow
from tempo_torch.operators import Operation, moved_first
from tempo_torch.operators.builder import Ahead
from tempo_torch.operators.packing import OFTEN
from tempo_torch.picks import element, picked, picker
from tempo_torch.scalars import (
    COUNTED,
    Scalars,
    cell,
    elements,
    is_element,
    keeps_nothing,
    scalar,
    takes_one,
    tensor,
    torch_form,
)
from tempo_torch.splits import Split, splits
from tempo_torch.waits import waits

_MANY = 1024  # rows beyond which views of all of them would cost memory that matters
Places = tuple[tuple[int, int] | None, ...]


def rows(tensor: torch.Tensor | ByPoint) -> Any:
    """What gives row i at `[i]`: views made in advance, where they are not too many."""
    if isinstance(tensor, ByPoint):
        return tuple(tensor)
    return tensor.unbind(0) if len(tensor) <= _MANY else tensor


@cache
def of_rows(prepare: Callable[[torch.Tensor, int], Any]) -> Callable[[Any, int], Any]:
    """What `prepare` makes of each row, where they are not too many."""

    def prepared_rows(tensor: torch.Tensor | ByPoint, times: int) -> Any:
        is_few = isinstance(tensor, ByPoint) or len(tensor) <= _MANY
        return tuple(prepare(row, times) for row in tensor) if is_few else _Prepared(tensor, prepare)

    return prepared_rows


@cache
def window(places: Places) -> Callable[..., torch.Tensor]:
    """What makes of a tensor its view from a place to another of each axis; of all of an axis, where there is none."""
    index = tuple(slice(None) if each is None else slice(*each) for each in places)

    def part(tensor: torch.Tensor, times: int = 1) -> torch.Tensor:
        del times
        return tensor[index]

    return part


@dataclass(frozen=True)
class _Prepared:
    """What is made of each row when it is looked at."""

    tensor: torch.Tensor
    prepare: Callable[[torch.Tensor, int], Any]

    def __getitem__(self, row: int) -> Any:
        return self.prepare(self.tensor[row], 1)


class TorchEmitter(ScalarEmitter):
    """Emits segments for PyTorch's operators on the CPU."""

    on_cpu = True
    """Whether values without axes may be NumPy's scalars, and elements of tensors are there for NumPy."""

    def segment(self, segment: Segment) -> str:
        self._flow, self._loop_of_segment = Flow.of(segment), segment.loop
        self._packed: set[int] = set()  # the buffers that are laid out anew before the loop
        self._hoisted: dict[tuple[int, Callable[..., Any]], tuple[str, ast.stmt]] = {}
        self._reads: dict[str, Read] = {}  # those that are held
        self._uses: Counter[tuple[int, Callable[..., Any]]] = Counter()
        self._picks = picks(segment)
        self._splits = splits(segment, self._picks)
        scalars = Scalars.of(segment, self.program.buffers, self._picks) if self.on_cpu else None
        self._with_scalars, self._scalars = scalars is not None, scalars or Scalars()
        self._others: dict[str, str] = {}
        self._cells: dict[str, tuple[str, ast.stmt]] = {}
        self._depth = 0
        return super().segment(segment)

    def surrounded(self, segment: Segment, body: list[ast.stmt]) -> list[ast.stmt]:
        """Without autograd's records: gradients are Tempo's own. Entering inference mode costs as much as an operator
        or two, so only segments with loops do."""
        if not any(isinstance(each, Loop) for each in walk(segment.body)):
            return body
        return [ast.With([ast.withitem(self._as(torch.inference_mode))], body)]

    # -- scalars ---------------------------------------------------------------------------------------------------

    def scalar(self, value: str) -> ast.expr:
        """A value without axes as one of NumPy's scalars."""
        if value not in self._held:
            return _name(value if value in self._scalars.made else self._other(value))
        read = self._reads[value]
        if read.index:
            return super().value(value)
        self._held.pop(value)
        if read.buffer in self._flow.replaced:
            self._open(read.buffer)
            return _name(self._buffer(read.buffer).label)
        return self._hoist(read.buffer, scalar)

    def value(self, value: str) -> ast.expr:
        """A value as a tensor."""
        if not self._with_scalars:
            return super().value(value)
        if value not in self._held:
            return _name(self._other(value) if value in self._scalars.made else value)
        read = self._reads[value]
        if is_element(read, self._buffer(read.buffer)):
            return self._as(tensor, super().value(value))
        tree = super().value(value)
        if read.buffer not in self._scalars.slots:
            return tree
        self._open(read.buffer)
        return self._as(tensor, tree)

    def _other(self, value: str) -> str:
        """What a value is called that is a scalar and a tensor, where it is not what it was made as."""
        if value not in self._others:
            kind = "tensor" if value in self._scalars.made else "scalar"
            self._others[value] = self.names.fresh(f"{value}_{kind}")
        return self._others[value]

    def _taken(self, compute: Compute, at: int) -> ast.expr:
        """An operand as a tensor, but for the place that is looked up; what is read as a scalar goes through a cell."""
        value = compute.operands[at]
        if self._with_scalars and at == 1 and takes_one(compute):
            return self.scalar(value)
        read = self._reads.get(value) if value in self._held else None
        if read is None or not self._with_scalars or not self._depth or not keeps_nothing(compute):
            return self.value(value)
        if not is_element(read, self._buffer(read.buffer)) and read.buffer not in self._scalars.slots:
            return self.value(value)
        self._before = (*self._before, self._put(value, self.scalar(value)))
        return _name(self._other(value))

    def _put(self, value: str, tree: ast.expr) -> ast.stmt:
        """A scalar, put into the cell of a value."""
        if value not in self._cells:
            held, other = self.names.fresh(f"{value}_cell"), self._other(value)
            target = ast.Tuple([_name(held, ast.Store()), _name(other, ast.Store())], ast.Store())
            made = call(self.named(cell, "cell"), [ast.Constant(self._scalars.dtypes[value])])
            self._cells[value] = held, assign(target, made)
        return assign(subscript(_name(self._cells[value][0]), [], ast.Store()), tree)

    def _loop(self, loop: Loop, outermost: bool = False) -> ast.For:
        self._depth += 1
        tree = super()._loop(loop, outermost)
        self._depth -= 1
        return tree

    def _as(self, function: Callable[..., Any], *operands: ast.expr) -> ast.Call:
        return call(self.named(function, function.__name__), [*operands])

    def _open(self, slot: int) -> None:
        """What a slot holds before the loops as a scalar."""
        label = self._buffer(slot).label
        if (slot, scalar) not in self._hoisted:
            opened = assign(_name(label, ast.Store()), self._as(scalar, _name(label)))
            self._hoisted[slot, scalar] = label, opened
        self._uses[slot, scalar] += 1

    def result(self, buffer: int) -> ast.expr:
        made = super().result(buffer)
        return self._as(tensor, made) if buffer in self._scalars.slots else made

    def on_scalars(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: scalar(function(*map(tensor, given)))

    def _read(self, read: Read) -> ast.expr:
        self._reads[read.result] = read
        return super()._read(read)

    def _target(self, write: Write) -> ast.expr:
        if not self._writes_element(write) or write.buffer in self._made_now:
            return super()._target(write)
        return self._place(self._hoist(write.buffer, elements), write)

    def _writes_element(self, write: Write) -> bool:
        buffer = self._buffer(write.buffer)
        native = self._with_scalars and not buffer.shape and has_scalars(buffer.dtype)
        return native and bool(write.index) and write.is_point

    def _statement(self, statement: Statement) -> list[ast.stmt]:
        trees = self._of_segment(statement)
        if not isinstance(statement, Compute | Assign) or statement.result not in self._scalars.both:
            return trees
        return [*trees, self._converted(statement.result)]

    def _converted(self, value: str) -> ast.stmt:
        """What makes of a scalar a tensor beside it, or the other way round."""
        made, dtype = _name(value), self._scalars.dtypes[value]
        if value in self._scalars.made and self._depth and value not in self._scalars.kept:
            return self._put(value, made)
        other = self._as(tensor, made)
        if value not in self._scalars.made:
            item = ast.Call(ast.Attribute(made, "item", ast.Load()), [], [])
            other = call(self._type(dtype), [item])
        return assign(_name(self._other(value), ast.Store()), other)

    def _of_segment(self, statement: Statement) -> list[ast.stmt]:
        if isinstance(statement, Assign) and statement.result in self._scalars.made:
            return [assign(_name(statement.result, ast.Store()), self.scalar(statement.value))]
        if isinstance(statement, Compute) and (split := self._splits.get(statement.result)) is not None:
            return [self._all_parts(split)] if statement.result == split.first else []
        if isinstance(statement, Write) and self._takes_scalar(statement):
            value = self.scalar(statement.value)
            return [assign(self._target(statement), value)]
        return super()._statement(statement)

    def _all_parts(self, split: Split) -> ast.stmt:
        made = ast.Tuple([_name(each, ast.Store()) for each in split.results], ast.Store())
        lengths = ast.Tuple([*map(ast.Constant, split.lengths)], ast.Load())
        given = self.value(split.operand), lengths, ast.Constant(split.axis)
        return assign(made, self._as(torch.split_with_sizes, *given))

    def _takes_scalar(self, write: Write) -> bool:
        return self._writes_element(write) or write.buffer in self._scalars.slots

    def _element(self, compute: Compute) -> ast.expr:
        """One element of a vector; what is out of range is left to the operator."""
        vector, index = self.value(compute.operands[0]), self.scalar(compute.operands[1])
        otherwise = self.applied(compute, self.function_of(compute), [vector, index])
        return self.element(compute, [self._as(elements, vector), index], self._as(scalar, otherwise))

    # -- tensors ---------------------------------------------------------------------------------------------------

    def _picked(self, pick: Pick, as_scalar: bool) -> ast.expr:
        place = self._expr(pick.place)
        buffer = self._unchanging(pick.operand)
        if as_scalar:
            vector = (
                self._hoist(buffer, elements) if buffer is not None else self._as(elements, self.value(pick.operand))
            )
            return along(vector, 0, place) if pick.inside else call(self.named(element, "element"), [vector, place])
        if buffer is not None:
            return ast.Call(self._hoist(buffer, picker(pick.axis)), [place], [])
        function = self.named(picked, "picked")
        return ast.Call(ast.Name(function, ast.Load()), [self.value(pick.operand), ast.Constant(pick.axis), place], [])

    def prologue(self) -> list[ast.stmt]:
        hoisted = (statement for key, (_, statement) in self._hoisted.items() if self._uses[key])
        return [*hoisted, *(made for _, made in self._cells.values())]

    def compute(self, compute: Compute) -> ast.expr:
        if compute.result in self._picks:  # without the axis that the reshape would drop
            return self._picked(self._picks[compute.result], compute.result in self._scalars.made)
        if compute.operands and compute.operands[0] in self._picks:
            return (self.scalar if compute.result in self._scalars.made else self.value)(compute.operands[0])
        if self._with_scalars and (made := self._scalar_of(compute)) is not None:
            return made
        operation = self.function_of(compute)
        if not isinstance(operation, Operation):
            operation = Operation(operation)
        values: list[ast.expr | None] = [None for _ in compute.operands]
        function, ahead = operation.function, operation.ahead
        if ahead is not None and (made := self._prepared(compute.operands[ahead.place], ahead)) is not None:
            function, values[ahead.place] = ahead.function, made
        if operation.number is not None:
            values[operation.number] = self._number(compute.operands[operation.number])
        operands = [value or self._taken(compute, at) for at, value in enumerate(values)]
        place = self._taken_over(compute, operation)
        if operation.in_place and place is not None:
            self.named(operation.in_place, f"{compute.op}_in_place")
            return self.applied(compute, operation.in_place, moved_first(operands, place))
        return self.applied(compute, function, operands)

    def _scalar_of(self, compute: Compute) -> ast.expr | None:
        """The result as a scalar; None where it is made as a tensor."""
        form = torch_form(compute)
        if form is not None:
            return self.formed(compute, form)
        if compute.op in COUNTED:
            return self.applied(compute, OPERATORS[compute.op].numpy(self.call_of(compute)), [])
        return self._element(compute) if compute.result in self._scalars.made else None

    def overwritten(self, compute: Compute) -> int | None:
        operation = None if compute.result in self._scalars.made else self.function_of(compute)
        if not isinstance(operation, Operation):
            return super().overwritten(compute)
        return self._taken_over(compute, operation)

    def _taken_over(self, compute: Compute, operation: Operation) -> int | None:
        return operation.place(
            [at for at in self._flow.free(compute) if compute.operands[at] not in self._scalars.made]
        )

    def copied(self, sizes: Mapping[Symbol, int]) -> tuple[int, ...]:
        loop = self._loop_of_segment
        if loop is None or int((loop.hi - loop.lo).evaluate(sizes)) < OFTEN:
            return ()
        return tuple(sorted(self._packed))

    def read(self, read: Read, array: ast.expr) -> ast.expr:
        buffer = self._buffer(read.buffer)
        if self._with_scalars and is_element(read, buffer):
            return self._partial(read, buffer, self._hoist(buffer.id, elements))
        if (view := self._steady(read)) is not None:
            return view
        places = self._places_in_row(read)
        if places is None:
            return super().read(read, array)
        if any(places):
            return self._row(read, self._hoist(read.buffer, of_rows(window(places)), self._times))
        return self._row(read, self._hoist(read.buffer, rows))

    def _steady(self, read: Read) -> ast.expr | None:
        """The view of a part that is the same in all of a loop, made before it; None where it varies."""
        places = self._places(read, 0) if self._shows_one_array(read) else None
        return self._hoist(read.buffer, window(places)) if places is not None and any(places) else None

    def _is_whole_row(self, read: Read) -> bool:
        places = self._places_in_row(read)
        return places is not None and not any(places)

    def _places_in_row(self, read: Read) -> Places | None:
        return self._places(read, 1) if read in self._flow.repeated else None

    def _places(self, read: Read, first: int) -> Places | None:
        """From where to where a read goes along the axes from the `first` on, None where along all of one; None for
        all where this is not the same everywhere in a loop. An exact window is not clamped, and wraps nowhere."""
        places: list[tuple[int, int] | None] = []
        for axis, entry in zip(self._buffer(read.buffer).axes[first:], read.index[first:]):
            if not isinstance(entry, WindowIndex):
                return None
            if self._is_whole(axis, entry):
                places.append(None)
                continue
            if not entry.exact or not entry.start.is_const:
                return None
            start = entry.start.as_int()
            places.append((start, start + self._resolve(entry.extent)))
        return tuple(places)

    def _shows_one_array(self, read: Read) -> bool:
        """Whether it is in a loop, in all of which its buffer is the same array, of which a view will do."""
        return not read.fresh and read in self._flow.looped and read.buffer not in self._flow.replaced

    def _row(self, read: Read, made: ast.expr) -> ast.expr:
        return ast.Subscript(made, self._expr(read.index[0].index), ast.Load())  # type: ignore[union-attr]

    def _prepared(self, name: str, ahead: Ahead) -> ast.expr | None:
        """What is made of a matrix that a loop reads, before the loop; None where it varies."""
        read = self._reads.get(name) if name in self._held else None
        if read is not None and self._is_whole_row(read):
            self._held.pop(name)
            self._uses[read.buffer, rows] -= 1
            return self._row(read, self._hoist_ahead(read.buffer, of_rows(ahead.prepare), ahead))
        buffer = self._unchanging(name)
        return None if buffer is None else self._hoist_ahead(buffer, ahead.prepare, ahead)

    def _hoist_ahead(self, buffer: int, prepare: Callable[..., Any], ahead: Ahead) -> ast.expr:
        if ahead.copies:
            self._packed.add(buffer)
        return self._hoist(buffer, prepare, self._times)

    @property
    def _times(self) -> ast.expr:
        """How often a call of the segment runs its loop; what is in no loop of that kind, once."""
        if self._loop_of_segment is None:
            return ast.Constant(1)
        return ast.BinOp(_name("stop"), ast.Sub(), _name("start"))

    def _number(self, name: str) -> ast.expr | None:
        """What has no axes and is the same in all of a loop, looked at before the loop; None where it varies."""
        buffer = self._unchanging(name)
        return None if buffer is None else self._hoist(buffer, number)

    def _unchanging(self, name: str) -> int | None:
        """The buffer all of which a loop reads under this name, again and again; the read is then taken back."""
        read = self._reads.get(name) if name in self._held else None
        if read is None or not self._shows_one_array(read):
            return None
        entries = zip(self._buffer(read.buffer).axes, read.index)
        if not all(isinstance(entry, WindowIndex) and self._is_whole(axis, entry) for axis, entry in entries):
            return None
        self._held.pop(name)
        return read.buffer

    def _hoist(self, buffer: int, function: Callable[..., Any], *more: ast.expr) -> ast.expr:
        """The name of `function(buffer, *more)`, computed once in the prologue."""
        label, key = self._buffer(buffer).label, (buffer, function)
        self._uses[key] += 1
        if key not in self._hoisted:
            name = self.names.fresh(f"{label}_{function.__name__}")
            maker = self.named(function, function.__name__)
            call = ast.Call(ast.Name(maker, ast.Load()), [ast.Name(label, ast.Load()), *more], [])
            self._hoisted[key] = name, ast.Assign([ast.Name(name, ast.Store())], call, lineno=0)
        return ast.Name(self._hoisted[key][0], ast.Load())


@waits("what a loop does not change is looked at once, before it")
def number(tensor: torch.Tensor) -> int:
    return int(tensor)


@waits("whether the run ends is looked at in every iteration")
def holds(slot: torch.Tensor) -> bool:
    return bool(slot)


class CudaEmitter(TorchEmitter):
    """Emits segments for a device whose memory is not the host's."""

    on_cpu = False

    def _prepared(self, name: str, ahead: Ahead) -> ast.expr | None:
        """Its libraries take a matrix as it lies, and what is recorded as a graph is to have the same bits."""
        return None

    def _held_by(self, slot: Buffer) -> ast.expr:
        return self._as(holds, super()._held_by(slot))
