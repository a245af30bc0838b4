"""Sizes and arrays that are too large are refused in the user's words."""

import numpy as np
import pytest

import tempo as tp


@pytest.mark.parametrize("backend", ["numpy", "reference"])
def test_what_does_not_fit_into_memory_is_named(backend: str) -> None:
    """`MemoryLimitError` (the limit, the smallest plan found, its largest buffers)"""
    with tp.Program() as program:
        n = tp.input("n", shape=())
        tp.output("large", tp.zeros((10**12, 10**4)) + n)
    run = tp.compile(program, backend=backend)
    with pytest.raises(tp.MemoryLimitError, match="does not fit into memory") as caught:
        run(n=1.0)
    assert isinstance(caught.value, MemoryError)
    assert backend != "numpy" or f"float32[{10**12}, {10**4}], {4 * 10**16} B" in str(caught.value)


def test_what_a_stream_cannot_hold_is_named() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        s = tp.recurrent("s", shape=(), dims=(t,))
        s[0] = 0
        s[t + 1] = s + 1
        tp.output("large", s + tp.zeros((10**12, 10**4)))
    run = tp.compile(program)
    with pytest.raises(tp.MemoryLimitError, match=r"large: float32\[2, 1000000000000, 10000\]"):
        next(run.stream("t", sizes={"t": 2}))


def test_a_size_is_limited() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("y", t * 1)
        with pytest.raises(tp.SizeError, match=r"size of the dim s is 1073741825; it must be at most 2\*\*30"):
            tp.dim("s", 2**30 + 1)
    with pytest.raises(tp.SizeError, match=r"size of the dim 't' is 1073741825; it must be at most 2\*\*30"):
        tp.compile(program)(sizes={"t": 2**30 + 1})
    with pytest.raises(tp.SizeError, match="at most"):
        tp.compile(program, sizes={"t": 10**30})
    np.testing.assert_array_equal(tp.compile(program)(sizes={"t": 2})["y"], [0, 1])


def test_a_buffer_that_is_none() -> None:
    with tp.Program() as program:
        tp.output("y", tp.input("x", shape=(3,)) * 2)
    run = tp.compile(program, sizes={})
    with pytest.raises(tp.InputError, match="no buffer is called 'z'"):
        run.memory["z"]
