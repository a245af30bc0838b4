"""Statements that work on the shape: elementwise operators, reductions, contractions, movement."""

from __future__ import annotations

from tempo.conformance.random_programs.session import Session, Value

_UNARY_FLOAT = ("tp.tanh({})", "-{}", "tp.abs({})", "tp.sin({})", "tp.exp(-tp.abs({}))", "tp.sqrt(tp.abs({}))",
                "tp.sigmoid({})", "tp.relu({})", "tp.clip({}, -0.5, 0.75)", "{} * 0.5", "1 - {}",
                "tp.square(tp.sin({}))", "tp.log1p(tp.abs({}))", "tp.gelu({})", "tp.softplus({})")  # fmt: skip
_EXACT_FLOAT = frozenset({"-{}", "tp.abs({})", "tp.relu({})", "tp.clip({}, -0.5, 0.75)", "{} * 0.5", "1 - {}"})
_UNARY_INT = ("{} % 3", "{} // 2", "-{}", "tp.abs({})", "{} + 1", "{} * 2 % 7", "tp.minimum({}, 2)", "{} & 3")
_BINARY = ("{} + {}", "{} - {}", "{} * {}", "tp.maximum({}, {})", "tp.minimum({}, {})")
_COMPARISONS = ("{} < {}", "{} >= {}", "{} == {}", "{} != {}")
_CASTS = {
    "bool": ("int32", "float32", "float16", "uint8"),
    "int32": ("float32", "float64", "int64", "int8", "float16"),
    "int64": ("int32", "float64"),
    "int8": ("int32", "float32"),
    "uint8": ("int32", "float32"),
    "float16": ("float32", "float64"),
    "float32": ("float64", "float16"),
    "float64": ("float32", "float16"),
}


def unary(session: Session) -> Value | None:
    x = session.pick()
    if x is None:
        return None
    if x.dtype == "bool":
        return session.assign(f"~{x.name}", (x,), may_be_empty=x.may_be_empty)
    template = session.choices.choice(_UNARY_FLOAT if x.is_float else _UNARY_INT)
    exact = not x.is_float or template in _EXACT_FLOAT
    return session.assign(template.format(x.name), (x,), exact=exact, may_be_empty=x.may_be_empty)


def cast(session: Session) -> Value | None:
    x = session.pick()
    if x is None or x.dtype not in _CASTS:
        return None
    dtype = session.choices.choice(_CASTS[x.dtype])
    return session.assign(f"{x.name}.astype(tp.{dtype})", (x,), may_be_empty=x.may_be_empty)


def partner(session: Session, x: Value, same_kind: bool = False) -> Value | None:
    """A value that broadcasts with `x`, whose dims together are few."""
    return session.pick(
        lambda other: _broadcast(other.shape, x.shape) and (not same_kind or other.is_float == x.is_float)
    )


def _broadcast(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    return all(a == b or "1" in (a, b) for a, b in zip(reversed(left), reversed(right)))


def _wider(x: Value, y: Value) -> Value:
    return x if x.rank >= y.rank else y


def binary(session: Session) -> Value | None:
    x = session.pick()
    if x is None:
        return None
    if x.dtype == "bool":
        return _logical(session, x)
    if session.choices.chance(15):
        scalar = session.choices.choice(_scalars(session, x))
        source = session.choices.choice(("{} + {}", "{} * {}", "{} - {}")).format(x.name, scalar)
        return session.assign(source, (x,), may_be_empty=x.may_be_empty)
    y = partner(session, x)
    if y is None or y.dtype == "bool":
        return None
    template = session.choices.choice(_BINARY)
    return session.assign(
        template.format(x.name, y.name), (x, y), may_be_empty=_wider(x, y).may_be_empty, exact=x.is_float == y.is_float
    )


def _scalars(session: Session, x: Value) -> tuple[str, ...]:
    """A number, and index expressions as tensors."""
    dims = x.dims or tuple(session.dims)
    number = "0.75" if x.is_float else "2"
    if not dims:
        return (number,)
    t = session.choices.choice(dims)
    return (number, t, f"({t} % 2)", f"({t}.size - {t})", f"({t} > 1)", f"tp.min({t}, 2)")


def _logical(session: Session, x: Value) -> Value | None:
    y = session.pick(lambda other: other.dtype == "bool" and _broadcast(other.shape, x.shape))
    if y is None:
        return None
    source = session.choices.choice(("{} & {}", "{} | {}", "{} ^ {}")).format(x.name, y.name)
    return session.assign(source, (x, y), may_be_empty=_wider(x, y).may_be_empty)


def compare(session: Session) -> Value | None:
    x = session.pick(lambda value: value.exact and value.dtype != "bool")
    if x is None:
        return None
    template = session.choices.choice(_COMPARISONS)
    if session.choices.chance(40):
        number = "0.25" if x.is_float else "1"
        return session.assign(template.format(x.name, number), (x,), may_be_empty=x.may_be_empty)
    y = session.pick(lambda other: other.exact and other.dtype == x.dtype and _broadcast(other.shape, x.shape))
    if y is None:
        return None
    return session.assign(template.format(x.name, y.name), (x, y), may_be_empty=_wider(x, y).may_be_empty)


def where(session: Session) -> Value | None:
    mask = session.pick(lambda value: value.dtype == "bool")
    x = session.pick(lambda value: value.dtype != "bool")
    if mask is None or x is None or not _broadcast(mask.shape, x.shape):
        return None
    if session.choices.chance(50):
        number = "0.5" if x.is_float else "3"
        return session.assign(
            f"tp.where({mask.name}, {x.name}, {number})", (mask, x), may_be_empty=_wider(mask, x).may_be_empty
        )
    y = partner(session, x, same_kind=True)
    if y is None or y.dtype == "bool":
        return None
    return session.assign(f"tp.where({mask.name}, {x.name}, {y.name})", (mask, x, y))


def reduce(session: Session) -> Value | None:
    x = session.pick(lambda value: value.rank > 0 and bool(value.ragged_axes)) if session.choices.chance(60) else None
    x = x or session.pick(lambda value: value.rank > 0)
    if x is None:
        return None
    return reduced(session, x, session.choices.number(0, x.rank - 1))


def reduced(session: Session, x: Value, axis: int) -> Value | None:
    """`x` reduced along the axis, by what its dtype and emptiness allow."""
    empty = x.may_be_empty and axis == 0
    menu: list[tuple[int, tuple[str, bool]]]
    if x.dtype == "bool":
        menu = [(1, ("any", True)), (1, ("all", True)), (1, ("sum", True))]
    else:
        menu = [(3, ("sum", not x.is_float))]
        if not empty:
            menu += [(2, ("max", True)), (1, ("min", True)), (2, ("mean", False))]
            menu += [(1, ("logsumexp", False)), (1, ("std", False))] if x.is_float else [(1, ("argmin", True))]
            menu += [(2, ("argmax", True))] if x.exact else []
        if x.is_float:
            menu += [(1, ("prod", False))]
    function, exact = session.choices.weighted(menu)
    argument = f"tp.tanh({x.name})" if function in ("prod", "logsumexp") else x.name
    keep = ", keepdims=True" if session.choices.chance(15) else ""
    return session.assign(
        f"tp.{function}({argument}, axis={axis}{keep})", (x,), exact=exact, may_be_empty=x.may_be_empty and not empty
    )


def scan(session: Session) -> Value | None:
    x = session.pick(lambda value: value.rank > 0 and value.dtype != "bool")
    if x is None:
        return None
    axis = session.choices.number(0, x.rank - 1)
    menu = [(3, ("cumsum", not x.is_float)), (2, ("flip", True)), (2, ("sort", True))]
    if x.is_float and not (axis == 0 and x.may_be_empty):
        menu += [(3, ("softmax", False)), (1, ("log_softmax", False))]
    if x.exact:
        menu += [(1, ("argsort", True))]
    function, exact = session.choices.weighted(menu)
    return session.assign(f"tp.{function}({x.name}, axis={axis})", (x,), exact=exact, may_be_empty=x.may_be_empty)


def contract(session: Session) -> Value | None:
    x = session.pick(lambda value: value.rank > 0 and value.is_float)
    if x is None:
        return None
    axis = session.choices.number(0, x.rank - 1)
    y = session.pick(lambda other: x.shape[axis] in other.shape and other.is_float and other.rank <= 2)
    if y is None or x.rank + y.rank > 5:
        return None
    letters, along = "abcd"[: x.rank], y.shape.index(x.shape[axis])
    theirs = "".join(letters[axis] if place == along else "xyz"[place] for place in range(y.rank))
    kept = letters.replace(letters[axis], "") + theirs.replace(letters[axis], "")
    if session.choices.chance(15):
        kept += letters[axis]
    source = f'tp.einsum("{letters},{theirs}->{kept}", {x.name}, {y.name})'
    if axis == x.rank - 1 and along == max(y.rank - 2, 0) and session.choices.chance(60):
        source = f"{x.name} @ {y.name}"
    return session.assign(source, (x, y), exact=False)


def convolve(session: Session) -> Value | None:
    """Along the last axis, with a kernel of two taps or with a value; padding makes most kernels fit."""

    def fits(value: Value) -> bool:
        return 0 < value.rank < 3 and value.is_float and not value.may_be_empty

    x = session.pick(lambda value: fits(value) and bool(value.ragged_axes)) if session.choices.chance(60) else None
    x = x or session.pick(fits)
    if x is None:
        return None
    rank, channels = x.rank, x.shape[:-1]
    y = session.pick(lambda other: fits(other) and other.rank == rank and other.shape[:-1] == channels)
    ones = "None, None" if rank == 1 else "None"
    options = session.choices.weighted(
        [(4, ", padding=((7, 0),)"), (2, ", padding=((6, 4),), strides=2"), (1, ", padding=9, dilation=2"), (2, "")]
    )
    taps = f"tp.full((2, {channels[0] if channels else 1}, 2), 0.5)"
    operands: tuple[Value, ...] = (x,)
    if y is not None and session.choices.chance(50):
        taps, operands = f"{y.name}.spatial[{ones}]", (x, y)
    source = f"tp.conv({x.name}.spatial[{ones}], {taps}{options}).spatial[0]"
    return session.assign(source, operands, exact=False, may_be_empty=not options)


def move(session: Session) -> Value | None:
    x = session.pick(lambda value: value.rank > 0)
    if x is None:
        return None
    menu = [
        (2, f"tp.expand_dims({x.name}, {session.choices.number(0, x.rank)})"),
        (1, f"tp.stack([{x.name}, {x.name}])"),
    ]
    if x.rank > 1:
        menu += [(4, f"tp.swapaxes({x.name}, 0, {x.rank - 1})"), (3, f"{x.name}.reshape(-1)")]
    menu += [(2, f"tp.flip({x.name}, 0)"), (1, f"tp.broadcast_to({x.name}, (2, {', '.join(_sizes(x))}))")]
    menu += [(1, f"tp.roll({x.name}, 1, axis={x.rank - 1})"), (1, f"tp.pad({x.name}, [(1, 0)] * {x.rank})")]
    return session.assign(session.choices.weighted(menu), (x,), may_be_empty=x.may_be_empty)


def _sizes(x: Value) -> list[str]:
    return list(x.shape)


def concatenate(session: Session) -> Value | None:
    x = session.pick(lambda value: value.rank > 0 and value.dtype != "bool")
    if x is None:
        return None
    y = session.pick(lambda other: other.rank == x.rank and other.dtype == x.dtype and other.shape[1:] == x.shape[1:])
    if y is None:
        return None
    pair = [x.name, y.name] if session.choices.chance(50) else [y.name, x.name]
    return session.assign(
        f"tp.concatenate([{', '.join(pair)}], axis=0)", (x, y), may_be_empty=x.may_be_empty and y.may_be_empty
    )


def spatial(session: Session) -> Value | None:
    """A part of the shape: by numbers, and by index expressions where the axis is a dim's size."""
    x = session.pick(lambda value: value.rank > 0 and not value.may_be_empty)
    if x is None:
        return None
    size = x.shape[0]
    menu: list[tuple[int, tuple[str, tuple[str, ...]]]] = [
        (2, ("0", ())),
        (2, ("-1", ())),
        (1, ("::-1", ())),
        (1, ("::2", ())),
        (2, ("..., None", ())),
    ]
    for t in session.dims:
        if size == f"{t}.size":
            menu += [(4, (t, ())), (3, (f"0:{t} + 1", ())), (2, (f"{t}.size - 1 - {t}", ())), (2, (f"{t}:", ()))]
            menu += [(2, (f"{t} + 1", (f"{t} + 1 < {t}.size",))), (1, (f"tp.max({t} - 2, 0):{t} + 1", ()))]
        if size == "3":
            menu += [(2, (f"{t} % 3", ())), (1, (f"tp.min({t}, 2)", ())), (1, (f"0:{t} % 3 + 1", ()))]
    key, needs = session.choices.weighted(menu)
    return session.assign(f"{x.name}.spatial[{key}]", (x,), needs=needs)


def one_hot(session: Session) -> Value | None:
    x = session.pick(lambda value: value.is_integer and value.rank < 2)
    if x is None:
        return None
    classes = session.choices.choice(("3", "2", *(f"{t}.size" for t in session.dims)))
    return session.assign(f"tp.one_hot({x.name}, {classes})", (x,), may_be_empty=x.may_be_empty)


def create(session: Session) -> Value | None:
    """Tensors from nothing: ranges whose length is an index expression, constants, index expressions."""
    menu = [(1, "tp.arange(3)"), (1, "tp.constant(np.linspace(-1, 1, 3, dtype=np.float32))")]
    menu += [(1, "tp.full((2,), 0.5)")]
    for t in session.dims:
        menu += [
            (2, f"tp.arange({t} + 1)"),
            (1, f"tp.arange({t}.size)"),
            (1, f"tp.as_tensor({t})"),
            (1, f"tp.eye({t}.size, 3)"),
        ]
    return session.assign(session.choices.weighted(menu))


def gather(session: Session) -> Value | None:
    """Read along an axis of the shape at integer values, which are in range by clamping, or nearly always."""
    index = session.pick(lambda value: value.is_integer and value.rank < 2)
    x = session.pick(lambda value: 0 < value.rank < 3 and not value.may_be_empty)
    if index is None or x is None:
        return None
    last = f"({x.shape[0]}) - 1"
    inside = session.choices.weighted(
        [(6, f"tp.clip({index.name}, 0, {last})"), (4, f"tp.abs({index.name}) % ({x.shape[0]})"), (1, index.name)]
    )
    source = session.choices.choice((f"{x.name}.spatial[{inside}]", f"tp.take({x.name}, {inside}, axis=0)"))
    return session.assign(source, (x, index))


def sort_by(session: Session) -> Value | None:
    x = session.pick(lambda value: value.rank > 0 and value.exact and value.dtype != "bool")
    if x is None:
        return None
    axis = x.rank - 1
    return session.assign(f"tp.take_along_axis({x.name}, tp.argsort({x.name}, axis={axis}), axis={axis})", (x,))
