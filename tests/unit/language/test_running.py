"""Rules of the page "The language": Compiling and running, and Errors."""

import inspect

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend


def prefix_sums():
    with tp.Program("prefix_sums") as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        total = tp.recurrent("total", (), (t,))
        total[0] = x
        total[t + 1] = total + x[t + 1]
        tp.output("total", total)
    return program, total


DATA = np.array([1.0, 2.0, 4.0], np.float32)


def test_a_mapping_from_names_to_arrays(run_program):
    """outputs = run(**inputs, seed=0)           # a mapping name -> backend array"""
    out = run_program(prefix_sums()[0], x=DATA, seed=0)
    assert dict(out).keys() == {"total"}
    np.testing.assert_array_equal(out["total"], [1, 3, 7])
    assert isinstance(out["total"], np.ndarray)


def test_backend_and_scheduler_by_name_or_instance():
    """`backend` and `scheduler` take a name or an instance;"""
    program, _ = prefix_sums()
    for backend in ("numpy", NumpyBackend()):
        run = tp.compile(program, backend=backend, scheduler="greedy")
        np.testing.assert_array_equal(run(x=DATA)["total"], [1, 3, 7])


def test_defaults_from_the_environment(monkeypatch):
    """defaults `TEMPO_BACKEND`, `TEMPO_SCHEDULER`, else `"numpy"` and `"greedy"`."""
    program, total = prefix_sums()
    monkeypatch.setenv("TEMPO_BACKEND", "reference")
    assert tp.compile(program).value(total, (1,), x=DATA) == 3
    monkeypatch.delenv("TEMPO_BACKEND")
    with pytest.raises(tp.UnsupportedError):
        tp.compile(program).value(total, (1,), x=DATA)
    monkeypatch.setenv("TEMPO_SCHEDULER", "greedyy")
    with pytest.raises(tp.UnknownSchedulerError, match="greedyy"):
        tp.compile(program)


def test_the_reference_gives_single_values():
    """`backend="reference"` is the evaluator itself, slow and exact, with `run.value(tensor, point)` for debugging."""
    program, total = prefix_sums()
    run = tp.compile(program, backend="reference")
    assert run.value(total, {"t": 2}, x=DATA) == 7
    assert run.value(total, (1,), x=DATA) == 3


def test_unknown_backends_and_schedulers():
    """`UnknownBackendError`, `UnknownSchedulerError` (list those installed, the nearest, how to install the one
    named)"""
    program, _ = prefix_sums()
    with pytest.raises(tp.UnknownBackendError, match="numppy") as caught:
        tp.compile(program, backend="numppy")
    assert "numpy" in str(caught.value)
    with pytest.raises(tp.UnknownBackendError) as caught:
        tp.compile(program, backend="jaxx")
    assert "reference" in str(caught.value)
    with pytest.raises(tp.UnknownSchedulerError) as caught:
        tp.compile(program, scheduler="gredy")
    assert "greedy" in str(caught.value)


def test_stream():
    """for step in run.stream("i", **inputs):    # the outermost ordered dim, point by point or in chunks"""
    program, _ = prefix_sums()
    steps = [np.asarray(step["total"]) for step in tp.compile(program).stream("t", x=DATA)]
    np.testing.assert_array_equal(np.concatenate([np.atleast_1d(step) for step in steps]), [1, 3, 7])


def test_explain_and_memory():
    """print(run.explain()); run.memory.peak_bytes; run.memory.buffers # of each: name, shape, dtype, bytes, storage"""
    run = tp.compile(prefix_sums()[0], sizes={"t": 3})
    assert "total" in run.explain()
    assert run.memory.peak_bytes >= 3 * 4
    for buffer in run.memory.buffers:
        assert buffer.bytes == int(np.prod(buffer.shape)) * np.dtype(buffer.dtype).itemsize
        assert isinstance(buffer.storage, str)
        assert isinstance(buffer.name, str)


BUILTINS = {
    "DomainError": IndexError, "DefinitionError": ValueError, "CycleError": ValueError,
    "IndexExpressionError": TypeError, "ProgramError": ValueError, "ShapeError": ValueError, "DTypeError": TypeError,
    "SizeError": ValueError, "IndexOutOfRangeError": IndexError, "InputError": ValueError,
    "UnknownBackendError": ImportError, "UnknownSchedulerError": ImportError, "BrokenPluginError": ImportError,
    "HostCallError": RuntimeError, "UnsupportedError": NotImplementedError, "MemoryLimitError": MemoryError,
}  # fmt: skip


@pytest.mark.parametrize("name", BUILTINS)
def test_errors_derive_from_tempo_error_and_the_builtin_that_fits(name):
    """All derive from `tp.TempoError` and from the builtin that fits"""
    error = getattr(tp, name)
    assert issubclass(error, tp.TempoError)
    assert issubclass(error, BUILTINS[name])


def broken_programs():
    """For each error that a program can have: what makes it, and the words that its message must hold."""

    def domain(t, x):
        tp.output("y", x[t + 1])

    def definition(t, x):
        h = tp.recurrent("hidden", (), (t,))
        h[t > 0] = 1.0
        tp.output("y", h)

    def cycle(t, x):
        h = tp.recurrent("hidden", (), (t,))
        h[True] = h * 2
        tp.output("y", h)

    def index(t, x):
        tp.output("y", x[0.5])

    def shape(t, x):
        tp.output("y", x + tp.zeros((2,)) + tp.zeros((3,)))

    def dtype(t, x):
        tp.output("y", x & 1)

    return [
        (domain, tp.DomainError, "x"),
        (definition, tp.DefinitionError, "hidden"),
        (cycle, tp.CycleError, "hidden"),
        (index, tp.IndexExpressionError, "0.5"),
        (shape, tp.ShapeError, "broadcast"),
        (dtype, tp.DTypeError, "float32"),
    ]


@pytest.mark.parametrize(("write", "error", "words"), broken_programs())
def test_errors_say_what_where_and_what_to_do(run_program, write, error, words):
    """`str(error)` says what is wrong in the user's words, where, as `path:line` and the source line of the user's
    frame that made the tensor (for mistakes in a program), and what to do."""

    def write_and_run():
        with tp.Program() as program:
            t = tp.dim("t")
            write(t, tp.input("x", dims=(t,)))
        run_program(program, x=DATA)

    with pytest.raises(error) as caught:
        write_and_run()
    found = caught.value
    lines, first = inspect.getsourcelines(write)
    assert words in found.message
    assert found.hint
    assert found.location.path == __file__
    assert first <= found.location.line < first + len(lines)
    assert f"{__file__}:{found.location.line}" in str(found)
    assert lines[found.location.line - first].strip() in str(found)
    assert found.hint in str(found)


@pytest.mark.parametrize("backend", ["reference", "numpy"])
def test_a_failed_run_leaves_the_executable_usable(backend):
    with tp.Program() as program:
        n = tp.dim("n")
        x = tp.input("x", dims=(n,))
        index = tp.input("index", dtype=tp.int32)
        tp.output("y", x.gather(n, index))
    run = tp.compile(program, backend=backend)
    for wrong in ({"x": DATA}, {"x": DATA, "index": 7}, {"x": DATA[None], "index": 1}, {"x": DATA, "index": 0.5}):
        with pytest.raises(tp.TempoError):
            run(**wrong)
        assert run(x=DATA, index=1)["y"] == 2
