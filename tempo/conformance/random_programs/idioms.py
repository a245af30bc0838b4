"""Statements that programs over time are made of: attention over a prefix, windows, discounted sums, caches."""

from __future__ import annotations

from tempo.conformance.random_programs import indices
from tempo.conformance.random_programs.description import Statement
from tempo.conformance.random_programs.session import Session, Value
from tempo.conformance.random_programs.temporal import read_at


def _sliced(session: Session, x: Value, t: str) -> Value | None:
    others = tuple(dim for dim in session.dims if dim != t)
    index = indices.slices(t, others, session.choices)
    return None if index.may_be_empty else read_at(session, x, {t: index})


def _readable(value: Value) -> bool:
    return bool(value.dims) and not value.open and not value.needs and not value.ragged_axes and value.is_float


def attention(session: Session) -> Value | None:
    """The mean of a slice of values, weighted by the softmax of their products with a query."""
    values = session.pick(lambda value: _readable(value) and value.rank == 1)
    if values is None:
        return None
    query = session.pick(lambda value: value.is_float and value.shape == values.shape)
    seen = _sliced(session, values, session.choices.choice(values.dims))
    if seen is None or query is None:
        return None
    scores = session.assign(f"{seen.name} @ {query.name}", (seen, query), exact=False)
    if scores is None:
        return None
    weights = session.assign(f"tp.softmax({scores.name}, axis=0)", (scores,), exact=False)
    if weights is None:
        return None
    return session.assign(f"{weights.name} @ {seen.name}", (weights, seen), exact=False)


def window(session: Session) -> Value | None:
    """A reduction of a slice, at once."""
    x = session.pick(lambda value: _readable(value) and value.rank < 3)
    if x is None:
        return None
    seen = _sliced(session, x, session.choices.choice(x.dims))
    if seen is None:
        return None
    function = session.choices.choice(("sum", "mean", "max", "logsumexp", "min"))
    return session.assign(f"tp.{function}({seen.name}, axis=0)", (seen,), exact=function in ("max", "min"))


def discounted(session: Session) -> Value | None:
    """The sum of a slice, each element by a power of a factor that its distance from the start gives."""
    x = session.pick(lambda value: _readable(value) and value.rank == 0)
    if x is None:
        return None
    seen = _sliced(session, x, session.choices.choice(x.dims))
    if seen is None:
        return None
    length = "(" + seen.shape[0] + ")"
    length = length.replace("min(", "tp.min(").replace("max(", "tp.max(")
    powers = session.assign(f"0.9 ** tp.arange({length}).astype(tp.float32)", exact=False)
    if powers is None:
        return None
    product = session.assign(f"{seen.name} * {powers.name}", (seen, powers), exact=False)
    return session.assign(f"tp.sum({product.name}, axis=0)", (product,), exact=False) if product else None


def growing(session: Session) -> Value | None:
    """A recurrent tensor that holds everything so far, or everything to come, as a cache does."""
    x = session.pick(lambda value: _readable(value) and value.rank < 2)
    if x is None:
        return None
    t = session.choices.choice(x.dims)
    backward = session.choices.chance(30)
    name = session.fresh("h")
    length = f"{t}.size - {t}" if backward else f"{t} + 1"
    declared = f'tp.recurrent("{name}", shape=({", ".join([length, *x.shape])},), dims=({", ".join(x.dims)},)'
    if not session.run(Statement(f"{name} = {declared}, dtype=tp.{x.dtype})", (name,))):
        return None
    before = ", ".join((f"{t} + 1" if backward else f"{t} - 1") if dim == t else dim for dim in x.dims)
    row = f"tp.expand_dims({x.name}, 0)"
    parts = f"{row}, {name}[{before}]" if backward or session.choices.chance(30) else f"{name}[{before}], {row}"
    first = f"{t}.size - 1" if backward else "0"
    key = ", ".join(first if dim == t else dim for dim in x.dims)
    session.run(Statement(f"{name}[{key}] = {row}", extends=name))
    if not session.run(Statement(f"{name}[True] = tp.concatenate([{parts}], axis=0)", extends=name)):
        return None
    session.values.append(Value(name, session.lookup(name), exact=x.exact))
    return session.values[-1]
