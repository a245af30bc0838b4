"""Index expressions, conditions, domains, and what can be proven about them for every size."""

from tempo.symbolic.condition import (
    FALSE,
    TRUE,
    And,
    Comparison,
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
    from_terms,
    maximum,
    minimum,
    size,
    var,
)
from tempo.symbolic.last_points import over_counts
from tempo.symbolic.lengths import over_lengths
from tempo.symbolic.parse import parse_condition, parse_expr
from tempo.symbolic.projection import projected
from tempo.symbolic.text import syntax_tree, to_python

__all__ = [
    "FALSE",
    "LARGEST_SIZE",
    "TRUE",
    "And",
    "Atom",
    "Box",
    "Comparison",
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
    "from_terms",
    "maximum",
    "minimum",
    "nonnegative",
    "over_counts",
    "over_lengths",
    "parse_condition",
    "parse_expr",
    "projected",
    "size",
    "syntax_tree",
    "to_python",
    "var",
    "zero",
]
