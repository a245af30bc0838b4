"""Several processes, each with a part: `torch.distributed` by gloo on CPUs and nccl on GPUs, started by `torchrun`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from tempo.backends import Mesh, Placement
from tempo.backends.operators import Call
from tempo.errors import InputError, SizeError, UnsupportedError
from tempo_torch.arrays import from_host
from tempo_torch.operators.builder import Function

_ADDED = (torch.float32, torch.float64, torch.int32, torch.int64)
"""What gloo adds up."""
_HINT = "start it as: torchrun --nproc-per-node {count} script.py"


@dataclass(frozen=True)
class Processes:
    """The processes of a mesh, of which this is one."""

    mesh: DeviceMesh
    device: torch.device

    @staticmethod
    @cache
    def of(mesh: Mesh, device: str) -> Processes:
        """One for all programs. Raises `UnsupportedError` where the process was not started as one of as many."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if dist.is_initialized():
            count = dist.get_world_size()
        if count != mesh.devices:
            raise UnsupportedError(
                f"the mesh {mesh} has {mesh.devices} devices, one for each process, and there are {count} processes",
                hint=_HINT.format(count=mesh.devices),
            )
        if mesh.devices == 1 and not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        if device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        made = init_device_mesh(device, tuple(mesh.axes.values()), mesh_dim_names=tuple(mesh.axes))
        own = torch.device("cuda", torch.cuda.current_device()) if device == "cuda" else torch.device(device)
        return Processes(made, own)

    @property
    def at(self) -> dict[str, int]:
        """The place of this process along each axis."""
        names, coordinates = self.mesh.mesh_dim_names, self.mesh.get_coordinate()
        assert names is not None, "they are given"
        assert coordinates is not None, "every process is of the mesh"
        return dict(zip(names, coordinates, strict=True))

    @property
    def number(self) -> int:
        return int(dist.get_rank())

    def meet(self) -> None:
        with _told():
            dist.barrier()

    def part(self, array: np.ndarray[Any, Any] | torch.Tensor, placement: Placement) -> torch.Tensor:
        """This process's part of an array that every process is given whole, or that lies in such parts already."""
        if isinstance(array, DTensor) and all(isinstance(each, Replicate) for each in array.placements):
            array = array.to_local()
        if isinstance(array, DTensor):
            if tuple(array.placements) != self._placements(placement) or array.device_mesh != self.mesh:
                raise InputError(
                    f"a DTensor of shape {tuple(array.shape)} lies as {array.placements}, and is to lie as "
                    f"{self._placements(placement)}",
                    hint="say in shard= or place= that it lies so, or lay it out with redistribute, which moves it",
                )
            return array.to_local().detach()
        at, index = self.at, list[slice]()
        for size, cut in zip(array.shape, placement, strict=True):
            if cut is not None and size % cut.count:
                raise SizeError(f"{size} positions, which {cut.count} devices along {cut.over!r} do not divide")
            count = size if cut is None else size // cut.count
            start = 0 if cut is None else at[cut.over] * count
            index.append(slice(start, start + count))
        part = array[tuple(index)]
        if isinstance(part, torch.Tensor):
            return part.detach().to(self.device)
        return from_host(np.ascontiguousarray(part), self.device)

    def joined(self, part: torch.Tensor, placement: Placement) -> torch.Tensor:
        """The array that lies in parts, of which every process has one."""
        return DTensor.from_local(part, self.mesh, self._placements(placement), run_check=False)

    def _placements(self, placement: Placement) -> tuple[Any, ...]:
        over = {cut.over: axis for axis, cut in enumerate(placement) if cut is not None}
        names = self.mesh.mesh_dim_names or ()
        return tuple(Shard(over[name]) if name in over else Replicate() for name in names)

    # -- what they do together ---------------------------------------------------------------------------------------

    def all_reduce(self, call: Call) -> Function:
        group = self.mesh.get_group(call.attrs["over"])

        def reduce(part: torch.Tensor) -> torch.Tensor:
            wide = torch.float32 if part.is_floating_point() else torch.int64  # in which sums wrap alike
            whole = part.to(
                part.dtype if part.dtype in _ADDED else wide, copy=True, memory_format=torch.contiguous_format
            )
            with _told():
                dist.all_reduce(whole, group=group)
            return whole.to(part.dtype)

        return reduce

    def all_gather(self, call: Call) -> Function:
        group, axis = self.mesh.get_group(call.attrs["over"]), call.attrs["axis"]
        return lambda part: gathered(part, axis, group)

    def exchange(self, call: Call) -> Function:
        """Each hands its last positions on to the next, or its first ones to the one before."""
        group, axis, distance = (self.mesh.get_group(call.attrs["over"]), call.attrs["axis"], call.attrs["distance"])
        place, count, kept = dist.get_rank(group), dist.get_world_size(group), call.result.shape[axis] - abs(distance)
        to, of = (place + 1, place - 1) if distance > 0 else (place - 1, place + 1)
        first, rest = (kept, 0) if distance > 0 else (0, -distance)

        def shift(part: torch.Tensor) -> torch.Tensor:
            sent = part.narrow(axis, first, abs(distance)).contiguous()
            received, calls = torch.zeros_like(sent), list[dist.P2POp]()
            if 0 <= of < count:
                calls.append(dist.P2POp(dist.irecv, _bytes(received), dist.get_global_rank(group, of), group))
            if 0 <= to < count:
                calls.append(dist.P2POp(dist.isend, _bytes(sent), dist.get_global_rank(group, to), group))
            with _told():
                for each in dist.batch_isend_irecv(calls) if calls else ():
                    each.wait()
            own = part.narrow(axis, rest, kept)
            return torch.cat((received, own) if distance > 0 else (own, received), axis)

        return shift


def _bytes(array: torch.Tensor) -> torch.Tensor:
    """What the memory of a contiguous array holds: it is moved whatever the dtype. Axes of one have any step."""
    return array.as_strided((array.numel(),), (1,)).view(torch.uint8)


@contextmanager
def _told() -> Iterator[None]:
    """What the library says of a process that is gone is about connections."""
    try:
        yield
    except RuntimeError as error:
        error.add_note("Another process of the mesh has probably ended, with an error of its own.")
        raise


def whole(array: torch.Tensor) -> torch.Tensor:
    """All of an array of which every process has a part, whatever its dtype; all of them ask for it."""
    assert isinstance(array, DTensor), "it lies in parts"
    found = array.to_local()
    for axis, each in reversed(list(enumerate(array.placements))):
        if isinstance(each, Shard):
            found = gathered(found, each.dim, array.device_mesh.get_group(axis))
    return found


def gathered(part: torch.Tensor, axis: int, group: dist.ProcessGroup) -> torch.Tensor:
    """What the processes of a group have, one behind the other along an axis."""
    given = part.contiguous()
    parts = [torch.empty_like(given) for _ in range(dist.get_world_size(group))]
    with _told():
        dist.all_gather([_bytes(each) for each in parts], _bytes(given), group=group)
    return torch.cat(parts, axis)
