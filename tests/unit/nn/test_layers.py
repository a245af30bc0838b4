"""Layers against PyTorch's of the same weights, and initialisers against what they promise."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp

B, T, D, H = 2, 7, 3, 5


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("start", [False, True])
def test_recurrent_layers(kind: str, start: bool) -> None:
    torch = pytest.importorskip("torch")
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (B, D), (t,))
        given = {"h0": tp.input("h0", (B, H), ())} if start else {}
        states = getattr(tp.nn, kind)(D, H, name="cell")(x, t, **given)
        tp.output("h", states[0] if isinstance(states, tuple) else states)
    x_data, h0 = data(T, B, D), data(B, H)
    out = tp.compile(program)(x=x_data, seed=3, **({"h0": h0} if start else {}))
    peer = getattr(torch.nn, kind)(D, H)
    with torch.no_grad():
        for ours, theirs in (("input", "ih"), ("hidden", "hh")):
            getattr(peer, f"weight_{theirs}_l0").copy_(torch.tensor(np.array(out.state[f"cell.{ours}.weight"]).T))
            getattr(peer, f"bias_{theirs}_l0").copy_(torch.tensor(np.array(out.state[f"cell.{ours}.bias"])))
        first = torch.tensor(h0 if start else np.zeros((B, H), np.float32))[None]
        wanted = peer(torch.tensor(x_data), (first, torch.zeros_like(first)) if kind == "LSTM" else first)[0].numpy()
    np.testing.assert_allclose(out["h"], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 3), (False, None), (False, 2)])
@pytest.mark.parametrize(("biased", "masked"), [(False, False), (True, False), (True, True)])
def test_attention_with_grouped_queries(causal: bool, window: int | None, biased: bool, masked: bool) -> None:
    heads, groups, width, out = 4, 2, 3, 5
    with tp.Program() as program:
        t = tp.dim("t")
        shapes = {"q": (heads, width), "k": (2, width), "v": (2, out)}
        q, k, v = (tp.input(name, shape, (t,)) for name, shape in shapes.items())
        given_mask = tp.input("mask", (), (t,), dtype=tp.bool)
        options = {"bias": tp.nn.alibi(heads, t) if biased else None, "mask": given_mask if masked else None}
        tp.output("mask", given_mask)
        tp.output("y", tp.nn.attention(q, k, v, t, causal=causal, window=window, **options))
    given = {"q": data(T, heads, width), "k": 2 * data(T, 2, width), "v": 3 * data(T, 2, out)}
    kept = np.arange(T) % 3 != 0  # the first point sees nothing, where a mask counts: the mean of what it hides
    found = tp.compile(program)(**given, mask=kept)["y"]
    for at in range(T):
        after = min(T, at + (window or T))
        lo, hi = max(0, at + 1 - (window or T)), at + 1 if causal else after
        for head in range(heads):
            keys, values = given["k"][lo:hi, head // groups], given["v"][lo:hi, head // groups]
            scores = keys @ given["q"][at, head] / np.sqrt(width)
            if biased:
                scores = scores - 2.0 ** (-8 * (head + 1) / heads) * np.abs(np.arange(lo, hi) - at)
            if masked:
                scores = np.where(kept[lo:hi], scores, -1e30)
            weights = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
            np.testing.assert_allclose(found[at, head], weights @ values, rtol=1e-5, atol=1e-6)


def test_norms_and_embedding() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (D,), (t,))
        index = tp.input("index", (2,), (t,), dtype=tp.int32)
        tp.output("layer", tp.nn.LayerNorm(D, name="layer")(x))
        tp.output("rms", tp.nn.RMSNorm(D, name="rms")(x))
        tp.output("rows", tp.nn.Embedding(4, 5, name="table")(index))
    x_data, index_data = data(T, D), np.arange(2 * T, dtype=np.int32).reshape(T, 2) % 4
    out = tp.compile(program)(x=x_data, index=index_data)
    centred = x_data - x_data.mean(-1, keepdims=True)
    np.testing.assert_allclose(out["layer"], centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(out["rms"], x_data / np.sqrt((x_data**2).mean(-1, keepdims=True) + 1e-6), rtol=1e-5)
    np.testing.assert_array_equal(out["rows"], np.asarray(out.state["table.weight"])[index_data])


def test_parameters_of_a_module_vary_along_its_dims_and_move_between_programs() -> None:
    def program(trained: bool) -> tp.Program:
        with tp.Program() as made:
            i = tp.dim("i")
            net = tp.nn.MLP((2, 8, 1), name="net", dims=(i,) if trained else ())
            if trained:
                for tensor in net.parameters().values():
                    tensor[i + 1] = tensor * 0.5
            x = tp.input("x", (2,), (i,))
            tp.output("y", net(x))
        return made

    first = tp.compile(program(True))(x=np.ones((3, 2), np.float32), seed=1)
    assert first["y"].shape == (3, 1)
    second = tp.compile(program(False))(x=np.ones((1, 2), np.float32), state=first.state)
    np.testing.assert_allclose(second["y"][0], first["y"][-1], rtol=1e-6)


def test_a_parameter_may_have_a_row_for_every_point_of_a_dim() -> None:
    with tp.Program() as program:
        l = tp.dim("l", 3)
        layer = tp.nn.Linear(4, 4, name="layer", dims=(l,), weight_init=tp.nn.init.orthogonal(2.0))
        tp.output("w", layer.weight)
    w = tp.compile(program)()["w"]
    for each in w:
        np.testing.assert_allclose(each.T @ each, 4 * np.eye(4), atol=1e-4)
    assert not np.allclose(w[0], w[1])


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_orthogonal(shape: tuple[int, int]) -> None:
    with tp.Program() as program:
        w = tp.parameter("w", shape, init=tp.nn.init.orthogonal())
        tp.output("w", w)
    w_data = tp.compile(program)(seed=5)["w"]
    product = w_data.T @ w_data if shape[0] > shape[1] else w_data @ w_data.T
    np.testing.assert_allclose(product, np.eye(4), atol=1e-5)


@pytest.mark.parametrize(
    ("init", "deviation"),
    [
        (tp.nn.init.normal(0.3), 0.3),
        (tp.nn.init.uniform(-1, 1), 3**-0.5),
        (tp.nn.init.glorot_uniform(), (2 / 200) ** 0.5),
        (tp.nn.init.he_normal(), (2 / 100) ** 0.5),
        (tp.nn.init.fan_in_uniform(), (3 * 100) ** -0.5),
        (tp.nn.init.zeros, 0),
    ],
)
def test_initialisers(init: object, deviation: float) -> None:
    with tp.Program() as program:
        tp.output("w", tp.parameter("w", (100, 100), init=init))
    w = tp.compile(program)()["w"]
    assert w.std() == pytest.approx(deviation, rel=0.03)
    assert abs(w.mean()) < 0.02


def test_what_does_not_fit_is_refused() -> None:
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", (3, 4), (t,))
        with pytest.raises(tp.ShapeError, match="3 heads of queries are no multiple of 2"):
            tp.nn.attention(x, x.spatial[:2], x.spatial[:2], t)
        with pytest.raises(ValueError, match="input and its output"):
            tp.nn.MLP((4,), name="net")


def test_a_module_read_at_other_points() -> None:
    with tp.Program() as program:
        i = tp.dim("i")
        net = tp.nn.MLP((2, 3, 1), name="net", dims=(i,))
        for tensor in net.parameters().values():
            tensor[i + 1] = tensor * 0.5
        x = tp.ones((2,))
        tp.output("now", net(x))
        tp.output("first", net.at(i=0)(x))
        tp.output("previous", tp.cases((i == 0, net(x)), net.at(i=i - 1)(x)))
    out = tp.compile(program)(sizes={"i": 4})
    np.testing.assert_allclose(out["first"], out["now"][0], rtol=1e-6)
    np.testing.assert_allclose(out["previous"][1:], out["now"][:-1], rtol=1e-6)
