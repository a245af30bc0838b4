"""Index expressions, conditions, domains, and what can be proven about them for every size."""

from tempo.symbolic.condition import (
    FALSE,
    TRUE,
    And,
    Condition,
    Eq,
    Ge,
    Or,
    conjunction,
    disjunction,
    nonnegative,
    zero,
)
from tempo.symbolic.context import Context
from tempo.symbolic.domain import LARGEST_SIZE, Box, Dim
from tempo.symbolic.expr import (
    Atom,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    NonAffineError,
    Symbol,
    as_expr,
    const,
    dim,
    maximum,
    minimum,
    size,
    var,
)
from tempo.symbolic.lengths import over_lengths
from tempo.symbolic.parse import parse_condition, parse_expr
from tempo.symbolic.text import to_python

__all__ = [
    "FALSE",
    "LARGEST_SIZE",
    "TRUE",
    "And",
    "Atom",
    "Box",
    "Condition",
    "Context",
    "Dim",
    "Eq",
    "Expr",
    "FloorDiv",
    "Ge",
    "Max",
    "Min",
    "Mod",
    "NonAffineError",
    "Or",
    "Symbol",
    "as_expr",
    "conjunction",
    "const",
    "dim",
    "disjunction",
    "maximum",
    "minimum",
    "nonnegative",
    "over_lengths",
    "parse_condition",
    "parse_expr",
    "size",
    "to_python",
    "var",
    "zero",
]
