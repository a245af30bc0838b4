"""Definitions by cases: recurrent tensors and parameters, alone or several that need one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tempo.conformance.random_programs import temporal
from tempo.conformance.random_programs.description import Statement
from tempo.conformance.random_programs.pointwise import reduced
from tempo.conformance.random_programs.session import Pattern, Session, Value

_SHAPES = ((), (2,), (3,), (2, 3))
_DTYPES = ((8, "float32"), (3, "int32"), (1, "float64"), (1, "bool"), (1, "float16"))
Step = Callable[[Session], "Value | None"]


@dataclass(frozen=True)
class _Declared:
    """A recurrent tensor that is declared and not yet defined."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    parameter: bool


def define(session: Session, steps: Sequence[tuple[int, Step]]) -> Value | None:
    """Declare one or two recurrent tensors, draw their bodies from `steps`, and define them by cases."""
    if session.opened or not session.dims or session.recurrences >= 3:
        return None
    session.recurrences += 1
    dims = session.choices.some(tuple(session.dims), 60) or (session.choices.choice(tuple(session.dims)),)
    session.pattern = _pattern(session, dims)
    declared = [_declare(session, dims) for _ in range(2 if session.choices.chance(25) else 1)]
    for one in declared:
        _define(session, one, steps)
    session.close()
    for one in declared:
        tensor = session.lookup(one.name)
        session.values.append(Value(one.name, tensor, exact=one.dtype in ("int32", "bool")))
    return session.values[-1]


def _pattern(session: Session, dims: tuple[str, ...]) -> Pattern:
    """Which dims are ordered, in which order and directions; the last of them may be written with a shift."""
    along = session.choices.some(dims, 60) or (session.choices.choice(dims),)
    order = tuple(reversed(along)) if session.choices.chance(25) else along
    backward = frozenset(session.choices.some(order, 25))
    shifted = session.choices.choice(order) if session.choices.chance(50) else None
    return Pattern(order, backward, shifted, session.choices.weighted([(4, 1), (1, 2)]) if shifted else 0)


def _declare(session: Session, dims: tuple[str, ...]) -> _Declared:
    choices = session.choices
    shape, dtype = choices.choice(_SHAPES), choices.weighted(_DTYPES)
    parameter = choices.chance(15)
    name = session.fresh("w" if parameter else "h")
    domain = f"({', '.join(dims)},)"
    if parameter:
        init = _initial(session, shape, dtype)
        source = f'{name} = tp.parameter("{name}", {shape}, init={init}, dims={domain}, dtype=tp.{dtype})'
    else:
        source = f'{name} = tp.recurrent("{name}", shape={shape}, dims={domain}, dtype=tp.{dtype})'
    if not session.run(Statement(source, (name,))):
        raise AssertionError(f"a declaration was refused: {source}")
    value = Value(name, session.lookup(name), open=frozenset({name}), exact=dtype in ("int32", "bool"))
    session.opened[name] = value
    return _Declared(name, shape, dtype, dims, parameter)


def _initial(session: Session, shape: tuple[int, ...], dtype: str) -> str:
    if dtype == "bool":
        return "True"
    if dtype == "int32":
        return session.choices.choice(("2", f"np.full({shape}, 3, np.int32)"))
    draw = "lambda shape, dims, dtype: tp.random.uniform(shape, dims=dims).astype(dtype)"
    return session.choices.choice(("0.5", f"np.full({shape}, 0.25, np.float32)", draw))


def _define(session: Session, declared: _Declared, steps: Sequence[tuple[int, Step]]) -> None:
    """Cases for the first points along every ordered dim, then the one that reads the tensor."""
    pattern = session.pattern
    assert pattern is not None
    last = temporal.read_earlier(session)
    for _ in range(session.choices.number(1, 5)):
        step = session.choices.weighted([(4, temporal.read_earlier), *steps])
        last = step(session) or last
    body = _body(session, declared, last) or _least_body(session, declared)
    implied = _base_cases(session, declared, pattern, body)
    if body is None:
        _case(session, declared, "True", _constant(declared.dtype))
        return
    needs = tuple(need for need in body.needs if need not in implied)
    if needs and not session.choices.chance(2):
        body = session.discharged(Value(body.name, body.tensor, needs, body.open, body.exact))
    left = _left_side(session, declared, pattern)
    if not _case(session, declared, left, body.name):
        _case(session, declared, "True", _constant(declared.dtype))


def _body(session: Session, declared: _Declared, last: Value | None) -> Value | None:
    """A value that fits, preferably one that reads the tensor; bounded, so that no run explodes."""
    fitting = [
        value
        for value in session.values
        if value.open and set(value.dims) <= set(declared.dims) and value.name not in session.opened
    ]
    if not fitting:
        return None
    chosen = last if last in fitting else session.choices.choice(fitting[-3:])
    return _fitted(session, chosen, declared)


def _least_body(session: Session, declared: _Declared) -> Value | None:
    """A read of the tensor itself at the point before."""
    pattern = session.pattern
    assert pattern is not None
    dim = pattern.order[-1]
    lag = pattern.lag_of(dim)
    backward = dim in pattern.backward
    offset = 1 - lag if backward else lag - 1
    index = dim if offset == 0 else f"{dim} {'+' if offset > 0 else '-'} {abs(offset)}"
    needs = {1: (f"{dim} < {dim}.size - 1",), -1: (f"{dim} >= 1",)}.get(offset, ())
    own = session.opened[declared.name]
    read = session.assign(f"{own.name}[{_key(declared, {dim: index})}]", (own,), needs=needs)
    return _of_kind(session, read, declared.dtype) if read else None


def _fitted(session: Session, value: Value, declared: _Declared) -> Value | None:
    """The value with the shape and kind of what it defines."""
    shape = tuple(str(size) for size in declared.shape)
    current: Value | None = value
    while current is not None and current.rank > 0 and current.shape != shape:
        tail = shape[len(shape) - current.rank :]
        if current.rank <= len(shape) and current.shape == tail and not current.ragged_axes:
            break
        current = reduced(session, current, 0)
    return None if current is None else _of_kind(session, current, declared.dtype)


def _of_kind(session: Session, value: Value, dtype: str) -> Value | None:
    if dtype == "bool":
        if value.dtype == "bool":
            return value
        number = "0.25" if value.is_float else "1"
        return session.assign(f"{value.name} < {number}", (value,)) if value.exact else None
    if dtype == "int32":
        if value.is_float:
            return session.assign(f"({value.name} > 0.25).astype(tp.int32)", (value,)) if value.exact else None
        if value.dtype == "bool":
            return session.assign(f"{value.name}.astype(tp.int32)", (value,))
        return session.assign(f"({value.name} % 7).astype(tp.int32)", (value,))
    source = f"tp.tanh({value.name})"
    if value.dtype != dtype and session.choices.chance(70):
        source += f".astype(tp.{dtype})"
    return session.assign(source, (value,), exact=False)


def _base_cases(session: Session, declared: _Declared, pattern: Pattern, body: Value | None) -> frozenset[str]:
    """Cases that need nothing, written first; what holds where none of them does."""
    implied: set[str] = set()
    needs = body.needs if body else ()
    for dim in pattern.order:
        if dim == pattern.shifted:
            implied |= _shifted_bases(session, declared, pattern, dim, needs)
        else:
            implied |= _bases(session, declared, dim, dim in pattern.backward, needs)
    return frozenset(implied)


def _shifted_bases(session: Session, declared: _Declared, pattern: Pattern, dim: str, needs: Sequence[str]) -> set[str]:
    """The first `lag` points, which a shifted case does not reach."""
    backward = dim in pattern.backward
    for point in range(pattern.lag):
        position = f"{dim}.size - {point + 1}" if backward else str(point)
        if not declared.parameter or session.choices.chance(30):
            _case(session, declared, _key(declared, {dim: position}), _base_value(session, declared))
    return {f"{dim} >= {pattern.lag}"} if backward else {f"{dim} < {dim}.size - {pattern.lag}"}


def _bases(session: Session, declared: _Declared, dim: str, backward: bool, needs: Sequence[str]) -> set[str]:
    """As many first points as the body needs, and sometimes more."""
    wanted = [k for k in range(1, 5) if (f"{dim} < {dim}.size - {k}" if backward else f"{dim} >= {k}") in needs]
    count = max(wanted, default=1) if session.choices.chance(70) else session.choices.number(1, 3)
    if declared.parameter and not session.choices.chance(30):
        return set()
    style = session.choices.weighted([(4, "points"), (2, "range"), (1, "parity"), (1, "overlapping")])
    if style == "parity":
        even = f"({dim}.size - 1 - {dim}) % 2 == 0" if backward else f"{dim} % 2 == 0"
        _case(session, declared, even, _base_value(session, declared))
        count = 1
    elif style == "points":
        for point in range(count):
            position = (
                (f"-{point + 1}" if session.choices.chance(30) else f"{dim}.size - {point + 1}")
                if backward
                else str(point)
            )
            _case(session, declared, _key(declared, {dim: position}), _base_value(session, declared))
    else:
        for bound in (1, count) if style == "overlapping" and count > 1 else (count,):
            condition = f"{dim} >= {dim}.size - {bound}" if backward else f"{dim} < {bound}"
            _case(session, declared, condition, _base_value(session, declared))
    if backward:
        return {f"{dim} < {dim}.size - {k}" for k in range(1, count + 1)}
    return {f"{dim} >= {k}" for k in range(1, count + 1)}


def _base_value(session: Session, declared: _Declared) -> str:
    """What needs no recurrent tensor that is open; a number if nothing else fits."""
    found = [
        value
        for value in session.values
        if not value.open and not value.ragged_axes and set(value.dims) <= set(declared.dims) and not value.may_be_empty
    ]
    if not found or session.choices.chance(30):
        return _constant(declared.dtype)
    value = _fitted(session, session.discharged(session.choices.choice(found[-6:])), declared)
    return value.name if value and not value.open else _constant(declared.dtype)


def _constant(dtype: str) -> str:
    return {"bool": "True", "int32": "1"}.get(dtype, "0.25")


def _key(declared: _Declared, positions: dict[str, str]) -> str:
    return ", ".join(positions.get(dim, dim) for dim in declared.dims)


def _left_side(session: Session, declared: _Declared, pattern: Pattern) -> str:
    dim = pattern.shifted
    if dim is None:
        return "True" if session.choices.chance(50) else _key(declared, {})
    position = f"{dim} - {pattern.lag}" if dim in pattern.backward else f"{dim} + {pattern.lag}"
    return _key(declared, {dim: position})


def _case(session: Session, declared: _Declared, key: str, value: str) -> bool:
    return session.run(Statement(f"{declared.name}[{key}] = {value}", extends=declared.name))
