"""Rules of the page "The language": parameters and state."""

import numpy as np
import pytest

import tempo as tp
from tempo.errors import DefinitionError, DTypeError, ShapeError
from tempo.sdg.graph import Edge


def counting(init=1.0, **declared):
    with tp.Program("counting") as program:
        i = tp.dim("i")
        w = tp.parameter("w", (2,), init=init, dims=(i,), **declared)
        w[i + 1] = w + 1
        tp.output("w", w)
    return program


def test_init_is_the_value_where_no_case_holds(run_program):
    """like `tp.recurrent`, nominal, with `init` (array or initialiser) as the value where no case holds;"""
    for init in (np.array([1.0, 2.0]), lambda shape, dims, dtype: tp.constant([1.0, 2.0]), [1.0, 2.0]):
        out = run_program(counting(init), sizes={"i": 3})
        np.testing.assert_array_equal(out["w"], [[1, 2], [2, 3], [3, 4]])
    np.testing.assert_array_equal(run_program(counting(5.0), sizes={"i": 1})["w"], [[5, 5]])


def test_time_dims_are_those_that_a_case_shifts_or_fixes():
    """The dims along which a case shifts are its time dims:"""
    with tp.Program() as program:
        b, i, t = tp.dims("b i t")
        w = tp.parameter("w", (), init=0.0, dims=(b, i, t))
        w[b, 0, t] = 1.0
        w[b, i, t + 1] = w
        v = tp.parameter("v", (), init=0.0, dims=(b, i))
        v[i > 2] = 1.0
    specs = program.parameters
    assert [dim.name for dim in specs["w"].time_dims] == ["i", "t"]
    assert specs["v"].time_dims == ()
    graph = program.graph()
    assert [s.name for s in graph.nodes[specs["w"].state].domain] == ["b"]
    assert graph.nodes[specs["w"].node].attr("role") == "parameter"
    assert graph.nodes[specs["w"].state].attr("role") == "state"
    states = {output.name: output for output in graph.outputs}
    assert states["w"].role == "state"
    assert [str(index.index) for index in states["w"].edge.map] == ["b", "i.size - 1", "t.size - 1"]


def test_state_is_the_value_at_the_last_point(run_program):
    """`.state` holds the value at their last point, the other dims in front;"""
    with tp.Program() as program:
        b, i = tp.dim("b", 2), tp.dim("i", 4)
        w = tp.parameter("w", (3,), init=0.0, dims=(b, i))
        w[b, i + 1] = w + b + 1
    np.testing.assert_array_equal(run_program(program).state["w"], [[3, 3, 3], [6, 6, 6]])


def test_init_of_one_point_or_of_all(run_program):
    """`init` may have that full shape or one point's,"""

    def program(init):
        with tp.Program() as program:
            b, i = tp.dim("b", 2), tp.dim("i", 2)
            w = tp.parameter("w", (3,), init=init, dims=(b, i))
            w[b, i + 1] = w * 10
            tp.output("w", w)
        return program

    one = np.array([1.0, 2.0, 3.0])
    full = np.array([one, one + 3])
    for init, expected in ((one, np.array([one, one])), (full, full)):
        np.testing.assert_array_equal(run_program(program(init))["w"][:, 1], expected * 10)
    for wrong in (np.ones(4), np.ones((3, 3)), np.ones((2, 2, 3))):
        with pytest.raises(ShapeError, match="'w'"):
            program(wrong).graph()


def test_an_initialiser_draws_per_point_of_the_other_dims(run_program):
    """and an initialiser draws per point of the other dims."""
    seen = []

    def init(shape, dims, dtype):
        seen.append((shape, [dim.name for dim in dims], dtype))
        return tp.random.normal(shape, dims=dims) * 0.02

    with tp.Program() as program:
        b, i = tp.dim("b", 3), tp.dim("i", 2)
        w = tp.parameter("w", (4,), init=init, dims=(b, i), dtype=tp.float16)
        w[b, i + 1] = w
    first, again = (run_program(program, seed=seed).state["w"] for seed in (1, 1))
    other = run_program(program, seed=2).state["w"]
    assert seen == [((4,), ["b"], "float16")]
    assert first.shape == (3, 4)
    assert len(np.unique(first[:, 0])) == 3
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_initial_draws_do_not_depend_on_when_the_graph_is_made(run_program):
    def program(look):
        with tp.Program() as program:
            i = tp.dim("i", 2)
            tp.parameter("w", (4,), init=lambda shape, dims, dtype: tp.random.uniform(shape) + tp.random.uniform(shape))
            if look:
                program.graph()
            tp.output("draw", tp.random.uniform((3,), dims=(i,)) + tp.random.uniform((3,)))
        return program

    first, second = run_program(program(False)), run_program(program(True))
    np.testing.assert_array_equal(first["draw"], second["draw"])
    np.testing.assert_array_equal(first.state["w"], second.state["w"])


def test_a_run_is_pure_and_starts_from_init_or_state(run_program):
    """`run(...)` is pure: it starts from `init`, or from `state=`."""
    program = counting()
    first = run_program(program, sizes={"i": 3})
    np.testing.assert_array_equal(first.state["w"], [3, 3])
    np.testing.assert_array_equal(run_program(program, sizes={"i": 3}).state["w"], [3, 3])
    np.testing.assert_array_equal(run_program(program, sizes={"i": 3}, state=first.state).state["w"], [5, 5])


def test_another_program_accepts_the_state(run_program):
    """another program with parameters of the same names accepts: `infer(state=trained.state, ...)`."""
    trained = run_program(counting(), sizes={"i": 4})
    with tp.Program("infer") as infer:
        w = tp.parameter("w", (2,), init=0.0)
        x = tp.input("x", shape=(2,))
        tp.output("y", w @ x)
    assert run_program(infer, state=trained.state, x=np.array([1.0, 2.0]))["y"] == 12


def test_a_parameter_that_its_cases_cover(run_program):
    with tp.Program() as program:
        i = tp.dim("i", 3)
        w = tp.parameter("w", (), init=7.0, dims=(i,))
        w[0] = 1.0
        w[i + 1] = w * 2
        tp.output("w", w)
    np.testing.assert_array_equal(run_program(program)["w"], [1, 2, 4])


def test_a_parameter_without_cases(run_program):
    with tp.Program() as program:
        b = tp.dim("b", 2)
        w = tp.parameter("w", (2,), init=lambda shape, dims, dtype: tp.full(shape, 1.5) + dims[0], dims=(b,))
        tp.output("w", w)
    out = run_program(program)
    np.testing.assert_array_equal(out["w"], [[1.5, 1.5], [2.5, 2.5]])
    np.testing.assert_array_equal(out.state["w"], out["w"])


def test_specs():
    specs = counting(np.zeros(2)).parameters
    assert list(specs) == ["w"]
    spec = specs["w"]
    assert (spec.name, [int(n.as_int()) for n in spec.shape], spec.dtype) == ("w", [2], "float32")
    assert spec.init.dtype == np.float32
    assert isinstance(counting(0.5).parameters["w"].init, Edge)


def test_misfits():
    with tp.Program() as program:
        i, t = tp.dims("i t")
        with pytest.raises(DTypeError, match="another kind"):
            tp.parameter("a", (), init=np.array(0.5), dtype=tp.int32)
        with pytest.raises(ShapeError, match="varies"):
            tp.parameter("b", (t + 1,), init=0.0, dims=(t,))
        w = tp.parameter("w", (), init=lambda shape, dims, dtype: tp.as_tensor(i), dims=(i,))
        w[i + 1] = w
    with pytest.raises(DefinitionError, match="varies along i"):
        program.graph()


def test_numbers_of_numpy_are_numbers(run_program):
    """`init` may have that full shape or one point's"""
    with tp.Program() as program:
        for name, init in {"scalar": np.float32(3), "array of ()": np.array(3)}.items():
            tp.output(name, tp.parameter(name, shape=(2,), init=init))
    assert all(value.tolist() == [3, 3] for value in run_program(program).values())


@pytest.mark.parametrize(
    ("init", "dtype", "error", "message"),
    [
        (0.5, "int32", tp.DTypeError, "dtype float64, which is of another kind than int32"),
        (300, "int8", tp.DTypeError, "out of the range of int8"),
        (np.array([-1, 0]), "uint8", tp.DTypeError, "out of the range of uint8"),
        (lambda shape, dims, dtype: 0.5, "int32", tp.DTypeError, "another kind than int32"),
        (lambda shape, dims, dtype: None, "float32", tp.DTypeError, "'w': None is no number"),
        (lambda shape: 1, "float32", tp.DefinitionError, "failed: TypeError: .* argument 'dims'"),
        (lambda shape, dims, dtype: 1 / 0, "float32", tp.DefinitionError, "failed: ZeroDivisionError"),
    ],
)
def test_a_wrong_initial_value_is_reported_at_its_parameter(init, dtype, error, message):
    def compiled():
        with tp.Program() as program:
            tp.output("w", tp.parameter("w", shape=(2,), init=init, dtype=dtype))
        return tp.compile(program)

    with pytest.raises(error, match=rf"{message}(.|\n)*test_parameters.py:\d+\n *tp.output"):
        compiled()
