"""Data-dependent reads and writes. An index out of range raises where `checked`, else it is clamped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tempo.backends.operators import Attrs, Call, StaticType
from tempo.errors import IndexOutOfRangeError
from tempo_torch.arrays import TORCH_DTYPES, positions_of, signed
from tempo_torch.operators.builder import HALF, UNSIGNED, Builder, Function, result_dtype, unless_unsigned
from tempo_torch.operators.packing import as_given
from tempo_torch.waits import told, waits


def _axes(attrs: Attrs) -> range:
    """The axes of data that are indexed."""
    return range(attrs["axis"], attrs["axis"] + attrs.get("count", 1))


def _out_of_range(index: int, size: int) -> IndexOutOfRangeError:
    return IndexOutOfRangeError(f"index {index} is out of range for an axis of size {size}")


def _checker(attrs: Attrs, size: int, as_it_is: bool = False) -> Function:
    """From an index tensor to one of int64, or of its own dtype, that is within range; `length` positions may count."""
    convert = (lambda index: index) if as_it_is else as_long
    if not _is_checked(attrs, size):
        return lambda index, length=size: _clamped(convert(index), length, size)

    @waits("an index that is out of range is an error where it is met")
    def check(index: torch.Tensor, length: int = size) -> torch.Tensor:
        index, end = convert(index), min(length, size)
        if not index.numel():
            return index
        least, greatest = (int(extreme) for extreme in torch.aminmax(index))
        if least < 0 or greatest >= end:
            wrong = index[(index < 0) | (index >= end)]
            raise _out_of_range(int(wrong[0]), end)
        return index

    return check


def _is_checked(attrs: Attrs, size: int) -> bool:
    return not size or bool(attrs.get("checked", False))


def _clamped(index: torch.Tensor, length: int | torch.Tensor, size: int) -> torch.Tensor:
    """`length` may lie on the device."""
    if isinstance(length, torch.Tensor):
        return torch.minimum(index, (length - 1).clamp(0, size - 1)).clamp(min=0)
    return index.clamp(0, max(min(length, size) - 1, 0))


def _telling(function: Function, attrs: Attrs, data: StaticType) -> Function:
    """The same, which says whether it waits."""
    checked = any(_is_checked(attrs, data.shape[axis]) for axis in _axes(attrs))
    return told(function, "an index that is out of range is an error where it is met") if checked else function


def as_long(index: torch.Tensor) -> torch.Tensor:
    """A uint64 that is too great stays too great; every other dtype fits."""
    found = index.long()
    return found.masked_fill(found < 0, torch.iinfo(torch.int64).max) if index.dtype == torch.uint64 else found


def _indexer(
    attrs: Attrs, data: StaticType, index: StaticType, device: torch.device
) -> tuple[tuple[int, ...], Callable[..., tuple[Any, ...]]]:
    """The order of axes batch, indexed, others for data, and the index into data so ordered, from the index tensors."""
    axes, batch = _axes(attrs), attrs.get("batch", 0)
    order = (*range(batch), *axes, *range(batch, axes.start), *range(axes.stop, data.rank))
    rows = []
    for axis in range(batch):
        aligned = [-1 if at == axis else 1 for at in range(index.rank)]
        rows.append(torch.arange(index.shape[axis], device=device).reshape(aligned))
    checkers = [_checker(attrs, data.shape[axis]) for axis in axes]

    def index_of(given: Sequence[Any]) -> tuple[Any, ...]:
        each = zip(checkers, *(given[at : at + len(axes)] for at in range(0, len(given), len(axes))))
        return (*rows, *(check(*index) for check, *index in each))

    return order, index_of


def _gather(call: Call, device: torch.device) -> Function:
    attrs, data, index = call.attrs, call.operands[0], call.operands[1]
    axes, batch = _axes(attrs), attrs.get("batch", 0)
    if batch == 0 and len(axes) == 1:
        take = _take_one(attrs, data) if index.rank == 0 and device.type == "cpu" else _take(call)
        return _telling(take, attrs, data)
    order, indexer = _indexer(attrs, data, index, device)
    middle = axes.start - batch  # axes between the batch and the indexed ones: after the index's axes in what is read
    read = range(call.result.rank)
    back = (
        *read[:batch],
        *read[index.rank : index.rank + middle],
        *read[batch : index.rank],
        *read[index.rank + middle :],
    )

    def gather(data: torch.Tensor, *given: Any) -> torch.Tensor:
        return data.permute(order)[indexer(given)].permute(back)

    if data.dtype not in UNSIGNED:
        return _telling(gather, attrs, data)
    dtype = TORCH_DTYPES[data.dtype]
    return _telling(lambda data, *given: gather(signed(data), *given).view(dtype), attrs, data)


def _take(call: Call) -> Function:
    axis, index = call.attrs["axis"], call.operands[1]
    check = _checker(call.attrs, call.operands[0].shape[axis], as_it_is=index.dtype == "int32")
    shape = call.result.shape
    if call.operands[0].dtype in UNSIGNED:
        return lambda data, *given: positions_of(data, axis, check(*given).reshape(-1)).reshape(shape)
    if index.rank == 1:
        return lambda data, *given: as_given(data).index_select(axis, check(*given))
    return lambda data, *given: as_given(data).index_select(axis, check(*given).reshape(-1)).reshape(shape)


def _take_one(attrs: Attrs, data: StaticType) -> Function:
    """One position: what a loop over steps reads. Only where the host need not wait for it."""
    axis, size, checked = attrs["axis"], data.shape[attrs["axis"]], attrs.get("checked", False)

    def take(data: torch.Tensor, index: torch.Tensor, length: int = size) -> torch.Tensor:
        position, end = int(index), min(length, size)
        if not 0 <= position < end:
            if checked or size == 0:
                raise _out_of_range(position, end)
            position = max(min(position, end - 1), 0)
        return as_given(data).select(axis, position).clone()

    return take


def _scatter_add(call: Call, device: torch.device) -> Function:
    attrs, base, index = call.attrs, call.operands[0], call.operands[1]
    axis, batch, dtype = attrs["axis"], attrs.get("batch", 0), result_dtype(call)
    order, indexer = _indexer(attrs, base, index, device)
    updates = range(call.operands[-1].rank)
    added = updates[axis : axis + index.rank - batch]
    reordered = (*updates[:batch], *added, *updates[batch:axis], *updates[added.stop :])
    wide, own = TORCH_DTYPES["float32"] if call.result.dtype in HALF else dtype, attrs.get("in_place")

    def scatter(base: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        *indices, updates = given
        result = base if own else base.to(wide, copy=True, memory_format=torch.contiguous_format)
        result.permute(order).index_put_(indexer(indices), updates.permute(reordered).to(wide), accumulate=True)
        return result.to(dtype)

    return _telling(scatter, attrs, base)


INDEXING: Mapping[str, Builder] = {
    "gather": _gather,
    "gather_pairs": _gather,
    "scatter_add": unless_unsigned(_scatter_add),
}
