"""Random small programs written in the language, right at every size: each read is in range, each case is covered."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

import tempo.language as tp
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol

Draw = st.DrawFn

POINTS = (
    lambda d: d,
    lambda d: 0,
    lambda d: d.size - 1,
    lambda d: d.size - 1 - d,
    lambda d: tp.min(d + 1, d.size - 1),
    lambda d: tp.max(d - 1, 0),
    lambda d: d // 2,
    lambda d: tp.min(d % 2, d.size - 1),
)
SLICES = (
    lambda d: slice(0, d + 1),
    lambda d: slice(0, d),
    lambda d: slice(d, d.size),
    lambda d: slice(None),
    lambda d: slice(tp.max(d - 2, 0), d + 1),
)
CONDITIONS = (
    lambda d: d == 0,
    lambda d: d >= 1,
    lambda d: d % 2 == 0,
    lambda d: d >= 0,
    lambda d: d < 0,
    lambda d: d == d.size - 1,
)
UNARY = (
    lambda x: -x,
    lambda x: abs(x),
    lambda x: x * 1,
    lambda x: x - 0,
    lambda x: tp.floor(x),
    lambda x: tp.transpose(tp.transpose(x)),
    lambda x: tp.flip(tp.flip(x)),
    lambda x: x.reshape((*x.shape, 1)).reshape(x.shape),
    lambda x: x.astype("float64").astype("float32"),
)
BINARY = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: tp.maximum(x, y),
    lambda x, y: tp.where(x > y, x, y),
)


class Recorder:
    """A function of the host that remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[np.ndarray] = []

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # The sign of NaN is no meaning: NumPy's scalar and vector code may give either.
        self.calls.append(np.where(np.isnan(x), np.float32(np.nan), x))
        return -x, x + 1


def recorded(graph: Graph, signed_zeros: bool) -> dict[int, list[bytes]]:
    """The calls since the last time that this was asked, by declaration, with or without the signs of zeros."""
    found = {}
    for node in graph.nodes.values():
        if node.op == "host_call":
            calls = node.attr("fn").calls
            found[node.declaration] = [(x if signed_zeros else x + np.float32(0)).tobytes() for x in calls]
            node.attr("fn").calls.clear()
    return found


@st.composite
def programs(draw: Draw) -> Graph:
    with tp.Program("random") as program:
        i, t = tp.dim("i"), tp.dim("t")
        pool = [tp.input("x", (2,), (t,)), tp.input("y", (), (i, t)), tp.input("z", (2,)), tp.constant([1.0, -0.0])]
        for number in range(draw(st.integers(2, 7))):
            pool.append(draw(_tensors(f"r{number}", pool, (i, t))))
        for number, x in enumerate(pool[-2:]):
            tp.output(f"o{number}", x)
    return program.graph()


@st.composite
def _tensors(draw: Draw, name: str, pool: list[tp.RecurrentTensor], dims: tuple[tp.Dim, ...]) -> tp.RecurrentTensor:
    x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
    kind = draw(st.sampled_from(["unary", "binary", "point", "slice", "cases", "copy", "recurrence", "host"]))
    if kind == "unary":
        return draw(st.sampled_from(UNARY))(x)
    if kind == "binary":
        return draw(st.sampled_from(BINARY))(x, y)
    if kind == "point":
        return x[tuple(draw(st.sampled_from(POINTS))(d) for d in x.domain)]
    if kind == "slice":
        return _sliced(draw, x)
    if kind == "cases":
        condition = draw(st.sampled_from(CONDITIONS))(draw(st.sampled_from(dims)))
        return tp.cases((condition, x + 0 * y), x * 1 + y)
    if kind == "host":
        ordered = tuple(d for d in dims if draw(st.booleans()))
        out = [(x.shape, x.dtype), (x.shape, x.dtype)]
        return draw(st.sampled_from(tp.host_call(Recorder(), x, out=out, ordered_by=ordered)))
    return _declared(draw, name, kind, x, y, dims)


def _sliced(draw: Draw, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """A sum over one dim, also where nothing varies along it, and where the slice is empty."""
    if not x.domain:
        return x.sum()
    chosen = draw(st.sampled_from(x.domain))
    index = {d.name: draw(st.sampled_from(SLICES if d is chosen else POINTS))(d) for d in x.domain}
    return x.at(**index).sum(axis=0)


def _declared(
    draw: Draw, name: str, kind: str, x: tp.RecurrentTensor, y: tp.RecurrentTensor, dims: tuple[tp.Dim, ...]
) -> tp.RecurrentTensor:
    """A recurrent tensor over both dims: all of it a copy, or a recurrence forward or backward along one."""
    i, t = dims
    h = tp.recurrent(name, (x + y).shape, dims)
    if kind == "copy":
        h[True] = x
    elif draw(st.booleans()):
        h[i, 0] = x
        h[i, t + 1] = h * 1 - y
    else:
        h[i, t.size - 1] = y
        h[i, t - 1] = x + draw(st.sampled_from(UNARY))(h)
    return h


def arrays(graph: Graph, sizes: Mapping[str, int], seed: int) -> dict[int, np.ndarray]:
    """Inputs with everything that an identity might forget: signed zeros, infinities, NaN."""
    random = np.random.default_rng(seed)
    known = {Symbol(name, "size"): size for name, size in sizes.items()}
    values = np.float32([-1.5, -1, -0.0, 0.0, 1, 3, np.inf, -np.inf, np.nan])
    shapes = {
        node.id: [int(dim.size.evaluate(known)) for dim in graph.domain_dims(node)]
        + [size.as_int() for size in node.shape]
        for node in graph.nodes.values()
        if node.op == "input"
    }
    return {id: random.choice(values, shape) for id, shape in shapes.items()}
