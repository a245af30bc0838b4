"""Attention that is lifted over its queries is one operator, which holds no scores of all pairs."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.passes.composites import Decompose
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.passes.simplify.simplify import Canonicalize, Simplify
from tempo.passes.vectorize.search import Lift
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import Symbol, parse_expr
from tests.unit.passes.attention_forms import (
    Form,
    T,
    graph_of,
    grouped,
    grouped_keys_first,
    grouped_with_slopes,
    of_stored,
)
from tests.unit.passes.equivalence import check

SIZES = tuple({"t": size} for size in (1, 2, 9))
TAKES = ("banded_attention",)


def lifted(form: Form, shapes: tuple[tuple[int, ...], ...] = ((4,),) * 3, **options: object) -> list[Node]:
    """The operators of a program, lifted, which means the same."""
    context = PassContext({Symbol("t", "size"): 9})
    return banded(check(Lift(**{"composites": TAKES, **options}), graph_of(form, shapes), *SIZES, context=context))


def banded(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes.values() if node.op == "banded_attention"]


def causal(q: T, k: T, v: T, t: tp.Dim) -> T:
    return tp.softmax(k[0 : t + 1] @ q, axis=0) @ v[0 : t + 1]


def windowed(q: T, k: T, v: T, t: tp.Dim) -> T:
    seen = slice(tp.max(t - 2, 0), t + 1)
    return tp.softmax(k[seen] @ q, axis=0) @ v[seen]


def two_sided(q: T, k: T, v: T, t: tp.Dim) -> T:
    seen = slice(tp.max(t - 3, 0), tp.min(t + 2, t.size))
    return tp.softmax(q @ k[seen].T, axis=0) @ v[seen]


def to_the_end(q: T, k: T, v: T, t: tp.Dim) -> T:
    return tp.softmax(q @ k[t : t.size].T, axis=0) @ v[t : t.size]


def everything(q: T, k: T, v: T, t: tp.Dim) -> T:
    return tp.softmax(k[0 : t.size] @ q, axis=0) @ v[0 : t.size]


def biased(q: T, k: T, v: T, t: tp.Dim) -> T:
    at = tp.arange(t + 1)
    return tp.softmax(k[0 : t + 1] @ q / 2.0 + 0.5 * (at - t), axis=-1) @ v[0 : t + 1]


def biased_twice(q: T, k: T, v: T, t: tp.Dim) -> T:
    at = tp.arange(t + 1).astype(tp.float32)
    return tp.softmax(0.1 * at + k[0 : t + 1] @ q + tp.sin(at + t), axis=-1) @ v[0 : t + 1]


def biased_by_keys(q: T, k: T, v: T, t: tp.Dim) -> T:
    """What is added to the score of a key is the same for all points that see it: read as keys are."""
    return tp.softmax(k[0 : t + 1] @ q + k[0 : t + 1].spatial[:, 0], axis=-1) @ v[0 : t + 1]


def biased_in_a_window(q: T, k: T, v: T, t: tp.Dim) -> T:
    """By the place in the window, which is another key for every point."""
    seen = slice(tp.max(t - 2, 0), t + 1)
    at = tp.arange(tp.min(t, 2) + 1).astype(tp.float32)
    return tp.softmax(k[seen] @ q + tp.sin(at), axis=-1) @ v[seen]


def biased_by_queries(q: T, k: T, v: T, t: tp.Dim) -> T:
    return tp.softmax(k[0 : t + 1] @ q + q.spatial[0], axis=-1) @ v[0 : t + 1]


def masked(q: T, k: T, v: T, t: tp.Dim) -> T:
    even = tp.arange(t + 1) % 2 == 0
    return tp.softmax(tp.where(even, k[0 : t + 1] @ q / 2.0, -1e9), axis=-1) @ v[0 : t + 1]


def masked_by_keys(q: T, k: T, v: T, t: tp.Dim) -> T:
    real = v.spatial[0] > 0
    return tp.softmax(tp.where(real[0 : t + 1], k[0 : t + 1] @ q, -1e9), axis=-1) @ v[0 : t + 1]


def everything_masked(q: T, k: T, v: T, t: tp.Dim) -> T:
    """What all points see is the same for each: a slice that does not move, of what varies along the dim."""
    real = v.spatial[0] > 0
    return tp.softmax(tp.where(real[0 : t.size], k[0 : t.size] @ q, -1e9), axis=-1) @ v[0 : t.size]


def of_the_query_before(q: T, k: T, v: T, t: tp.Dim) -> T:
    earlier = tp.where(t > 0, q[tp.max(t - 1, 0)], 0.0)
    return tp.softmax(k[0 : t + 1] @ earlier, axis=0) @ v[0 : t + 1]


FORMS = [
    causal, windowed, two_sided, to_the_end, everything, biased, biased_twice, biased_by_keys, biased_in_a_window,
    biased_by_queries, masked, masked_by_keys, everything_masked, of_the_query_before,
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_all_points_are_one_operator(form: Form) -> None:
    (node,) = lifted(form)
    assert not node.domain
    assert node.attr("biased") == ("biased" in form.__name__)
    assert node.attr("masked") == ("masked" in form.__name__)


@pytest.mark.parametrize(
    ("form", "low", "high"),
    [(causal, None, "1"), (windowed, "-2", "1"), (two_sided, "-3", "2"), (to_the_end, "0", None)],
    ids=lambda f: getattr(f, "__name__", None),
)
def test_the_band_is_what_points_see(form: Form, low: str | None, high: str | None) -> None:
    (node,) = lifted(form)
    assert node.attr("low") == parse_expr(low or "1 - t.size")
    assert node.attr("high") == parse_expr(high or "t.size")


@pytest.mark.parametrize("form", [grouped, grouped_keys_first, grouped_with_slopes], ids=lambda f: f.__name__)
def test_queries_that_share_keys_do_not_repeat_them(form: Form) -> None:
    (node,) = lifted(form, ((2, 2, 3), (2, 3), (2, 3)))
    assert node.attr("key_axes") == node.attr("value_axes") == (1, 0, 2), "read as they lie"


def test_what_is_stored_in_8_bits_is_cast_for_the_operator() -> None:
    (node,) = lifted(of_stored, ((4,), (7, 4), (7, 4)))
    assert node.dtype == "float32"


def one_row(q: T, k: T, v: T, t: tp.Dim) -> T:
    """An axis of size 1, which the contraction has not got any more when it is looked at."""
    scores = tp.einsum("hgd,shd->hgs", tp.sin(q).reshape(2, 1, 3), k[0 : t + 1])
    kept = tp.where(q.spatial[:, :1].reshape(2, 1, 1) > 0, scores, -1.0)
    return tp.einsum("hgs,shd->hgd", tp.softmax(kept, axis=-1), v[0 : t + 1])


def test_an_axis_of_size_one_is_no_row() -> None:
    (node,) = lifted(one_row, ((2, 3),) * 3)
    assert node.shape[-2] == parse_expr("1")


def also_the_weights(q: T, k: T, v: T, t: tp.Dim) -> T:
    weights = tp.softmax(k[0 : t + 1] @ q, axis=0)
    return weights @ v[0 : t + 1] + weights.max()


def other_values(q: T, k: T, v: T, t: tp.Dim) -> T:
    """Keys and values of other points, at a distance that varies."""
    past = slice(t.size - 1 - t, t.size)
    return tp.softmax(k[0 : t + 1] @ q, axis=0) @ v[past]


def twice_as_fast(q: T, k: T, v: T, t: tp.Dim) -> T:
    seen = slice(0, tp.min(2 * t + 1, t.size))
    return tp.softmax(k[seen] @ q, axis=0) @ v[seen]


@pytest.mark.parametrize("form", [also_the_weights, other_values, twice_as_fast], ids=lambda f: f.__name__)
def test_what_the_operator_does_not_do_stays_spelled_out(form: Form) -> None:
    assert not lifted(form)


def test_a_backend_without_the_operator_lifts_what_is_spelled_out() -> None:
    assert not lifted(causal, composites=())


def test_a_loop_that_the_user_asks_for_stays_one() -> None:
    assert not lifted(causal, mapping="sequential")


@pytest.mark.parametrize("sizes", [{}, {Symbol("t", "size"): 1 << 14}], ids=["unknown", "large"])
def test_the_scores_of_all_pairs_are_not_held_against_lifting(sizes: dict[Symbol, int]) -> None:
    graph = graph_of(causal, ((4,),) * 3)
    assert banded(Lift(composites=TAKES).apply(graph, PassContext(sizes)).program)


def test_a_bias_of_all_pairs_is() -> None:
    """It is an operand, so that all of it would be there."""
    context = PassContext({Symbol("t", "size"): 1 << 14})
    assert not banded(Lift(composites=TAKES).apply(graph_of(biased, ((4,),) * 3), context).program)


def test_more_dims_are_more_batch() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        q, k, v = (tp.input(name, (2, 3), (b, t)) for name in "qkv")
        tp.output("out", tp.nn.attention(q, k, v, t, bias=tp.nn.alibi(2, t)))
    graph = without_dead_nodes(program.graph())
    for each in (Decompose(), Canonicalize(), Simplify()):
        graph = each.apply(graph, PassContext())
    context = PassContext({Symbol("t", "size"): 5})
    (node,) = banded(check(Lift(composites=TAKES), graph, {"b": 2, "t": 5}, context=context))
    assert not node.domain


def windowed_decoder() -> tp.Program:
    """Of two layers. The embedding of what no window shows any more is asked for by nobody."""
    with tp.Program() as program:
        layer, t, p = tp.dim("layer", 3), *tp.dims("t p")
        table = tp.input("table", (5, 4))
        token = tp.recurrent("token", (), (t,), dtype=tp.int32)
        x = tp.recurrent("x", (4,), (layer, t))
        x[0, t] = table.spatial[token]
        seen = slice(tp.max(t - 2, 0), t + 1)
        x[layer + 1, t] = x + tp.softmax(x[layer, seen] @ x, axis=0) @ x[layer, seen]
        token[t < p.size] = tp.input("prompt", (), (p,), dtype=tp.int32)[t]
        token[t + 1] = (table @ x[2, t]).argmax()
        tp.output("token", token)
    return program


@pytest.mark.parametrize("checks", [False, True])
def test_a_prompt_behind_a_window_is_one_pass(checks: bool) -> None:
    """With checks too: its tokens are looked up before it is known whether a window shows them."""
    program = windowed_decoder()
    data = {"table": np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)}
    given = {**data, "prompt": np.array([3, 1, 4, 1, 0, 2, 3], np.int32)}
    run = tp.compile(program, options=tp.Options(checks=checks))
    assert "banded_attention" in run.explain("all")
    found, wanted = (each(sizes={"t": 12}, **given)["token"] for each in (run, tp.compile(program, "reference")))
    np.testing.assert_array_equal(found, wanted)


def test_an_index_that_nobody_asks_for_does_not_raise() -> None:
    """The first tokens of the prompt are in no window of what is decoded."""
    data = {"table": np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)}
    given = {**data, "prompt": np.array([9, 9, 4, 1, 0, 2, 3], np.int32)}
    tokens = [
        tp.compile(windowed_decoder(), backend, options=tp.Options(checks=checks))(sizes={"t": 12}, **given)["token"]
        for backend, checks in (("reference", None), ("numpy", True), ("numpy", False))
    ]
    np.testing.assert_array_equal(tokens[1], tokens[0])
    np.testing.assert_array_equal(tokens[2], tokens[0])
