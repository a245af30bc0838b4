"""Stencils: every point from neighbours a step before, with cases for the edges that lack some."""

from __future__ import annotations

from tempo.conformance.random_programs.description import Statement
from tempo.conformance.random_programs.session import Session, Value

_EDGES = (
    ("({x} == 0) | ({x} == {x}.size - 1)",),
    ("{x} == 0", "{x} == {x}.size - 1"),
    ("{x} >= {x}.size - 1", "{x} == 0"),
    ("({x} < 1) | ({x} >= {x}.size - 2)",),
    ("({x} == 0) & ({t} > 1)", "({x} == 0) | ({x} + 1 == {x}.size)", "{x} >= 3"),
    ("({x} == 0) | ({x} == {x}.size - 1)", "{x} % 2 == 1"),
    ("({x} == 0) | ({x} == {x}.size - 1)", "{x} > {t}"),
)
"""Conditions of cases; where none holds, `x - 1` and `x + 1` are points of the dim."""


def stencil(session: Session) -> Value | None:
    """A definition over a dim of steps and one or two of places."""
    choices = session.choices
    if session.opened or len(session.dims) < 2 or session.recurrences >= 3:
        return None
    session.recurrences += 1
    step = choices.choice(tuple(session.dims))
    others = [dim for dim in session.dims if dim != step]
    places = choices.some(others, 70) or (choices.choice(others),)
    dims = tuple(dim for dim in session.dims if dim == step or dim in places)
    name = session.fresh("h")
    shape = choices.choice(((), (2,)))
    if not session.run(
        Statement(f'{name} = tp.recurrent("{name}", shape={shape}, dims=({", ".join(dims)},))', (name,))
    ):
        return None
    for place in places:
        for condition in choices.choice(_EDGES):
            _case(session, name, condition.format(x=place, t=step), _given(session, dims))
    first = ", ".join("0" if dim == step else dim for dim in dims)
    if not _case(session, name, first, _given(session, dims)):
        return None
    near = [_neighbour(name, dims, step, place, by) for place in places for by in ("- 1", "+ 1")]
    body = " + ".join([*choices.some(near, 80), _given(session, dims)])
    if not _case(session, name, "True", f"tp.tanh({body})"):
        return None
    session.values.append(Value(name, session.lookup(name), exact=False))
    return session.values[-1]


def _neighbour(name: str, dims: tuple[str, ...], step: str, place: str, by: str) -> str:
    key = (f"{step} - 1" if dim == step else f"{place} {by}" if dim == place else dim for dim in dims)
    return f"{name}[{', '.join(key)}]"


def _given(session: Session, dims: tuple[str, ...]) -> str:
    """A value that is there, or a number."""
    if session.choices.chance(40):
        return "0.25"
    found = session.pick(
        lambda value: (
            value.is_float and value.rank == 0 and not (value.open or value.needs) and set(value.dims) <= set(dims)
        )
    )
    return found.name if found else "0.5"


def _case(session: Session, name: str, key: str, value: str) -> bool:
    return session.run(Statement(f"{name}[{key}] = {value}", extends=name))
