"""Statements that read along dims: points, slices, gathers; and cases over dims."""

from __future__ import annotations

from tempo.conformance.random_programs import indices
from tempo.conformance.random_programs.indices import Index
from tempo.conformance.random_programs.session import Session, Value, shifted_needs

_MOST_DIMS = 3


def read(session: Session) -> Value | None:
    """`x[...]` at points and slices of some of its dims."""
    x = session.pick(lambda value: bool(value.dims) and not value.open)
    if x is None:
        return None
    changed = session.choices.some(x.dims, 60) or (session.choices.choice(x.dims),)
    chosen = {dim: _index(session, x, dim) for dim in changed}
    return read_at(session, x, chosen)


def _index(session: Session, x: Value, dim: str) -> Index:
    others = tuple(other for other in session.dims if other != dim)
    mentioned = any(indices.substituted(need, dim, "_") != need for need in x.needs)
    may_slice = not mentioned and not x.ragged_axes and x.rank < 3
    if may_slice and session.choices.chance(50):
        return indices.slices(dim, others, session.choices)
    return indices.points(dim, others, session.choices)


def read_at(session: Session, x: Value, chosen: dict[str, Index]) -> Value | None:
    """`x` with the indices for dims; what `x` needs must hold where it is read."""
    needs = x.needs
    for dim, index in chosen.items():
        if not index.slice:
            replacement = f"{dim}.size - 1" if index.source == "-1" else index.source
            needs = shifted_needs(needs, dim, replacement)
    for index in chosen.values():
        needs = (*needs, *index.needs)
    if session.choices.chance(2):
        needs = ()  # a program that may be wrong
    source = f"{x.name}[{', '.join(chosen[dim].source if dim in chosen else dim for dim in x.dims)}]"
    if session.choices.chance(10) and not any(index.slice for index in chosen.values()):
        source = f"{x.name}.at({', '.join(f'{dim}={index.source}' for dim, index in chosen.items())})"
    empty = any(index.may_be_empty for index in chosen.values())
    return session.assign(source, (x,), needs=needs, keep_needs=False, may_be_empty=x.may_be_empty or empty)


def read_earlier(session: Session) -> Value | None:
    """A read of an open recurrent tensor, or of what depends on one, at points that are made before."""
    pattern = session.pattern
    if pattern is None:
        return None
    x: Value | None = session.choices.choice(tuple(session.opened.values()))
    if session.choices.chance(20):
        x = session.pick(lambda value: bool(value.open) and set(pattern.order) <= set(value.dims)) or x
    assert x is not None
    place = session.choices.number(0, len(pattern.order) - 1)
    lags = {dim: pattern.lag_of(dim) if x.name in session.opened else 0 for dim in pattern.order}
    chosen: dict[str, Index] = {}
    for dim in pattern.order[:place]:
        if lags[dim]:
            chosen[dim] = _same_point(dim, lags[dim], dim in pattern.backward)
    dim = pattern.order[place]
    mentioned = any(indices.substituted(need, dim, "_") != need for need in x.needs)
    earlier = indices.earlier_points
    if not mentioned and not x.ragged_axes and x.rank < 3 and session.choices.chance(50):
        earlier = indices.earlier_slices
    chosen[dim] = earlier(dim, lags[dim], dim in pattern.backward, session.choices)
    for dim in pattern.order[place + 1 :]:
        if session.choices.chance(30):
            chosen[dim] = _index(session, x, dim)
    return read_at(session, x, chosen)


def _same_point(dim: str, lag: int, backward: bool) -> Index:
    if backward:
        return Index(f"{dim} - {lag}", (f"{dim} >= {lag}",))
    return Index(f"{dim} + {lag}", (f"{dim} < {dim}.size - {lag}",))


def cases(session: Session) -> Value | None:
    """`tp.cases` over a condition on a dim."""
    if not session.dims:
        return None
    x = session.pick(lambda value: value.dtype != "bool" and not value.may_be_empty)
    if x is None:
        return None
    y = session.pick(lambda other: other.shape == x.shape and other.dtype == x.dtype)
    if y is None:
        return None
    t = session.choices.choice(tuple(session.dims))
    condition = session.choices.choice(conditions(session, t))
    guarded = (condition, f"{t} == 0")[: session.choices.number(1, 2)]
    branches = ", ".join(f"({text}, {value.name})" for text, value in zip(guarded, (y, x)))
    if set(x.needs) - set(y.needs) and session.choices.chance(50):
        return None
    return session.assign(f"tp.cases({branches}, {x.name})", (x, y))


def conditions(session: Session, t: str) -> tuple[str, ...]:
    """Conditions over the dim, some also over another."""
    size = f"{t}.size"
    found = [f"{t} == 0", f"{t} < 2", f"{t} % 2 == 0", f"{t} >= 3", f"{t} == {size} - 1", f"{t} % 3 == 1"]
    found += [f"({t} > 0) & ({t} < 4)", f"({t} == 0) | ({t} == 2)", f"~({t} == 1)", f"{t} + 1 < {size}"]
    found += [f"2 * {t} < {size}", f"{size} > 2", f"{t} // 2 == 1"]
    for s in session.dims:
        if s != t:
            found += [f"{t} <= {s}", f"{t} == {s}", f"({t} + {s}) % 2 == 0"]
    return tuple(found)


def gather(session: Session) -> Value | None:
    """`x.gather(t, index, within=...)` with an index that is clamped into the promise, or nearly always in range."""
    x = session.pick(lambda value: bool(value.dims) and not value.open and not value.needs and not value.ragged_axes)
    index = session.pick(lambda value: value.is_integer and value.rank < 2 and not value.ragged_axes)
    if x is None or index is None or x.rank > 2:
        return None
    t = session.choices.choice(x.dims)
    bounds = [("0", f"{t}.size"), ("0", f"{t}.size")]
    if t in index.dims or len({*index.dims, *x.dims}) <= _MOST_DIMS:
        bounds += [("0", f"{t} + 1"), (f"tp.max({t} - 2, 0)", f"{t} + 1"), (t, f"{t}.size")]
    low, high = session.choices.choice(bounds)
    inside = session.choices.weighted(
        [
            (6, f"tp.minimum(tp.maximum({index.name}, {low}), {high} - 1)"),
            (3, f"{low} + tp.abs({index.name}) % ({high} - {low})"),
            (1, index.name),
        ]
    )
    within = f", within=slice({low}, {high})" if (low, high) != ("0", f"{t}.size") or session.choices.chance(50) else ""
    return session.assign(f"{x.name}.gather({t}, {inside}{within})", (x, index))
