"""Rules of the page "The language": The outside world."""

import numpy as np
import pytest

import tempo as tp
from tempo.errors import HostCallError, ProgramError, ShapeError

FLOAT = ((), tp.float32)


class Counter:
    """A resource with state: adds what it is given."""

    def __init__(self):
        self.total = 0.0
        self.log = []

    def reset(self):
        self.total = 0.0
        self.log.append("reset")
        return np.float32(0.0)

    def add(self, amount):
        self.total += float(amount)
        self.log.append(float(amount))
        return np.float32(self.total)


def test_a_python_function_as_an_operator(run_program):
    """a Python function as an operator; a tuple of recurrent tensors."""
    kinds = []

    def split(x):
        kinds.append(type(x))
        return x[:1] * 2, np.int32(x.sum())

    with tp.Program() as program:
        t = tp.dim("t", 3)
        x = tp.input("x", shape=(2,), dims=(t,))
        results = tp.host_call(split, x, out=[((1,), tp.float32), ((), tp.int32)])
        assert isinstance(results, tuple)
        first, total = results
        assert (first.domain, first.shape, total.dtype) == ((t,), (1,), "int32")
        tp.output("first", first + total)
    xs = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(run_program(program, x=xs)["first"], xs[:, :1] * 2 + xs.sum(1, keepdims=True))
    assert set(kinds) == {np.ndarray}


def test_the_domain_is_the_union():
    """Its domain is the union of its inputs' domains, `ordered_by` and `batched`."""
    with tp.Program() as program:
        a, b, c, d = tp.dims("a b c d")
        x, y = tp.input("x", dims=(d,)), tp.input("y", dims=(b,))
        (z,) = tp.host_call(max, x, y, out=[FLOAT], ordered_by=(a,), batched=(c,))
        assert z.domain == (a, b, c, d)
        (w,) = tp.host_call(max, out=[FLOAT], ordered_by=(a,))
        assert w.domain == (a,)
        tp.output("z", z)
    (call, *_) = (node for node in program.graph().nodes.values() if node.op == "host_call")
    assert [symbol.name for symbol in call.domain] == ["a", "b", "d"]
    assert str(call.results[0].shape) == "(c.size,)"


def test_batched_dims_in_front(run_program):
    """`fn` gets NumPy arrays, the `batched` dims in front (of inputs that have them), and returns one array or a
    tuple."""
    shapes = []

    def mix(x, scale, prefix):
        shapes.append((x.shape, scale.shape, prefix.shape))
        return (x.sum(-1) + prefix.sum(-1) * scale,)

    with tp.Program() as program:
        b, t = tp.dim("b", 3), tp.dim("t", 2)
        x = tp.input("x", shape=(4,), dims=(b, t))
        scale = tp.input("scale", dims=(t,))
        z = tp.input("z", dims=(b, t))
        (y,) = tp.host_call(mix, x, scale, z[b, 0 : t + 1], out=[FLOAT], batched=(b,), ordered_by=(t,))
        assert (y.domain, y.shape) == ((b, t), ())
        tp.output("y", y)
    rng = np.random.default_rng(0)
    xs, zs = rng.normal(size=(3, 2, 4)).astype(np.float32), rng.normal(size=(3, 2)).astype(np.float32)
    scales = np.array([2.0, 3.0], np.float32)
    out = run_program(program, x=xs, scale=scales, z=zs)["y"]
    np.testing.assert_allclose(out, xs.sum(-1) + zs.cumsum(1) * scales, rtol=1e-5)
    assert shapes == [((3, 4), (), (3, 1)), ((3, 4), (), (3, 2))]


def test_points_in_lexicographic_order(run_program):
    """its points are called in lexicographic order, without holes: the smallest prefix that contains the needed
    points."""
    seen = []

    def note(i, t):
        seen.append((int(i), int(t)))
        return np.float32(10 * i + t)

    with tp.Program() as program:
        i, t = tp.dim("i", 3), tp.dim("t", 3)
        (y,) = tp.host_call(note, tp.as_tensor(i), tp.as_tensor(t), out=[FLOAT], ordered_by=(i, t))
        tp.output("y", y[1, 1])
    assert run_program(program)["y"] == 11
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_a_run_per_point_of_the_other_dims(run_program):
    """An ordered run fixes the dims that are not in `ordered_by`;"""
    seen = []

    def note(b, t):
        seen.append((int(b), int(t)))
        return np.float32(0)

    with tp.Program() as program:
        b, t = tp.dim("b", 2), tp.dim("t", 3)
        (y,) = tp.host_call(note, tp.as_tensor(b), tp.as_tensor(t), out=[FLOAT], ordered_by=(t,))
        tp.output("y", y[1, 1] + y[0, 0])
    run_program(program)
    assert sorted(seen) == [(0, 0), (1, 0), (1, 1)]
    assert [point for point in seen if point[0] == 1] == [(1, 0), (1, 1)]


def test_calls_that_share_a_resource(run_program):
    """Calls with the same `resource` are ordered among each other by the ordered dims that both have, then by
    declaration (`reset(i)`, then `step(i, 0)` to `step(i, T - 1)`, then `reset(i + 1)`)."""
    counter = Counter()
    with tp.Program() as program:
        i, t = tp.dim("i", 2), tp.dim("t", 3)
        (start,) = tp.host_call(counter.reset, out=[FLOAT], ordered_by=(i,), resource=counter)
        (total,) = tp.host_call(counter.add, tp.as_tensor(t) + 1, out=[FLOAT], ordered_by=(i, t), resource=counter)
        tp.output("total", total + start)
    np.testing.assert_array_equal(run_program(program)["total"], [[1, 3, 6], [1, 3, 6]])
    assert counter.log == ["reset", 1.0, 2.0, 3.0, "reset", 1.0, 2.0, 3.0]


def test_resources_are_the_same_object_or_an_equal_name():
    def resources(*given):
        with tp.Program() as program:
            for resource in given:
                tp.sink(print, resource=resource)
        graph = program.graph()
        return [graph.nodes[id].attr("resource") for id in graph.sinks]

    shared = {"unhashable": []}
    assert len(set(resources(shared, shared))) == 1
    assert len(set(resources("environment", "".join(["environ", "ment"])))) == 1
    assert len(set(resources([], []))) == 2
    assert len(set(resources("a", "b"))) == 2
    assert resources(None) == [None]


def test_sinks_are_called_at_every_point(run_program):
    """`tp.sink(fn, *inputs, ordered_by=, batched=)`: no result, called at every point of its domain"""
    seen = []
    with tp.Program() as program:
        b, t = tp.dim("b", 2), tp.dim("t", 3)
        x = tp.input("x", dims=(b, t))
        assert tp.sink(lambda x, t: seen.append((x.tolist(), int(t))), x, t, ordered_by=(t,), batched=(b,)) is None
    run_program(program, x=np.arange(6, dtype=np.float32).reshape(2, 3))
    assert seen == [([0, 3], 0), ([1, 4], 1), ([2, 5], 2)]


def test_an_exception_stops_the_run_with_the_point():
    """An exception in `fn` stops the run and reaches the caller with the point at which it happened; the executable
    stays usable."""
    for backend in ("reference", "numpy"):
        limit = [1]

        def fail(t, limit=limit):
            if t > limit[0]:
                raise RuntimeError("too far")
            return np.float32(t)

        with tp.Program() as program:
            t = tp.dim("t", 3)
            (y,) = tp.host_call(fail, tp.as_tensor(t), out=[FLOAT], ordered_by=(t,))
            tp.output("y", y)
        run = tp.compile(program, backend=backend)
        with pytest.raises(HostCallError, match="t = 2") as caught:
            run()
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert "too far" in str(caught.value)
        limit[0] = 5
        np.testing.assert_array_equal(run()["y"], [0, 1, 2])


@pytest.mark.parametrize(
    ("returned", "text"), [(np.zeros(3), "shape"), (1j, "dtype"), ((1.0, 2.0), "2 results"), ("text", "dtype|array")]
)
def test_results_are_held_to_their_declaration(run_program, returned, text):
    with tp.Program() as program:
        (y,) = tp.host_call(lambda: returned, out=[FLOAT])
        tp.output("y", y)
    with pytest.raises(HostCallError, match=text):
        run_program(program)


def test_misuse():
    with tp.Program():
        b, t = tp.dims("b t")
        x = tp.input("x", dims=(b, t))
        with pytest.raises(ProgramError, match="both ordered and batched"):
            tp.host_call(abs, x, out=[FLOAT], ordered_by=(t,), batched=(t,))
        with pytest.raises(ProgramError, match="order of their declaration"):
            tp.host_call(abs, x, out=[FLOAT], ordered_by=(t, b))
        with pytest.raises(ProgramError, match="cannot be called"):
            tp.host_call(3, x, out=[FLOAT])
        with pytest.raises(ShapeError, match="tp.sink"):
            tp.host_call(abs, x, out=[])
        with pytest.raises(ShapeError, match="no pair"):
            tp.host_call(abs, x, out=[tp.float32])
        with pytest.raises(ShapeError, match="varies with b"):
            tp.host_call(abs, tp.arange(b + 1), out=[FLOAT], batched=(b,))
        with pytest.raises(ShapeError, match="batched"):
            tp.host_call(abs, x, out=[((b + 1,), tp.float32)], batched=(b,))
