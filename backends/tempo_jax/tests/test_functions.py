"""Programs as functions of JAX's: transformed, they are what the same function written in JAX is."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tempo_jax
from tempo_jax.functions import TempoFunction
from tempo_jax.precision import x64

import tempo as tp
from tempo.conformance.target import typical

Arrays = dict[str, Any]


@pytest.fixture
def _doubles() -> Iterator[None]:
    with x64():
        yield


doubles = pytest.mark.usefixtures("_doubles")


def drawn(shape: Any, dims: Any, dtype: str) -> tp.RecurrentTensor:
    return tp.random.normal(shape, dims=dims, dtype=dtype) * 0.5


def lstm(dtype: str = "float64", width: int = 4, inner: int = 3) -> tp.Program:
    with tp.Program("lstm") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (inner,), (b, t), dtype)
        w, u = (
            tp.parameter(name, (size, 4 * width), drawn, dtype=dtype) for name, size in (("w", inner), ("u", width))
        )
        h, c = (tp.recurrent(name, (width,), (b, t), dtype) for name in "hc")
        before, kept = (tp.cases((t == 0, tp.zeros((width,), dtype)), each[b, t - 1]) for each in (h, c))
        gates = x @ w + before @ u
        i, f, o, z = (gates.spatial[k * width : (k + 1) * width] for k in range(4))
        c[b, t] = tp.sigmoid(f) * kept + tp.sigmoid(i) * tp.tanh(z)
        h[b, t] = tp.sigmoid(o) * tp.tanh(c)
        tp.output("h", h)
        tp.output("last", c[b, t.size - 1])
    return program


def lstm_by_hand(parameters: Arrays, x: Any) -> Arrays:
    start = jnp.zeros((x.shape[0], parameters["u"].shape[0]), x.dtype)

    def step(carry: Any, given: Any) -> Any:
        h, c = carry
        i, f, o, z = jnp.split(given @ parameters["w"] + h @ parameters["u"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(z)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (_, c), states = jax.lax.scan(step, (start, start), x.swapaxes(0, 1))
    return {"h": states.swapaxes(0, 1), "last": c}


def attention(width: int = 4) -> tp.Program:
    with tp.Program("attention") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (width,), (b, t), "float64")
        q, k, v = (x @ tp.parameter(name, (width, width), drawn, dtype="float64") for name in "qkv")
        tp.output("y", tp.softmax(k[b, 0 : t + 1] @ q / math.sqrt(width), axis=0) @ v[b, 0 : t + 1])
    return program


def attention_by_hand(parameters: Arrays, x: Any) -> Any:
    q, k, v = (x @ parameters[name] for name in "qkv")
    scores = jnp.einsum("bid,bjd->bij", q, k) / math.sqrt(x.shape[-1])
    past = jnp.tril(jnp.ones(scores.shape[1:], bool))
    return jax.nn.softmax(jnp.where(past, scores, -jnp.inf), -1) @ v


def normal(*shape: int, seed: int = 0, dtype: str = "float64") -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def loss_of(function: Callable[..., Arrays]) -> Callable[..., Any]:
    def loss(parameters: Arrays, x: Any) -> Any:
        made = function(parameters, x)
        return (made["h"] ** 2).sum() + jnp.sin(made["last"]).sum()

    return loss


def by_name(function: TempoFunction) -> Callable[..., Any]:
    return lambda parameters, x: function(parameters, x=x)


TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda loss: loss,
    "jit": jax.jit,
    "grad": lambda loss: jax.grad(loss, (0, 1)),
    "jit of grad": lambda loss: jax.jit(jax.grad(loss, (0, 1))),
    "grad of jit": lambda loss: jax.grad(jax.jit(loss), (0, 1)),
    "value and grad by parameters": jax.value_and_grad,
    "vmap": lambda loss: lambda p, x: jax.vmap(loss, (None, 0))(p, jnp.stack([x, 2 * x, -x])),
    "vmap of grad": lambda loss: lambda p, x: jax.vmap(jax.grad(loss, (0, 1)), (None, 0))(p, jnp.stack([x, 2 * x])),
    "grad of vmap": lambda loss: jax.grad(
        lambda p, x: jax.vmap(loss, (None, 1), 0)(p, jnp.stack([x, 2 * x], 1)).sum(), (0, 1)
    ),
    "jit of vmap of grad": lambda loss: jax.jit(
        lambda p, x: jax.vmap(jax.grad(loss), (None, 0))(p, jnp.stack([x, 2 * x]))
    ),
    "checkpoint": lambda loss: jax.jit(jax.grad(jax.checkpoint(loss))),
    "scan": lambda loss: (
        lambda p, x: jax.lax.scan(lambda s, k: (s + loss(p, x * k), s), 0.0 * x.sum(), jnp.arange(3.0))
    ),
}


@doubles
@pytest.mark.parametrize("name", typical(TRANSFORMED, ("as it is", "grad", "jit of grad", "vmap of grad")))
def test_an_lstm_over_time_is_transformed(name: str) -> None:
    function = tempo_jax.function(lstm())
    given = function.init(), normal(2, 5, 3)
    found, wanted = (TRANSFORMED[name](loss_of(each))(*given) for each in (by_name(function), lstm_by_hand))
    assert_close(found, wanted)


@doubles
def test_causal_attention() -> None:
    function = tempo_jax.function(attention())
    given, cotangent = (function.init(), normal(2, 9, 4)), normal(2, 9, 4, seed=1)
    for transform in (lambda each: each, jax.jit):
        found, pulled = jax.vjp(transform(by_name(function)), *given)
        wanted, back = jax.vjp(attention_by_hand, *given)
        assert_close(found, wanted)
        assert_close(pulled(cotangent), back(cotangent))


def test_single_precision_is_relatively_as_exact() -> None:
    function = tempo_jax.function(lstm("float32"))
    given = function.init(), normal(2, 5, 3, dtype="float32")
    found = jax.jit(jax.grad(loss_of(by_name(function)), (0, 1)))(*given)
    with x64():
        wide = jax.tree.map(lambda array: jnp.asarray(np.asarray(array), "float64"), given)
        wanted = jax.grad(loss_of(lstm_by_hand), (0, 1))(*wide)
    for mine, theirs in zip(jax.tree.leaves(found), map(np.asarray, jax.tree.leaves(wanted)), strict=True):
        assert mine.dtype == np.float32
        assert np.abs(np.asarray(mine) - theirs).max() <= 1e-6 * max(np.abs(theirs).max(), 1)


def test_loops_are_in_the_callers_executable() -> None:
    function = tempo_jax.function(lstm("float32"), "last")
    lowered = jax.jit(jax.grad(lambda p, x: function(p, x=x).sum())).lower(function.init(), jnp.ones((2, 50, 3)))
    text = lowered.as_text()
    assert text.count("stablehlo.while") >= 2, "one forward, one back"
    assert "callback" not in text


def test_a_batch_is_an_axis_of_one_loop() -> None:
    function = tempo_jax.function(lstm("float32"), "last")

    def loops(call: Callable[..., Any], x: Any) -> int:
        return jax.jit(call).lower(x).as_text().count("stablehlo.while")

    call, x = lambda x: function(function.init(), x=x), jnp.ones((4, 2, 50, 3))
    assert loops(jax.vmap(call), x) == loops(call, x[0])


def test_draws_are_those_of_the_seed_traced_or_not() -> None:
    with tp.Program("dropout") as program:
        t = tp.dim("t")
        x = tp.input("x", (4,), (t,))
        tp.output("y", tp.exp(x) * tp.random.bernoulli(0.5, (4,), dims=(t,)).astype("float32"))
    function, x = tempo_jax.function(program), normal(6, 4, dtype="float32")

    def call(seed: Any, x: Any = x) -> Any:
        return function(x=x, seed=seed)

    np.testing.assert_array_equal(call(3), call(3))
    assert (call(3) != call(4)).any()
    for seed in (jnp.uint32(3), np.int64(3)):
        np.testing.assert_array_equal(call(seed), call(3))
    np.testing.assert_allclose(jax.jit(call)(3), call(3), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(call)(jnp.arange(5))[3], call(3), rtol=1e-6)
    zero = np.asarray(call(3)) == 0
    pulled = jax.vjp(lambda x: call(3, x), x)[1]
    only = jnp.where(zero, 1.0, 0.0)
    np.testing.assert_array_equal(pulled(only)[0], 0)  # what was dropped has no gradient


def scaled() -> tp.Program:
    with tp.Program("scaled") as program:
        b = tp.dim("b")
        x = tp.input("x", (3,), (b,))
        tp.input("unused", (2,))
        w, count = tp.parameter("w", (3,), [1.0, 2.0, 3.0]), tp.input("count", (), (), "int32")
        tp.output("y", x * w)
        tp.output("best", (x * w).argmax(axis=0) + count)
    return program


def test_several_outputs_and_what_has_no_gradient() -> None:
    function = tempo_jax.function(scaled())
    given = {"x": jnp.ones((2, 3)), "unused": jnp.zeros(2), "count": jnp.int32(2), **function.init()}
    made, pulled = jax.vjp(lambda given: function(**given), given)
    assert made["best"].tolist() == [4, 4]
    cotangent = {"y": jnp.ones((2, 3)), "best": np.zeros(2, jax.dtypes.float0)}
    (found,) = pulled(cotangent)
    assert found["x"].tolist() == [[1, 2, 3]] * 2
    assert found["w"].tolist() == [2, 2, 2]
    assert found["unused"].tolist() == [0, 0]
    assert found["count"].dtype == jax.dtypes.float0
    assert list(tempo_jax.function(scaled(), ["best"])(given)) == ["best"]
    assert jax.grad(lambda w: function({**given, "w": w})["y"][0].sum())(given["w"]).tolist() == [1, 1, 1]


def test_numbers_of_pythons_and_arrays_of_numpys_are_taken() -> None:
    function = tempo_jax.function(scaled(), "y")
    made = function(x=[[1, 1, 1]], unused=np.zeros(2), count=1, w=np.array([1.0, 2.0, 3.0]))
    assert made.tolist() == [[1, 2, 3]]
    assert made.dtype == np.float32


def test_it_is_pickled() -> None:
    function = tempo_jax.function(lstm("float32"), "last")
    read = pickle.loads(pickle.dumps(function))
    x = normal(2, 5, 3, dtype="float32")
    np.testing.assert_array_equal(read(function.init(), x=x), function(function.init(), x=x))
    assert repr(read) == "TempoFunction('lstm': x, w, u -> last)"


def test_a_tree_of_points_in_the_order_that_indices_give() -> None:
    with tp.Program("tree") as program:
        n = tp.dim("n")
        x, child = tp.input("x", (3,), (n,)), tp.input("child", (2,), (n,), "int32")
        u = tp.parameter("u", (3, 3), drawn)
        h = tp.recurrent("h", (3,), (n,))
        h[0] = tp.tanh(x)
        h[n] = tp.tanh(x + h.gather(n, child, within=slice(0, n)).sum(axis=0) @ u)
        tp.output("h", h)
    function = tempo_jax.function(program)
    random = np.random.default_rng(0)
    child = np.stack([random.integers(0, max(at, 1), 2) for at in range(9)]).astype(np.int32)
    x = normal(9, 3, dtype="float32")

    def by_hand(parameters: Arrays, x: Any) -> Any:
        h = [jnp.tanh(x[0])]
        for at in range(1, 9):
            h.append(jnp.tanh(x[at] + (h[child[at, 0]] + h[child[at, 1]]) @ parameters["u"]))
        return (jnp.stack(h) ** 2).sum()

    def loss(parameters: Arrays, x: Any, child: Any = child) -> Any:
        return (function(parameters, x=x, child=child) ** 2).sum()

    wanted = jax.grad(by_hand, (0, 1))(function.init(), x)
    assert_close(jax.grad(loss, (0, 1))(function.init(), x), wanted, 1e-5)
    assert_close(jax.jit(jax.grad(loss, (0, 1)))(function.init(), x, child), wanted, 1e-5)
    wrong = child.copy()
    wrong[4] = 7
    with pytest.raises(tp.IndexOutOfRangeError):
        loss(function.init(), x, wrong)
    assert np.isfinite(jax.jit(loss)(function.init(), x, wrong)), "traced, it is clamped"


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.grad(lambda x: jax.grad(f)(x).sum()),
        lambda f: jax.jit(jax.hessian(f)),
        lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (x,)),
        lambda f: jax.grad(jax.jit(lambda x: jax.jit(jax.grad(f))(x).sum())),
    ],
)
def test_a_second_derivative_is_refused(transform: Callable[..., Any]) -> None:
    function = tempo_jax.function(lstm("float32"), "last")
    parameters = function.init()
    with pytest.raises(tp.UnsupportedError, match="second derivative") as caught:
        transform(lambda x: function(parameters, x=x).sum())(jnp.ones((1, 2, 3)))
    assert caught.value.location.path == __file__


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"x": None}, tp.InputError),
        ({"w": None}, tp.InputError),
        ({"y": np.ones(2)}, tp.InputError),
        ({"x": np.ones((2, 5, 4), np.float32)}, tp.InputError),
        ({"x": "text"}, tp.InputError),
        ({"x": np.ones((2, 5, 3), np.int32)}, tp.DTypeError),
        ({"x": jnp.ones((2, 5, 3), jnp.int32)}, tp.DTypeError),
        ({"seed": -1}, tp.InputError),
        ({"seed": jnp.float32(1)}, tp.InputError),
    ],
)
def test_calls_that_do_not_fit(changed: Arrays, error: type[tp.TempoError]) -> None:
    function = tempo_jax.function(lstm("float32"))
    given = {"x": np.ones((2, 5, 3), np.float32), **function.init(), **changed}
    with pytest.raises(error) as caught:
        function(**{name: value for name, value in given.items() if value is not None})
    assert caught.value.location.path == __file__


def test_parameters_are_a_mapping_and_given_once() -> None:
    function = tempo_jax.function(lstm("float32"))
    with pytest.raises(tp.InputError, match="map names"):
        function(3, x=np.ones((2, 5, 3)))
    with pytest.raises(tp.InputError, match="twice"):
        function(function.init(), x=np.ones((2, 5, 3)), w=1)


def test_doubles_are_asked_for_where_they_are_off() -> None:
    function = tempo_jax.function(lstm("float64"))
    with pytest.raises(tp.DTypeError, match="jax_enable_x64"):
        function.init()


def test_rows_with_lengths_of_their_own() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x, u = tp.input("x", (2,), (b, t)), tp.input("u", (2, 2))
        h = tp.recurrent("h", (2,), (b, t))
        h[b, t.last] = tp.tanh(x)
        h[b, t] = tp.tanh(x + h[b, t + 1] @ u)
        tp.output("loss", h[b, 0 : t.size].mean(axis=0).sum())
    function = tempo_jax.function(program)
    x, u, lengths = normal(3, 4, 2, dtype="float32"), normal(2, 2, dtype="float32"), np.array([2, 4, 1], np.int32)

    def by_hand(u: Any) -> Any:
        total = 0.0
        for row, count in zip(x, lengths, strict=True):
            h, states = jnp.zeros(2), []
            for at in reversed(range(count)):
                h = jnp.tanh(row[at] + h @ u)
                states.append(h)
            total += jnp.stack(states).mean(0).sum()
        return total

    def loss(u: Any, n: Any = lengths) -> Any:
        return function(x=x, u=u, n=n).sum()

    assert_close(jax.grad(loss)(u), jax.grad(by_hand)(u), 1e-5)
    assert_close(jax.jit(jax.grad(loss))(u, lengths), jax.grad(by_hand)(u), 1e-5)
    with pytest.raises(tp.SizeError, match="length"):
        loss(u, lengths + 1)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, lambda f: lambda x: jax.vmap(f)(x[None])[0]])
def test_doubles_inside_a_program_need_nothing(transform: Callable[..., Any]) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        total = tp.recurrent("total", (), (t,), "float64")
        total[0] = x.astype("float64")
        total[t] = total[t - 1] * 0.5 + x.astype("float64")
        tp.output("y", total.astype("float32"))
    function = tempo_jax.function(program)
    found = transform(jax.grad(lambda x: function(x=x).sum()))(jnp.ones(3))
    assert found.dtype == np.float32
    assert found.tolist() == [1.75, 1.5, 1.0]


def test_options_that_look_at_values_are_refused() -> None:
    for options in (tp.Options(check_finite=True), tp.Options(buckets={"t": "pow2"})):
        with pytest.raises(tp.UnsupportedError, match="may be traced"):
            tempo_jax.function(lstm("float32"), options=options)
    function = tempo_jax.function(lstm("float32"), "last", options=tp.Options(checks=True))
    x = np.ones((2, 5, 3), np.float32)
    function(function.init(), x=x)
    with pytest.raises(tp.UnsupportedError, match="checks=True"):
        jax.jit(function)(function.init(), x=x)


def test_what_is_no_function_is_refused_at_its_line() -> None:
    with tp.Program() as program:
        x = tp.input("x", ())
        tp.output("y", x)
        tp.sink(lambda x: None, x)
    with pytest.raises(tp.UnsupportedError, match="sink") as caught:
        tempo_jax.function(program)
    assert "tp.sink" in caught.value.location.text
