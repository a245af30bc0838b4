"""The core's emitter, with what eager PyTorch is slow at taken out of loops.

An eager operator costs a microsecond or two beside its arithmetic, and so does a view. Values that nobody needs any
more give their memory to the next result; views that do not change are made once, before the loops.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from tempo.lowering.emit import Emitter
from tempo.lowering.loop_ir import Compute, Read, Segment, WindowIndex
from tempo.lowering.picks import Pick, picks
from tempo_torch.flow import Flow
from tempo_torch.operators import Operation
from tempo_torch.picks import picked, picker

_MANY = 1024  # rows beyond which views of all of them would cost memory that matters


def rows(tensor: torch.Tensor) -> Any:
    """What gives row i at `[i]`: views made in advance, where they are not too many."""
    return tensor.unbind(0) if len(tensor) <= _MANY else tensor


def turned_rows(tensor: torch.Tensor) -> Any:
    """The same, each row transposed."""
    return rows(tensor.mT)


class TorchEmitter(Emitter):
    """Emits segments for PyTorch's operators."""

    def segment(self, segment: Segment) -> str:
        self._flow = Flow.of(segment)
        self._hoisted: dict[tuple[int, Callable[..., Any]], tuple[str, ast.stmt]] = {}
        self._reads: dict[str, Read] = {}  # those that are held
        self._uses: Counter[tuple[int, Callable[..., Any]]] = Counter()
        self._picks = picks(segment)
        return super().segment(segment)

    def _picked(self, pick: Pick) -> ast.expr:
        place = self._expr(pick.place)
        buffer = self._unchanging(pick.operand)
        if buffer is not None:
            return ast.Call(self._hoist(buffer, picker(pick.axis)), [place], [])
        function = self.named(picked, "picked")
        return ast.Call(ast.Name(function, ast.Load()), [self.value(pick.operand), ast.Constant(pick.axis), place], [])

    def prologue(self) -> list[ast.stmt]:
        return [statement for key, (_, statement) in self._hoisted.items() if self._uses[key]]

    def compute(self, compute: Compute) -> ast.expr:
        if compute.result in self._picks:  # without the axis that the reshape would drop
            return self._picked(self._picks[compute.result])
        if compute.operands and compute.operands[0] in self._picks:
            return self.value(compute.operands[0])
        operation = self.function_of(compute)
        if not isinstance(operation, Operation):
            operation = Operation(operation)
        free = self._flow.free(compute)
        values = [self._turned(name) if at == operation.turns else None for at, name in enumerate(compute.operands)]
        turned = any(value is not None for value in values)
        operands = [value or self.value(name) for value, name in zip(values, compute.operands)]
        if operation.in_place and 0 in free:
            return self._in_place(compute, operation.in_place, operands)
        if operation.in_place and operation.commutes and 1 in free:
            return self._in_place(compute, operation.in_place, operands[::-1])
        function = operation.on_turned if turned and operation.on_turned else operation.function
        return self.applied(compute, function, operands)

    def _in_place(self, compute: Compute, function: Callable[..., Any], operands: list[ast.expr]) -> ast.expr:
        self.named(function, f"{compute.op}_in_place")
        return self.applied(compute, function, operands)

    def read(self, read: Read, array: ast.expr) -> ast.expr:
        self._reads[read.result] = read
        if not self._has_rows(read):
            return super().read(read, array)
        return self._row(read, self._hoist(read.buffer, rows))

    def _has_rows(self, read: Read) -> bool:
        if read not in self._flow.repeated:
            return False
        others = zip(self._buffer(read.buffer).axes[1:], read.index[1:])
        return all(isinstance(entry, WindowIndex) and self._is_whole(axis, entry) for axis, entry in others)

    def _row(self, read: Read, made: ast.expr) -> ast.expr:
        return ast.Subscript(made, self._expr(read.index[0].index), ast.Load())  # type: ignore[union-attr]

    def _turned(self, name: str) -> ast.expr | None:
        """The transpose of what a loop reads, made before the loop; None where it varies."""
        read = self._reads.get(name) if name in self._held else None
        if read is not None and read in self._flow.looped and not read.fresh and self._has_rows(read):
            self._held.pop(name)
            self._uses[read.buffer, rows] -= 1
            return self._row(read, self._hoist(read.buffer, turned_rows))
        buffer = self._unchanging(name)
        return None if buffer is None else self._hoist(buffer, torch.t)

    def _unchanging(self, name: str) -> int | None:
        """The buffer all of which a loop reads under this name, again and again; the read is then taken back."""
        read = self._reads.get(name) if name in self._held else None
        if read is None or read.fresh or read not in self._flow.looped or read.buffer in self._flow.replaced:
            return None
        entries = zip(self._buffer(read.buffer).axes, read.index)
        if not all(isinstance(entry, WindowIndex) and self._is_whole(axis, entry) for axis, entry in entries):
            return None
        self._held.pop(name)
        return read.buffer

    def _hoist(self, buffer: int, function: Callable[..., Any]) -> ast.expr:
        """The name of `function(buffer)`, computed once in the prologue."""
        label, key = self._buffer(buffer).label, (buffer, function)
        self._uses[key] += 1
        if key not in self._hoisted:
            name = self.names.fresh(f"{label}_{function.__name__}")
            maker = self.named(function, function.__name__)
            call = ast.Call(ast.Name(maker, ast.Load()), [ast.Name(label, ast.Load())], [])
            self._hoisted[key] = name, ast.Assign([ast.Name(name, ast.Store())], call, lineno=0)
        return ast.Name(self._hoisted[key][0], ast.Load())
