"""The JAX backend: one jitted function per segment, loops inside, buffers donated and updated in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

import jax
import jax.extend.backend
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from tempo import dtypes
from tempo.backends import (
    FUSED,
    FUSED_CUDA,
    CompiledSegment,
    Costs,
    InChunks,
    Mesh,
    Placement,
    SegmentRequest,
    host_room,
)
from tempo.backends.loop_ir import LoopPass
from tempo.backends.loops import ArrayShrinking, Coalescing, bytes_at_most
from tempo.backends.operators import Call
from tempo.backends.tracing import Tracer
from tempo.errors import UnsupportedError
from tempo.plugins import BackendPlugin
from tempo_jax import access
from tempo_jax.executables import Calls, Identity, Meter, Scope, compile_options
from tempo_jax.jitted import JittedSegment
from tempo_jax.mesh import DeviceMesh, on_one_device, whole
from tempo_jax.operators import IN_PARTS, OPERATORS
from tempo_jax.plugin import PLUGIN
from tempo_jax.precision import is_wide, x64, x64_for
from tempo_jax.stretches import SplitLoops

Array = Any
_LITTLE = 1 << 20
"""Bytes that come from another device's memory in no time, compared with compiling."""


class JaxBackend:
    """Arrays are `jax.Array`s on one device, or on a mesh of them. Of several processes (`jax.distributed`) each has a
    device of its own, and a mesh has those of all."""

    info: BackendPlugin = PLUGIN
    static_buffers = True
    allocates_inside = True
    takes_host_arrays = True
    fuses_segments = True
    fixed_integers = True
    takes_signals = False  # a heap was damaged while XLA's threads were traced and had some
    shares_memory = False
    donates = True
    takes_points = True
    coordinates = None

    def __init__(self, device: Any = None, made_for: str | None = None, mesh: Mesh | None = None) -> None:
        """`made_for`: a platform that code is made for, and lowered to, though it runs on `device`. `mesh`: of devices
        of this one's platform."""
        self.device = device if device is not None else jax.local_devices()[0]
        self._is_default = self.device == jax.local_devices()[0]
        self._made_for, self._named = made_for, mesh
        self._mesh = None if mesh is None else DeviceMesh.of(mesh, self.device.platform)
        self._meter = Meter()

    def __reduce__(self) -> tuple[Any, ...]:
        """By its device's number in its process: what runs on it stays there, or where as many processes are."""
        number = jax.local_devices(backend=self.device.platform).index(self.device)
        return _on, (self.device.platform, number, self._made_for, self._named)

    @property
    def costs(self) -> Costs:
        return FUSED if self._platform == "cpu" else FUSED_CUDA

    @property
    def _platform(self) -> str:
        """That code is made for."""
        return self._made_for or self.device.platform

    def with_device(self, name: str) -> JaxBackend:
        """The same backend on the first device of a platform ("cpu", "cuda")."""
        try:
            return JaxBackend(jax.local_devices(backend=name)[0])
        except RuntimeError as error:
            raise UnsupportedError(f"JAX finds no device {name!r}: {error}") from error

    def with_mesh(self, mesh: Mesh) -> JaxBackend:
        """The same backend on the first devices of the platform."""
        made = JaxBackend(self.device, self._made_for, mesh)
        made._meter = self._meter
        return made

    def with_host_devices(self, count: int) -> JaxBackend:
        """The same backend where the host poses as so many devices, for tests: arrays that JAX has are lost."""
        jax.extend.backend.clear_backends()
        jax.config.update("jax_num_cpu_devices", count)
        return JaxBackend(jax.devices("cpu")[0], self._made_for)

    def without_device(self, name: str) -> JaxBackend:
        """The same backend with the choices of a platform that need not be there: what it makes is lowered for that
        platform, and runs on this device."""
        return JaxBackend(self.device, made_for=name)

    def operator(self, call: Call) -> Callable[..., Array]:
        table = OPERATORS if self._mesh is None or call.op not in IN_PARTS else IN_PARTS
        return table[call.op](call)

    def loop_passes(self, passes: tuple[LoopPass, ...]) -> tuple[LoopPass, ...]:
        return (*passes, SplitLoops(), ArrayShrinking(), Coalescing())  # once more: of a stretch less may be read

    # -- segments --------------------------------------------------------------------------------------------------

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        waits, identity = self._may_not_fit(request), self._identity(request)
        options = compile_options(request, self._platform)
        calls = Calls(self._scopes(request), self._meter, waits, self._made_for, identity, options)
        made = JittedSegment(request, self.operator, self.costs, calls, self._mesh, self._platform != "cpu")
        in_chunks = None if request.segment.loop is None else InChunks(made.part, made.opened, made.closed)
        ahead = None if self._mesh is not None or self._made_for else made.ahead  # descriptions say not how parts lie
        return CompiledSegment(made, "", in_chunks, made.by_point, made.trial, compiles=True, ahead=ahead)

    def _identity(self, request: SegmentRequest) -> Identity | None:
        """None where more counts than a segment (a mesh, operators of a subclass), and where no executable was ever
        read and run in a test, as on devices."""
        alone = self._mesh is None and self._made_for is None and jax.process_count() == 1
        if not alone or type(self) is not JaxBackend or self.device.platform != "cpu":
            return None
        return Identity(request, self.device, f"{self.costs}")

    def _may_not_fit(self, request: SegmentRequest) -> bool:
        """Whether the segment's values may be more than there is memory for: XLA fuses most of them, if not all."""
        room = self.room()
        return room is not None and bytes_at_most(request.program, request.sizes) > room

    def _scopes(self, request: SegmentRequest) -> tuple[Scope, ...]:
        """What every call of a program's segments needs around it."""
        elsewhere = () if self._is_default else (self._here,)
        return (*elsewhere, *((x64,) if is_wide(request) else ()))

    @property
    def _shares_host_memory(self) -> bool:
        """Whether NumPy reads arrays where they lie."""
        return self.device.platform == "cpu" and self._mesh is None

    # -- arrays ----------------------------------------------------------------------------------------------------

    def _here(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._is_default else jax.default_device(self.device)

    @property
    def processes(self) -> int:
        """That a mesh has devices of."""
        return 1 if self._shared is None else jax.process_count()

    @property
    def process(self) -> int:
        return 0 if self._shared is None else jax.process_index()

    def meet(self) -> None:
        if self._shared is not None:
            multihost_utils.sync_global_devices("tempo")

    @property
    def _shared(self) -> DeviceMesh | None:
        """The mesh that has devices of several processes: what is on one device is then of no use to the others."""
        return self._mesh if self._mesh is not None and self._mesh.is_shared else None

    def allocate(self, shape: tuple[int, ...], dtype: str, fill: Any | None = None) -> Array:
        if self._shared is not None:
            return self.allocate_on_mesh(shape, dtype, fill, ())
        with x64_for(dtype), self._here():
            return jnp.full(shape, 0 if fill is None else fill, dtypes.to_numpy(dtype))

    def allocate_on_mesh(self, shape: tuple[int, ...], dtype: str, fill: Any | None, placement: Placement) -> Array:
        assert self._mesh is not None, "where something has a placement there is a mesh"
        where = self._mesh.sharding(placement)
        with x64_for(dtype):
            return jnp.full(shape, 0 if fill is None else fill, dtypes.to_numpy(dtype), device=where)

    def native(self, value: Any) -> str | None:
        return _name(value.dtype) if isinstance(value, jax.Array) else None

    def from_host(self, array: np.ndarray[Any, Any] | Array) -> Array:
        """Only an array that is elsewhere is tied to the device: jit compiles again where that differs. On a mesh it is
        whole on every device."""
        if self._mesh is not None:
            return array if self._mesh.has(array) else self.laid(array, ())
        if isinstance(array, jax.core.Tracer):
            return array  # where it lies is for whoever traces
        if isinstance(array, jax.Array):
            return on_one_device(array, self.device)
        with x64_for(_name(array.dtype)), self._here():
            return jax.device_put(array)

    def laid(self, array: np.ndarray[Any, Any] | Array, placement: Placement) -> Array:
        assert self._mesh is not None, "where something has a placement there is a mesh"
        with x64_for(_name(array.dtype)):
            return self._mesh.laid(array, placement)

    def joined(self, part: Array, placement: Placement) -> Array:
        """XLA's arrays are whole, however they lie."""
        return part

    def for_products(self, matrix: Array, contracted: int, alone: bool) -> Array:
        """XLA chooses how what it multiplies lies."""
        return matrix

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Of one that lies in parts on several processes all of them call it: they exchange what they have."""
        if not isinstance(array, jax.Array) or array.is_fully_addressable:
            return np.asarray(array)
        with x64_for(_name(array.dtype)):
            return whole(array)

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        if axes == tuple(range(len(axes))):
            return self.from_host(array)  # what a host call wrote last is NumPy's
        with x64_for(_name(array.dtype)):
            return jnp.transpose(array, axes)

    def shown(self, array: Array, axes: tuple[int, ...]) -> Array:
        if axes == tuple(range(len(axes))) or not self._shares_host_memory:
            return self.transpose(array, axes)
        return self.to_host(array).transpose(axes)

    def gathered(
        self, arrays: Sequence[Array], axes: Sequence[int], positions: np.ndarray[Any, Any]
    ) -> Sequence[Array]:
        return [self._gathered(array, axis, positions) for array, axis in zip(arrays, axes, strict=True)]

    def _gathered(self, array: Array, axis: int, positions: np.ndarray[Any, Any]) -> Array:
        """By NumPy where the array lies in its memory, as it is cut; the call that reads it takes it to the device."""
        if self._shares_host_memory:
            return np.take(self.to_host(array), positions, axis)
        with x64_for(_name(array.dtype)):
            return jnp.take(array, positions, axis)

    def scattered(
        self, arrays: Sequence[Array], axes: Sequence[int], positions: np.ndarray[Any, Any], parts: Sequence[Array]
    ) -> Sequence[Array]:
        return [
            self._scattered(array, axis, positions, part) for array, axis, part in zip(arrays, axes, parts, strict=True)
        ]

    def _scattered(self, array: Array, axis: int, positions: np.ndarray[Any, Any], part: Array) -> Array:
        if self._shares_host_memory:
            made = np.array(self.to_host(array))
            made[(slice(None),) * axis + (positions,)] = self.to_host(part)
            return made
        with x64_for(_name(array.dtype)):
            return array.at[(slice(None),) * axis + (positions,)].set(part, unique_indices=True)

    def up_to(self, array: Array, axis: int, count: int) -> Array:
        """Cut by NumPy where the array lies in its memory, or is so small that it is there at once: JAX compiles a
        slice for each count."""
        part = (slice(None),) * axis + (slice(count),)
        here = self._shares_host_memory or (array.nbytes <= _LITTLE and self._mesh is None)
        return self.from_host(np.array(self.to_host(array)[part])) if here else array[part]

    def padded(self, array: Array, shape: tuple[int, ...], fill: Any) -> Array:
        """By NumPy where the array lies in its memory, as it is cut."""
        if self._shares_host_memory:
            made = np.full(shape, fill, array.dtype)
            made[tuple(map(slice, array.shape))] = self.to_host(array)
            return self.from_host(made)
        more = [(0, size - now) for now, size in zip(array.shape, shape, strict=True)]
        with x64_for(_name(array.dtype)):
            return jnp.pad(array, more, constant_values=fill)

    def owned(self, array: Array) -> Array:
        with x64_for(_name(array.dtype)):
            return jnp.array(array, copy=True)

    def stored(self, array: Array, axis: int, at: int, part: np.ndarray[Any, Any]) -> Array:
        with x64_for(_name(array.dtype)):
            return _store(array, part, at, axis)

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        """What the driver calls around host functions; loops are traced, not generated."""
        return {
            "fresh": np.array,
            "clamped": self._clamped,
            "wrapped": self._wrapped,
            "to_host": np.asarray if self._shared is None else self.to_host,
            "host_write": self._host_write,
        }

    def _clamped(self, array: Array, axis: int, start: int, extent: int) -> Array:
        """`extent` positions from `start` along `axis`, each clamped into range."""
        return self._taken(array, axis, np.clip(np.arange(start, start + extent), 0, array.shape[axis] - 1))

    def _wrapped(self, array: Array, axis: int, start: int, extent: int) -> Array:
        """`extent` positions from `start` along `axis`, modulo the axis."""
        return self._taken(array, axis, np.arange(start, start + extent) % array.shape[axis])

    def _taken(self, array: Array, axis: int, positions: np.ndarray[Any, Any]) -> Array:
        if isinstance(array, np.ndarray):
            return self.from_host(np.take(array, positions, axis))
        with x64_for(_name(array.dtype)):
            return _take(array, positions.astype(np.int32), axis)

    def _host_write(self, array: Array, index: tuple[int, ...], value: np.ndarray[Any, Any]) -> Array:
        """A slot stays NumPy's: the call that reads it takes it to the device in a tenth of what `device_put` costs."""
        if not index:
            return value
        with x64_for(_name(value.dtype)):
            return _update(array, index, value)

    def measured_peak(self, work: Callable[[], Any]) -> int:
        """The bytes of arrays that `work` makes and that live at once, at most, with what XLA needs for itself."""
        return self._meter.measured_peak(work)

    def room(self) -> int | None:
        if self.device.platform == "cpu":
            return host_room()
        stats = self.device.memory_stats() or {}
        return stats.get("bytes_limit")  # type: ignore[no-any-return]

    def tracer(self) -> Tracer | None:
        """JAX before 0.7 has one that cannot be told to leave Python out."""
        if not hasattr(jax.profiler, "ProfileOptions"):
            return None
        from tempo_jax.tracer import JaxTracer

        return JaxTracer()

    def is_out_of_memory(self, error: Exception) -> bool:
        told = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
        return told or isinstance(error, MemoryError)

    def take(self, array: Array) -> None:
        """It is deleted by the call that it is donated to, or when the run has ended."""

    def delete(self, array: Array) -> None:
        if isinstance(array, jax.Array) and not array.is_deleted():
            array.delete()

    def is_deleted(self, array: Array) -> bool:
        return isinstance(array, jax.Array) and array.is_deleted()

    def synchronize(self) -> None:
        """Outputs are futures; NumPy waits for them when it reads them."""


def _on(platform: str, number: int, made_for: str | None, mesh: Mesh | None) -> JaxBackend:
    return JaxBackend(jax.local_devices(backend=platform)[number], made_for, mesh)


@lru_cache
def _name(dtype: np.dtype[Any]) -> str:
    return str(dtype)


@partial(jax.jit, donate_argnums=0)
def _update(array: Array, index: tuple[Any, ...], value: Array) -> Array:
    return access.write(array, access.SliceAddress.point(index), value)


@partial(jax.jit, donate_argnums=0, static_argnums=3)
def _store(array: Array, part: Array, at: int, axis: int) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(array, part, at, axis)


@partial(jax.jit, static_argnums=2)
def _take(array: Array, positions: Array, axis: int) -> Array:
    return jnp.take(array, positions, axis=axis, mode="clip")
