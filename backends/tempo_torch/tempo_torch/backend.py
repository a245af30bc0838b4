"""The PyTorch backend: the generic emitter's loops, on preallocated tensors and torch's operators."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tempo.backends import EAGER, EAGER_CUDA, CompiledSegment, GenericBackend, Mesh, Placement, SegmentRequest
from tempo.backends.loop_ir import Loop, walk
from tempo.backends.operators import Call
from tempo.backends.tracing import Tracer
from tempo.errors import InputError, UnsupportedError
from tempo.plugins import BackendPlugin
from tempo_torch.arrays import (
    NAMES,
    TORCH_DTYPES,
    clamped,
    from_host,
    host_writer,
    positions_of,
    signed,
    to_host,
    wrapped,
)
from tempo_torch.emitter import CudaEmitter, TorchEmitter
from tempo_torch.memory import measured_peak
from tempo_torch.operators import TABLE
from tempo_torch.operators.packing import PackedMatrix
from tempo_torch.plugin import INFO


class TorchBackend(GenericBackend):
    """Runs on one device, or is one of the processes of a mesh.

    Segments run in inference mode; what `run` returns are ordinary tensors, and `DTensor`s of what lies in parts.
    """

    info: BackendPlugin = INFO
    donates = True
    emitter = TorchEmitter

    def __init__(self, device: str = "cpu", mesh: Mesh | None = None, graphs: bool = True) -> None:
        """`device` is "cpu" or "cuda"; `graphs`: whether loops run as CUDA graphs there.

        Raises `UnsupportedError` where torch finds no such device, or where there are not as many processes as the mesh
        has devices.
        """
        if device not in INFO.capabilities.devices:
            raise UnsupportedError(f"the backend 'torch' does not run on {device!r}", hint='its devices: "cpu", "cuda"')
        if device == "cuda" and not torch.cuda.is_available():
            raise UnsupportedError(
                f"torch {torch.__version__} finds no CUDA device",
                hint="torch.cuda.is_available() must hold: a CUDA build of torch, a driver and a device",
            )
        self.device = torch.device(device)
        self.costs = EAGER if device == "cpu" else EAGER_CUDA
        self.recorder: Any = None
        if device == "cuda":
            from tempo_torch.graphs import Recorder

            self.emitter = CudaEmitter
            self.recorder = Recorder(self.device) if graphs and mesh is None else None
            self.reducing = 2.0  # partial results, a column of them for each thread of a block (`Reduce.cuh`)

        self._processes = None
        if mesh is not None:
            from tempo_torch.mesh import Processes  # torch.distributed takes a while to load

            self._processes = Processes.of(mesh, device)
            self.coordinates, self.device = self._processes.at, self._processes.device
            self.processes, self.process = mesh.devices, self._processes.number

    takes_points = True

    def with_mesh(self, mesh: Mesh) -> TorchBackend:
        """This process as one of a mesh, with a GPU where there are some."""
        return TorchBackend("cuda" if torch.cuda.is_available() else self.device.type, mesh)

    @staticmethod
    def launched(count: int, arguments: Sequence[str]) -> list[str]:
        """The command that runs Python with these arguments in so many processes; the first one alone is heard."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        return [*launcher, "--local-ranks-filter=0", *arguments]

    def laid(self, array: np.ndarray[Any, Any] | torch.Tensor, placement: Placement) -> torch.Tensor:
        assert self._processes is not None, "where something has a placement there is a mesh"
        return self._processes.part(array, placement)

    def joined(self, part: torch.Tensor, placement: Placement) -> torch.Tensor:
        assert self._processes is not None, "where something lies in parts there is a mesh"
        return self._processes.joined(part, placement)

    def meet(self) -> None:
        if self._processes is not None:
            self._processes.meet()

    def with_device(self, device: str) -> TorchBackend:
        """The same backend on another device."""
        return TorchBackend(device)

    def without_device(self, device: str) -> TorchBackend:
        """The same backend as on CUDA, which need not be there; for tests (`tempo_torch.simulated`)."""
        from tempo_torch.simulated import SimulatedBackend

        return SimulatedBackend(device)

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        compiled = super().compile_segment(request)
        if self.recorder is None or not any(isinstance(each, Loop) for each in walk(request.segment.body)):
            return compiled
        from tempo_torch.graphs import GraphedSegment

        emitter = self.emitter(request.program, request.sizes, self.operator)
        graphed = GraphedSegment(request, emitter, compiled.function, self.device, self.recorder)
        return replace(compiled, function=graphed, source=f"{compiled.source}\n{graphed.told}")

    def operator(self, call: Call) -> Callable[..., torch.Tensor]:
        if self._processes is not None and call.op in ("all_reduce", "all_gather", "exchange"):
            return getattr(self._processes, call.op)(call)  # type: ignore[no-any-return]
        why_not = self.info.capabilities.why_not(call.op, call.result.dtype)
        if why_not or call.op not in TABLE:
            raise UnsupportedError(
                f"the backend 'torch' has no {call.op} of {call.result.dtype}: {why_not or 'it is not in its table'}",
                hint='backend="numpy" has every operator',
            )
        return TABLE[call.op](call, self.device)

    def allocate(self, shape: tuple[int, ...], dtype: str, fill: Any | None = None) -> torch.Tensor:
        if fill is None:
            return torch.empty(shape, dtype=TORCH_DTYPES[dtype], device=self.device)
        return torch.full(shape, fill, dtype=TORCH_DTYPES[dtype], device=self.device)

    def native(self, value: Any) -> str | None:
        return NAMES.get(value.dtype) if isinstance(value, torch.Tensor) else None

    def from_host(self, array: np.ndarray[Any, Any] | torch.Tensor) -> torch.Tensor:
        if _lies_in_parts(array):
            raise InputError(
                f"a DTensor of shape {tuple(array.shape)} lies in parts, and is to be whole on {self.device}",
                hint="compile with mesh= and shard= or place=, so that it stays as it is, or give its full_tensor()",
            )
        if isinstance(array, torch.Tensor):
            if isinstance(array, PackedMatrix) and array.device == self.device:
                return array.alike()
            return array.detach().to(self.device)
        return from_host(array, self.device)

    def to_host(self, array: torch.Tensor) -> np.ndarray[Any, Any]:
        """Of what lies in parts all of it, for which every process has to ask."""
        if _lies_in_parts(array):
            from tempo_torch.mesh import whole

            array = whole(array)
        return to_host(array)

    def take(self, array: torch.Tensor) -> None:
        """It is empty from here on; its storage stays as long as anything else holds it."""
        self.delete(array)

    def delete(self, array: torch.Tensor) -> None:
        if isinstance(array, PackedMatrix):
            array.let_go()
            return
        array.data = array.detach().new_empty(0)

    def stored(self, array: torch.Tensor, axis: int, at: int, part: np.ndarray[Any, Any]) -> torch.Tensor:
        array.narrow(axis, at, part.shape[axis]).copy_(from_host(part, torch.device("cpu")))
        return array

    def gathered(
        self, arrays: Sequence[torch.Tensor], axes: Sequence[int], positions: np.ndarray[Any, Any]
    ) -> Sequence[torch.Tensor]:
        at = self.from_host(positions)
        return [positions_of(array, axis, at) for array, axis in zip(arrays, axes, strict=True)]

    def scattered(
        self,
        arrays: Sequence[torch.Tensor],
        axes: Sequence[int],
        positions: np.ndarray[Any, Any],
        parts: Sequence[torch.Tensor],
    ) -> Sequence[torch.Tensor]:
        if self.device.type == "cpu":
            return super().scattered(arrays, axes, positions, parts)
        at = self.from_host(positions)
        with torch.inference_mode():  # a segment with a loop makes tensors that nobody else may write to
            for array, axis, part in zip(arrays, axes, parts, strict=True):
                signed(array).index_copy_(axis, at, signed(part))
        return arrays

    def for_products(self, matrix: torch.Tensor, contracted: int, alone: bool) -> torch.Tensor:
        return PackedMatrix.of(matrix, contracted, keep=not alone)

    def transpose(self, array: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
        return array.permute(axes)

    def padded(self, array: torch.Tensor, shape: tuple[int, ...], fill: Any) -> torch.Tensor:
        made = array.new_full(shape, fill)
        made[tuple(map(slice, array.shape))] = array
        return made

    def owned(self, array: torch.Tensor) -> torch.Tensor:
        return array.clone(memory_format=torch.contiguous_format)

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        return {
            "fresh": torch.clone,
            "clamped": clamped,
            "wrapped": wrapped,
            "to_host": to_host,
            "host_write": host_writer(self.device),
        }

    def measured_peak(self, work: Callable[[], Any]) -> int:
        """The bytes of tensors that `work` allocates and that live at once, at most."""
        return measured_peak(work, self.device)

    def tracer(self) -> Tracer:
        from tempo_torch.tracer import TorchTracer  # torch.profiler takes a while to load

        return TorchTracer(self.device, self.synchronize)

    def room(self) -> int | None:
        if self.device.type == "cpu":
            return super().room()
        return int(torch.cuda.get_device_properties(self.device).total_memory)

    def is_out_of_memory(self, error: Exception) -> bool:
        """On CPU torch raises a plain `RuntimeError`."""
        told = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
        return told or isinstance(error, MemoryError | torch.OutOfMemoryError)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _lies_in_parts(array: Any) -> bool:
    """Whether it is a `DTensor`, whose module takes a while to load."""
    return type(array) not in (torch.Tensor, np.ndarray) and hasattr(array, "full_tensor")
