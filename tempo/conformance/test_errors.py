"""Family 12, errors: each class where it belongs, with a message in the user's words."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Target, numbers

pytestmark = pytest.mark.one_configuration
HERE = Path(__file__).name


def out_of_domain(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[t + 1])


def slice_out_of_domain(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[t - 2 : t + 1].sum(axis=0))


def uncovered(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    hidden = tp.recurrent("hidden", (2,), (t,))
    hidden[t >= 1] = x
    tp.output("y", hidden)


def unreachable(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    hidden = tp.recurrent("hidden", (2,), (t,))
    hidden[t >= 0] = x
    hidden[t == 3] = x * 2
    tp.output("y", hidden)


def cycle(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    one, two = tp.recurrent("one", (2,), (t,)), tp.recurrent("two", (2,), (t,))
    one[True] = two + x
    two[True] = one * 2
    tp.output("y", one)


def shapes(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x + tp.ones((3,)))


def product_of_dims(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[t * t])


def float_index(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x[t * 0.5])


def dtype_of_bits(t: tp.Dim, x: tp.RecurrentTensor) -> None:
    tp.output("y", x & 1)


WRONG_PROGRAMS: dict[str, tuple[Callable[..., None], type[Exception], str]] = {
    "domain": (out_of_domain, tp.DomainError, "x"),
    "slice": (slice_out_of_domain, tp.DomainError, "x"),
    "uncovered": (uncovered, tp.DefinitionError, "hidden"),
    "unreachable": (unreachable, tp.DefinitionError, "reach"),
    "cycle": (cycle, tp.CycleError, "one"),
    "shape": (shapes, tp.ShapeError, "3"),
    "dim_times_dim": (product_of_dims, tp.IndexExpressionError, "t"),
    "float_index": (float_index, tp.IndexExpressionError, "0.5"),
    "dtype": (dtype_of_bits, tp.DTypeError, "float32"),
}


@pytest.mark.parametrize("name", WRONG_PROGRAMS)
def test_a_wrong_program_is_refused_at_its_line(target: Target, name: str) -> None:
    make, error, said = WRONG_PROGRAMS[name]

    def compiled() -> None:
        with tp.Program() as program:
            t = tp.dim("t")
            make(t, tp.input("x", (2,), (t,)))
        target.compile(program, {"t": 4})

    with pytest.raises(error) as caught:
        compiled()
    assert isinstance(caught.value, tp.TempoError)
    assert said in str(caught.value)
    assert HERE in str(caught.value)


def test_what_fails_at_some_sizes_is_refused_there(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        tp.output("y", x[2])
    run = target.compile(program)
    np.testing.assert_array_equal(target.to_numpy(run(x=np.arange(3.0))["y"]), 2)
    with pytest.raises(tp.DomainError, match="x"):
        run(x=np.arange(2.0))
    np.testing.assert_array_equal(target.to_numpy(run(x=np.arange(4.0))["y"]), 2)


def scaled() -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("position", (3,), (t,))
        tp.output("y", x * 2)
    return program


X = numbers((4, 3))
WRONG_CALLS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "missing": ({}, tp.InputError, "'position' is missing"),
    "extra": ({"position": X, "y": X}, tp.InputError, "no input 'y'"),
    "misspelt": ({"position": X, "positon": X}, tp.InputError, "did you mean 'position'"),
    "rank": ({"position": X[0]}, tp.InputError, "expected are 2 axes"),
    "shape": ({"position": X[:, :2]}, tp.InputError, "expected is (4, 3)"),
    "kind": ({"position": X.astype(int)}, tp.DTypeError, "another kind"),
    "text": ({"position": "hello"}, tp.InputError, "no array of numbers"),
    "sizes": ({"position": X, "sizes": {"t": 5}}, tp.SizeError, "'t' is 5"),
    "zero": ({"position": X, "sizes": {"t": 0}}, tp.SizeError, "at least 1"),
    "empty": ({"position": X[:0]}, tp.SizeError, "at least 1"),
    "no_dim": ({"position": X, "sizes": {"tt": 4}}, tp.InputError, "did you mean 't'"),
    "seed": ({"position": X, "seed": -1}, tp.InputError, "seed"),
    "state": ({"position": X, "state": {"w": X}}, tp.InputError, "no parameter"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_refused_and_leaves_the_executable_usable(target: Target, name: str) -> None:
    arguments, error, said = WRONG_CALLS[name]
    run = target.compile(scaled())
    with pytest.raises(error) as caught:
        run(**arguments)
    assert isinstance(caught.value, tp.TempoError)
    assert said in str(caught.value)
    np.testing.assert_array_equal(target.to_numpy(run(position=X)["y"]), X * 2)


def gathering() -> tp.Program:
    with tp.Program() as program:
        n, t = tp.dims("n t")
        x = tp.input("x", (), (n,))
        v = tp.input("v", (4,))
        index = tp.input("index", (), (t,), dtype=tp.int32)
        tp.output("along", x.gather(n, index))
        tp.output("spatial", v.spatial[index])
    return program


DATA: dict[str, Any] = {"x": np.arange(4.0), "v": np.arange(4.0)}


def checks_after_all(target: Target) -> bool:
    """Whether the backend, asked for checks that it declares not to have, raises all the same."""
    capabilities = target.info.capabilities
    left = {feature: why for feature, why in capabilities.unsupported.items() if feature != "checks"}
    asked = copy.copy(target.backend)
    asked.info = replace(target.info, capabilities=replace(capabilities, unsupported=left))
    run = replace(target, backend=asked).compile(gathering(), checks=True)
    try:
        run(index=np.array([0, 9], np.int32), **DATA)
    except tp.IndexOutOfRangeError:
        return True
    return False


@pytest.mark.one_process
def test_indices_out_of_range_raise_where_they_are_checked(target: Target) -> None:
    if target.info.capabilities.why_not("checks"):
        with pytest.raises(tp.UnsupportedError, match="checked mode"):
            target.compile(gathering(), checks=True)
        assert not checks_after_all(target), "a checked mode is declared as unsupported, but an index raised"
        return
    run = target.compile(gathering(), checks=True)
    for wrong in (-1, 4, 2**31 - 1):
        with pytest.raises(tp.IndexOutOfRangeError, match=f"index {wrong} .* of '[xv]' at t = 1(.|\n)*{HERE}"):
            run(index=np.array([0, wrong], np.int32), **DATA)
    np.testing.assert_array_equal(target.to_numpy(run(index=np.array([3, 0], np.int32), **DATA)["along"]), [3, 0])


@pytest.mark.parametrize("mapping", [None, "sequential", 2])
@pytest.mark.one_process
def test_only_an_index_that_is_needed_raises(target: Target, mapping: Any) -> None:
    """Not one that is behind a case that is not taken, whatever is computed ahead of its condition."""
    with tp.Program() as program:
        t = tp.dim("t")
        v, index = tp.input("v", (4,)), tp.input("index", (2,), (t,), dtype=tp.int32)
        start = tp.input("start", (), dtype=tp.int32)
        found = v.spatial[index].sum()
        h = tp.recurrent("h", (), (t,))
        h[0] = 0.0
        h[t] = 0.5 * h[t - 1] + tp.cases((t % 2 == 0, found), 1.0)
        tp.output("looped", h)
        tp.output("pieces", tp.cases((t < t.size // 2, found), 2.0))
        tp.output("alone", tp.cases((t % 3 == 1, v.spatial[index].max()), v.spatial[start]))
    run = target.compile(program, checks=True, mapping=mapping)
    given = np.array([[0, 1], [1, 1], [3, 2], [9, 9], [1, 2], [9, 9], [1, 0]], np.int32)
    target.to_numpy(run(v=np.arange(4.0), index=given, start=np.int32(1))["looped"])
    for row in (0, 1, 4, 6):  # each needed by one of the outputs
        wrong = given.copy()
        wrong[row, 1] = 4
        with pytest.raises(tp.IndexOutOfRangeError, match=HERE):
            run(v=np.arange(4.0), index=wrong, start=np.int32(1))
    with pytest.raises(tp.IndexOutOfRangeError, match="index -1 "):
        run(v=np.arange(4.0), index=given, start=np.int32(-1))


@pytest.mark.parametrize("mapping", [None, "sequential", 2])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"index": (1, 2)}, "index 9 is out of range for an axis of size 5 of 'x' at b = 1, t = 2"),
        ({"rows": (2, 1)}, "index 9 is out of range for an axis of size 4 of 'v' at t = 2, element 1 of the indices"),
        ({"pairs": (0, 1, 0)}, "index 9 is out of range for an axis of size 3"),
        ({"late": (2,)}, "index 9 is out of range for an axis of size 4 of 'v' at t = 2"),
    ],
)
@pytest.mark.one_process
def test_an_index_out_of_range_is_told_with_tensor_line_and_point(
    target: Target, mapping: Any, change: dict[str, tuple[int, ...]], said: str
) -> None:
    """The same words on every backend, whatever became of the dims."""
    with tp.Program() as program:
        n, b, t = tp.dims("n b t")
        x, v, w = tp.input("x", (), (n,)), tp.input("v", (4,)), tp.input("w", (4, 3))
        index, rows = tp.input("index", (), (b, t), tp.int32), tp.input("rows", (2,), (t,), tp.int32)
        pairs, late = tp.input("pairs", (2, 2), (t,), tp.int32), tp.input("late", (), (t,), tp.int32)
        tp.output("along", x.gather(n, index))
        tp.output("spatial", v.spatial[rows])
        tp.output("pairs", w.spatial[pairs * 0, pairs])
        h = tp.recurrent("h", (), (t,))
        h[0] = 0.0
        h[t] = 0.5 * h[t - 1] + v.spatial[late]
        tp.output("h", h)
    given: dict[str, Any] = {"x": np.arange(5.0), "v": np.arange(4.0), "w": np.ones((4, 3))}
    for name, shape in (("index", (2, 3)), ("rows", (3, 2)), ("pairs", (3, 2, 2)), ("late", (3,))):
        given[name] = np.ones(shape, np.int32)
    run = target.compile(program, checks=True, mapping=mapping)
    run(**given)
    ((name, place),) = change.items()
    given[name][place] = 9
    with pytest.raises(tp.IndexOutOfRangeError) as caught:
        run(**given)
    assert caught.value.message.startswith(said)
    assert HERE in str(caught.value)


def test_indices_out_of_range_are_clamped_where_they_are_not(target: Target) -> None:
    run = target.compile(gathering(), checks=False)
    out = target.arrays(run(index=np.array([-5, -1, 2, 4, 2**31 - 1], np.int32), **DATA))
    np.testing.assert_array_equal(out["along"], [0, 0, 2, 3, 3])
    np.testing.assert_array_equal(out["spatial"], [0, 0, 2, 3, 3])


def test_programs_do_not_mix(target: Target) -> None:
    with tp.Program("first"):
        t = tp.dim("t", 3)
        x = tp.input("x", (), (t,))
    with tp.Program("second"), pytest.raises(tp.ProgramError, match="first"):
        tp.output("y", x + 1)
    with pytest.raises(tp.ProgramError, match="no program is open"):
        tp.dim("t")
    with pytest.raises(tp.ProgramError, match="takes a tp.Program"):
        target.compile(x)  # type: ignore[arg-type]


def test_unknown_names(target: Target) -> None:
    with pytest.raises(tp.UnknownBackendError, match="numpyy"):
        tp.compile(scaled(), "numpyy")
    with pytest.raises(tp.UnknownSchedulerError, match="greeedy"):
        tp.compile(scaled(), "numpy", "greeedy")
    with pytest.raises(tp.UnsupportedError, match="does not run on 'abacus'"):
        tp.compile(scaled(), target.backend, device="abacus")
    with tp.Program() as program:
        tp.output("t", tp.as_tensor(tp.dim("t")))
    with pytest.raises(tp.SizeError, match="'t' is unknown"):
        target.compile(program)()


def test_an_unsupported_stream_says_why(target: Target) -> None:
    with tp.Program() as program:
        t = tp.dim("t", 3)
        x = tp.input("x", (), (t,))
        tp.output("total", x[0 : t.size].sum())
    run = target.compile(program)
    with pytest.raises(tp.UnsupportedError, match="stream"):
        next(run.stream("t", x=np.ones(3)))


def test_out_of_domain_under_a_condition_is_fine(target: Target) -> None:
    """No false alarm: what no output needs is not checked."""
    with tp.Program() as program:
        t = tp.dim("t", 5)
        x = tp.input("x", (), (t,))
        never = x[t + 3]
        tp.output("y", tp.cases((t < 2, never), 0.0))
    np.testing.assert_array_equal(target.to_numpy(target.compile(program)(x=np.arange(5.0))["y"]), [3, 4, 0, 0, 0])


@pytest.mark.few_configurations
@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32"])
@pytest.mark.one_process
def test_pairs_of_indices_are_compared_as_they_are(target: Target, dtype: str) -> None:
    """An index that 32 bits would make another one is out of range."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, i = tp.input("x", (5, 4), ()), tp.input("i", (3,), (t,), "int32")
        tp.output("y", x.spatial[i, tp.input("j", (3,), (t,), dtype)])
    rows, columns = np.array([[0, 1, 2], [3, 4, 0]], np.int32), np.array([[0, 1, 2], [3, 1, 0]], dtype)
    wrong = columns.copy()
    wrong[1, 1] = 2**32 - 1 if dtype == "uint32" else 2**32 + 1
    run, x_data = target.compile(program, checks=True), numbers((5, 4))
    np.testing.assert_array_equal(target.to_numpy(run(x=x_data, i=rows, j=columns)["y"]), x_data[rows, columns])
    with pytest.raises(tp.IndexOutOfRangeError, match=f"index {wrong[1, 1]} is out of range"):
        run(x=x_data, i=rows, j=wrong)


@pytest.mark.few_configurations
@pytest.mark.one_process
def test_checks_where_a_run_ends_early(target: Target) -> None:
    """What is read at the next point is there before it is known whether there is one."""
    with tp.Program() as program:
        t = tp.dim("t")
        table, index = tp.input("table", (10,), ()), tp.input("index", (), (t,), "int32")
        read = tp.take(table, index, axis=0)
        h = tp.recurrent("h", (), (t,))
        h[0] = read
        h[t + 1] = h + read[t + 1]
        tp.stop_when(t, h > 5.0)
        tp.output("h", h)
    run, table_data = target.compile(program, checks=True), np.arange(10, dtype=np.float32)
    for index_data, expected in (
        ([1, 2, 3, 4, 5], [1, 3, 6]),
        ([9, 1, 1, 1, 1], [9]),
        ([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]),
    ):
        found = run(table=table_data, index=np.array(index_data, np.int32))["h"]
        np.testing.assert_array_equal(target.to_numpy(found), expected)
    with pytest.raises(tp.IndexOutOfRangeError, match="t = 1"):
        run(table=table_data, index=np.array([1, 10, 3, 4, 5], np.int32))


def promised() -> tp.Program:
    """Indices that count along a dim, and are looked up in a part of it."""
    with tp.Program() as program:
        n, t = tp.dims("n t")
        x, y = tp.input("x", (), (n,)), tp.input("y", (), (t,))
        index = tp.input("index", (), (t,), dtype=tp.int32)
        tp.output("fixed", x.gather(n, index, within=slice(2, 5)))
        tp.output("moving", tp.cases((t >= 3, y.gather(t, index, within=slice(t - 2, t))), 0.0))
    return program


def unnamed() -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x, index = tp.input("x", (4,)), tp.input("index", (), (t,), dtype=tp.int32)
        doubled = x * 2.0
        tp.output("y", doubled.reshape(4, 1).spatial[index])
    return program


def prompted() -> tp.Program:
    """A prompt is cut out of the loop, along a dim that is none of the user's."""
    with tp.Program() as program:
        p, t = tp.dims("p t")
        prompt, rows = tp.input("prompt", (), (p,), dtype=tp.int32), tp.input("rows", (4, 2))
        token = tp.recurrent("token", (), (t,), dtype=tp.int32)
        seen = rows.spatial[token]
        token[t < p.size] = prompt[t]
        token[t + 1] = (seen[0 : t + 1].sum(axis=0) @ tp.ones((2, 3))).argmax(axis=-1)
        tp.output("token", token)
    return program


@pytest.mark.parametrize("mapping", [None, "sequential", "full", 2])
@pytest.mark.one_process
def test_an_index_out_of_range_is_told_as_it_was_written(target: Target, mapping: Any) -> None:
    """As the user counts it, at the user's dims; data without a name by its line."""

    def says(program: tp.Program, match: str, **given: Any) -> None:
        with pytest.raises(tp.IndexOutOfRangeError, match=match):
            target.compile(program, checks=True, mapping=mapping)(**given)

    data = {"x": np.arange(6.0), "y": np.arange(6.0)}
    says(promised(), r"index 1 .*slice\(2, 5\) of 'x' at t = 2\n", index=np.array([2, 3, 1, 2, 2, 4], np.int32), **data)
    says(promised(), r"index 2 .*slice\(3, 5\) of 'y' at t = 5\n", index=np.array([2, 3, 4, 2, 3, 2], np.int32), **data)
    indices = np.array([1, 3, 4], np.int32)
    says(unnamed(), r"index 4 .* of `doubled = x \* 2.0` \(line \d+\) at t = 2\n", x=np.arange(4.0), index=indices)
    rows = np.ones((4, 2), np.float32)
    says(prompted(), r"index 4 .* of 'rows' at t = 2\n", prompt=indices, rows=rows, sizes={"t": 6})
