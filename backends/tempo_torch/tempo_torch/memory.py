"""How many bytes of tensors live at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from tempo_torch.operators.packing import PackedMatrix


def measured_peak(work: Callable[[], Any], device: torch.device) -> int:
    """The bytes that `work` allocates on the device and that live at once, at most.

    On CUDA as they are asked for. What the allocator gives is more, by what was there before: it rounds sizes, and does
    not cut a free block of which less than a MiB would be left.
    """
    if device.type == "cuda":
        native = torch.cuda.get_allocator_backend() == "native"  # the other one does not count what is asked for
        counted = "requested_bytes.all" if native else "allocated_bytes.all"
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_stats(device)[f"{counted}.current"]
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return int(torch.cuda.memory_stats(device)[f"{counted}.peak"]) - int(before)
    with _Counting() as counting:
        work()
    return counting.peak


class _Counting(TorchDispatchMode):
    """Counts the storages of the tensors that operators make, each from there on until nothing holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._counted = set[int]()  # by address

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {held.address for each in tree_iter(args) if (held := _Held.by(each)) is not None}
        made = function(*args, **(kwargs or {}))
        for each in tree_iter(made):
            if (held := _Held.by(each)) is not None:
                self._count(held, given)
        return made

    def _count(self, held: _Held, given: set[int]) -> None:
        if held.address in self._counted or held.address in given:
            return  # of what was there before
        self._counted.add(held.address)
        self.live += held.size
        self.peak = max(self.peak, self.live)
        weakref.finalize(held.holder, self._gone, held.address, held.size)

    def _gone(self, address: int, size: int) -> None:
        self._counted.discard(address)
        self.live -= size


class _Held(NamedTuple):
    """What holds memory, where and how much."""

    holder: object
    address: int
    size: int

    @staticmethod
    def by(value: object) -> _Held | None:
        if isinstance(value, PackedMatrix):
            return None if value.kept is None else _Held.by(value.kept)
        if not isinstance(value, torch.Tensor):
            return None
        if value.is_mkldnn:  # its storage is oneDNN's own
            return _Held(value, id(value), value.numel() * value.itemsize)
        storage = value.untyped_storage()
        return _Held(storage, storage.data_ptr(), storage.nbytes())
