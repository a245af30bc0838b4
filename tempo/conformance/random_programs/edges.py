"""Programs at the edges of the language: cases that read slices of one another under gradients, slices of negative
length, strides, NumPy values in every place of a number, and names that are words of Python or of our own.

Everything else of a random program stands beside it (`generator.py`), less often.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from tempo.conformance.random_programs import outside, pointwise
from tempo.conformance.random_programs.agreement import Situation
from tempo.conformance.random_programs.choices import Choices
from tempo.conformance.random_programs.description import RandomProgram, Statement
from tempo.conformance.random_programs.gradients import comparable, depends, total_loss
from tempo.conformance.random_programs.session import Session, Value
from tempo.language.program import Program

_FLOATS = ((5, "float32"), (4, "float64"), (1, "float16"))
_SMOOTH = ("float32", "float64")
_MOST_CASES = 3
_SIZES = (1, 2, 3, 5, 7)
_RUNS = 3

DIM_NAMES = (
    "t",
    "𝑡",
    "µ",
    "μ",
    "λ",
    "é",
    "class",
    "lambda",
    "None",
    "np",
    "size",
    "_",
    "t_block",
    "t_in",
    "t_known",
    "wave",
)
"""Two of them are one name to Python, twice; others are ours, or words that cannot stand in a call."""
TENSOR_NAMES = ("import", "x y", "données", "µ", "μ", "t.size", "1", "%3", "a\\nb", "self", "{}")

_SLICES = (
    *("0:{t}", "{t} + 1:{n}", "{t}:{n}", "0:{t} + 1", "tp.max({t} - 2, 0):{t}", "{t}:tp.min({t} + 2, {n})", "1:{n}"),
    # of negative length at some points, which are none
    *("{t}:{n} - {t}", "{n} - {t}:{t}", "{n} - {t}:{t} + 1", "{t} + 1:{t}", "{n} - 1 - {t}:{t} // 2", "1:{t}"),
    *("{t}:{n} - 1", "tp.min({t} + 2, {n}):{t}", "({t} // 2) * 2:{t}", "{t}:tp.min(2 * {t}, {n})", "0:{n} - 1"),
)
_POINTS = (
    *("tp.max({t} - 1, 0)", "tp.min({t} + 1, {n} - 1)", "{t} // 2", "({t} // 2) * 2", "{n} - 1 - {t}", "{t} % 2", "0"),
    *("tp.min(2 * {t}, {n} - 1)", "tp.max({t} - 2, 0)", "{n} - 1", "tp.max({n} - 1 - 2 * {t}, 0)", "-1"),
)
_EARLIER = ("0:{t}", "tp.max({t} - 2, 0):{t}", "1:{t}", "{t} // 2:{t}", "0:{t} // 2", "{n} - {t}:{t}", "{t} + 1:{t}")
_LATER = ("{t} + 1:{n}", "{t} + 1:tp.min({t} + 3, {n})", "{t} + 1:{n} - 1", "{t} + 1:{n} - {t}", "{t} + 1:{t}")
_CONDITIONS = (
    *("{t} < 1", "{t} % 2 == 0", "{t} + 1 == {n}", "{t} >= 2", "{t} % 3 == 1", "{t} < {n} - 2", "2 * {t} < {n}"),
    *("({t} > 0) & ({t} < 4)", "({t} == 0) | ({t} == 2)", "{n} > 2", "{t} >= {n} - {t}"),
)
_REDUCTIONS = ((6, "{}.sum(axis=0)"), (1, "{}.prod(axis=0)"), (2, "{}.mean(axis=0)"), (1, "{}.max(axis=0)"))
_NUMBERS = (
    *("np.float64(0.1)", "np.sqrt(2.0)", "np.float32(0.1)", "np.array(0.3)", "np.array([0.1])", "np.int64(2)", "0.1"),
    *("np.pi", "np.float64(1e-9)", "np.array([0.7], np.float32)", "np.bool_(True)", "np.float64(-0.0)"),
)


def draw_edge_program(choices: Choices) -> RandomProgram:
    """A program with a definition by cases, a loss of it and gradients, under names that try the compiler."""
    with Program("random") as program:
        session = Session(choices, program)
        draw_edges(session)
        _losses(session)
    return renamed(session.finished(), choices)


def edge_situations(program: RandomProgram, seed: int) -> list[Situation]:
    """Three runs, of which the sizes are drawn; a few see values that are not finite, a few are in chunks."""
    random, dims = Random(seed), program.build().program.graph().dims
    special, chunk = random.random() < 0.1, random.choice((None, None, None, 1, 2))
    runs = []
    for _ in range(_RUNS):
        sizes = {dim.symbol.name: dim.size for dim in dims}
        drawn = {name: size.as_int() if size.is_const else random.choice(_SIZES) for name, size in sizes.items()}
        runs.append(Situation(drawn, seed, special, chunk=chunk))
    return runs


def draw_edges(session: Session) -> None:
    """Everything but losses and outputs."""
    choices = session.choices
    _declare(session)
    for _ in range(choices.number(1, 4)):
        step = choices.weighted([(5, cased), (3, _read), (3, numpy_value), (2, _strided), (1, pointwise.binary)])
        step(session)
    if not session.recurrences:
        cased(session)


def _declare(session: Session) -> None:
    choices = session.choices
    for name in ("t",) if choices.chance(70) else ("b", "t"):
        size = choices.number(1, 4) if choices.chance(10) else None
        session.run(Statement(f'{name} = tp.dim("{name}"{"" if size is None else f", {size}"})', (name,)))
        session.dims[name] = size
    for _ in range(choices.number(1, 2)):
        dims = tuple(session.dims) if choices.chance(70) else (choices.choice(tuple(session.dims)),)
        shape, dtype = choices.choice(("()", "()", "(2,)")), choices.weighted(_FLOATS)
        name = session.fresh("x")
        declared = f'{name} = tp.input("{name}", shape={shape}, dims=({", ".join(dims)},), dtype=tp.{dtype})'
        session.run(Statement(declared, (name,)))
        session.values.append(Value(name, session.lookup(name)))


def _losses(session: Session) -> None:
    """Outputs: some values, a loss, and its gradients by what it may depend on."""
    choices = session.choices
    for value in (session.values[-1], *choices.some(session.values[-4:-1], 30)):
        outside.output(session, value)
    read = _read(session) if choices.chance(60) else None
    loss = total_loss(session, read or session.pick(lambda value: value.dtype in _SMOOTH))
    if loss is None or not comparable(session.program, loss):
        return
    found = [value for value in session.values if value.is_float and value.tensor.is_identity]
    leaves = [value for value in found if value.tensor.node.op in ("input", "merge")]
    wanted = [value for value in leaves if value.dtype in _SMOOTH and depends(session.program, loss, value)]
    for x in wanted[:2]:
        slope = session.assign(f"tp.grad({loss.name}, {x.name})", (x,), prefix="g", exact=False)
        if slope is not None:
            outside.output(session, slope)


# -- statements --------------------------------------------------------------------------------------------------------


def cased(session: Session) -> Value | None:
    """A definition by cases that overlap, of slices of itself, before or after the point, and of what is there."""
    choices = session.choices
    if session.opened or not session.dims or session.recurrences >= 3:
        return None
    session.recurrences += 1
    t, dtype = choices.choice(tuple(session.dims)), choices.weighted(_FLOATS)
    dims = tuple(dim for dim in session.dims if dim == t or choices.chance(60))
    name = session.fresh("h")
    declared = f'{name} = tp.recurrent("{name}", shape=(), dims=({", ".join(dims)},), dtype=tp.{dtype})'
    session.run(Statement(declared, (name,)))
    earlier = choices.choice((_EARLIER, _LATER))
    left = list(_CONDITIONS)  # one that stands there already is taken: no point reaches the second
    for _ in range(choices.number(1, _MOST_CASES)):
        condition = _filled(session, left.pop(choices.number(0, len(left) - 1)), t)
        session.run(Statement(f"{name}[{condition}] = {_body(session, name, dims, t, earlier)}", extends=name))
    last = f"{name}[{choices.choice(('True', ', '.join(dims)))}]"
    if not session.run(Statement(f"{last} = {_body(session, name, dims, t, earlier)}", extends=name)):
        session.run(Statement(f"{last} = 0.25", extends=name))
    session.values.append(Value(name, session.lookup(name), exact=False))
    return session.values[-1]


def _body(session: Session, name: str, dims: tuple[str, ...], t: str, earlier: Sequence[str]) -> str:
    """A sum of terms, small enough that no run explodes: reads of the tensor itself, of others, and numbers."""
    choices = session.choices
    terms = []
    if choices.chance(60):
        cut = _filled(session, choices.choice(earlier), t)
        own = f"{name}[{', '.join(cut if dim == t else dim for dim in dims)}]"
        terms.append(_folded(session, own, cut))
    for _ in range(choices.number(0 if terms else 1, 2)):
        terms.append(_term(session, dims, t))
    return f"tp.tanh({' + '.join(terms)})" if choices.chance(80) else " + ".join(terms)


def _term(session: Session, dims: tuple[str, ...], t: str) -> str:
    choices = session.choices
    fits = [v for v in session.values if v.rank == 0 and t in v.dims and set(v.dims) <= set(dims) and not v.needs]
    if not fits or choices.chance(20):
        return choices.choice(_NUMBERS[:4]) if choices.chance(60) else "0.25"
    x = choices.choice(fits)
    if choices.chance(30):
        return x.name
    if choices.chance(40):
        point = _filled(session, choices.choice(_POINTS), t)
        return f"{x.name}[{', '.join(point if dim == t else dim for dim in x.dims)}]"
    cut = _filled(session, choices.choice(_SLICES), t)
    return _folded(session, f"{x.name}[{', '.join(cut if dim == t else dim for dim in x.dims)}]", cut)


def _folded(session: Session, source: str, cut: str) -> str:
    """A reduction of a slice; what has no value of nothing stands in a case, nearly always."""
    template = session.choices.weighted(_REDUCTIONS)
    folded = template.format(source)
    if "sum" in template or "prod" in template or session.choices.chance(10):
        return folded
    start, stop = cut.split(":")
    return f"tp.cases((({stop}) > ({start}), {folded}), 0.5)"


def _filled(session: Session, template: str, t: str) -> str:
    return template.format(t=t, n=f"{t}.size")


def _read(session: Session) -> Value | None:
    """A read at an odd point, or a sum of an odd slice."""
    choices = session.choices
    x = session.pick(lambda value: bool(value.dims) and value.is_float and not value.needs and not value.ragged_axes)
    if x is None:
        return None
    t = choices.choice(x.dims)
    is_point = choices.chance(50)
    index = _filled(session, choices.choice(_POINTS if is_point else _SLICES), t)
    source = f"{x.name}[{', '.join(index if dim == t else dim for dim in x.dims)}]"
    return session.assign(source if is_point else _folded(session, source, index), (x,), exact=False)


def _strided(session: Session) -> Value | None:
    """Every second or third element of what a slice shows, from either end."""
    choices = session.choices
    x = session.pick(lambda value: bool(value.dims) and value.is_float and not value.needs and not value.ragged_axes)
    if x is None:
        return None
    t = choices.choice(x.dims)
    cut = _filled(session, choices.choice(("0:{n}", "0:{t} + 1", "{t}:{n}", "{t}:{n} - {t}")), t)
    steps = choices.choice(("::2", "::-1", "1::2", "::3", "::-2", "0:1", "-1:"))
    source = f"{x.name}[{', '.join(cut if dim == t else dim for dim in x.dims)}].spatial[{steps}]"
    return session.assign(f"{source}.sum(axis=0)", (x,), exact=False)


def numpy_value(session: Session) -> Value | None:
    """A tensor and a NumPy number or array, on either side."""
    x = session.pick(lambda value: value.is_float and not value.needs)
    if x is None:
        return None
    number = session.choices.choice(_NUMBERS)
    menu = ("{x} * {n}", "{x} + {n}", "{x} - {n}", "tp.maximum({x}, {n})", "tp.where({x} > {n}, {x}, {n})", "{n} * {x}")
    return session.assign(session.choices.choice(menu).format(x=x.name, n=number), (x,), exact=False)


# -- names -------------------------------------------------------------------------------------------------------------


def renamed(program: RandomProgram, choices: Choices) -> RandomProgram:
    """The same program, with other names for its dims and inputs and recurrent tensors."""
    if choices.chance(40) or ".at(" in program.source:
        return program
    names: dict[str, str] = {}
    for pattern, menu in ((r'tp\.dim\("(\w+)"', DIM_NAMES), (r'tp\.(?:input|recurrent)\("(\w+)"', TENSOR_NAMES)):
        left = list(menu)
        for old in re.findall(pattern, program.source):
            if left and choices.chance(70):
                names[old] = left.pop(choices.number(0, len(left) - 1))
        left.clear()
    if len({names.get(old, old) for old in [*names, "t", "b"]}) < len({*names, "t", "b"}):
        return program  # a name that is taken
    return with_names(program, names)


def with_names(program: RandomProgram, names: Mapping[str, str]) -> RandomProgram:
    """The program with other texts for names that stand in quotes."""
    quoted = re.compile("|".join(f"(?<=[\"'])({re.escape(old)})(?=[\"'])" for old in names) or "(?!)")

    def change(statement: Statement) -> Statement:
        return replace(statement, source=quoted.sub(lambda found: names[found.group()], statement.source))

    return RandomProgram(tuple(map(change, program.functions)), tuple(map(change, program.statements)))
