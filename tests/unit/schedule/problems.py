"""Scheduling problems from short texts, for the tests."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tempo.schedule import Dependence, Interval, SchedulingProblem, Statement
from tempo.symbolic import TRUE, Box, Dim, Symbol, parse_condition, parse_expr, size


def make(
    dims: str,
    statements: Mapping[str, str],
    dependences: list[str],
    *,
    boxes: Mapping[str, Mapping[str, str]] | None = None,
    conditions: Mapping[str, str] | None = None,
    host: str = "",
    weights: Mapping[str, float] | None = None,
    outermost: str | None = None,
    facts: str | None = None,
) -> SchedulingProblem:
    """`statements` gives each name its dims (`"i t"`); a dependence is `"h < x(t), h(t-1) where t >= 1"`.

    An index is an expression or `lo..hi`, both included; `"order: a < b(t)"` gives the kind. Boxes are half-open.
    """
    symbols = {name: Symbol(name, "dim") for name in dims.split()}
    all_dims = tuple(Dim(symbol, size(name)) for name, symbol in symbols.items())
    found = []
    for name, own in statements.items():
        mine = [dim for dim in all_dims if dim.symbol.name in own.split()]
        box = Box.full(mine)
        for dim, bounds in (boxes or {}).get(name, {}).items():
            lo, hi = bounds.split("..")
            box = box.replace(symbols[dim], parse_expr(lo), parse_expr(hi))
        condition = parse_condition(conditions[name]) if conditions and name in conditions else TRUE
        found.append(
            Statement(
                name,
                tuple(dim.symbol for dim in mine),
                box,
                condition,
                bytes=(weights or {}).get(name, 4.0),
                host=name in host.split(),
            )
        )
    links = [link for text in dependences for link in _links(text)]
    return SchedulingProblem(
        all_dims,
        tuple(found),
        tuple(links),
        parse_condition(facts) if facts else TRUE,
        symbols[outermost] if outermost else None,
    )


def _links(text: str) -> list[Dependence]:
    kind, text = text.split(":", 1) if ":" in text else ("data", text)
    text, _, where = text.partition(" where ")
    condition = parse_condition(where) if where else TRUE
    target, reads = text.split("<", 1)
    found = []
    for source, indices in re.findall(r"([A-Za-z_]\w*)\(((?:[^()]|\([^()]*\))*)\)", reads):
        relation = tuple(_interval(index) for index in _split(indices))
        found.append(Dependence(source, target.strip(), relation, condition, kind.strip()))  # type: ignore[arg-type]
    return found


def _split(indices: str) -> list[str]:
    """At the commas that stand in no parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", indices) if part.strip()]


def _interval(text: str) -> Interval:
    lo, _, hi = text.partition("..")
    return Interval(parse_expr(lo), parse_expr(hi or lo))
