"""How many bytes of tensors live at once."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


def measured_peak(work: Callable[[], Any], device: torch.device) -> int:
    """The bytes that `work` allocates on the device and that live at once, at most."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _Counting() as counting:
        work()
    return counting.peak


class _Counting(TorchDispatchMode):
    """Counts the memory of the tensors that operators make: a piece of memory lives as long as one of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._tensors: Counter[int] = Counter()  # by address

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {each.untyped_storage().data_ptr() for each in tree_iter(args) if isinstance(each, torch.Tensor)}
        made = function(*args, **(kwargs or {}))
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor, given)
        return made

    def _count(self, tensor: torch.Tensor, given: set[int]) -> None:
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if address in given and not self._tensors[address]:
            return  # a view of what was there before
        self._tensors[address] += 1
        if self._tensors[address] == 1:
            self.live += size
            self.peak = max(self.peak, self.live)
        weakref.finalize(tensor, self._gone, address, size)

    def _gone(self, address: int, size: int) -> None:
        self._tensors[address] -= 1
        if not self._tensors[address]:
            self.live -= size
