"""The primitive operators, and everything about one operator beside each other.

More than fifteen modules, since each kind of operator has its own, beside what the rules of all are written in.
"""

from tempo.sdg.operators.axes import Role
from tempo.sdg.operators.operator import Builder, Lifted, Operator
from tempo.sdg.operators.table import OPERATORS, call_for, factors_of

__all__ = ["OPERATORS", "Builder", "Lifted", "Operator", "Role", "call_for", "factors_of"]
