"""Attention of one point: the kernel where it gives what the steps do, else these."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from tempo_torch.arrays import TORCH_DTYPES, from_host, to_host
from tempo_torch.operators import TABLE, attention

from tempo.sdg.call import Call, StaticType
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Symbol, var

CPU = torch.device("cpu")
InParts = Callable[[int], AbstractContextManager[list[torch.Tensor]]]


def called(
    keys: int, biased: bool, rows: int = 5, width: int = 4, dtype: str = "float32", fill: float | None = None
) -> Call:
    attrs = {"key_axes": (0, 1), "value_axes": (0, 1), "scale": 0.5, "masked": fill is not None, "fill": fill or 0.0}
    shapes = [(rows, width), (keys, width), (keys, width), *[(rows, keys)] * biased]
    operands = tuple(StaticType(shape, dtype) for shape in shapes)
    mask = () if fill is None else (StaticType((rows, keys), "bool"),)
    attrs |= {"biased": biased, "length": var(Symbol("t", "dim"))}
    return Call("attention", attrs, (*operands, *mask), operands[0])


def drawn(call: Call) -> list[Any]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=each.shape).astype(each.dtype) for each in call.operands]


def through_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few the scores are, where rows are many for their width."""
    monkeypatch.setattr(attention, "_MANY_SCORES", 0)


@pytest.fixture(params=["by torch's kernel", "in steps", "bfloat16"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of all operands, each way that they may go."""
    if request.param == "by torch's kernel":
        through_the_kernel(monkeypatch)
    return "bfloat16" if request.param == "bfloat16" else "float32"


@pytest.fixture(params=[True, False], ids=["by torch's kernel", "in steps"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        through_the_kernel(monkeypatch)


def check(call: Call, arrays: list[Any], length: int) -> None:
    with np.errstate(all="ignore"):
        wanted = OPERATORS["attention"].numpy(call)(*arrays, length)
    found = TABLE["attention"](call, CPU)(*(from_host(each.copy(), CPU) for each in arrays), length)
    near = 2e-6 if call.result.dtype == "float32" else 2e-2
    np.testing.assert_allclose(to_host(found).astype(np.float32), wanted.astype(np.float32), rtol=near, atol=near)


@pytest.mark.parametrize("keys", [1, 3, 7, 8, 40])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2, 3])
def test_what_is_not_finite_is_seen_where_it_is(keys: int, value: float, operand: int, dtype: str) -> None:
    """Torch's kernel makes 0 of a row whose scores are all NaN, where it has few keys, or all -inf."""
    call = called(keys, biased=operand == 3, dtype=dtype)
    arrays = drawn(call)
    arrays[0], arrays[operand] = np.abs(arrays[0]), arrays[operand].copy()
    arrays[operand][-1] = value
    check(call, arrays, keys)
    arrays[operand][:] = value
    check(call, arrays, keys)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("length", [1, 5])
def test_zeros_and_lengths(length: int) -> None:
    call = called(5, biased=False)
    arrays = drawn(call)
    check(call, arrays, length)
    arrays[2][:] = 0
    check(call, arrays, length)


@pytest.mark.parametrize("fill", [-np.inf, -1e30, -1e4, -1.0])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("hidden", ["few", "rows", "the last", "all"])
@pytest.mark.parametrize("scores", [1.0, 1e17, -1e17, 0.0])
def test_what_a_mask_hides(fill: float, biased: bool, hidden: str, scores: float, dtype: str) -> None:
    """Where all is hidden, or what is seen is as low as the fill, this counts."""
    call = called(7, biased, dtype=dtype, fill=fill)
    *arrays, _ = drawn(call)
    arrays[0], arrays[1] = np.abs(arrays[0]) * abs(scores), np.abs(arrays[1]) * scores
    seen = np.arange(7) != 6 if hidden == "the last" else np.random.default_rng(1).random((5, 7)) > 0.3
    if hidden in ("rows", "all"):
        seen = np.arange(5)[:, None] > (1 if hidden == "rows" else 5)
    arrays = [*arrays, np.broadcast_to(seen, (5, 7)).copy()]
    check(call, arrays, 7)
    check(call, arrays, 5)
    for operand, value in [(1, np.nan), (1, np.inf), (1, -np.inf), (2, np.nan), (2, np.inf)]:
        given = [each.copy() for each in arrays]
        given[operand][-1] = value
        check(call, given, 7)


@pytest.mark.parametrize("value", [1e38, np.inf])
@pytest.mark.usefixtures("either_way")
def test_the_greatest_values(value: float) -> None:
    """Of equal weights, and of a weight that is denormal."""
    call = called(8, biased=False)
    arrays = [np.zeros(each.shape, each.dtype) for each in call.operands]
    arrays[2][:] = value
    check(call, arrays, 8)
    if np.isinf(value):
        arrays[0][:], arrays[1][0], arrays[2][1:] = 1, -46, 0
        check(call, arrays, 8)


def of_texts(dtype: str = "float32", shared: bool = False, apart: bool = True) -> Call:
    """3 of them, of 4 heads: 9 keys that lie as they were made, point by point with all heads of one beside each other,
    or head by head; what a mask hides is of each text, or of all."""
    shape, axes = ((3, 9, 4, 8), (0, 2, 1, 3)) if apart else ((3, 4, 9, 8), (0, 1, 2, 3))
    queries, keys = StaticType((3, 4, 2, 8), dtype), StaticType(shape, dtype)
    mask = StaticType((1 if shared else 3, 1, 2, 9), "bool")
    attrs = {"key_axes": axes, "value_axes": axes, "scale": 0.5, "masked": True, "fill": -1e30, "biased": False}
    return Call("attention", {**attrs, "length": var(Symbol("t", "dim"))}, (queries, keys, keys, mask), queries)


def drawn_for_texts(call: Call) -> list[Any]:
    *arrays, mask = drawn(call)
    mask = np.random.default_rng(1).random(mask.shape) > 0.3
    mask[..., 0] = True
    return [*arrays, mask]


def never_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "in_steps", lambda *given: pytest.fail("it went in steps"))


@pytest.mark.parametrize("fill", [None, -1e30, -np.inf])
def test_many_scores_go_through_the_kernel(fill: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    call = called(7, biased=True, rows=60, fill=fill)
    *arrays, last = drawn(call)
    through_the_kernel(monkeypatch)
    if fill is not None:
        last[:, 0] = True
    never_in_steps(monkeypatch)
    check(call, [*arrays, last], 7)


def test_keys_that_a_product_would_copy_go_through_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    never_in_steps(monkeypatch)
    call = of_texts()
    check(call, drawn_for_texts(call), 9)
    check(call, drawn_for_texts(call), 7)
    together = of_texts(apart=False)
    with pytest.raises(pytest.fail.Exception, match="in steps"):
        check(together, drawn_for_texts(together), 9)


def test_keys_of_one_text_are_not_copied() -> None:
    of_heads = torch.zeros(9, 4, 8).transpose(0, 1)
    assert attention._lie_as_one(of_heads)
    assert attention._lie_as_one(of_heads[None])
    assert attention._lie_as_one(torch.zeros(3, 9, 1, 8).transpose(1, 2))
    assert not attention._lie_as_one(torch.zeros(3, 9, 4, 8).transpose(1, 2))
    assert not attention._lie_as_one(torch.zeros(3, 4, 9, 8)[:, :2])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("elements", "made"), [(9 * 4 * 8 * 3, 1), (9 * 4 * 8 * 2, 2), (9 * 4 * 8, 3), (9 * 8 * 3, 6), (9 * 8, 12), (8, 0)]
)
def test_halves_are_made_float32_text_by_text_and_head_by_head(
    dtype: str, shared: bool, elements: int, made: int, in_parts_of: InParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For torch's kernel, in memory for `elements` of keys and as many of values; where a head has more, in new one."""
    call = of_texts(dtype, shared)
    *given, mask = drawn_for_texts(call)
    halves = [from_host(each.astype(np.float32), CPU).to(TORCH_DTYPES[dtype]) for each in given]
    wanted = TABLE["attention"](of_texts(shared=shared), CPU)(*(x.float() for x in halves), torch.from_numpy(mask), 9)
    monkeypatch.setattr(attention, "_kernel_multiplies", lambda dtype: False)
    never_in_steps(monkeypatch)
    with in_parts_of(elements) as parts:
        found = TABLE["attention"](call, CPU)(*halves, torch.from_numpy(mask), 9)
    assert len(parts) == 2 * made
    assert found.dtype == TORCH_DTYPES[dtype]
    torch.testing.assert_close(found, wanted.to(found.dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_whose_axes_change_places_when_they_are_made_float32(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are the same for all keys: torch makes of their strides, (1, 4, 0, 1), others."""
    through_the_kernel(monkeypatch)
    queries, keys = StaticType((1, 3, 2, 4), dtype), StaticType((1, 3, 5, 4), dtype)
    call = of_texts(dtype)
    attrs = {**call.attrs, "key_axes": (0, 1, 2, 3), "value_axes": (3, 0, 1, 2), "masked": False, "fill": 0.0}
    call = Call("attention", attrs, (queries, keys, StaticType((3, 5, 4, 1), dtype)), queries)
    q, k, _ = (from_host(each.astype(np.float32), CPU).to(TORCH_DTYPES[dtype]) for each in drawn(call))
    v = torch.arange(12.0).reshape(3, 1, 4, 1).to(TORCH_DTYPES[dtype]).expand(3, 5, 4, 1)
    found = TABLE["attention"](call, CPU)(q, k, v, 5)
    torch.testing.assert_close(found, v.permute(3, 0, 1, 2)[:, :, :2])


@pytest.mark.parametrize("text", [0, 2])
def test_one_text_that_is_not_finite_sends_all_in_steps(text: int, in_parts_of: InParts) -> None:
    call = of_texts("bfloat16")
    *arrays, mask = drawn_for_texts(call)
    arrays[1][text, 0] = np.nan
    halves = [from_host(each.astype(np.float32), CPU).bfloat16() for each in arrays]
    with in_parts_of(9 * 4 * 8):
        found = TABLE["attention"](call, CPU)(*halves, torch.from_numpy(mask), 9)
    for each in range(3):
        assert bool(found[each].isnan().all()) == (each == text)
        assert bool(found[each].isfinite().all()) == (each != text)


@pytest.mark.parametrize("form", ["plain", "masked", "biased", "masked and biased"])
@pytest.mark.parametrize("rows", [1, 5])
def test_bfloat16_goes_through_the_kernel_as_it_is(
    form: str, rows: int, in_parts_of: InParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel multiplies it."""
    monkeypatch.setattr(attention, "_kernel_multiplies", lambda dtype: True)
    never_in_steps(monkeypatch)
    call = called(7, "biased" in form, rows, dtype="bfloat16", fill=-np.inf if "masked" in form else None)
    arrays = drawn(call)
    if "masked" in form:
        arrays[-1] = np.arange(7) != np.arange(rows)[:, None]
    with in_parts_of(1) as made:
        check(call, arrays, 7)
        check(call, arrays, 5)
    assert not made


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("at_once", [1, 3, 4, 7, 8])
def test_halves_are_made_float32_in_parts(
    dtype: str, at_once: int, in_parts_of: InParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_kernel_multiplies", lambda dtype: False)
    call = called(7, biased=True, rows=2, dtype=dtype)
    arrays = [from_host(each.astype(np.float32), CPU).to(TORCH_DTYPES[dtype]) for each in drawn(call)]
    whole = TABLE["attention"](call, CPU)(*arrays, 7)
    with in_parts_of(4 * at_once) as made:
        parts = TABLE["attention"](call, CPU)(*arrays, 7)
    assert len(made) == 2 * -(-7 // at_once)
    assert parts.dtype == whole.dtype
    torch.testing.assert_close(parts, whole)
