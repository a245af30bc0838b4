"""What a scheduler is given: statements over domains, and dependences between their instances.

A scheduler never sees tensors or shapes. Expressions and conditions are over dims and sizes, so a problem holds for
every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tempo.symbolic import TRUE, Box, Condition, Dim, Expr, Symbol

DependenceKind = Literal["data", "order", "anti"]


@dataclass(frozen=True)
class Statement:
    """Work that runs once at every point of `box` where `condition` holds.

    `dims` is in canonical order and `box` bounds exactly these dims, within their sizes. `cost` is arithmetic
    operations per point, `bytes` what one point writes. A `host` statement needs Python, so no loop around it can be
    compiled as a whole.
    """

    name: str
    dims: tuple[Symbol, ...]
    box: Box
    condition: Condition = TRUE
    cost: float = 1.0
    bytes: float = 0.0
    host: bool = False


@dataclass(frozen=True)
class Interval:
    """The integers `lo, ..., hi`, both included; empty where `hi < lo`."""

    lo: Expr
    hi: Expr

    @property
    def is_point(self) -> bool:
        return self.lo == self.hi

    def __str__(self) -> str:
        return str(self.lo) if self.is_point else f"{self.lo}..{self.hi}"


@dataclass(frozen=True)
class Dependence:
    """Instances of `target` run after instances of `source`.

    For every instance p of `target` where `condition` holds: every instance q of `source` with
    `relation[k].lo(p) <= q_k <= relation[k].hi(p)` for all dims k of `source` runs before p. The expressions are over
    the dims of `target` and sizes. Points q at which `source` has no instance constrain nothing.
    `reduction`: the target folds what it reads into one value, so closeness to the source gains little.
    """

    source: str
    target: str
    relation: tuple[Interval, ...]
    condition: Condition = TRUE
    kind: DependenceKind = "data"
    reduction: bool = False


@dataclass(frozen=True)
class SchedulingProblem:
    """Statements in a stable order, their dependences, and what is known of the sizes (`facts`).

    `dims` is in canonical order. `outermost` is the dim that results are streamed along: it should be the outermost
    loop of every statement that has it. `seconds` is how long the caller is willing to wait, for schedulers
    that may take long; None: as long as the scheduler itself thinks fit.
    """

    dims: tuple[Dim, ...]
    statements: tuple[Statement, ...]
    dependences: tuple[Dependence, ...]
    facts: Condition = TRUE
    outermost: Symbol | None = None
    seconds: float | None = None

    @cached_property
    def by_name(self) -> Mapping[str, Statement]:
        return {statement.name: statement for statement in self.statements}

    @cached_property
    def sizes(self) -> frozenset[Symbol]:
        """Every size that the problem speaks of."""
        found = {*self.facts.sizes(), *(symbol for dim in self.dims for symbol in dim.size.sizes())}
        for statement in self.statements:
            found |= statement.condition.sizes() | statement.box.condition().sizes()
        for dependence in self.dependences:
            found |= dependence.condition.sizes()
            found.update(*(interval.lo.sizes() | interval.hi.sizes() for interval in dependence.relation))
        return frozenset(found)

    def dim(self, symbol: Symbol) -> Dim:
        return next(dim for dim in self.dims if dim.symbol == symbol)

    def describe(self, dependence: Dependence) -> str:
        """One line for messages: `h(t) after h(t - 1) where t >= 1`."""
        source, target = self.by_name[dependence.source], self.by_name[dependence.target]
        reads = ", ".join(map(str, dependence.relation))
        where = "" if dependence.condition == TRUE else f" where {dependence.condition}"
        kind = "" if dependence.kind == "data" else f" ({dependence.kind})"
        return f"{target.name}({', '.join(s.name for s in target.dims)}) after {source.name}({reads}){where}{kind}"

    def __str__(self) -> str:
        """A line for each statement and dependence."""
        lines = [f"for {dim}" for dim in self.dims]
        for statement in self.statements:
            where = "" if statement.condition == TRUE else f" where {statement.condition}"
            host = " on the host" if statement.host else ""
            lines.append(f"{statement.name} at {statement.box}{where}{host}")
        return "\n".join((*lines, *map(self.describe, self.dependences)))
