"""Family 7, attention and decoding: over the past, over a window, through layers, and fed by its own tokens."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import dtypes
from tempo.conformance.target import Array, Target, typical

WIDTH, HEADS, GROUPS = 4, 4, 2


def arrays(*shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(3)
    return [(random.standard_normal(shape) / 2).astype(np.float32) for shape in shapes]


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def masked(q: Array, k: Array, v: Array, window: int | None = None) -> Array:
    """Attention of every query with a mask over all keys: `(T, D)` each."""
    at = np.arange(len(q))
    seen = at[None, :] <= at[:, None]
    if window is not None:
        seen &= at[None, :] > at[:, None] - window
    scores = np.where(seen, q @ k.T / np.sqrt(q.shape[-1]), -np.inf)
    return np.asarray(softmax(scores) @ v)


def attend(q: tp.RecurrentTensor, k: tp.RecurrentTensor, v: tp.RecurrentTensor, past: slice) -> tp.RecurrentTensor:
    """`q` of shape (D,) over the points `past` of `k` and `v`, of shape (D,)."""
    weights: tp.RecurrentTensor = tp.softmax((k[past] @ q) / WIDTH**0.5, axis=0)
    return weights @ v[past]


@pytest.mark.parametrize("size", [1, 9])
def test_causal_and_windowed_attention(target: Target, size: int) -> None:
    q_data, k_data, v_data = arrays((size, WIDTH), (size, WIDTH), (size, WIDTH))
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, (WIDTH,), (t,)) for name in "qkv")
        tp.output("causal", attend(q, k, v, slice(0, t + 1)))
        tp.output("windowed", attend(q, k, v, slice(tp.max(t - 2, 0), t + 1)))
        tp.output("everything", attend(q, k, v, slice(0, t.size)))
    expected = {
        "causal": masked(q_data, k_data, v_data),
        "windowed": masked(q_data, k_data, v_data, 3),
        "everything": softmax(q_data @ k_data.T / 2) @ v_data,
    }
    target.agrees(program, expected, q=q_data, k=k_data, v=v_data, tolerance=8)


def mean_of_grouped(
    q: Array, k: Array, v: Array, kept: Array, slopes: Array | None, seen: Any, fill: float = -1e30
) -> Array:
    """Attention of `(B, T, H, D)` over `(B, T, G, D)`, spelled out: one query, one head at a time."""
    rows, size, heads, _ = q.shape
    result = np.empty_like(q)
    for b, at, head in np.ndindex(rows, size, heads):
        group = head // (heads // k.shape[2])
        lo, hi = seen(at)
        scores = k[b, lo:hi, group] @ q[b, at, head] / np.sqrt(q.shape[-1])
        if slopes is not None:
            scores = scores - slopes[head] * np.abs(np.arange(lo, hi) - at)
        result[b, at, head] = softmax(np.where(kept[b, lo:hi], scores, fill)) @ v[b, lo:hi, group]
    return result


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("window", typical([None, 3], [3]))
@pytest.mark.parametrize("causal", [False, True])
def test_the_library_s_attention(target: Target, causal: bool, window: int | None, biased: bool) -> None:
    """Grouped queries; rows that are padded on the left, so that a mask hides their first keys; ALiBi."""
    size, rows = 6, 2
    q_data, k_data, v_data = arrays((rows, size, HEADS, WIDTH), *((rows, size, GROUPS, WIDTH),) * 2)
    kept = np.arange(size) >= np.array([0, 2])[:, None]
    with tp.Program() as program:
        b, t = tp.dims("b t")
        q = tp.input("q", (HEADS, WIDTH), (b, t))
        k, v = (tp.input(name, (GROUPS, WIDTH), (b, t)) for name in "kv")
        real = tp.input("real", (), (b, t), dtype=tp.bool)
        bias = tp.nn.alibi(HEADS, t) if biased else None
        tp.output("hidden", tp.nn.attention(q, k, v, t, causal=causal, window=window, bias=bias, mask=real))
        tp.output("all", tp.nn.attention(q, k, v, t, causal=causal, window=window, bias=bias))
    slopes = np.exp2(-8.0 * np.arange(1, HEADS + 1) / HEADS) if biased else None

    def seen(at: int) -> tuple[int, int]:
        return max(0, at + 1 - (window or size)), at + 1 if causal else min(size, at + (window or size))

    expected = {
        "hidden": mean_of_grouped(q_data, k_data, v_data, kept, slopes, seen),
        "all": mean_of_grouped(q_data, k_data, v_data, np.ones_like(kept), slopes, seen),
    }
    target.agrees(program, expected, q=q_data, k=k_data, v=v_data, real=kept, tolerance=8)


def test_left_padded_prompts_decode_as_each_alone(target: Target) -> None:
    """Prompts of different lengths, one batch: padded on the left, masked, and positions counted from their start."""
    vocabulary, size, longest = 7, 9, 4
    table, wq_data, wk_data, wv_data, head = arrays(
        (vocabulary, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, vocabulary)
    )
    prompts = [[3, 1, 4, 1], [5, 2], [6]]
    padding = np.array([longest - len(each) for each in prompts], np.int32)
    given = np.array([[0] * (longest - len(each)) + each for each in prompts], np.int32)
    with tp.Program() as program:
        b, t, p = tp.dims("b t p")
        prompt = tp.input("prompt", (), (b, p), dtype=tp.int32)
        pad = tp.input("pad", (), (b,), dtype=tp.int32)
        embedding, wq, wk, wv, out = (tp.constant(each) for each in (table * 4, wq_data, wk_data, wv_data, head))
        token = tp.recurrent("token", (), (b, t), dtype=tp.int32)
        x = tp.take(embedding, token, axis=0)
        q, k, v = ((x @ w).reshape(1, WIDTH) for w in (wq, wk, wv))
        seen = tp.nn.attention(q, k, v, t, mask=t >= pad)
        logits = (x + tp.tanh(seen.reshape(WIDTH))) @ out
        token[t < p.size] = prompt[b, t]
        token[b, t + 1] = logits.argmax()
        tp.output("token", token)
    expected: list[list[Any]] = []
    for each in prompts:
        tokens: list[Any] = list(each)
        while len(tokens) < size - (longest - len(each)):
            h = (table * 4)[tokens]
            full = (h + np.tanh(masked(h @ wq_data, h @ wk_data, h @ wv_data))) @ head
            tokens.append(np.int32(full[-1].argmax()))
        expected.append([0] * (longest - len(each)) + tokens)
    target.agrees(program, {"token": expected}, sizes={"t": size}, prompt=given, pad=padding)


def test_grouped_queries_and_rotary_positions(target: Target) -> None:
    """Several heads of queries share one of keys; positions turn pairs of elements."""
    size, half = 6, WIDTH // 2
    q_data, k_data, v_data = arrays((2, size, HEADS, WIDTH), (2, size, GROUPS, WIDTH), (2, size, GROUPS, WIDTH))
    frequencies = np.array([1.0, 0.1], np.float32)
    with tp.Program() as program:
        b, t = tp.dims("b t")
        q = tp.input("q", (HEADS, WIDTH), (b, t))
        k, v = (tp.input(name, (GROUPS, WIDTH), (b, t)) for name in "kv")

        def turned(x: tp.RecurrentTensor) -> tp.RecurrentTensor:
            angle = tp.constant(frequencies) * t
            one, two = x.spatial[:, :half], x.spatial[:, half:]
            cos, sin = tp.cos(angle), tp.sin(angle)
            joined: tp.RecurrentTensor = tp.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1)
            return joined

        keys, queries = turned(k)[b, 0 : t + 1], turned(q).reshape((GROUPS, HEADS // GROUPS, WIDTH))
        weights = tp.softmax(tp.einsum("ghd,sgd->ghs", queries, keys) / WIDTH**0.5, axis=-1)
        tp.output("out", tp.einsum("ghs,sgd->ghd", weights, v[b, 0 : t + 1]).reshape((HEADS, WIDTH)))
    angle = np.arange(size)[:, None, None] * frequencies

    def turn(x: Array) -> Array:
        one, two = x[..., :half], x[..., half:]
        return np.concatenate(
            [one * np.cos(angle) - two * np.sin(angle), two * np.cos(angle) + one * np.sin(angle)], -1
        )

    expected = np.empty_like(q_data)
    for b_ in range(2):
        for head in range(HEADS):
            group = head // (HEADS // GROUPS)
            turned_q, turned_k = turn(q_data)[b_, :, head], turn(k_data)[b_, :, group]
            expected[b_, :, head] = masked(turned_q, turned_k, v_data[b_, :, group])
    target.agrees(program, {"out": expected}, q=q_data, k=k_data, v=v_data, tolerance=8)


def block(h: Any, past: Any, wq: Any, wk: Any, wv: Any) -> Any:
    """One layer at one position: attention over `past` positions of `h`, then a residual."""
    k, v = h @ wk, h @ wv
    return h + tp.tanh(attend(h @ wq, k, v, past))


def test_layers_as_a_dim_equal_layers_unrolled(target: Target) -> None:
    layers, size = 3, 5
    x_data, wq_data, wk_data, wv_data = arrays((size, WIDTH), *((layers, WIDTH, WIDTH),) * 3)
    with tp.Program() as program:
        layer = tp.dim("layer", layers + 1)
        t = tp.dim("t")
        x = tp.input("x", (WIDTH,), (t,))
        wq, wk, wv = (tp.input(name, (layers, WIDTH, WIDTH)) for name in ("wq", "wk", "wv"))
        h = tp.recurrent("h", (WIDTH,), (layer, t))
        h[0, t] = x
        weights = (w.spatial[tp.min(layer, layers - 1)] for w in (wq, wk, wv))
        h[layer + 1, t] = block(h, (layer, slice(0, t + 1)), *weights)
        unrolled = x * 1
        for at in range(layers):
            unrolled = block(unrolled, slice(0, t + 1), wq.spatial[at], wk.spatial[at], wv.spatial[at])
        tp.output("as_a_dim", h[layers])
        tp.output("unrolled", unrolled)
    state = x_data
    for at in range(layers):
        state = state + np.tanh(masked(state @ wq_data[at], state @ wk_data[at], state @ wv_data[at]))
    expected = {"as_a_dim": state, "unrolled": state}
    target.agrees(program, expected, x=x_data, wq=wq_data, wk=wk_data, wv=wv_data, tolerance=8)


@pytest.mark.parametrize("prompt", [1, 4])
def test_decoding_equals_the_full_masked_forward(target: Target, prompt: int) -> None:
    """Each token is the most likely one after all before it, which a cache of keys and values holds."""
    vocabulary, size = 7, 11
    table, wq_data, wk_data, wv_data, head = arrays(
        (vocabulary, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, vocabulary)
    )
    given = np.array([3, 1, 4, 1][:prompt], np.int32)
    with tp.Program() as program:
        t = tp.dim("t")
        prompted = tp.constant(given, dtype=tp.int32)
        embedding, wq, wk, wv, out = (tp.constant(each) for each in (table * 4, wq_data, wk_data, wv_data, head))
        token = tp.recurrent("token", (), (t,), dtype=tp.int32)
        x = tp.take(embedding, token, axis=0)
        logits = block(x, slice(0, t + 1), wq, wk, wv) @ out
        token[t < prompt] = prompted.spatial[t]
        token[t + 1] = logits.argmax()
        tp.output("token", token)
        tp.output("logits", logits)
    tokens = list(given)
    while True:
        h = (table * 4)[tokens]
        full = (h + np.tanh(masked(h @ wq_data, h @ wk_data, h @ wv_data))) @ head
        if len(tokens) == size:
            break
        tokens.append(np.int32(full[-1].argmax()))
    target.agrees(program, {"token": tokens, "logits": full}, sizes={"t": size}, tolerance=8)


WINDOWS: dict[str, Callable[[tp.Dim], slice]] = {
    "causal": lambda t: slice(0, t + 1),
    "window": lambda t: slice(tp.max(t - 40, 0), t + 1),
    "both sides": lambda t: slice(tp.max(t - 3, 0), tp.min(t + 30, t.size)),
    "to the end": lambda t: slice(t, t.size),
    "all": lambda t: slice(0, t.size),
}


@pytest.mark.few_configurations
@pytest.mark.parametrize("window", WINDOWS)
def test_more_points_than_one_block_has(target: Target, window: str) -> None:
    """All points are computed at once, so many of them in a block; heads share keys, and scores have a bias."""
    size = 150
    q_data, k_data, v_data = arrays((size, HEADS, WIDTH), (size, GROUPS, WIDTH), (size, GROUPS, WIDTH))
    with tp.Program() as program:
        t = tp.dim("t")
        q = tp.input("q", (GROUPS, HEADS // GROUPS, WIDTH), (t,))
        k, v = (tp.input(name, (GROUPS, WIDTH), (t,)) for name in "kv")
        past = WINDOWS[window](t)
        scores = tp.einsum("ghd,sgd->ghs", q, k[past])
        near = tp.cos(tp.arange(past.stop - past.start).astype(tp.float32) * t)
        for name, each in (("plain", scores), ("biased", scores + near)):
            tp.output(name, tp.einsum("ghs,sgd->ghd", tp.softmax(each, axis=-1), v[past]))
    q_data = q_data.reshape(size, GROUPS, HEADS // GROUPS, WIDTH)
    target.agrees(program, q=q_data, k=k_data, v=v_data, tolerance=8)


@pytest.mark.parametrize("whole", ["k", "v", "kv", "q"])
def test_attention_of_what_is_stored_in_8_bits(target: Target, whole: str) -> None:
    """Keys and values of all queries, and of each point; their scores are of floats."""
    size, random = 5, np.random.default_rng(4)
    data: dict[str, Any] = dict(zip("qkvab", arrays(*((size, WIDTH),) * 3, (7, WIDTH), (7, WIDTH))))
    stored = [name for name, of in zip("qkvab", "qkvkv") if of in whole]
    data |= {name: random.integers(-9, 10, data[name].shape).astype(np.int8) for name in stored}
    with tp.Program() as program:
        t = tp.dim("t")
        shown = {name: tp.input(name, (WIDTH,), (t,), str(data[name].dtype)) for name in "qkv"}
        shown |= {name: tp.input(name, (7, WIDTH), (), str(data[name].dtype)) for name in "ab"}
        q, k, v, a, b = (each.astype(tp.float32) for each in shown.values())
        tp.output("fixed", tp.softmax((q @ a.T) * 0.1, axis=-1) @ b)
        tp.output("past", attend(q * 0.1, k, v, slice(0, t + 1)))
        tp.output("everything", attend(q, k, v, slice(0, t.size)))
    q_data, a_data, b_data = (data[name].astype(np.float32) for name in "qab")
    fixed = softmax(q_data @ a_data.T * np.float32(0.1)) @ b_data
    target.agrees(program, {"fixed": fixed}, tolerance=16, **data)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mapping", [None, "full"])
@pytest.mark.parametrize("operand", typical(["q", "k", "v"], ["k"]))
@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_not_finite_is_seen_where_it_is(target: Target, window: str, operand: str, mapping: str | None) -> None:
    size = 50
    data: dict[str, Any] = dict(zip("qkv", arrays((size, WIDTH), (size, WIDTH), (size, WIDTH))))
    data[operand][41, 1], data[operand][45, 0] = np.nan, np.inf
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, (WIDTH,), (t,)) for name in "qkv")
        tp.output("seen", attend(q, k, v, WINDOWS[window](t)))
    target.agrees(program, options={"mapping": mapping}, tolerance=8, **data)


@pytest.mark.planned
@pytest.mark.one_configuration
@pytest.mark.parametrize("window", WINDOWS)
def test_scores_of_all_pairs_are_never_there(target: Target, window: str) -> None:
    """As predicted and, where the backend says it, as measured; nothing is left a loop over points for it."""
    size, heads = 1024, 8
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, (heads, WIDTH), (t,)) for name in "qkv")
        past = WINDOWS[window](t)
        weights = tp.softmax(tp.einsum("hd,shd->hs", q, k[past]), axis=-1)
        tp.output("seen", tp.einsum("hs,shd->hd", weights, v[past]))
    run = target.compile(program, {"t": size}, poison=False)
    if "banded_attention" not in target.info.capabilities.composites:
        pytest.skip("the backend has no operator for it")
    assert "over (t) = banded_attention" not in run.explain("all")
    assert "= banded_attention" in run.explain("all")
    pairs = 4 * heads * size * size
    assert run.memory.peak_bytes < pairs // 3
    if not hasattr(target.backend, "measured_peak"):
        return
    data: dict[str, Any] = dict(zip("qkv", arrays(*((size, heads, WIDTH),) * 3)))
    run(**data)
    gc.collect()
    assert 0 < target.backend.measured_peak(lambda: run(**data)) < pairs


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("mapping", [None, "sequential"])
@pytest.mark.parametrize("window", [None, 5])
def test_attention_of_halves(target: Target, dtype: str, mapping: str | None, window: int | None) -> None:
    """Computed in float32, and one operator as that of other floats is."""
    size, heads = 21, 2
    with tp.Program() as program:
        t = tp.dim("t")
        q, k, v = (tp.input(name, (heads, WIDTH), (t,), dtype) for name in "qkv")
        shown = tp.input("shown", (), (t,), tp.bool_)
        tp.output("seen", tp.nn.attention(q, k, v, t, window=window, mask=shown))
    narrow = dtypes.to_numpy(dtype)
    data: dict[str, Any] = dict(zip("qkv", (each.astype(narrow) for each in arrays(*((size, heads, WIDTH),) * 3))))
    shown_at = np.arange(size) >= 3
    if not target.supports("dot", dtype):
        pytest.skip("the backend has no contraction of it")
    target.agrees(program, options={"mapping": mapping}, tolerance=4, shown=shown_at, **data)
    composites = () if target.interprets else target.info.capabilities.composites
    if mapping is None and target.configuration.name == "all" and "banded_attention" in composites:
        assert "= banded_attention" in target.compile(program, {"t": size}).explain("all")
