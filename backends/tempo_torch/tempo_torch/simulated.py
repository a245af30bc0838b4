"""A CUDA device that is not there: its tensors lie in the CPU's memory, and what CUDA would refuse is refused.

So all of the conformance suite runs as on the device, values included, on a machine without one:

    pytest -p tempo.conformance.plugin --pyargs tempo.conformance --tempo-backend=torch --tempo-device=cuda --tempo-fake

Refused are operators on tensors of the device and of the CPU at once, operators and dtypes that CUDA has no kernel for,
and, in the loops of a segment, waiting for the device without saying so (`tempo_torch.waits`): `.item()`, `bool()`,
`.cpu()`, shapes that depend on values. Tensors say that they are on "meta", for which every build of torch has guards.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import torchgen
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.dlpack import DLDeviceType

from tempo.backends import EAGER_CUDA, CompiledSegment, SegmentRequest
from tempo.backends.operators import Call
from tempo_torch.backend import TorchBackend
from tempo_torch.emitter import CudaEmitter
from tempo_torch.graphs import Graphs
from tempo_torch.stretches import Planner
from tempo_torch.waits import WAITS

_DEVICE = torch.device("meta")
_SOURCE = "<tempo "
"""How the names of generated files begin."""


class Simulated(torch.Tensor):
    """A tensor of the device; `held` is where its values are."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Simulated:
        with torch.inference_mode(False):  # views of ordinary tensors cannot be made of inference's
            made: Simulated = torch.Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=_DEVICE,
            )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self) -> Any:
        """Which torch has for no subclass. Who tells of an error may look."""
        return (self.cpu() if sys.exc_info()[0] is None else self.held).tolist()

    def __dlpack_device__(self) -> tuple[Any, int]:
        return DLDeviceType.kDLCUDA, 0

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatched(function, args, kwargs or {})


class OnDevice(TorchDispatchMode):
    """What is made here is made on the device, where that is asked for."""

    def __enter__(self) -> Any:
        self._constructors = _Constructors()
        self._constructors.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._constructors.__exit__(*raised)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatched(function, args, kwargs or {})


class _Constructors(TorchFunctionMode):
    """Of tensors with given values, which torch leaves without any on "meta": made on the CPU, and moved."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu") == _DEVICE:
            if isinstance(args[0], Simulated):
                return args[0].to(kwargs.get("dtype"))
            return function(*args, **{**kwargs, "device": None}).to(_DEVICE)
        return function(*args, **kwargs)


class RefusedError(RuntimeError):
    """What CUDA would not do, or what a loop would wait for."""


launches: Counter[str] = Counter()
"""How often each kernel was launched in the loops of segments, by the name of its operator."""


def dispatched(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """One operator: looked at, computed where the values are, and given back as tensors of the device."""
    tensors = [each for each in tree_iter((args, kwargs)) if isinstance(each, torch.Tensor)]
    target = kwargs.get("device")
    on_device = any(isinstance(each, Simulated) for each in tensors)
    if not on_device and target != _DEVICE:
        return function(*args, **kwargs)
    to_host = target is not None and target != _DEVICE
    name = function._schema.name.removeprefix("aten::")
    if not all(isinstance(each, Simulated) for each in tensors) and _is_recorded():
        raise RefusedError(f"{function} copies from the host in what is recorded")
    if name in _WAITING or to_host or (name == "copy_" and not isinstance(args[0], Simulated)):
        _look_for_wait(function)
    elif any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in _indices(name, args)):
        _look_for_wait(function)  # how many there are is not known before
    _refuse(function, name, tensors, kwargs.get("dtype"), to_host)
    held = tree_map(_held, (args, {**kwargs, "device": torch.device("cpu")} if target is not None else kwargs))
    made = function(*held[0], **held[1])
    if (watch := _WATCH.get()) is not None:
        watch.saw(name, held, made)
    if not _is_view(function):
        _count(name)
    if function._schema.is_mutable:
        return _given_back(function, args, kwargs, made)
    return made if to_host else tree_map(_simulated, made)


def _held(value: Any) -> Any:
    return value.held if isinstance(value, Simulated) else value


def _simulated(value: Any) -> Any:
    return Simulated(value) if isinstance(value, torch.Tensor) and not isinstance(value, Simulated) else value


def _given_back(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: Any) -> Any:
    """What was written to, as the tensors that were given."""
    named = {each.name: at for at, each in enumerate(function._schema.arguments)}
    written = [each for each in function._schema.arguments if each.alias_info and each.alias_info.is_write]
    given = [kwargs[each.name] if each.name in kwargs else args[named[each.name]] for each in written]
    if not function._schema.returns:
        return None
    return given[0] if not isinstance(made, tuple | list) else type(made)(given)


# -- what CUDA refuses -------------------------------------------------------------------------------------------------

_MOVING = ("copy_", "_to_copy", "to", "lift_fresh", "set_")
"""What takes tensors of two devices."""
_OF_FLOATS = re.compile(r"(mm|bmm|addmm|addbmm|baddbmm|mv|addmv|dot|vdot|convolution|_convolution|linalg_.*)$")
"""What CUDA has for no integers."""
_UNSIGNED = frozenset({torch.uint16, torch.uint32, torch.uint64})
_OF_UNSIGNED = frozenset(
    {"item", "clone", "fill_", "zero_", "full", "zeros", "new_full", "new_zeros", "constant_pad_nd", "cat", "eq", "ne"}
    | {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense", *_MOVING}
)
"""What CUDA has for unsigned integers of more than 8 bits, beside views."""


def _refuse(function: Any, name: str, tensors: list[torch.Tensor], dtype: torch.dtype | None, to_host: bool) -> None:
    elsewhere = [each for each in tensors if not isinstance(each, Simulated)]
    if elsewhere and len(elsewhere) < len(tensors) and name not in _MOVING:
        shapes = ", ".join(f"{each.dtype}{list(each.shape)}" for each in elsewhere)
        raise RefusedError(f"{function}: tensors of the device and of the CPU ({shapes})")
    if not to_host and not is_on_cuda(function):
        raise RefusedError(f"{function}: CUDA has no such operator")
    if _OF_FLOATS.match(name) and any(not (each.is_floating_point() or each.is_complex()) for each in tensors[:2]):
        raise RefusedError(f"{function}: CUDA has none of {tensors[0].dtype}")
    unsigned = next((each for each in (*(each.dtype for each in tensors), dtype) if each in _UNSIGNED), None)
    if unsigned is not None and name not in _OF_UNSIGNED and not _is_view(function):
        raise RefusedError(f"{function}: CUDA has none of {unsigned}")


def _is_view(function: Any) -> bool:
    return not function._schema.is_mutable and all(each.alias_info for each in function._schema.returns)


@functools.cache
def is_on_cuda(function: Any) -> bool:
    """Whether torch's own list of kernels has one for CUDA, or one for all devices."""
    schema = function._schema
    name = schema.name.removeprefix("aten::") + (f".{schema.overload_name}" if schema.overload_name else "")
    return name not in _kernels() or _kernels()[name]


@functools.cache
def _kernels() -> dict[str, bool]:
    """By operator, from the file that torch's builds are made of."""
    file = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    entries = re.split(r"^- func: ", file.read_text(), flags=re.MULTILINE)[1:]
    texts = {entry.partition("(")[0]: entry for entry in entries}
    return {name: _has_cuda(texts, name) for name in texts}


def _has_cuda(texts: Mapping[str, str], name: str) -> bool:
    text = texts[name]
    delegate = re.search(r"^  structured_delegate: (\S+)", text, re.MULTILINE)
    if delegate:
        return _has_cuda(texts, delegate[1])
    keys = re.findall(r"^    ([\w, ]+): \S+", text, re.MULTILINE) if "  dispatch:" in text else ["Composite"]
    each = [key for line in keys for key in re.split(", *", line)]
    return "ufunc_inner_loop" in text or any(key == "CUDA" or key.startswith("Composite") for key in each)


# -- waiting for the device --------------------------------------------------------------------------------------------

_WAITING = frozenset(
    {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique_dim", "_unique2", "item"}
)


def _indices(name: str, args: tuple[Any, ...]) -> list[Any]:
    return list(args[1]) if name in ("index", "index_put", "index_put_", "_index_put_impl_") else []


def _look_for_wait(function: Any) -> None:
    """Refused in what is recorded as a graph; in a loop of a segment, unless a function between says that it waits."""
    if _is_recorded():
        raise RefusedError(f"{function} waits for the device in what is recorded")
    for frame in _frames():
        if frame.f_code in WAITS:
            return
        if frame.f_code is Planner.waited_for.__code__:
            if _is_repeated():
                raise RefusedError(f"{function} waits for the device in a loop, between graphs")
            return
        if frame.f_code.co_filename.startswith(_SOURCE):
            if frame.f_lineno in _in_loops(frame.f_code.co_filename):
                line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
                raise RefusedError(f"{function} waits for the device in a loop: {line}")
            return


def _is_recorded() -> bool:
    return any(frame.f_code is Graphs.trace.__code__ for frame in _frames())


def _is_repeated() -> bool:
    """Whether it is in a loop around graphs."""
    return any(frame.f_code is Graphs._repeat.__code__ for frame in _frames())


def _count(name: str) -> None:
    frame = next((each for each in _frames() if each.f_code.co_filename.startswith(_SOURCE)), None)
    in_source = frame is not None and frame.f_lineno in _in_loops(frame.f_code.co_filename)
    if in_source or (_is_repeated() and any(each.f_code in _LAUNCHING for each in _frames())):
        launches[name] += 1


_LAUNCHING = (Graphs.trace.__code__, Planner.waited_for.__code__)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


@functools.lru_cache
def _in_loops(filename: str) -> frozenset[int]:
    """The lines that stand in loops of a segment's source."""
    tree = ast.parse("".join(linecache.getlines(filename)))
    if not any(isinstance(each, ast.FunctionDef) and each.name.startswith("segment") for each in tree.body):
        return frozenset()
    loops = (each for each in ast.walk(tree) if isinstance(each, ast.For))
    return frozenset(line for loop in loops for line in range(loop.lineno + 1, (loop.end_lineno or loop.lineno) + 1))


class _Watch:
    """What a graph looks at that was there before it, by address, and what is made in it, which lies where another
    graph's values will: nothing may hold that afterwards."""

    def __init__(self) -> None:
        self.before = list[tuple[str, int]]()
        self._made = dict[int, tuple[str, weakref.ref[torch.UntypedStorage]]]()

    def saw(self, name: str, given: Any, made: Any) -> None:
        storages = [each.untyped_storage() for each in tree_iter(given) if isinstance(each, torch.Tensor)]
        addresses = [each.data_ptr() for each in storages]
        self.before += [(name, each) for each in addresses if each and each not in self._made]
        for storage in (each.untyped_storage() for each in tree_iter(made) if isinstance(each, torch.Tensor)):
            if storage.data_ptr() not in addresses:
                self._made[storage.data_ptr()] = name, weakref.ref(storage)

    @property
    def left(self) -> list[str]:
        """What made the tensors that are held though the graph has ended."""
        return [name for name, storage in self._made.values() if storage() is not None]


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)


def rerun(work: Callable[[], None]) -> Callable[[], None]:
    """In the place of a graph: the same work once more. What a graph would take for another time's is refused."""
    first: list[tuple[str, int]] | None = None

    def launch() -> None:
        nonlocal first
        watch = _Watch()
        token = _WATCH.set(watch)
        try:
            work()
        finally:
            _WATCH.reset(token)
        if watch.left:
            raise RefusedError(f"what a graph makes is held after it: {', '.join(watch.left)}")
        if first is None:
            first = watch.before
        elif first != watch.before:
            names = [then[0] for then, now in zip(first, watch.before, strict=False) if then != now]
            raise RefusedError(f"a graph would look at another address: {', '.join(names)}")

    return launch


class _Rerun:
    """All loops run as graphs."""

    few = once = 0

    @staticmethod
    def address(tensor: torch.Tensor) -> int:
        return _held(tensor).data_ptr()  # type: ignore[no-any-return]

    @staticmethod
    def memory(tensor: torch.Tensor) -> int:
        return _held(tensor).untyped_storage().data_ptr()  # type: ignore[no-any-return]

    @staticmethod
    def is_here() -> bool:
        return True

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        return rerun(work)


# -- the backend -------------------------------------------------------------------------------------------------------


class SimulatedBackend(TorchBackend):
    """PyTorch's backend as it is on CUDA, on tensors that say that they are there."""

    def __init__(self, device: str = "cuda") -> None:
        super().__init__("cpu")
        self.device = _DEVICE
        self.costs = EAGER_CUDA
        self.emitter = CudaEmitter
        self.recorder = _Rerun()

    def operator(self, call: Call) -> Callable[..., Any]:
        with OnDevice():
            return super().operator(call)

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        compiled = super().compile_segment(request)
        return replace(compiled, function=_on_device(compiled.function))

    def allocate(self, shape: tuple[int, ...], dtype: str, fill: Any | None = None) -> torch.Tensor:
        return _on_device(super().allocate)(shape, dtype, fill)

    def from_host(self, array: np.ndarray[Any, Any] | torch.Tensor) -> torch.Tensor:
        return _on_device(super().from_host)(array)

    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        return {name: _on_device(each) for name, each in super().array_functions().items()}

    def room(self) -> int | None:
        return None

    @property
    def measured_peak(self) -> Any:  # type: ignore[override]
        raise AttributeError("the CPU's kernels need other memory than those of the device")


def _on_device(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with OnDevice():
            return function(*arguments)

    return run
