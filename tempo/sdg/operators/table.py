"""The operator table: name to everything about the operator. Nothing in the compiler has a case per operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tempo.sdg.operators.elementwise import ELEMENTWISE
from tempo.sdg.operators.operator import Builder, Lifted, Operator, Role

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        operator.name: operator
        for operator in (
            *ELEMENTWISE,
        )
    }
)

__all__ = ["OPERATORS", "Builder", "Lifted", "Operator", "Role"]
