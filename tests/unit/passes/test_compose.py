"""Attention is found in what is spelled out, in many forms, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tempo as tp
from tempo.passes.composites import Compose
from tempo.passes.manager import PassContext
from tempo.passes.ragged.static_extents import StaticExtents
from tempo.passes.rewrite.driver import without_dead_nodes
from tempo.sdg.graph import Graph, Node
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

SIZES = tuple({"t": size} for size in (1, 2, 5))
COMPOSE = Compose(("attention",))


def composed(form: Form, shapes: tuple[tuple[int, ...], ...] = ((4,),) * 3) -> list[Node]:
    """The operators `attention` of a program, which must mean the same with them, and with static extents."""
    after = check(COMPOSE, graph_of(form, shapes), *SIZES)
    check(StaticExtents(), after, *SIZES)
    return attentions(after)


def attentions(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes.values() if node.op == "attention"]


def plain(q: T, k: T, v: T, t: tp.Dim) -> T:
    return tp.softmax(k[0 : t + 1] @ q, axis=0) @ v[0 : t + 1]


def scaled(q: T, k: T, v: T, t: tp.Dim) -> T:
    return tp.softmax(0.5 * (k[0 : t + 1] @ q) / 3.0, axis=0) @ v[0 : t + 1]


def windowed(q: T, k: T, v: T, t: tp.Dim) -> T:
    seen = slice(tp.max(t - 2, 0), t + 1)
    return v[seen].reshape(v[seen].shape).T @ tp.softmax(k[seen] @ q, axis=0)


def two_sided(q: T, k: T, v: T, t: tp.Dim) -> T:
    seen = slice(tp.max(t - 1, 0), tp.min(t + 2, t.size))
    return tp.softmax(q @ k[seen].T, axis=0) @ v[seen]


def biased(q: T, k: T, v: T, t: tp.Dim) -> T:
    at = tp.arange(t + 1)
    return tp.softmax(k[0 : t + 1] @ q / 2.0 + 0.5 * (at - t), axis=-1) @ v[0 : t + 1]


def biased_twice(q: T, k: T, v: T, t: tp.Dim) -> T:
    at = tp.arange(t + 1).astype(tp.float32)
    return tp.softmax(0.1 * at + k[0 : t + 1] @ q + tp.sin(at), axis=-1) @ v[0 : t + 1]


def masked(q: T, k: T, v: T, t: tp.Dim) -> T:
    even = tp.arange(t + 1) % 2 == 0
    return tp.softmax(tp.where(even, k[0 : t + 1] @ q / 2.0, -1e9), axis=-1) @ v[0 : t + 1]


def masked_everywhere(q: T, k: T, v: T, t: tp.Dim) -> T:
    """With a fill that is a number the result is the mean, not nothing."""
    return tp.softmax(tp.where(tp.arange(t + 1) < 0, k[0 : t + 1] @ q, -5.0), axis=-1) @ v[0 : t + 1]


@pytest.mark.parametrize(
    "form",
    [plain, scaled, windowed, two_sided, biased, biased_twice, masked, masked_everywhere],
    ids=lambda f: f.__name__,
)
def test_a_spelled_out_form_is_one_operator(form: Form) -> None:
    (node,) = composed(form)
    assert node.attr("biased") == ("biased" in form.__name__)
    assert node.attr("masked") == ("masked" in form.__name__)


def grouped_with_a_mask(q: T, k: T, v: T, t: tp.Dim) -> T:
    scores = tp.einsum("hgd,shd->hgs", q, k[0 : t + 1])
    kept = tp.where(k[0 : t + 1].spatial[:, :, 0].T.reshape(2, 1, t + 1) > 0, scores, -3.0)
    return tp.einsum("hgs,shd->hgd", tp.softmax(kept, axis=-1), v[0 : t + 1])


def one_row(q: T, k: T, v: T, t: tp.Dim) -> T:
    """An axis of size 1, which the contraction has not got any more when it is looked at."""
    scores = tp.einsum("hgd,shd->hgs", tp.sin(q.spatial[:, 0]).reshape(2, 1, 3), k[0 : t + 1])
    return tp.einsum("hgs,shd->hgd", tp.softmax(scores, axis=-1), v[0 : t + 1])


@pytest.mark.parametrize(
    "form", [grouped, grouped_keys_first, grouped_with_slopes, grouped_with_a_mask, one_row], ids=lambda f: f.__name__
)
def test_queries_that_share_keys_do_not_repeat_them(form: Form) -> None:
    (node,) = composed(form, ((2, 2, 3), (2, 3), (2, 3)))
    assert node.attr("key_axes") == node.attr("value_axes") == (1, 0, 2), "read as they lie"


def other_axis(q: T, k: T, v: T, t: tp.Dim) -> T:
    """The softmax is over queries."""
    scores = tp.einsum("hgd,shd->hgs", q, k[0 : t + 1])
    return tp.einsum("hgs,shd->hgd", tp.softmax(scores, axis=1), v[0 : t + 1])


def over_heads(q: T, k: T, v: T, t: tp.Dim) -> T:
    """What is batch of the keys is summed with the values."""
    scores = tp.einsum("hgd,shd->hgs", q, k[0 : t + 1])
    return tp.einsum("hgs,shd->gd", tp.softmax(scores, axis=-1), v[0 : t + 1])


def not_linear(q: T, k: T, v: T, t: tp.Dim) -> T:
    scores = tp.tanh(tp.einsum("hgd,shd->hgs", q, k[0 : t + 1]))
    return tp.einsum("hgs,shd->hgd", tp.softmax(scores, axis=-1), v[0 : t + 1])


def bias_then_scale(q: T, k: T, v: T, t: tp.Dim) -> T:
    scores = (tp.einsum("hgd,shd->hgs", q, k[0 : t + 1]) + tp.arange(t + 1)) * 2.0
    return tp.einsum("hgs,shd->hgd", tp.softmax(scores, axis=-1), v[0 : t + 1])


def weights_used_twice(q: T, k: T, v: T, t: tp.Dim) -> T:
    weights = tp.softmax(tp.einsum("hgd,shd->hgs", q, k[0 : t + 1]), axis=-1)
    return tp.einsum("hgs,shd->hgd", weights, v[0 : t + 1]) + weights.max(axis=-1).reshape(2, 2, 1)


@pytest.mark.parametrize(
    "form", [other_axis, over_heads, not_linear, bias_then_scale, weights_used_twice], ids=lambda f: f.__name__
)
def test_what_is_not_attention_stays(form: Form) -> None:
    assert composed(form, ((2, 2, 3), (2, 3), (2, 3))) == []


def test_a_backend_that_does_not_take_it_gets_primitives() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, (4,), (t,)) for name in "qkv")
        tp.output("out", plain(q, k, v, t))
    graph = program.graph()
    assert Compose().apply(graph, PassContext()) is graph


def test_a_softmax_that_the_backend_takes_whole_is_part_of_it() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, (4,), (t,)) for name in "qkv")
        tp.output("out", tp.softmax(k[0 : t.size] @ q, axis=0) @ v[0 : t.size])
    graph = without_dead_nodes(program.graph())
    (node,) = attentions(check(COMPOSE, graph, *SIZES))
    assert str(node.attr("length")) == "t.size"


def test_what_an_output_shows_is_not_taken() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, (4,), (t,)) for name in "qkv")
        weights = tp.softmax(k[0 : t.size] @ q, axis=0)
        tp.output("weights", weights)
        tp.output("out", weights @ v[0 : t.size])
    assert attentions(COMPOSE.apply(program.graph(), PassContext())) == []


def test_what_is_stored_in_8_bits_is_cast_for_the_operator() -> None:
    (node,) = composed(of_stored, ((4,), (7, 4), (7, 4)))
    assert node.dtype == "float32"


ACTIVATIONS = {
    "silu": tp.silu,
    "gelu": tp.gelu,
    "gelu_by_tanh": lambda x: tp.gelu(x, "tanh"),
}


def activations(make: Callable[[T, T], T]) -> list[str]:
    """The operators `silu` and `gelu` of a program of `x` and `y` over t, which must mean the same with them."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, y = (tp.input(name, (4,), (t,)) for name in "xy")
        tp.output("out", make(x, y))
    after = check(Compose(tuple(ACTIVATIONS)), program.graph(), *SIZES)
    return [node.op for node in after.nodes.values() if node.op in ACTIVATIONS]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_found_in_what_is_spelled_out(name: str) -> None:
    function = ACTIVATIONS[name]
    assert activations(lambda x, y: function(x @ x + y) * y) == [name]
    assert activations(lambda x, y: tp.cases((x.domain[0] >= 1, function(x[x.domain[0] - 1])), y)) == [name]


def test_activations_in_another_order() -> None:
    assert activations(lambda x, y: tp.sigmoid(x) * x) == ["silu"]
    half = 0.7071067811865476
    assert activations(lambda x, y: x * (0.5 * (tp.erf(half * x) + 1))) == ["gelu"]


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: x * tp.sigmoid(y),
        lambda x, y: y.sum() * tp.sigmoid(y),
        lambda x, y: x * tp.sigmoid(x) + tp.sigmoid(x),
        lambda x, y: (1 + tp.erf(x * 0.7071)) * 0.5 * x,
        lambda x, y: (1 + tp.erf(x * 0.7071067811865476)) * 0.5 * y,
        lambda x, y: (x.astype("int32") * x.astype("int32")).astype("float32"),
    ],
    ids=["of another", "of another shape", "read elsewhere", "another number", "times another", "integers"],
)
def test_what_is_no_activation_stays(make: Callable[[T, T], T]) -> None:
    assert activations(make) == []


def test_a_gradient_reads_what_an_activation_is_made_of() -> None:
    assert activations(lambda x, y: tp.grad(tp.silu(x).sum(), x)) == []
