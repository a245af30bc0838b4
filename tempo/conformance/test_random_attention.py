"""Family 7 and 13, attention drawn at random: windows, groups, biases, masks, mappings, and a prompt that is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import tempo as tp
from tempo.conformance.target import Target, assert_same, numbers, typical

WIDTH = 2
CAUSAL: dict[str, Callable[[tp.Dim], slice]] = {
    "causal": lambda t: slice(0, t + 1),
    "window": lambda t: slice(tp.max(t - 2, 0), t + 1),
    "from the second": lambda t: slice(tp.min(t, 1), t + 1),
}
WINDOWS: dict[str, Callable[[tp.Dim], slice]] = {
    **CAUSAL,
    "both sides": lambda t: slice(tp.max(t - 1, 0), tp.min(t + 3, t.size)),
    "to the end": lambda t: slice(t, t.size),
    "all": lambda t: slice(0, t.size),
    "a block": lambda t: slice((t // 2) * 2, t + 1),
}
EXTRAS = ("none", "of keys", "of queries", "of both")


@dataclass(frozen=True)
class Drawn:
    """`prompt`: how many points of a recurrent tensor are given; None where all of it is an input."""

    dims: str
    window: str
    groups: int
    rows: int
    bias: str
    mask: str
    prompt: int | None
    size: int
    mapping: str | int | None
    knows_sizes: bool


def drawn(seed: int) -> Drawn:
    random = Random(seed)
    prompt = random.choice((None, random.randint(1, 4)))
    return Drawn(
        random.choice(("t", "b t", "t b")),
        random.choice(sorted(WINDOWS if prompt is None else CAUSAL)),
        random.choice((1, 2, 2)),
        random.choice((1, 2, 3)),
        random.choice(EXTRAS),
        random.choice(EXTRAS),
        prompt,
        random.randint(1, 7) if prompt is None else prompt + random.randint(0, 3),
        random.choice((None, None, None, "full", "full", 2, "sequential")),
        random.choice((True, False)),
    )


def program_of(case: Drawn) -> tp.Program:
    with tp.Program() as program:
        dims = {dim: tp.dim(dim) for dim in case.dims.split()}
        shape, domain = (case.groups, WIDTH), tuple(dims.values())
        noise = tp.input("noise", shape, domain)
        x = noise if case.prompt is None else tp.recurrent("x", shape, domain)
        seen = attention(case, x, noise, dims["t"])
        if case.prompt is not None:
            dims["p"] = tp.dim("p")
            given = tp.input("given", shape, tuple(dims[dim] for dim in dims if dim != "t"))
            x[dims["t"] < dims["p"].size] = given.at(p=dims["t"])
            x[(*(dim + 1 if dim is dims["t"] else dim for dim in domain),)] = tp.tanh(seen.sum(axis=1) + noise)
            tp.output("x", x)
        tp.output("seen", seen)
    return program


def attention(case: Drawn, x: tp.RecurrentTensor, exact: tp.RecurrentTensor, t: tp.Dim) -> tp.RecurrentTensor:
    """Of `x`; what is masked is told from `exact`, which no backend rounds."""
    past = WINDOWS[case.window](t)
    points = past.stop - past.start
    factors = tp.arange(case.rows).reshape(case.rows, 1).astype(tp.float32)
    queries = tp.sin(x).reshape(case.groups, 1, WIDTH) * (factors + 1)
    keys, values = tp.cos(x).at(t=past), (2 * x).at(t=past)
    scores = tp.einsum("ghd,sgd->ghs", queries, keys) / 2.0
    at = tp.arange(points)
    if case.bias != "none":
        scores = (
            scores
            + {
                "of keys": keys.sum(axis=-1).T.reshape(case.groups, 1, points),
                "of queries": queries.sum(axis=-1, keepdims=True),
                "of both": tp.cos((at * t).astype(tp.float32)),
            }[case.bias]
        )
    if case.mask != "none":
        seen = {
            "of keys": exact.spatial[:, 0].at(t=past).T.reshape(case.groups, 1, points) > 0,
            "of queries": exact.spatial[:, :1].reshape(case.groups, 1, 1) > 0,
            "of both": (at + t) % 2 > 0,
        }[case.mask]
        scores = tp.where(seen, scores, -2.0)
    result: tp.RecurrentTensor = tp.einsum("ghs,sgd->ghd", tp.softmax(scores, axis=-1), values)
    return result


@pytest.mark.one_configuration
@pytest.mark.planned
@pytest.mark.parametrize("seed", typical(range(30), range(4)))
def test_attention_in_random_forms(target: Target, seed: int) -> None:
    case = drawn(seed)
    extents = {"b": 2, "t": case.size, "p": case.prompt or 0}
    inner = (case.groups, WIDTH)
    data: dict[str, Any] = {"noise": numbers((*(extents[dim] for dim in case.dims.split()), *inner))}
    if case.prompt is not None:
        others = [extents[dim] for dim in case.dims.split() if dim != "t"]
        data["given"] = numbers((*others, case.prompt, *inner), seed=1)
    program = program_of(case)
    wanted = tp.compile(program, "reference")(**data)
    # Where sizes are not known when it is compiled, what all pairs of points have is not there at once.
    sizes = {dim.name: extents[dim.name] for dim in program.dims} if case.knows_sizes else None
    found = target.compile(program, sizes, mapping=case.mapping)(**data)
    assert_same(target.arrays(found), dict(wanted), 10)
