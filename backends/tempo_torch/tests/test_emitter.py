"""What the emitter takes out of loops, and that it does so only where nobody can tell."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch import emitter
from tempo_torch.arrays import to_host
from tempo_torch.backend import TorchBackend
from tempo_torch.flow import Flow
from tempo_torch.operators.packing import turned

import tempo as tp
from tempo.loop_ir.codegen.python import Emitter
from tempo.loop_ir.ir import Branch, Compute, Loop, PointIndex, Read, Segment, Statement
from tempo.sdg.graph import TensorType
from tempo.symbolic import TRUE, Symbol, as_expr

DRAW = np.random.default_rng(0)


class Plain(TorchBackend):
    """The core's emitter, which takes nothing out of loops."""

    emitter = Emitter


def source(program: tp.Program, **sizes: int) -> str:
    return tp.compile(program, backend="torch", sizes=sizes).explain("all")


def check(program: tp.Program, **inputs: Any) -> None:
    """Bit for bit what the same operators give without the emitter's changes."""
    ours, plain = (tp.compile(program, backend=backend)(**inputs) for backend in (TorchBackend(), Plain()))
    for name in plain:
        np.testing.assert_array_equal(to_host(ours[name]), to_host(plain[name]))


def chain() -> tp.Program:
    """Every value but the state is used once."""
    with tp.Program() as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(4, 4), dims=())
        x = tp.input("x", shape=(4,), dims=(t,))
        h = tp.recurrent("h", shape=(4,), dims=(t,))
        h[0] = tp.zeros((4,))
        h[t + 1] = tp.tanh(x - h @ w)
        tp.output("h", h)
    return program


def test_values_that_nobody_needs_any_more_give_their_memory():
    made = source(chain(), t=5)
    assert re.search(r"= tanh_in_place\(v\d+\)", made)
    assert "sub_in_place" not in made  # x is the caller's, and a difference does not commute
    check(chain(), w=DRAW.normal(size=(4, 4)), x=DRAW.normal(size=(5, 4)))


@pytest.mark.parametrize("function", [tp.silu, tp.gelu, lambda x: tp.gelu(x, approximate="tanh")])
def test_activations_give_their_memory(function: Callable[..., tp.RecurrentTensor]):
    with tp.Program() as program:
        x = tp.input("x", (4,), (tp.dim("t"),))
        tp.output("y", function(x + 1))
    given = DRAW.normal(size=(5, 4)).astype("float32")
    assert re.search(r"= \w+_in_place\w*\(v\d+\)", source(program, t=5))
    check(program, x=given)


@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_what_is_selected_lies_where_the_first_choice_did(dtype: str):
    """Not where the second one did, nor in an input."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, y = (tp.input(name, shape=(4,), dims=(t,), dtype=dtype) for name in "xy")
        tp.output("first", tp.where(x > y, x * y, y))
        tp.output("second", tp.where(x > y, x, x + y))
        tp.output("neither", tp.where(x > y, x, y))
    made = source(program, t=5)
    assert len(re.findall(r"= where_in_place\w*\(v\d+, v\d+, ", made)) == 1
    check(program, **{name: DRAW.integers(0, 9, (5, 4)).astype(dtype) for name in "xy"})


def test_the_transpose_of_a_matrix_is_made_once():
    made = source(chain(), t=5)
    assert len(re.findall(r"= (?:prepared|turned)\(b\d+, stop - start\)", made)) == 1
    assert re.search(r"= dot\(\w+, b\d+_(?:prepared|turned)\)", made)


def test_a_value_that_is_used_twice_keeps_its_memory():
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = x
        both = h * 0.5 + x[t + 1]
        h[t + 1] = tp.exp(-both) * both
        tp.output("h", h)
    check(program, x=DRAW.normal(size=(6, 3)))
    assert not re.search(r"(neg|exp)_in_place\(v\d+\).*\n.*neg_in_place", source(program, t=6))


def test_what_a_view_still_shows_keeps_its_memory():
    """A transpose, and a slice that is read after the whole was used."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3, 3), dims=(t,))
        h = tp.recurrent("h", shape=(3, 3), dims=(t,))
        h[0] = x
        made = h * 0.5 + x[t + 1]
        turned = made.T
        h[t + 1] = tp.sin(turned) + turned.spatial[0] * tp.cos(made)
        tp.output("h", h)
    check(program, x=DRAW.normal(size=(6, 3, 3)))


def test_results_of_another_shape_or_dtype_get_memory_of_their_own():
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        h = tp.recurrent("h", shape=(3,), dims=(t,))
        h[0] = x
        column = (h * 2.0).reshape(3, 1)
        h[t + 1] = ((column + x[t + 1]) > 0).astype(tp.float32).sum(axis=0) + (h * 3.0 > 1.0).astype(tp.float32)
        tp.output("h", h)
    check(program, x=DRAW.normal(size=(6, 3)))


def layered() -> tp.Program:
    with tp.Program() as program:
        t, layer = tp.dims("t l")
        w = tp.input("w", shape=(3, 3), dims=(layer,))
        scale = tp.input("scale", shape=(3,), dims=(layer,))
        x = tp.input("x", shape=(3,), dims=(t,))
        h = tp.recurrent("h", shape=(3,), dims=(t, layer))
        h[t, 0] = x + tp.cases((t > 0, h[t - 1, layer.size - 1]), 0.0)
        h[t, layer + 1] = tp.relu((h * scale) @ w) + h
        tp.output("out", h[t, layer.size - 1])
    return program


@pytest.mark.parametrize("many", [1024, 2])
def test_rows_that_an_outer_loop_reads_again_are_views_made_once(many: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(emitter, "_MANY", many)
    made = source(layered(), t=3, l=4)
    assert re.search(r"= rows\(b\d+\)", made)
    assert re.search(r"= prepared_rows\(b\d+, stop - start\)", made)
    check(layered(), w=DRAW.normal(size=(4, 3, 3)), scale=DRAW.normal(size=(4, 3)), x=DRAW.normal(size=(3, 3)))


@pytest.mark.parametrize("many", [1024, 2])
def test_parts_of_rows_that_an_outer_loop_reads_again_are_views_made_once(many: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(emitter, "_MANY", many)
    with tp.Program() as program:
        t, layer, n = tp.dims("t l n")
        x, table = tp.input("x", shape=(4,), dims=(t,)), tp.input("table", shape=(4,), dims=(layer, n))
        h = tp.recurrent("h", shape=(4,), dims=(t, layer))
        h[t, 0] = x + tp.cases((t > 0, h[t - 1, layer.size - 1]), 0.0)
        h[t, layer + 1] = tp.tanh(table[layer, 1 : n.size] @ h).sum() + h
        tp.output("out", h[t, layer.size - 1])
    assert re.search(r"= prepared_rows\(b\d+, stop - start\)", source(program, t=5, l=3, n=6))
    check(program, table=DRAW.normal(size=(3, 6, 4)), x=DRAW.normal(size=(5, 4)))


def test_a_part_that_stays_the_same_is_a_view_made_once():
    """What it shows is written in the same loop, after the view was made."""
    with tp.Program() as program:
        n = tp.dim("n", 8)
        x, child = tp.input("x", shape=(4,), dims=(n,)), tp.input("child", shape=(), dims=(n,), dtype="int32")
        h = tp.recurrent("h", shape=(4,), dims=(n,))
        h[0] = x
        h[n] = tp.tanh(x + h.gather(n, child, within=slice(0, n)))
        tp.output("h", h)
    made = source(program)
    [view] = re.findall(r"(b\d+_part) = part\(b\d+\)", made)
    assert made.index(f"{view} = ") < made.index("for n in range") < made.index(f"({view}, ")
    check(program, x=DRAW.normal(size=(8, 4)), child=np.array([0, 0, 0, 2, 1, 4, 4, 6], "int32"))


def gates(parts: Callable[[tp.RecurrentTensor], list[tp.RecurrentTensor]]) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t", 5)
        w = tp.input("w", shape=(2, 6, 2), dims=())
        h = tp.recurrent("h", shape=(2,), dims=(t,))
        h[0] = tp.ones((2,))
        made = parts(tp.tanh(tp.tensordot(h, w, axes=((0,), (0,)))))
        h[t + 1] = sum((part.sum(axis=0) * (at + 1) for at, part in enumerate(made)), tp.zeros((2,)))
        tp.output("h", h)
    return program


def test_slices_that_are_all_of_a_value_are_made_at_once():
    program = gates(lambda y: [y.spatial[3:6], y.spatial[0:1], y.spatial[1:3]])
    made = source(program)
    assert re.search(r"(v\d+), (v\d+), (v\d+) = split_with_sizes\(v\d+, \(1, 2, 3\), 0\)", made)
    assert "slice" not in made.split("# code")[1]
    check(program, w=DRAW.normal(size=(2, 6, 2)))


@pytest.mark.parametrize(
    "parts",
    [
        lambda y: [y.spatial[0:3], y.spatial[2:6]],
        lambda y: [y.spatial[0:3], y.spatial[4:6]],
        lambda y: [y.spatial[1:3], y.spatial[3:6]],
        lambda y: [y.spatial[0:3], y.spatial[3:5]],
        lambda y: [y.spatial[0:6:2], y.spatial[1:6:2]],
        lambda y: [y.spatial[0:3], y.spatial[3:6, 0:1]],
        lambda y: [y.spatial[3:6], (y * 2).spatial[0:3]],
    ],
    ids=["they overlap", "a gap", "no first", "no last", "in steps", "of two axes", "of two values"],
)
def test_slices_that_are_not_all_of_a_value_are_made_where_they_are_wanted(parts: Any):
    program = gates(parts)
    assert "split_with_sizes" not in source(program)
    check(program, w=DRAW.normal(size=(2, 6, 2)))


def test_what_is_hoisted_is_used():
    for program, sizes in ((chain(), {"t": 3}), (layered(), {"t": 3, "l": 4})):
        made = source(program, **sizes)
        for name in re.findall(r"^\s+(b\d+_\w+_\d+) = ", made, re.MULTILINE):
            assert made.count(name) > 1


def test_names_of_dims_and_tensors_are_not_taken():
    with tp.Program() as program:
        rows, t_0, layer = tp.dims("rows tanh_in_place_0 t")
        w = tp.input("t_0", shape=(2, 2), dims=(layer,))
        h = tp.recurrent("b1_rows", shape=(2,), dims=(rows, layer))
        h[rows, 0] = tp.ones((2,)) * rows + tp.cases((rows > 0, h[rows - 1, layer.size - 1]), 0.0)
        h[rows, layer + 1] = tp.tanh(h @ w)
        tp.output("out", h)
        tp.output("other", tp.as_tensor(t_0))
    check(program, t_0=DRAW.normal(size=(4, 2, 2)), sizes={"rows": 3, "tanh_in_place_0": 2})


@pytest.mark.parametrize("many", [1024, 1])
def test_prepared_rows_are_those_of_each_row(many: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(emitter, "_MANY", many)
    tensor = torch.arange(12).reshape(2, 2, 3)
    assert torch.equal(emitter.of_rows(turned)(tensor, 2)[1], tensor[1].t())
    assert torch.equal(emitter.rows(tensor)[1], tensor[1])


def compute(result: str, *operands: str, op: str = "neg") -> Compute:
    type = TensorType((as_expr(3),), "float32")
    return Compute(result, op, {}, operands, (type,) * len(operands), type)


def segment(*body: Statement) -> Segment:
    return Segment(0, body, ())


def test_one_place_where_a_value_is_made_says_nothing_of_another():
    """`v3` is made of a value in one block and of a buffer in the other: only the value's memory is free."""
    read = Read("v3__0", 0, (PointIndex(as_expr(0)),))
    made, from_buffer = compute("v3", "v2"), compute("v3", "v3__0")
    branch = Branch(TRUE, (compute("v2", "v1", op="exp"), made), (read, from_buffer))
    flow = Flow.of(segment(branch))
    assert flow.free(made) == (0,)
    assert flow.free(from_buffer) == ()


def test_memory_is_free_only_in_the_block_where_the_value_is_made():
    outer, inner = compute("v2", "v1", op="exp"), compute("v3", "v2")
    assert Flow.of(segment(outer, inner)).free(inner) == (0,)
    loop = Loop(Symbol("t", "dim"), as_expr(0), as_expr(5), "forward", (inner,))
    assert Flow.of(segment(outer, loop)).free(inner) == ()


def test_what_views_and_creation_give_is_nobodys_to_overwrite():
    use = compute("v3", "v2")
    for op in ("copy", "reshape", "transpose", "flip", "constant"):
        made = compute("v2", *(() if op == "constant" else ("v1",)), op=op)
        assert Flow.of(segment(made, use)).free(use) == ()
    chain = (compute("v1", "v0", op="exp"), compute("v2", "v1", op="reshape"), use)
    assert Flow.of(segment(*chain)).free(use) == (0,)


def _chain(width: int) -> tp.Program:
    """Lifted values, each of which is read twice and makes the next."""
    with tp.Program("chain") as program:
        t = tp.dim("t", 4)
        x = first = tp.input("x", (width,), (t,))
        for _ in range(5):
            x = tp.tanh(x) * tp.sin(x) + first
        tp.output("y", x[:].sum(axis=0))
    return program


def test_large_values_are_let_go_after_their_last_use():
    large = tp.compile(_chain(1 << 14), "torch").explain("all")
    assert re.search(r"^ *del v\d+", large, re.M)
    assert "del " not in tp.compile(_chain(8), "torch").explain("all")


def test_what_lives_at_once_does_not_grow_with_the_length_of_a_program():
    """Without it all but the last of the five lived until the end."""
    backend = TorchBackend()
    run = tp.compile(_chain(1 << 14), backend)
    x = torch.ones(4, 1 << 14)
    assert backend.measured_peak(lambda: run(x=x)) <= 4 * x.nbytes
