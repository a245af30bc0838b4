"""How many bytes of tensors live at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


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
        given = {each.untyped_storage().data_ptr() for each in tree_iter(args) if isinstance(each, torch.Tensor)}
        made = function(*args, **(kwargs or {}))
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage(), given)
        return made

    def _count(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        if address in self._counted or address in given:
            return  # of what was there before
        self._counted.add(address)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, address, size)

    def _gone(self, address: int, size: int) -> None:
        self._counted.discard(address)
        self.live -= size
