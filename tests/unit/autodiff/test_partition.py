"""Forward and backward graphs: gradients are those of the whole, and what is handed on is little, and right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.gradient_programs import READS, SIZES, reads
from tempo.conformance.random_programs import Choices
from tempo.conformance.random_programs.agreement import Situation, arrays
from tempo.conformance.random_programs.differences import draw_differentiable, in_doubles
from tempo.conformance.random_programs.edges import draw_edges
from tempo.conformance.random_programs.generator import draw_steps
from tempo.conformance.target import typical
from tempo.plugins import get_backend
from tempo.runtime.reverse_mode import ReverseMode

Declare = Callable[[], Mapping[str, tp.RecurrentTensor]]
OFTEN = ("earlier and later", "prefix", "window", "stride", "reversed")
POISONED = tp.Options(poison=True, debug=True)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def check(
    declare: Declare,
    given: Mapping[str, Any],
    cotangents: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    backend: str = "numpy",
) -> ReverseMode:
    """Gradients by all float inputs are those of `sum(output * cotangent)`, as the reference evaluator has them."""
    with tp.Program("parts") as parts:
        for name, output in declare().items():
            tp.output(name, output)
    reverse = ReverseMode(parts, get_backend(backend), sizes=sizes, options=POISONED)
    wanted = frozenset(name for name, each in reverse.arguments.items() if each.is_float)
    with tp.Program("whole") as whole:
        outputs, summed = declare(), []
        for name, output in outputs.items():
            if name in cotangents:
                weight = tp.input(f"c_{name}", output.shape, output.domain, output.dtype)
                product = (output * weight).sum()
                summed.append(product[tuple(slice(0, each.size) for each in output.domain)].sum())
        inputs = {
            name: tp.RecurrentTensor(whole, whole.builder.identity(id)) for name, id in whole.builder.inputs.items()
        }
        for name, gradient in tp.grad(sum(summed[1:], summed[0]), {name: inputs[name] for name in wanted}).items():
            tp.output(f"d_{name}", gradient)
    weights = {f"c_{name}": each for name, each in cotangents.items()}
    expected = tp.compile(whole, "reference")(**given, **weights, seed=seed, sizes=sizes)
    made = reverse.forward(wanted, given, seed)
    found = reverse.backward(wanted, given, made.residuals, cotangents, made.sizes, seed)
    for name in wanted:
        np.testing.assert_allclose(found[name], expected[f"d_{name}"], rtol=1e-9, atol=1e-9, err_msg=name)
    return reverse


@pytest.mark.parametrize("name", typical(READS, OFTEN))
def test_a_read_sends_along_its_preimage(name: str) -> None:
    def declare() -> dict[str, tp.RecurrentTensor]:
        s, t = tp.dims("s t")
        x = tp.input("x", (3,), (s, t), "float64")
        return {"y": reads(s, t, tp.sin(x) * 2)[name]}

    check(declare, {"x": numbers(5, 6, 3)}, {"y": numbers(5, 6, seed=1)}, SIZES)


def lstm(width: int = 3, inner: int = 2) -> dict[str, tp.RecurrentTensor]:
    b, t = tp.dims("b t")
    x = tp.input("x", (inner,), (b, t), "float64")
    w, u = (tp.input(name, (size, 4 * width), (), "float64") for name, size in (("w", inner), ("u", width)))
    h, c = (tp.recurrent(name, (width,), (b, t), "float64") for name in "hc")
    before, kept = (tp.cases((t == 0, tp.zeros((width,), "float64")), each[b, t - 1]) for each in (h, c))
    gates = x @ w + before @ u
    i, f, o, z = (gates.spatial[k * width : (k + 1) * width] for k in range(4))
    c[b, t] = tp.sigmoid(f) * kept + tp.sigmoid(i) * tp.tanh(z)
    h[b, t] = tp.sigmoid(o) * tp.tanh(c)
    return {"h": h, "last": c[b, t.size - 1]}


@pytest.mark.parametrize("size", [1, 2, 5])
def test_an_lstm_hands_on_states_and_gates(size: int) -> None:
    given = {"x": numbers(2, size, 2), "w": numbers(2, 12), "u": numbers(3, 12)}
    reverse = check(lstm, given, {"h": numbers(2, size, 3), "last": numbers(2, 3, seed=2)})
    cut = reverse.partition(["w", "u"])
    assert "h" in cut.residuals.values(), "an output of the user's is handed on as it is"
    handed = [each for each in cut.forward.outputs if each.name in cut.residuals.values()]
    assert sum(int(each.type.shape[0].as_int()) for each in handed) == 6 * 3, "h, c, and four gates, each once"
    again = [node.op for node in cut.backward.nodes.values() if node.op in ("logistic", "tanh")]
    assert again == ["tanh"], "that of c, which is there"


def test_the_weights_of_attention_over_the_past_are_made_again() -> None:
    def declare() -> dict[str, tp.RecurrentTensor]:
        t = tp.dim("t")
        x = tp.input("x", (4,), (t,), "float64")
        q, k, v = (x @ tp.input(name, (4, 4), (), "float64") for name in "qkv")
        weights = tp.softmax(k[0 : t + 1] @ q, axis=0)
        return {"y": weights @ v[0 : t + 1]}

    given = {"x": numbers(6, 4)} | {name: numbers(4, 4, seed=at) for at, name in enumerate("qkv")}
    cut = check(declare, given, {"y": numbers(6, 4)}).partition(["x", "q", "k", "v"])
    assert len(cut.residuals) == 3, "queries, keys and values: weights have another shape at every point"


def test_draws_are_the_same_on_the_way_back() -> None:
    def declare() -> dict[str, tp.RecurrentTensor]:
        t = tp.dim("t")
        x = tp.input("x", (8,), (t,), "float64")
        mask = tp.random.bernoulli(0.5, (8,), dims=(t,)).astype("float64")
        noise = tp.random.normal((8,), dims=(t,), dtype="float64")
        return {"y": x * mask * noise, "z": tp.exp(x) * noise}

    for seed in (0, 7):
        check(declare, {"x": numbers(5, 8)}, {"y": numbers(5, 8, seed=1), "z": numbers(5, 8, seed=2)}, seed=seed)


def test_a_value_that_is_needed_at_some_points_alone_is_made_there_alone() -> None:
    def declare() -> dict[str, tp.RecurrentTensor]:
        t = tp.dim("t")
        x, w = tp.input("x", (3,), (t,), "float64"), tp.input("w", (3, 3), (), "float64")
        ahead = tp.exp(x[t + 1] @ w)  # which the last point has not
        return {"y": tp.cases((t < t.size - 1, ahead), x)}

    reverse = check(declare, {"x": numbers(4, 3), "w": numbers(3, 3)}, {"y": numbers(4, 3)})
    assert len(reverse.partition(["w"]).residuals) == 1


def test_outputs_that_are_not_differentiable_have_no_cotangent() -> None:
    def declare() -> dict[str, tp.RecurrentTensor]:
        b = tp.dim("b")
        x = tp.input("x", (3,), (b,), "float64")
        return {"y": tp.tanh(x), "best": x.argmax(axis=0)}

    reverse = check(declare, {"x": numbers(2, 3)}, {"y": numbers(2, 3)})
    assert reverse.float_outputs == ("y",)


def test_gradients_inside_the_program_are_differentiated() -> None:
    def declare() -> dict[str, tp.RecurrentTensor]:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,), "float64")
        return {"slope": tp.grad((tp.sin(x) * x[0]).sum(), x)}

    check(declare, {"x": numbers(4, 3)}, {"slope": numbers(4, 3, seed=1)})


def test_markers_keep_their_meaning() -> None:
    @tp.custom_gradient
    def doubled(x: tp.RecurrentTensor) -> Any:
        return x, lambda g: 2 * g

    def declare() -> dict[str, tp.RecurrentTensor]:
        x = tp.input("x", (3,), (), "float64")
        return {"y": doubled(tp.exp(x)) + tp.stop_gradient(x) * x}

    check(declare, {"x": numbers(3)}, {"y": numbers(3, seed=1)})


def _random(seeds: Iterable[int]) -> int:
    compared = 0
    for seed in seeds:
        drawn = draw_differentiable(Choices.seeded(seed), steps=draw_edges if seed % 2 else draw_steps)
        compared += drawn is not None and _agrees(in_doubles(drawn).build(), seed)
    return compared


def _agrees(built: Any, seed: int) -> bool:
    """Whether there was a gradient to compare: of programs that have a meaning, and that are functions of arrays."""
    names = [each.symbol.name for each in built.program.graph().dims if not each.size.is_const]
    situation = Situation({name: 2 + (seed + at) % 3 for at, name in enumerate(names)}, seed)
    try:
        given = arrays(built, situation)
        expected = tp.compile(built.program, "reference")(seed=seed, sizes=situation.sizes, **given)
        reverse = ReverseMode(built.program, get_backend("numpy"), "loss", situation.sizes, tp.Options(poison=True))
    except tp.TempoError:
        return False
    slopes = {name.removeprefix("slope_"): each for name, each in expected.items() if name.startswith("slope_")}
    given = {name: given[name] for name in reverse.inputs} | reverse.initial(seed)  # without streams that nobody reads
    made = reverse.forward(frozenset(slopes), given, seed)
    one = np.ones_like(made.outputs["loss"])
    found = reverse.backward(frozenset(slopes), given, made.residuals, {"loss": one}, made.sizes, seed)
    for name, slope in slopes.items():
        np.testing.assert_allclose(found[name], slope, rtol=1e-9, atol=1e-9, err_msg=f"{seed}: {name}")
    return bool(slopes)


@pytest.mark.slow
def test_random_programs_in_two_parts() -> None:
    assert _random(range(12)) > 3


@pytest.mark.slow
def test_more_random_programs_in_two_parts() -> None:
    assert _random(range(16, 100)) > 30
