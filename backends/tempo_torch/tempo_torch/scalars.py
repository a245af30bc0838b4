"""Which values without axes are NumPy's scalars in the source for the CPU, and which are tensors.

An eager operator of torch on two scalars costs a microsecond or two, Python's own on NumPy's scalars thirty
nanoseconds. So what has a form (`codegen.scalar_forms`) is computed on scalars, elements are read and written
through NumPy's views of the tensors' memory, and a value that both kinds of operators take is there as both. In a loop
it goes into a *cell* for torch: a tensor without axes, made before the loop, whose memory NumPy writes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from tempo import dtypes
from tempo.backends.emission import Pick, form_of, has_scalars, is_scalar_slot
from tempo.backends.emission import is_element as is_scalar_element
from tempo.backends.loop_ir import Assign, Buffer, Compute, Loop, Read, Segment, Statement, Write, walk
from tempo.backends.operators import OPERATORS
from tempo_torch.arrays import Array, from_host, to_host

_CPU = torch.device("cpu")
_OTHERWISE = frozenset({"shift_left", "shift_right"})
"""Operators that torch computes otherwise, where a shift is no shorter than the number."""

COUNTED = frozenset({"index_value", "condition_value"})
"""Operators that make a scalar of numbers of the loops."""


def elements(tensor: torch.Tensor) -> Array:
    """NumPy's view of a tensor's memory."""
    return to_host(tensor)


def scalar(tensor: torch.Tensor) -> np.generic:
    """What a tensor without axes holds."""
    found: np.generic = to_host(tensor)[()]
    return found


def tensor(value: np.generic | torch.Tensor) -> torch.Tensor:
    """A scalar as a tensor; what is a tensor already as it is."""
    return value if isinstance(value, torch.Tensor) else from_host(np.asarray(value), _CPU)


def cell(dtype: str) -> tuple[Array, torch.Tensor]:
    """An array without axes, and the tensor of its memory."""
    held = np.zeros((), dtypes.to_numpy(dtype))
    return held, from_host(held, _CPU)


def keeps_nothing(compute: Compute) -> bool:
    """Whether nothing of an operand's memory is left in the result."""
    operator = OPERATORS[compute.op]
    return not operator.views and operator.kind not in ("nominal", "movement")


def torch_form(compute: Compute) -> str | None:
    """The form of an operator that torch gives the same bits."""
    return None if compute.op in _OTHERWISE else form_of(compute)


@dataclass(frozen=True)
class Scalars:
    """Names of values without axes, and slots, in one segment.

    made     names that hold scalars
    both     names among these that some operator takes as tensors, and names of tensors that some form takes
    kept     names among these two whose tensors may be looked at when the name has another value
    slots    slots written in the segment that hold scalars in it
    dtypes   of the names
    """

    made: frozenset[str] = frozenset()
    both: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    slots: frozenset[int] = frozenset()
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(segment: Segment, buffers: Mapping[int, Buffer], picks: Mapping[str, Pick]) -> Scalars | None:
        """None where a segment that runs no loop has more to convert than to compute."""
        every = tuple(walk((segment.loop,) if segment.loop else segment.body))
        analysis = _ScalarUses(buffers, picks, every)
        found = analysis.found()
        loops = any(isinstance(each, Loop) for each in every)
        return found if loops or analysis.forms > len(analysis.opened) + len(found.both) else None


def gives_scalar(compute: Compute) -> bool:
    """Whether what has no axes is made as a scalar."""
    return torch_form(compute) is not None or compute.op in COUNTED or takes_one(compute)


def takes_one(compute: Compute) -> bool:
    """Whether it is a gather at one position."""
    return compute.op == "gather" and not compute.operand_types[1].shape


def is_slot(buffer: Buffer) -> bool:
    """Whether it is replaced as a whole, and NumPy has scalars for it."""
    return is_scalar_slot(buffer) and has_scalars(buffer.dtype)


def is_element(read: Read, buffer: Buffer) -> bool:
    """Whether it is one element of a buffer that is read, and NumPy has scalars for it."""
    return is_scalar_element(read, buffer) and has_scalars(buffer.dtype)


@dataclass
class _ScalarUses:
    """`into`: by a name or a slot, what it may be given on to; `scalars`, `tensors`: what is asked for as one.

    `forms` counts the operators on scalars, `opened` are the buffers that these may be read from and written to.
    """

    buffers: Mapping[int, Buffer]
    picks: Mapping[str, Pick]
    every: tuple[Statement, ...]
    known: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    into: list[tuple[str | int, str | int]] = field(default_factory=list)
    scalars: set[str | int] = field(default_factory=set)
    tensors: set[str | int] = field(default_factory=set)
    kept: set[str | int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    forms: int = 0

    def found(self) -> Scalars:
        for statement in self.every:
            self._look_at(statement)
        variables = {target for _, target in self.into} - self.read
        asked_for = {source for source, _ in self.into}
        while more := {source for source, target in self.into if target in self.scalars} - self.scalars:
            self.scalars |= more
        for slot in {each for each in variables if isinstance(each, int)} - asked_for:  # made a tensor once, behind all
            if {source for source, target in self.into if target == slot} <= self.made | self.scalars | self.read:
                self.scalars.add(slot)
        held = self.scalars & variables
        self.kept |= {source for source, target in self.into if target in variables and target not in held}
        self.tensors |= self.kept
        made = self.made | {each for each in held if isinstance(each, str)}
        named = self.known.keys() - self.read
        both = {each for each in named if each in (self.tensors if each in made else self.scalars)}
        slots = frozenset(each for each in held if isinstance(each, int))
        return Scalars(frozenset(made), frozenset(both), frozenset(named & self.kept), slots, self.known)

    def _look_at(self, statement: Statement) -> None:
        match statement:
            case Read(result, buffer):
                self._read(statement, self.buffers[buffer])
            case Assign(result, value) if value in self.known:
                self.known[result] = self.known[value]
                self.into.append((value, result))
            case Write(buffer, index, value) if value in self.known:
                self.opened.add(buffer)
                self.scalars |= {value} if index else set()
                self.into += [] if index else [(value, buffer)]
            case Compute():
                self._compute(statement)

    def _read(self, read: Read, buffer: Buffer) -> None:
        """What is read stands where it is used, and is there what is asked for."""
        if is_element(read, buffer) or is_slot(buffer):
            self.known[read.result] = buffer.dtype
            self.read.add(read.result)
            self.opened.add(buffer.id)
            self.into += [] if read.index else [(buffer.id, read.result)]

    def _compute(self, compute: Compute) -> None:
        if compute.operands and compute.operands[0] in self.picks:
            self.into += [(compute.operands[0], compute.result)] if compute.operands[0] in self.known else []
            self.known |= dict.fromkeys(self._of(compute), compute.type.dtype)
            return
        self.known |= dict.fromkeys(self._of(compute), compute.type.dtype)
        self.forms += torch_form(compute) is not None
        if gives_scalar(compute) or compute.result in self.picks:
            self.made |= self._of(compute)
        asked = set(self._asked(compute)) & self.known.keys()
        self.scalars |= asked
        others = set(compute.operands) & self.known.keys() - asked
        self.tensors |= others
        self.kept |= set() if keeps_nothing(compute) else others

    def _of(self, compute: Compute) -> set[str]:
        """The result, where it has no axes and NumPy has scalars of its dtype."""
        axes = len(compute.type.shape) - (compute.result in self.picks)
        return {compute.result} if not axes and has_scalars(compute.type.dtype) else set()

    @staticmethod
    def _asked(compute: Compute) -> Iterator[str]:
        """The operands that are taken as scalars."""
        if torch_form(compute) is not None:
            yield from compute.operands
        elif takes_one(compute):
            yield compute.operands[1]
