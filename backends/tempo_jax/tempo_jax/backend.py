"""The JAX backend: one jitted function per segment, loops inside, buffers donated and updated in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tempo import dtypes
from tempo.backends.base import CompiledSegment, SegmentRequest
from tempo.errors import UnsupportedError
from tempo.lowering.loop_ir import Compute, LoopProgram, walk
from tempo.plugins.descriptors import BackendPlugin
from tempo.sdg.call import Call
from tempo_jax import access
from tempo_jax.operators import OPERATORS
from tempo_jax.plugin import PLUGIN
from tempo_jax.precision import WIDE, x64
from tempo_jax.segments import SegmentTracer

Array = Any


class JaxBackend:
    """Arrays are `jax.Array`s on one device."""

    info: BackendPlugin = PLUGIN
    static_buffers = True
    allocates_inside = True

    def __init__(self, device: Any = None) -> None:
        self.device = device if device is not None else jax.devices()[0]

    def with_device(self, name: str) -> JaxBackend:
        """The same backend on the first device of a platform ("cpu", "cuda")."""
        try:
            return JaxBackend(jax.devices(name)[0])
        except RuntimeError as error:
            raise UnsupportedError(f"JAX finds no device {name!r}: {error}") from error

    def operator(self, call: Call) -> Callable[..., Array]:
        return OPERATORS[call.op](call)

    # -- segments --------------------------------------------------------------------------------------------------

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        if request.program.hosts:
            # A call that returns at once makes the host wait for it with a lock; in a loop that costs more than it
            # gains (measured: 178 against 26 microseconds a step). The switch is for the whole process.
            jax.config.update("jax_cpu_enable_async_dispatch", False)
        segment = request.segment
        tracer = SegmentTracer(request, self.operator)
        first = 2 + len(segment.arguments)
        donated = tuple(first + at for at, id in enumerate(segment.buffers) if id in segment.results)
        function = jax.jit(tracer, donate_argnums=donated)
        scope = x64 if is_wide(request.program) else nullcontext

        def call(*arguments: Any) -> tuple[Array, ...]:
            with scope():
                return function(*arguments)

        compiled = call if is_wide(request.program) else function
        return CompiledSegment(compiled, f"# {segment.name}: one jax.jit function of the statements above")

    # -- arrays ----------------------------------------------------------------------------------------------------

    def _scope(self, dtype: str) -> AbstractContextManager[Any]:
        return x64() if dtype in WIDE else nullcontext()

    def allocate(self, shape: tuple[int, ...], dtype: str, fill: Any | None = None) -> Array:
        with self._scope(dtype), jax.default_device(self.device):
            return jnp.full(shape, 0 if fill is None else fill, dtypes.to_numpy(dtype))

    def native(self, value: Any) -> str | None:
        return str(value.dtype) if isinstance(value, jax.Array) else None

    def from_host(self, array: np.ndarray[Any, Any] | Array) -> Array:
        with self._scope(dtypes.from_numpy(array.dtype)):
            return jax.device_put(array, self.device)

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        return np.asarray(array)

    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        if axes == tuple(range(len(axes))):
            return array
        with self._scope(str(array.dtype)):
            return jnp.transpose(array, axes)

    def owned(self, array: Array) -> Array:
        with self._scope(str(array.dtype)):
            return jnp.array(array, copy=True)

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        return {"to_host": np.asarray, "host_write": self._host_write}

    def _host_write(self, array: Array, index: tuple[int, ...], value: np.ndarray[Any, Any]) -> Array:
        with self._scope(str(array.dtype)):
            if not index:
                return jax.device_put(value, self.device)
            return _update(array, index, value)

    def synchronize(self) -> None:
        """Outputs are futures; NumPy waits for them when it reads them."""


@partial(jax.jit, donate_argnums=0)
def _update(array: Array, index: tuple[Any, ...], value: Array) -> Array:
    return access.write(array, index, value)


def is_wide(program: LoopProgram) -> bool:
    """Whether 64-bit types occur; then everything runs under JAX's scoped switch."""
    if any(buffer.dtype in WIDE for buffer in program.buffers.values()):
        return True
    computes = (each for segment in program.segments for each in walk(segment.body) if isinstance(each, Compute))
    return any(type.dtype in WIDE for each in computes for type in (*each.operand_types, each.type))
