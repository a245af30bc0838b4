"""Applying a primitive operator to tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tempo.errors import user_location
from tempo.language.program import Program, current_program
from tempo.language.tensor import RecurrentTensor
from tempo.sdg.graph import Edge


def apply(
    op: str, *operands: RecurrentTensor, attrs: Mapping[str, Any] | None = None, weak: bool = False
) -> RecurrentTensor:
    """The result of operator `op` of the table. Operands have the dtypes that its rule wants."""
    program = open_program(*operands)
    edge = program.builder.pure(op, tuple(operand.edge for operand in operands), attrs or {}, user_location)
    return RecurrentTensor(program, edge, weak)


def open_program(*operands: RecurrentTensor) -> Program:
    """The program that is open, which the operands must belong to. Raises `ProgramError`."""
    program = current_program()
    for operand in operands:
        program.require(operand.program, operand.label)
    return program


def view(program: Program, edge: Edge, weak: bool = False) -> RecurrentTensor:
    """What a read through `edge` sees."""
    return RecurrentTensor(program, edge, weak)


def copy(x: RecurrentTensor) -> RecurrentTensor:
    """A node that is what `x` sees, so that every dim of `x` is read at itself."""
    return apply("copy", x, weak=x.weak)
