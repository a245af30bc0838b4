"""Random scheduling problems, for the tests of every scheduler."""

from __future__ import annotations

from hypothesis import strategies as st

from tempo.schedule import Dependence, Interval, SchedulingProblem, Statement
from tempo.symbolic import TRUE, Box, Condition, Dim, Symbol, const, maximum, minimum, size, var

DIMS = tuple(Dim(Symbol(name, "dim"), size(name)) for name in ("i", "t", "s"))
SIZES = tuple(
    {Symbol(dim.symbol.name, "size"): extent for dim, extent in zip(DIMS, extents)}
    for extents in ((1, 1, 1), (2, 3, 1), (3, 5, 2), (4, 2, 4))
)
SMALL = st.integers(-3, 3)


@st.composite
def conditions(draw: st.DrawFn, dims: tuple[Dim, ...]) -> Condition:
    if not dims:
        return TRUE
    own = [var(dim.symbol) for dim in dims]
    one, other = draw(st.sampled_from(own)), draw(st.sampled_from([*own, const(2), dims[0].size - 1]))
    bound = other + draw(SMALL)
    kinds = {"none": TRUE, "ge": one.ge(bound), "lt": one.lt(bound), "eq": one.eq(bound), "even": (one % 2).eq(0)}
    weighted = ["none", "none", "none", *kinds]
    return kinds[draw(st.sampled_from(weighted))]


@st.composite
def boxes(draw: st.DrawFn, dims: tuple[Dim, ...]) -> Box:
    box = Box.full(dims)
    for dim in dims:
        lo = draw(st.sampled_from([0, 0, 0, 1, 2]))
        hi = draw(st.sampled_from([dim.size, dim.size, dim.size - 1, minimum(dim.size, 3)]))
        box = box.replace(dim.symbol, minimum(lo, dim.size), maximum(hi, 0))
    return box


@st.composite
def statements(draw: st.DrawFn, name: str) -> Statement:
    dims = tuple(dim for dim in DIMS if draw(st.sampled_from([True, True, False])))
    return Statement(
        name,
        tuple(dim.symbol for dim in dims),
        draw(boxes(dims)),
        draw(conditions(dims)),
        bytes=draw(st.sampled_from([1.0, 4.0, 64.0])),
        host=draw(st.sampled_from([False, False, False, True])),
    )


@st.composite
def intervals(draw: st.DrawFn, dim: Dim, target: Statement, lag: int) -> Interval:
    """What is read along `dim`: mostly `lag` steps back, or a slice that ends there, or begins there."""
    here = var(dim.symbol) if dim.symbol in target.dims else draw(st.sampled_from([const(0), dim.size - 1]))
    others = [var(other) for other in target.dims] or [const(1)]
    point = here - lag
    choices = {
        "point": (point, point),
        "window": (maximum(point - draw(st.integers(0, 3)), 0), point),
        "ahead": (point, minimum(point + draw(st.integers(0, 3)), dim.size - 1)),
        "prefix": (const(0), point),
        "suffix": (point, dim.size - 1),
        "all": (const(0), dim.size - 1),
        "other": (draw(st.sampled_from(others)), draw(st.sampled_from(others))),
        "half": (here // 2, here // 2),
    }
    kinds = ["point", "point", "point", "window", "ahead", "prefix", "suffix", *choices]
    return Interval(*choices[draw(st.sampled_from(kinds))])


@st.composite
def problems(draw: st.DrawFn) -> SchedulingProblem:
    """Dependences against the order of the statements go back by at least one step along some dim, mostly."""
    found = [draw(statements(f"s{number}")) for number in range(draw(st.integers(1, 6)))]
    by_dim = {dim.symbol: dim for dim in DIMS}
    dependences = []
    for _ in range(draw(st.integers(0, 9))):
        first, second = (draw(st.integers(0, len(found) - 1)) for _ in range(2))
        source, target = found[first], found[second]
        forward = draw(st.booleans())
        lags = [0 if first < second else draw(st.sampled_from([1, 2])) * (1 if forward else -1) for _ in source.dims]
        if draw(st.sampled_from([True, False, False])):
            lags = [draw(SMALL) for _ in lags]
        relation = tuple(draw(intervals(by_dim[dim], target, lag)) for dim, lag in zip(source.dims, lags))
        condition = draw(conditions(tuple(by_dim[dim] for dim in target.dims)))
        kind = draw(st.sampled_from(["data", "data", "order", "anti"]))
        dependences.append(Dependence(source.name, target.name, relation, condition, kind))
    outermost = draw(st.sampled_from([None, None, *by_dim]))
    return SchedulingProblem(DIMS, tuple(found), tuple(dependences), outermost=outermost)
