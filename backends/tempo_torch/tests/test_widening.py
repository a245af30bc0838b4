"""Products in a dtype of more bits than what is given has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch
from tempo_torch.arrays import TORCH_DTYPES
from tempo_torch.operators import TABLE, contractions, widening

from tempo.backends.operators import Call, StaticType

CPU = torch.device("cpu")
InParts = Callable[[int], AbstractContextManager[list[torch.Tensor]]]


def lies(x: torch.Tensor, turned: bool) -> torch.Tensor:
    return x.mT.contiguous().mT if turned else x


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("shape", [(2, 5, 9), (9, 5, 2), (1, 7, 1), (4, 0, 3), (0, 4, 3), (3, 1, 8)])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("dtypes", [("bfloat16",) * 2, ("float16",) * 2, ("float32", "int8"), ("int8", "float32")])
def test_a_product_in_parts_is_that_of_all(
    turned: tuple[bool, bool],
    shape: tuple[int, int, int],
    batch: tuple[int, ...],
    dtypes: tuple[str, str],
    in_parts_of: InParts,
) -> None:
    high, inner, wide = shape
    draw = torch.Generator().manual_seed(0)
    x, y = (
        lies((4 * torch.randn((*batch, *each), generator=draw)).to(TORCH_DTYPES[dtype]), is_turned)
        for each, dtype, is_turned in zip([(high, inner), (inner, wide)], dtypes, turned, strict=True)
    )
    with in_parts_of(6):
        found = widening.product(x, y, torch.float32)
    torch.testing.assert_close(found, torch.matmul(x.float(), y.float()))


def test_parts_are_of_the_larger_side(in_parts_of: InParts) -> None:
    few, many = torch.ones(2, 8, dtype=torch.bfloat16), torch.ones(8, 10, dtype=torch.bfloat16)
    with in_parts_of(20) as made:
        widening.product(few, many, torch.float32)
        assert [each.shape for each in made] == [(2, 10)] * 4
        made.clear()
        widening.product(many.mT, few.mT, torch.float32)
        assert [each.shape for each in made] == [(2, 10)] * 4


@pytest.mark.parametrize("rows", [1, contractions._FEW, contractions._FEW + 1])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_halves_are_rounded_once(
    rows: int, axis: int, is_left: bool, dtype: str, in_parts_of: InParts
) -> None:
    """However many rows there are, and wherever the inputs of the matrix lie."""
    draw = torch.Generator().manual_seed(0)
    given = torch.randn((rows, 64), generator=draw).to(TORCH_DTYPES[dtype])
    matrix = torch.randn((64, 33) if axis == 0 else (33, 64), generator=draw).to(TORCH_DTYPES[dtype])
    wanted = given.double() @ (matrix if axis == 0 else matrix.t()).double()
    operands, contract = [given, matrix], [1, axis]
    if not is_left:
        operands, contract, wanted = operands[::-1], contract[::-1], wanted.t()
    attrs = {"lhs_contract": contract[:1], "rhs_contract": contract[1:], "lhs_batch": (), "rhs_batch": ()}
    types = tuple(StaticType(tuple(each.shape), dtype) for each in operands)
    call = Call("dot", attrs, types, StaticType(tuple(wanted.shape), dtype))
    with in_parts_of(100):
        found = TABLE["dot"](call, CPU)(*operands)
    assert found.dtype == TORCH_DTYPES[dtype]
    torch.testing.assert_close(found.double(), wanted, rtol=torch.finfo(found.dtype).eps, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_int8_is_made_wider_in_parts(dtype: str, at_once: int, in_parts_of: InParts) -> None:
    """Results are not of the memory that the parts are in, whatever the default device is when that is made."""
    axes = {"lhs_contract": (1,), "rhs_contract": (1,), "lhs_batch": (), "rhs_batch": ()}
    call = Call("dot", axes, (StaticType((2, 4), dtype), StaticType((7, 4), "int8")), StaticType((2, 7), dtype))
    multiply, draw = TABLE["dot"](call, CPU), np.random.default_rng(0)
    x = torch.from_numpy(draw.normal(size=(2, 4))).to(TORCH_DTYPES[dtype])
    matrices = [torch.from_numpy(draw.integers(-127, 128, (7, 4), np.int8)) for _ in range(2)]
    with in_parts_of(4 * at_once) as made, torch.device("meta"):
        found = [multiply(x, matrix) for matrix in matrices]
    assert len(made) == 2 * -(-7 // at_once)
    for each, matrix in zip(found, matrices):
        torch.testing.assert_close(each, x @ matrix.to(x.dtype).T)


def test_what_is_made_beside_a_product_lies_where_it_is_run() -> None:
    axes = {"lhs_contract": (1,), "rhs_contract": (1,), "lhs_batch": (), "rhs_batch": ()}
    operands = StaticType((2, 64), "bfloat16"), StaticType((8, 64), "int8")
    with torch.device("meta"):
        multiply = TABLE["dot"](Call("dot", axes, operands, StaticType((2, 8), "bfloat16")), CPU)
    found = multiply(torch.ones(2, 64, dtype=torch.bfloat16), torch.ones(8, 64, dtype=torch.int8))
    assert found.tolist() == [[64.0] * 8] * 2


@pytest.mark.parametrize("dtypes", [("bfloat16", "bfloat16"), ("float32", "int8")])
def test_products_lie_row_by_row(dtypes: tuple[str, str]) -> None:
    """Whichever side is the larger one."""
    axes = {"lhs_contract": (1,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
    for shape in [(300, 20), (20, 300)]:
        x, y = (
            torch.ones(shape[0], 16).to(TORCH_DTYPES[dtypes[0]]),
            torch.ones(16, shape[1]).to(TORCH_DTYPES[dtypes[1]]),
        )
        operands = StaticType(tuple(x.shape), dtypes[0]), StaticType(tuple(y.shape), dtypes[1])
        found = TABLE["dot"](Call("dot", axes, operands, StaticType(shape, dtypes[0])), CPU)(x, y)
        assert found.is_contiguous()


def test_memory_that_is_kept_is_nobodys_gradient(in_parts_of: InParts) -> None:
    x, y = torch.ones(2, 8, dtype=torch.bfloat16), torch.ones(8, 10, dtype=torch.bfloat16)
    with in_parts_of(20):
        widening.product(x, y.clone().requires_grad_(), torch.float32)
        assert not widening.product(x, y, torch.float32).requires_grad
