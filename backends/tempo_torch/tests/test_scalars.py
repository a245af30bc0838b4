"""Values without axes as NumPy's scalars: the bits of torch's operators, and nobody sees a cell that has changed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.arrays import to_host
from tempo_torch.backend import TorchBackend
from tempo_torch.operators import TABLE
from tempo_torch.scalars import scalar, tensor, torch_form

import tempo as tp
from tempo import dtypes
from tempo.loop_ir.codegen.python import Emitter
from tempo.loop_ir.codegen.scalar_emitter import OPERATOR, TYPES
from tempo.loop_ir.ir import Compute
from tempo.sdg.call import Call, StaticType
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import OPERATORS

CPU = torch.device("cpu")
DRAW = np.random.default_rng(0)


class Plain(TorchBackend):
    """The core's emitter: every operator is torch's."""

    emitter = Emitter


def check(program: tp.Program, **inputs: Any) -> str:
    """Bit for bit what torch's operators give; the source."""
    runs = [tp.compile(program, backend, options=tp.Options(poison=True)) for backend in (TorchBackend(), Plain())]
    ours, plain = (run(**inputs) for run in runs)
    for name in plain:
        assert isinstance(ours[name], torch.Tensor)
        assert ours[name].dtype == plain[name].dtype
        np.testing.assert_array_equal(to_host(ours[name]), to_host(plain[name]))
    return runs[0].explain("all").split("# code")[1]


def _special(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_float(dtype):
        least = float(np.finfo(dtype).smallest_subnormal)
        found = [0.0, -0.0, 1.0, -1.5, 0.1, 3.0, 1e30, -1e30, least, -least, np.inf, -np.inf, np.nan]
        return np.array([*found, *np.random.default_rng(0).normal(0, 3, 10)]).astype(dtype)
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, limits.max - 1, 0, 1, 2, 7, *([-1, -7] * (limits.min < 0))], dtype)


def _applications() -> list[Compute]:
    found = []
    for op, dtype in itertools.product((each for each in OPERATORS if OPERATORS[each].kind == "elementwise"), TYPES):
        if op == "cast":
            found += [_compute(op, (dtype,), target) for target in TYPES]
            continue
        count = {"where": 3}.get(op, 1 if op in ("neg", "abs", "isnan", "bitwise_not", "logical_not") else 2)
        operands = ("bool", dtype, dtype) if op == "where" else (dtype,) * count
        try:
            result = OPERATORS[op].infer({}, tuple(TensorType((), each) for each in operands))
        except tp.TempoError:
            continue
        found.append(_compute(op, operands, result.dtype))
    return [each for each in found if torch_form(each) is not None]


def _compute(op: str, operands: tuple[str, ...], result: str) -> Compute:
    types = tuple(TensorType((), each) for each in operands)
    attrs = {"dtype": result} if op == "cast" else {}
    return Compute("v", op, attrs, ("x", "y", "z")[: len(operands)], types, TensorType((), result))


@pytest.mark.parametrize("op", list(dict.fromkeys(each.op for each in _applications())))
def test_a_form_has_the_bits_of_torch(op: str) -> None:
    for compute in _applications():
        if compute.op == op:
            _check_form(compute)


def _check_form(compute: Compute) -> None:
    types = tuple(StaticType((), each.dtype) for each in compute.operand_types)
    function = TABLE[compute.op](Call(compute.op, compute.attrs, types, StaticType((), compute.type.dtype)), CPU)

    def on_scalars(*given: Any) -> Any:
        return scalar(function(*map(tensor, given)))

    source = f"lambda x, y=None, z=None: {torch_form(compute)}"
    form: Any = eval(source, {**TYPES, OPERATOR: on_scalars})  # noqa: S307 - the forms are ours
    with np.errstate(all="ignore"):
        for values in itertools.product(*(_special(type.dtype) for type in types)):
            found, wanted = form(*values), on_scalars(*values)
            assert type(found) is type(wanted), (types, values)
            assert found.tobytes() == wanted.tobytes() or (found != found and wanted != wanted), (types, values)


@pytest.mark.parametrize("dtype", TYPES)
def test_there_and_back(dtype: str) -> None:
    for value in _special(dtype):
        there = tensor(value)
        assert scalar(there).tobytes() == value.tobytes() == TYPES[dtype](there.item()).tobytes() or value != value


def test_a_step_of_scalars_calls_nothing_of_torch() -> None:
    """It called as many operators, and as many views: a microsecond or two each."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        s = tp.recurrent("s", shape=(), dims=(t,))
        s[0] = 0.5
        s[t + 1] = tp.where(s < x, s * 0.9 + x, s - x / 2.0)
        tp.output("s", s)
    code = check(program, x=DRAW.normal(size=7))
    assert "(" not in code.split("for t in range(start, stop)")[1].split("return")[0]


def test_values_that_are_scalars_and_tensors() -> None:
    """A sum that goes on as a scalar, into a product with a row, into a state, and through a view."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, w = tp.input("x", shape=(3,), dims=(t,)), tp.input("w", shape=(3,), dims=())
        s, r = tp.recurrent("s", shape=(), dims=(t,)), tp.recurrent("r", shape=(3,), dims=(t,))
        total = (r * x).sum() * 0.5 + s
        s[0], r[0] = 1.0, w
        s[t + 1] = tp.sin(total) - s
        r[t + 1] = total * w + tp.exp(-total) * r.spatial[0]
        tp.output("s", s)
        tp.output("r", r)
        tp.output("row", tp.stack([total, s, total * s]))
        tp.output("kept", total.reshape((1, 1)))
    code = check(program, x=DRAW.normal(size=(6, 3)), w=DRAW.normal(size=3))
    assert "cell(" in code


def test_what_is_kept_of_a_scalar_is_no_cell() -> None:
    """A view of it in a slot, read an iteration later."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        s, before = tp.recurrent("s", shape=(), dims=(t,)), tp.recurrent("before", shape=(1,), dims=(t,))
        s[0], before[0] = x, x.reshape((1,))
        made = s * 0.5 + x
        s[t + 1] = made + before.sum() * 0.25
        before[t + 1] = made.reshape((1,))
        tp.output("s", s)
        tp.output("before", before)
        tp.output("last", before[-1])
    check(program, x=DRAW.normal(size=9))


def test_slots_that_hold_scalars_come_out_as_tensors() -> None:
    """In a stream, with an early end, in a loop of the host."""
    seen: list[np.ndarray] = []
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        p = tp.parameter("p", shape=(), init=2.0, dims=(t,))
        count = tp.recurrent("count", shape=(), dims=(t,), dtype=tp.int32)
        count[0] = 0
        count[t + 1] = tp.where(x > 0, count + 1, count)
        p[t + 1] = p * 0.5 + x
        tp.sink(lambda value: seen.append(np.array(value)), p, ordered_by=(t,))
        tp.stop_when(t, count >= 2)
        tp.output("p", p)
        tp.output("count", count)
    given = {"x": np.array([1, -1, 0.5, 2, 3], np.float32)}
    check(program, **given)
    runs = [tp.compile(program, backend)(**given) for backend in ("torch", "reference")]
    np.testing.assert_array_equal(*(run["p"] for run in runs))
    np.testing.assert_array_equal(*(run.state["p"] for run in runs))
    assert isinstance(runs[0].state["p"], torch.Tensor)
    assert len(seen) == 4 * len(runs[0]["p"])


def test_one_element_of_a_vector() -> None:
    """In range, and out of it: the error has the point, and what is clamped is clamped."""
    with tp.Program() as program:
        t = tp.dim("t")
        at = tp.input("at", shape=(), dims=(t,), dtype=tp.int32)
        v = tp.recurrent("v", shape=(4,), dims=(t,))
        v[0] = tp.arange(4).astype(tp.float32)
        v[t + 1] = v + v.spatial[at] * tp.one_hot(at, 4)
        tp.output("v", v)
    check(program, at=np.array([0, 3, 1, 1], np.int32))
    with pytest.raises(tp.IndexOutOfRangeError, match="t = 1"):
        tp.compile(program, "torch")(at=np.array([0, 4, 1, 1], np.int32))
    clamps = tp.Options(checks=False)
    given = np.array([0, 9, -2, 1], np.int32)
    ours, plain = (tp.compile(program, each, options=clamps)(at=given)["v"] for each in (TorchBackend(), Plain()))
    np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "uint32", "int64", "bool"])
def test_every_dtype(dtype: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,), dtype=dtype)
        s = tp.recurrent("s", shape=(), dims=(t,), dtype=dtype)
        s[0] = x
        s[t + 1] = tp.where(s > x[t + 1], s, x) if dtype != "bool" else s | x
        tp.output("s", s)
        tp.output("as", s.astype(tp.float32) * 2.0)
    check(program, x=np.arange(-3, 4).astype(dtypes.to_numpy(dtype)))


def test_a_row_of_a_table_at_a_computed_place() -> None:
    """The place is a scalar, though what it finds is none; a sum of such places is one that is looked up, too."""
    with tp.Program() as program:
        t = tp.dim("t")
        table, x = tp.input("table", shape=(5, 3), dims=()), tp.input("x", shape=(), dims=(t,))
        at = tp.recurrent("at", shape=(), dims=(t,), dtype=tp.int32)
        row = table.spatial[at]
        at[0] = 0
        at[t + 1] = (at + tp.where(x > 0, 2, 1) + table.spatial[:, at % 3].argmax()) % 5
        tp.output("row", row + table.spatial[at, at % 3])
        tp.output("at", at)
    check(program, table=DRAW.normal(size=(5, 3)), x=DRAW.normal(size=8))
