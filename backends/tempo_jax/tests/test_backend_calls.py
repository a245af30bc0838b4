"""Functions of JAX arrays, traced into the compiled loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tempo as tp


def halley(state: Any, key: Any) -> tuple[Any, Any]:
    """Anything that jax.jit takes: loops, draws, transformations of functions."""
    noise = jax.random.uniform(key, (3,))
    steps = jax.lax.while_loop(lambda n: n * n < 50, lambda n: n + 1, jnp.int32(0))
    return jnp.tanh(state + noise), steps + jax.vmap(lambda x: x > 0)(noise).sum()


def program(counted: Any) -> tp.Program:
    with tp.Program() as made:
        t = tp.dim("t")
        state = tp.recurrent("state", (3,), (t,))
        keys = tp.random.bits((2,), dims=(t,))
        after, steps = tp.backend_call(counted, state, keys, out=[((3,), tp.float32), ((), tp.int32)], backend="jax")
        state[0] = tp.zeros((3,))
        state[t + 1] = after
        tp.output("state", state)
        tp.output("steps", steps)
        tp.output("keys", keys)
    return made


def test_it_is_traced_not_called_at_every_point() -> None:
    traced = []

    def counted(*arrays: Any) -> Any:
        traced.append(all(isinstance(each, jax.core.Tracer) for each in arrays))
        return halley(*arrays)

    run = tp.compile(program(counted), "jax")
    out = run(sizes={"t": 500})
    assert traced
    assert all(traced)
    assert len(traced) <= 4  # peeled iterations are traced, too
    assert "# host" not in run.explain("all")
    state = np.zeros(3, np.float32)
    for at in range(5):
        np.testing.assert_allclose(out["state"][at], state, rtol=1e-5, atol=1e-6)
        state, steps = halley(state, out["keys"][at])
        assert int(out["steps"][at]) == int(steps) == 8 + 3


def test_gradients_of_jax_as_a_gradient_of_its_own() -> None:
    def energy(x: Any) -> Any:
        return jnp.sum(jnp.sin(x) ** 2)

    @tp.custom_gradient
    def own(x: tp.RecurrentTensor) -> Any:
        (value,) = tp.backend_call(energy, x, out=[((), tp.float32)], backend="jax")

        def pullback(g: tp.RecurrentTensor) -> tp.RecurrentTensor:
            (slope,) = tp.backend_call(jax.grad(energy), x, out=[((4,), tp.float32)], backend="jax")
            return g * slope

        return value, pullback

    with tp.Program() as made:
        t = tp.dim("t")
        x = tp.input("x", (4,), (t,))
        tp.output("slope", tp.grad(own(x), x))
    x_data = np.linspace(-2, 2, 20, dtype=np.float32).reshape(5, 4)
    found = tp.compile(made, "jax")(x=x_data)["slope"]
    np.testing.assert_allclose(found, np.sin(2 * x_data), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["jax", "reference"])
def test_wide_types_are_honoured(backend: str) -> None:
    with tp.Program() as made:
        x = tp.input("x", (2,), (), tp.float64)
        (y,) = tp.backend_call(jnp.exp, x, out=[((2,), tp.float64)], backend="jax")
        tp.output("y", y)
    found = tp.compile(made, backend)(x=np.array([0.1, 0.2]))["y"]
    np.testing.assert_allclose(found, np.exp([0.1, 0.2]), rtol=1e-14)


@pytest.mark.parametrize("wrong", ["shape", "dtype"])
def test_what_is_traced_is_held_to_what_was_declared(wrong: str) -> None:
    out = [((3,), tp.float32)] if wrong == "shape" else [((2,), tp.int32)]
    with tp.Program() as made:
        (y,) = tp.backend_call(jnp.exp, tp.input("x", (2,)), out=out, backend="jax")
        tp.output("y", y)
    with pytest.raises(tp.BackendCallError, match=r"is float32\[2\], declared is"):
        tp.compile(made, "jax")(x=[1.0, 2.0])
