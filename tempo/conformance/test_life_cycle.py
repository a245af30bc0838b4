"""Family 11, interop and life cycle: arrays of anyone in and out, repeated runs, threads, pickles, streams, state."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import dtypes
from tempo.conformance.target import Target, numbers

X = numbers((5, 3))


def running_sum() -> tp.Program:
    with tp.Program("running_sum") as program:
        t = tp.dim("t")
        x = tp.input("x", (3,), (t,))
        s = tp.recurrent("s", (3,), (t,))
        s[0] = x
        s[t + 1] = s + x[t + 1]
        tp.output("s", s)
        tp.output("last", s[-1])
    return program


def counter() -> tp.Program:
    with tp.Program("counter") as program:
        i = tp.dim("i")
        w = tp.parameter("w", (2,), np.array([1, 2], np.float32), dims=(i,))
        w[i + 1] = w + 1.0
        tp.output("w", w)
    return program


class Exported:
    """An array that says no more of itself than dlpack does."""

    def __dlpack__(self, **options: Any) -> Any:
        return X.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return X.__dlpack_device__()


def read_only() -> np.ndarray[Any, Any]:
    array = X.copy()
    array.flags.writeable = False
    return array


FORMS: dict[str, Callable[[], Any]] = {
    "array": X.copy,
    "float64": lambda: X.astype(np.float64),
    "float16": lambda: X.astype(np.float16),
    "list": X.tolist,
    "transposed": lambda: np.array(X.T, order="C").T,
    "every_other": lambda: np.repeat(X, 2, axis=0)[::2],
    "reversed": lambda: np.array(X[::-1])[::-1],
    "read_only": read_only,
    "dlpack": Exported,
}


@pytest.mark.one_configuration
def test_arrays_of_any_form_go_in(target: Target) -> None:
    run = target.compile(running_sum())
    for name, form in FORMS.items():
        found = target.to_numpy(run(x=form())["s"])
        assert found.dtype == np.float32, name
        np.testing.assert_array_equal(found, X.cumsum(0), err_msg=name)


@pytest.mark.one_configuration
def test_results_go_back_in_and_out(target: Target) -> None:
    """Arrays of the backend are inputs of other runs, and stay what they were; they export themselves by dlpack."""
    run = target.compile(running_sum())
    out = run(x=X)
    again = target.to_numpy(run(x=out["s"])["s"])
    np.testing.assert_array_equal(again, X.cumsum(0).cumsum(0))
    np.testing.assert_array_equal(target.to_numpy(out["s"]), X.cumsum(0))
    if (
        target.mesh is None and hasattr(out["s"], "__dlpack_device__") and out["s"].__dlpack_device__()[0] == 1
    ):  # on the CPU
        np.testing.assert_array_equal(np.from_dlpack(out["s"]), X.cumsum(0))


@pytest.mark.one_configuration
@pytest.mark.parametrize("dtype", dtypes.DTYPES)
def test_every_dtype_goes_in_and_out(target: Target, dtype: str) -> None:
    if dtype not in target.info.dtypes:
        pytest.skip(f"{target.info.name} has no {dtype}")
    data = numbers((3, 2), dtype)
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (2,), (t,), dtype=dtype)
        tp.output("same", x)
        tp.output("fixed", tp.constant(data, dtype=dtype))
        tp.output("one", x[0])
    out = target.arrays(target.compile(program)(x=data))
    for name, wanted in {"same": data, "fixed": data, "one": data[0]}.items():
        assert dtypes.from_numpy(out[name].dtype) == dtype
        np.testing.assert_array_equal(out[name], wanted)


@pytest.mark.few_configurations
def test_runs_at_other_sizes_and_again(target: Target) -> None:
    run = target.compile(running_sum())
    for size in (1, 2, 5, 2, 1):
        out = run(x=X[:size])
        np.testing.assert_array_equal(target.to_numpy(out["s"]), X[:size].cumsum(0))
        assert out.sizes == {"t": size}
    with pytest.raises(tp.InputError):
        run(x=X[:, :2])
    np.testing.assert_array_equal(target.to_numpy(run(x=X)["last"]), X.sum(0))


@pytest.mark.one_configuration
def test_two_executables_at_once(target: Target) -> None:
    one, two = target.compile(running_sum()), target.compile(counter(), {"i": 3})
    first, second = one(x=X), two()
    third = one(x=-X)
    np.testing.assert_array_equal(target.to_numpy(first["s"]), X.cumsum(0))
    np.testing.assert_array_equal(target.to_numpy(second["w"]), [[1, 2], [2, 3], [3, 4]])
    np.testing.assert_array_equal(target.to_numpy(third["s"]), -X.cumsum(0))


@pytest.mark.one_configuration
def test_threads_share_an_executable(target: Target) -> None:
    run = target.compile(running_sum())
    inputs = [numbers((5, 3), seed=seed) for seed in range(12)]
    run(x=inputs[0])
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: target.to_numpy(run(x=x)["s"]), inputs))
    for x, sums in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(sums, x.cumsum(0))


@pytest.mark.one_configuration
def test_threads_begin_with_sizes_of_their_own(target: Target) -> None:
    """Nothing is compiled yet when all call at once, and each size is called by several."""
    run, barrier = target.compile(running_sum()), threading.Barrier(6)

    def calls(number: int) -> None:
        barrier.wait()
        for size in (2 + number % 3, 3, 1 + number % 2):
            x = numbers((size, 3), seed=number)
            np.testing.assert_array_equal(target.to_numpy(run(x=x)["s"]), x.cumsum(0))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(calls, range(6)))


@pytest.mark.one_configuration
def test_programs_are_pickled(target: Target) -> None:
    copied = pickle.loads(pickle.dumps(running_sum()))
    np.testing.assert_array_equal(target.to_numpy(target.compile(copied)(x=X)["s"]), X.cumsum(0))


@pytest.mark.one_configuration
def test_executables_are_pickled(target: Target) -> None:
    for sizes in (None, {"t": 5}):
        copied = pickle.loads(pickle.dumps(target.compile(running_sum(), sizes)))
        np.testing.assert_array_equal(target.to_numpy(copied(x=X)["s"]), X.cumsum(0))


@pytest.mark.planned
@pytest.mark.few_configurations
def test_streams_give_each_point_once(target: Target) -> None:
    run = target.compile(running_sum())
    points = [(step.start, step.stop, target.to_numpy(step["s"])) for step in run.stream("t", x=X)]
    assert [bounds[:2] for bounds in points] == [(at, at + 1) for at in range(5)]
    np.testing.assert_array_equal([array for _, _, array in points], X.cumsum(0))
    stream = run.stream("t", chunk=2, x=X)
    chunks = [target.to_numpy(step["s"]) for step in stream]
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate(chunks), X.cumsum(0))
    assert stream.result is not None
    np.testing.assert_array_equal(target.to_numpy(stream.result["last"]), X.sum(0))


@pytest.mark.planned
@pytest.mark.one_configuration
def test_a_stream_may_be_left(target: Target) -> None:
    """Host functions are called only for what was streamed; another run starts anew."""
    calls: list[int] = []

    def note(at: Any) -> Any:
        calls.append(int(at))
        return np.array(at, np.float32)

    with tp.Program() as program:
        t = tp.dim("t", 6)
        (y,) = tp.host_call(note, tp.as_tensor(t, dtype=tp.int32), out=[((), "float32")], ordered_by=(t,))
        tp.output("y", y * 2)
    run = target.compile(program)
    stream = run.stream("t")
    assert [float(target.to_numpy(next(stream)["y"])) for _ in range(2)] == [0, 2]
    assert calls == [0, 1]
    np.testing.assert_array_equal(target.to_numpy(run()["y"]), np.arange(6) * 2)


@pytest.mark.few_configurations
def test_state_goes_from_run_to_run(target: Target) -> None:
    run = target.compile(counter(), {"i": 4})
    first = run()
    np.testing.assert_array_equal(target.to_numpy(first.state["w"]), [4, 5])
    np.testing.assert_array_equal(target.to_numpy(run()["w"]), target.to_numpy(first["w"]))  # a run is pure
    second = run(state=first.state)
    np.testing.assert_array_equal(target.to_numpy(second["w"])[0], [4, 5])
    with_arrays = run(state={"w": np.array([10, 20], np.float32)})
    np.testing.assert_array_equal(target.to_numpy(with_arrays.state["w"]), [13, 23])
    np.testing.assert_array_equal(target.to_numpy(first.state["w"]), [4, 5])


@pytest.mark.one_configuration
def test_names_of_any_characters(target: Target) -> None:
    with tp.Program("any name") as program:
        t = tp.dim("lambda_", 2)
        w = tp.parameter("layer:0/w", (), 3.0, dims=(t,))
        w[t + 1] = w + 1
        tp.output("out: a b", w * 2)
        tp.output("for", w)
    out = target.compile(program)()
    assert sorted(out) == ["for", "out: a b"]
    assert list(out.state) == ["layer:0/w"]
    np.testing.assert_array_equal(target.to_numpy(out["out: a b"]), [6, 8])


@pytest.mark.planned
@pytest.mark.one_configuration
def test_it_explains_itself(target: Target) -> None:
    text = target.compile(running_sum(), {"t": 3}).explain("all")
    assert "for t in" in text
    assert "lift" in text


def test_numbers_in_another_byte_order(target: Target) -> None:
    """As files of other machines have them."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, c = tp.input("x", (3,), (t,)), tp.constant(numbers((3,)).astype(">f4"))
        w = tp.parameter("w", (3,), numbers((3,), seed=1).astype(">f8"), dims=(t,))
        w[t + 1] = w + x * c
        tp.output("w", w)
    run, x_data, state = target.compile(program), numbers((4, 3)), {"w": numbers((3,), seed=2)}
    expected = target.arrays(run(x=x_data, state=state))["w"]
    found = target.arrays(run(x=x_data.astype(">f4"), state={"w": state["w"].astype(">f4")}))["w"]
    np.testing.assert_array_equal(found, expected)


def test_what_a_run_begins_with_is_nobodys_to_change(target: Target) -> None:
    """Initial values that all calls share: neither what a call of the host does to its arguments, nor what is done to
    results, is seen in the next run."""

    def overwrites(w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        y = w + np.float32(1)
        if w.flags.writeable:
            w[...] = 7
        return y

    with tp.Program() as program:
        i = tp.dim("i")
        tp.output("still", tp.parameter("still", (3,), 2.0))
        w = tp.parameter("w", (3,), 0, dims=(i,))
        (y,) = tp.host_call(overwrites, w, out=[((3,), "float32")], ordered_by=(i,))
        w[i + 1] = w + y
        tp.output("y", y)
    run = target.compile(program, {"i": 1})
    for _ in range(3):
        outputs = run()
        np.testing.assert_array_equal(target.to_numpy(outputs["y"]), np.ones((1, 3)))
        np.testing.assert_array_equal(target.to_numpy(outputs["still"]), [2, 2, 2])
        for array in (*outputs.values(), *outputs.state.values()):
            found = np.asarray(target.to_numpy(array))
            if found.flags.writeable:
                found[...] = 9


def test_arrays_may_be_overwritten_once_a_call_has_returned(target: Target) -> None:
    """A backend may still be at work then. Aligned arrays are those that libraries do not copy."""

    def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        room = np.zeros(array.nbytes + 64, np.uint8)
        start = -room.ctypes.data % 64
        found = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(found, array)
        return np.asarray(found)

    with tp.Program() as program:
        t = tp.dim("t", 200)
        x, m = tp.input("x", (64, 64), ()), tp.input("m", (64, 64), ())
        w = tp.parameter("w", (64, 64), 0)
        h = tp.recurrent("h", (64, 64), (t,))
        h[0], h[t + 1] = m, tp.tanh(h @ m)
        tp.output("sum", (h[-1] * 0 + x + w).sum())
    run, m_data = target.compile(program), 0.01 * numbers((64, 64))
    for _ in range(3):
        x_data, w_data = (aligned(np.full((64, 64), value, np.float32)) for value in (1, 2))
        found = run(x=x_data, m=m_data, state={"w": w_data})["sum"]
        x_data[...], w_data[...] = 7, 9
        np.testing.assert_array_equal(target.to_numpy(found), 3 * 64 * 64)
