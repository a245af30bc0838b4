"""Statements that meet the world outside: inputs, random draws, parameters that stay, host calls, sinks, outputs."""

from __future__ import annotations

from dataclasses import dataclass

from tempo.conformance.random_programs import indices
from tempo.conformance.random_programs.description import Statement
from tempo.conformance.random_programs.pointwise import reduced
from tempo.conformance.random_programs.session import Session, Value
from tempo.conformance.random_programs.temporal import read_at

_SHAPES = ("()", "(3,)", "(2,)", "(2, 3)")
_DTYPES = ((10, "float32"), (4, "int32"), (2, "bool"), (1, "float64"), (1, "float16"), (1, "int8"))


def declare_dims(session: Session) -> None:
    """0 to 3 of the dims b, i, t; most with a size that is not known before the program runs."""
    count = session.choices.weighted([(50, 1), (30, 2), (12, 3), (4, 0)])
    names = {0: (), 1: ("t",), 2: session.choices.choice((("i", "t"), ("b", "t"))), 3: ("b", "i", "t")}[count]
    for name in names:
        size = session.choices.number(1, 4) if session.choices.chance(15) else None
        source = f'{name} = tp.dim("{name}"{"" if size is None else f", {size}"})'
        session.run(Statement(source, (name,)))
        session.dims[name] = size


def declare_input(session: Session) -> Value | None:
    choices = session.choices
    shapes = (*_SHAPES, *(f"({dim}.size,)" for dim in session.dims if choices.chance(25)))
    dims = tuple(dim for dim in session.dims if not choices.chance(30))
    shape, dtype = choices.choice(shapes), choices.weighted(_DTYPES)
    name = session.fresh("x")
    domain = f"({', '.join(dims)}{',' * (len(dims) == 1)})"
    how = "stream_input" if dims and choices.chance(8) else "input"
    source = f'{name} = tp.{how}("{name}", shape={shape}, dims={domain}, dtype=tp.{dtype})'
    if not session.run(Statement(source, (name,))):
        return None
    session.values.append(Value(name, session.lookup(name)))
    return session.values[-1]


def draw(session: Session) -> Value | None:
    """A random draw."""
    choices = session.choices
    dims = choices.some(tuple(session.dims), 60)
    domain = f"({', '.join(dims)}{',' * (len(dims) == 1)})"
    shape = choices.choice(_SHAPES)
    menu = [
        (3, (f"tp.random.uniform({shape}, dims={domain})", True)),
        (2, (f"tp.random.normal({shape}, dims={domain})", False)),
        (1, (f"tp.random.uniform({shape}, -1.0, 1.0, dims={domain}, dtype=tp.float64)", True)),
        (2, (f"tp.random.bernoulli(0.4, {shape}, dims={domain})", True)),
        (1, (f"tp.random.permutation(4, dims={domain})", True)),
        (1, (f"(tp.random.bits({shape}, dims={domain}) % 5).astype(tp.int32)", True)),
    ]
    x = session.pick(lambda value: value.is_float and value.rank > 0 and not value.ragged_axes and value.exact)
    if x is not None and choices.chance(20):
        return session.assign(f"tp.random.categorical({x.name})", (x,))
    source, exact = choices.weighted(menu)
    return session.assign(source, exact=exact)


def constant_parameter(session: Session) -> Value | None:
    """A parameter without cases: state that no run changes."""
    dims = session.choices.some(tuple(session.dims), 25)
    name = session.fresh("w")
    domain = f"({', '.join(dims)}{',' * (len(dims) == 1)})"
    init = session.choices.choice(("np.linspace(-1, 1, 3, dtype=np.float32)", "0.5"))
    if not session.run(Statement(f'{name} = tp.parameter("{name}", (3,), init={init}, dims={domain})', (name,))):
        return None
    session.values.append(Value(name, session.lookup(name)))
    return session.values[-1]


def _arguments(session: Session) -> tuple[tuple[Value, ...], tuple[str, ...]]:
    """What a host function is called with, and the dims of that."""
    found = []
    for _ in range(session.choices.number(1, 2)):
        value = session.pick(lambda value: not value.ragged_axes)
        if value is not None:
            found.append(session.discharged(value))
    dims = {dim for value in found for dim in value.dims}
    return tuple(value for value in found if not value.needs), tuple(dim for dim in session.dims if dim in dims)


@dataclass(frozen=True)
class _Call:
    """How a host function is called: its looped dims, those that order it, those that are batched, its resource."""

    looped: tuple[str, ...]
    ordered: tuple[str, ...]
    batched: tuple[str, ...]
    resource: str | None

    @property
    def recorded(self) -> str:
        return f"dims={self.looped!r}, ordered={self.ordered!r}, resource={self.resource!r}"

    @property
    def coordinates(self) -> str:
        return "".join(f", {dim}" for dim in self.looped)

    @property
    def keywords(self) -> str:
        resource = "" if self.resource is None else f', resource="{self.resource}"'
        return f"ordered_by={_tuple(self.ordered)}, batched={_tuple(self.batched)}{resource}"


def _order(session: Session, dims: tuple[str, ...], open: bool) -> _Call:
    choices, pattern = session.choices, session.pattern
    batched: tuple[str, ...] = ()
    if dims and dims[0] in ("b", "i") and choices.chance(40) and not (open and pattern and dims[0] in pattern.order):
        batched = dims[:1]
    rest = tuple(dim for dim in dims if dim not in batched)
    causal = not open or (pattern is not None and not pattern.backward and list(pattern.order) == sorted(pattern.order))
    ordered = rest if causal and choices.chance(60) else ()
    if ordered and choices.chance(20):
        ordered = ordered[-1:]
    resource = choices.weighted([(3, None), (1, "one"), (1, "two")])
    return _Call(rest, ordered, batched, resource)


def _tuple(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def host_call(session: Session) -> Value | None:
    """A recorded function as an operator; it gets the coordinates of its point as well."""
    arguments, dims = _arguments(session)
    call = _order(session, dims, any(value.open for value in arguments))
    shape = session.choices.choice(((), (3,), (2,)))
    dtype = session.choices.weighted(((4, "float32"), (2, "int32"), (1, "bool")))
    name = session.fresh("f")
    results = [((*call.batched, *shape), dtype)]
    out = [f"({shape!r}, tp.{dtype})"]
    if session.choices.chance(25):
        results.append((call.batched, "float32"))
        out.append("((), tp.float32)")
    place = session.choices.number(0, len(out) - 1)
    fails = f", fails_at={session.choices.number(0, 3)}" if session.choices.chance(4) else ""
    made = f'calls.function("{name}", {", ".join(map(repr, results))}, {call.recorded}{fails})'
    session.run(Statement(f"{name} = {made}", (name,)), function=True)
    given = ", ".join(value.name for value in arguments) or "1"
    called = f"tp.host_call({name}, {given}{call.coordinates}, out=[{', '.join(out)}], {call.keywords})"
    return session.assign(f"{called}[{place}]", arguments, exact=results[place][1] != "float32")


def backend_call(session: Session) -> Value | None:
    """A function of the backend, of arrays at every point or of all rows of a batched dim."""
    x = session.pick(lambda value: value.dtype in ("float32", "int32") and not value.ragged_axes)
    value = None if x is None else session.discharged(x)
    if value is None or value.needs:
        return None
    batched = value.dims[:1] if value.dims and not value.open and session.choices.chance(30) else ()
    place = session.choices.number(0, 1) if value.exact else 0
    out = f"[({value.name}.shape, {value.name}.dtype), ({value.name}.shape, tp.bool)]"
    called = f"tp.backend_call(own_step, {value.name}, out={out}, backend=own, batched={_tuple(batched)})"
    return session.assign(f"{called}[{place}]", (value,), exact=value.exact)


def sink(session: Session) -> None:
    """A recorded function that is called for its effect."""
    arguments, dims = _arguments(session)
    if not arguments or any(value.open for value in arguments):
        return
    call = _order(session, dims, False)
    name = session.fresh("f")
    session.run(Statement(f'{name} = calls.function("{name}", {call.recorded})', (name,)), function=True)
    given = ", ".join(value.name for value in arguments)
    session.run(Statement(f"tp.sink({name}, {given}{call.coordinates}, {call.keywords})", effect=True))


def output(session: Session, value: Value) -> bool:
    """`tp.output`, of the whole tensor or at points or slices of its dims."""
    whole: Value | None = session.discharged(value)
    while whole is not None and whole.ragged_axes:
        whole = reduced(session, whole, whole.ragged_axes[0])
    if whole is None or whole.needs:
        return False
    if whole.dims and session.choices.chance(30):
        whole = _part(session, whole)
    name = session.fresh("out")
    return session.run(Statement(f'tp.output("{name}", {whole.name})', effect=True))


def stop(session: Session) -> None:
    """An end of the run along one of the dims, by the point or by data, or of each row by itself. What reads later
    points, or other rows, is then refused."""
    if not session.dims:
        return
    t = session.choices.choice(tuple(session.dims))
    known = [value for value in session.values if value.rank == 0 and value.exact and value.is_float]
    usable = [value for value in known if not value.needs and not value.open]
    point = (1, (f"tp.as_tensor({t}) == 1", ()))
    condition, dims = session.choices.weighted([point, *((2, (f"{x.name} > 0.3", x.dims)) for x in usable[-2:])])
    rows = [dim for dim in dims if dim != t]
    each = f", each=({', '.join(rows)},)" if rows and session.choices.chance(50) else ""
    session.run(Statement(f"tp.stop_when({t}, {condition}{each})", effect=True))


def _part(session: Session, value: Value) -> Value:
    t = session.choices.choice(value.dims)
    size = f"{t}.size"
    menu = [indices.Index(source) for source in ("0", f"{size} - 1", "-1", f"{size} // 2")]
    menu += [
        indices.Index(source, slice=True) for source in (":", f"0:{size}", "0:1", f"{size} // 2:{size}", f"1:{size}")
    ]
    return read_at(session, value, {t: session.choices.choice(menu)}) or value
