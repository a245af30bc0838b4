"""Rules of the page "The language": inputs, outputs, names; and what a tensor shows of itself."""

import pickle

import numpy as np
import pytest

import tempo as tp
from tempo.errors import IndexExpressionError, InputError, ProgramError, ShapeError


def test_an_output_has_the_domain_in_front(run_program):
    """`tp.output(name, x)`: an array with the domain's dims in front, in canonical order, then the shape."""
    with tp.Program() as program:
        a, b = tp.dim("a", 2), tp.dim("b", 3)
        x = tp.input("x", shape=(4,), dims=(b,))
        y = tp.input("y", shape=(5, 1), dims=(a,))
        tp.output("z", y + x)
        tp.output("t", b - a)
        tp.output("number", 3)
    xs, ys = np.arange(12.0).reshape(3, 4), np.arange(10.0).reshape(2, 5, 1)
    out = run_program(program, x=xs, y=ys)
    np.testing.assert_array_equal(out["z"], ys[:, None] + xs[None, :, None])
    np.testing.assert_array_equal(out["t"], [[0, 1, 2], [-1, 0, 1]])
    assert (out["number"], out["number"].dtype) == (3, np.int32)


def test_inputs_with_shapes_of_sizes(run_program):
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(t.size, 2), dims=(t,))
        tp.output("y", x.sum(axis=(0, 1)))
    xs = np.arange(18, dtype=np.float32).reshape(3, 3, 2)
    np.testing.assert_array_equal(run_program(program, x=xs)["y"], xs.sum((1, 2)))


def test_shapes_that_vary_are_no_arrays():
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        with pytest.raises(ShapeError, match="varies along t"):
            tp.output("y", x[0 : t + 1])
        with pytest.raises(ShapeError, match="varies along t"):
            tp.input("y", shape=(t + 1,), dims=(t,))
        with pytest.raises(ShapeError, match="negative"):
            tp.input("y", shape=(-1,))


def test_names():
    with tp.Program():
        x = tp.input("x")
        tp.output("y", x)
        tp.parameter("w", (), init=0.0)
        for declare in (
            lambda: tp.input("x"),
            lambda: tp.output("y", x),
            lambda: tp.parameter("w", (), init=1.0),
        ):
            with pytest.raises(ProgramError, match="already") as caught:
                declare()
            assert caught.value.location.path == __file__
        for wrong in ("", None, 3):
            for declare in (tp.input, lambda name: tp.output(name, x), lambda name: tp.recurrent(name, (), ())):
                with pytest.raises(ProgramError, match="name"):
                    declare(wrong)


@pytest.mark.parametrize("name", ["seed", "sizes", "state", "progress", "strict", "chunk", "donate"])
def test_reserved_names(name):
    """`seed` (0 unless given), `sizes`, `state`, `progress` are reserved names of a call."""
    with tp.Program(), pytest.raises(ProgramError, match="reserved"):
        tp.input(name)


def test_inputs_missing_extra_misspelt(run_program):
    """`InputError` (missing, extra, misspelt, with the nearest name; wrong shape)"""
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("y", tp.input("signal", shape=(2,), dims=(t,)))
    good = np.ones((3, 2), np.float32)
    with pytest.raises(InputError, match="'signal' is missing"):
        run_program(program)
    with pytest.raises(InputError, match="'signal'"):
        run_program(program, sginal=good)
    with pytest.raises(InputError, match="'other'"):
        run_program(program, signal=good, other=good)
    for wrong in (np.ones((3,), np.float32), np.ones((3, 4), np.float32)):
        with pytest.raises(InputError, match="shape"):
            run_program(program, signal=wrong)


def test_repr_shows_name_domain_shape_dtype():
    """`repr` of a tensor shows name, domain, shape, dtype."""
    with tp.Program():
        b, t = tp.dims("b t")
        h = tp.recurrent("h", (64,), (b, t), tp.float16)
        assert repr(h) == "RecurrentTensor(h, domain=(b, t), shape=(64,), dtype=float16)"
        assert repr(h[0, t - 1]) == "RecurrentTensor(h[0, t - 1], domain=(t,), shape=(64,), dtype=float16)"
        assert repr(h[b, 0 : t + 1] * 2) == "RecurrentTensor(mul, domain=(b, t), shape=(t + 1, 64), dtype=float16)"
        assert "h[b, 1:t + 1]" in repr(h[b, 1 : t + 1])


def test_a_tensor_has_no_value_while_the_program_is_written():
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        uses = {
            "tp.where": lambda: 1 if x > 0 else 2,
            "make it an output": lambda: float(x),
            "output": lambda: int(x),
            "tp.stack": lambda: np.asarray(x),
            "tp.exp": lambda: np.array([x, x]),
            "tp.unstack": lambda: list(x),
            "x[t] along dims": lambda: [value for value in x],  # noqa: C416
            "x.gather": lambda: [1, 2, 3][x],
            "any()": lambda: 3 in x,
        }
        for advice, use in uses.items():
            with pytest.raises(IndexExpressionError) as caught:
                use()
            assert isinstance(caught.value, TypeError)
            assert advice in str(caught.value)
            assert caught.value.location.path == __file__
        with pytest.raises(TypeError):
            np.exp(x)
        with pytest.raises(TypeError):
            len(x)


def test_reflected_and_augmented_operators(run_program):
    with tp.Program() as program:
        x = tp.input("x", shape=(3,))
        array = np.array([1.0, 2.0, 3.0], np.float32)
        y = array + x
        for made in (array - x, array @ x, array < x, np.float32(1) / x, np.float64(2) ** x, 2**x, 7 // x, 7 % x):
            assert isinstance(made, tp.RecurrentTensor)
        y += 1
        y *= array
        tp.output("y", y)
        tp.output("z", array - x)
        tp.output("less", array < x)
    xs = np.array([3.0, 2.0, 1.0], np.float32)
    out = run_program(program, x=xs)
    np.testing.assert_array_equal(out["y"], (xs + array + 1) * array)
    np.testing.assert_array_equal(out["z"], array - xs)
    np.testing.assert_array_equal(out["less"], array < xs)


def test_equal_pure_nodes_are_one():
    """Pure nodes that are equal are one node."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        first, second = tp.exp(x * 2)[t - 1], tp.exp(x * 2.0)
        assert first.edge.node == second.edge.node
        assert (x + 1).edge == (x + 1.0).edge
        assert (x * 0.0).edge != (x * -0.0).edge
        assert (tp.cases((t > 0, x), 0.0)).edge == tp.cases((t > 0, x), 0.0).edge
        assert tp.pad(x[0:3], 1, 0).edge == tp.pad(x[0:3], 1, 0.0).edge
        tp.output("y", first + second)
    assert sum(node.op == "exp" for node in program.graph().nodes.values()) == 1


def test_nominal_nodes_are_each_their_own():
    """Inputs, parameters, recurrent tensors, random draws, host calls and sinks are *nominal*: each declaration is its
    own, however equal two look."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        y = tp.input("y", dims=(t,))
        declarations = [
            (x, y),
            (tp.recurrent("h", (), (t,)), tp.recurrent("h", (), (t,))),
            (tp.parameter("v", (), 0.0), tp.parameter("w", (), 0.0)),
            (tp.random.uniform(), tp.random.uniform()),
            (tp.host_call(abs, x, out=[((), tp.float32)])[0], tp.host_call(abs, x, out=[((), tp.float32)])[0]),
        ]
        for first, second in declarations:
            assert first.edge != second.edge
        tp.sink(print, x)
        tp.sink(print, x)
    assert len(program.graph().sinks) == 2


def test_the_domain_of_a_node_is_what_varies():
    with tp.Program() as program:
        a, b = tp.dims("a b")
        x = tp.input("x", shape=(3,), dims=(a,))
        assert (x[0] + x[1]).domain == ()
        assert (x[b] * 2).domain == (b,)
        assert (x[0 : b + 1].sum()).domain == (b,)
        assert (tp.arange(b + 1)).domain == (b,)
        assert tp.as_tensor(a - a).domain == ()
        assert (x - b).domain == (a, b)
        assert (x[:].sum() * (a < b)).domain == (a, b)
    for node in program.graph().nodes.values():
        assert program.graph().canonical(node.domain) == node.domain


def test_nodes_know_the_users_line():
    with tp.Program() as program:
        x = tp.input("x", shape=(3,))
        y = tp.std(x)  # every node of the deviation was made here
        tp.output("y", y)
    made = [node for node in program.graph().nodes.values() if node.op != "input"]
    assert len(made) > 3
    assert all(node.location.path == __file__ and "deviation was made here" in node.location.text for node in made)
    (output,) = program.graph().outputs
    assert 'tp.output("y", y)' in output.location.text


def test_the_graph_is_made_anew_only_after_a_change():
    with tp.Program() as program:
        t = tp.dim("t")
        h = tp.recurrent("h", (), (t,))
        h[0] = 0.0
    first = program.graph()
    assert program.graph() is first
    with program:
        h[t + 1] = h + 1
    second = program.graph()
    assert second is not first
    assert len(first.nodes[h.edge.node].cases) == 1
    assert len(second.nodes[h.edge.node].cases) == 2


def halve(x):
    return x / 2


def test_a_program_pickles(run_program):
    with tp.Program("pickled") as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        w = tp.parameter("w", (), init=2.0, dims=(t,))
        w[t + 1] = w + 1
        (y,) = tp.host_call(halve, x * w, out=[((), tp.float32)], ordered_by=(t,), resource="shared")
        tp.output("y", y)
        inside = pickle.loads(pickle.dumps(program))
    again = pickle.loads(pickle.dumps(program))
    for copy in (inside, again):
        np.testing.assert_array_equal(run_program(copy, x=np.ones(3, np.float32))["y"], [1, 1.5, 2])
    with again:
        tp.output("z", tp.as_tensor(again.dims[0]) * 2)
    assert len(again.graph().outputs) == 3


def test_programs_nest_and_open_again():
    with tp.Program("outer") as outer:
        tp.dim("t")
        with tp.Program("inner") as inner:
            tp.dim("s")
        tp.dim("u")
    with pytest.raises(ZeroDivisionError), outer:
        1 / 0  # noqa: B018
    with outer:
        tp.dim("v")
    assert ([d.name for d in outer.dims], [d.name for d in inner.dims]) == (["t", "u", "v"], ["s"])
    assert repr(outer) == "Program('outer', dims: t, u, v; outputs: none)"
