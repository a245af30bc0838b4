"""The contract between the core and a backend.

A backend is: a descriptor (`info`), an operator table (`operator`), arrays (`allocate`, `from_host`, ...) and
`compile_segment`. `GenericBackend` gives the last from the emitter of the core, so a backend with an operator table and
arrays is complete; one that can compile whole loops overrides it.
"""

from __future__ import annotations

import itertools
import linecache
import os
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tempo.backends.room import host_room
from tempo.backends.tracing import Tracer
from tempo.costs import EAGER, Costs
from tempo.loop_ir.analysis.heap import Heap, Piece
from tempo.loop_ir.analysis.index_bits import NARROW
from tempo.loop_ir.codegen.python import Emitter
from tempo.loop_ir.codegen.source_map import SourceMap, source_map
from tempo.loop_ir.codegen.trial import tried
from tempo.loop_ir.ir import LoopProgram, Segment
from tempo.loop_ir.passes import LoopPass
from tempo.loop_ir.transforms.concat_in_place import ConcatInPlace
from tempo.loop_ir.transforms.dead_stores import DeadStores
from tempo.loop_ir.transforms.loop_unswitching import LoopUnswitching
from tempo.loop_ir.transforms.update_in_place import UpdateInPlace
from tempo.placement.mesh import Mesh, Placement
from tempo.plugins.descriptors import BackendPlugin
from tempo.sdg.call import Call
from tempo.symbolic import Symbol

Array = Any
SegmentFunction = Callable[..., tuple[Array, ...]]
_DUMP_VARIABLE = "TEMPO_DUMP"
_numbers = itertools.count()


@dataclass(frozen=True)
class SegmentRequest:
    """A segment to compile. `sizes` are the values of the sizes that shapes are made of.

    `index_bits`: the integers in which indices, bounds and conditions are exact at the sizes of the run, 32 or 64; told
    to a backend with `fixed_integers`.
    """

    program: LoopProgram
    segment: Segment
    sizes: Mapping[Symbol, int]
    index_bits: int = NARROW


class Trial(Protocol):
    """A call of a segment that only says what it holds, on a heap without contents. Inside, its results are there.

    `given`: what its buffers hold; `tables()` are those that it is given.
    """

    def __call__(
        self,
        heap: Heap,
        given: Mapping[int, Piece | None],
        sizes: Mapping[Symbol, int],
        tables: Callable[[], Sequence[Any]],
    ) -> AbstractContextManager[Mapping[int, Piece]]: ...


Submit = Callable[[Callable[[], None]], Callable[[], None]]
"""Gives work to another thread; what it returns waits for it, and raises what it raised."""


class Ahead(Protocol):
    """Compiles what a call of a segment runs, by `submit`.

    `given`: what its buffers hold, `by_point`: along how many of its first axes that is given by point, where it is;
    `tables()` are those that it is given.
    """

    def __call__(
        self,
        given: Mapping[int, Piece | None],
        by_point: Mapping[int, int],
        sizes: Mapping[Symbol, int],
        tables: Callable[[], Sequence[Any]],
        submit: Submit,
    ) -> None: ...


@dataclass(frozen=True)
class InChunks:
    """A segment whose loop is run in chunks, where its arrays need not be whole between the calls.

    `function` is called as the segment's is, with arrays as `opened` and itself give them. `closed` makes them whole;
    what was lost in a call that failed is None. All but outputs may be other than whole.
    """

    function: SegmentFunction
    opened: Callable[[Mapping[int, Array]], dict[int, Array]]
    closed: Callable[[Mapping[int, Array]], dict[int, Array | None]]


@dataclass(frozen=True)
class CompiledSegment:
    """`function(start, stop, *sizes, *buffers, *tables)` returns the buffers that the segment wrote, in order. For a
    slot that it writes before it reads it it may be given None.

    `source` is what it was made of, "" where that is the statements themselves; `origins` says what its lines are of.
    `trial` is for `run.memory`; None: as generated source would. `compiles`: the trial compiles what it tells of.
    `ahead` is for `run.compile_ahead`; None: a call compiles nothing, or what it compiles is not known before.
    `by_point` says of an input that the segment reads at points, by its buffer, along how many of its first axes it may
    be given by point; None: along all of them. Of what segments alone look at (`in_segments`) it says so, too: that is
    given back as it was given, where it is not there yet as a `ByPoint` of None.
    """

    function: SegmentFunction
    source: str
    in_chunks: InChunks | None = None
    by_point: Callable[[int], int] | None = None
    trial: Trial | None = None
    compiles: bool = False
    ahead: Ahead | None = None
    origins: Callable[[], SourceMap] = dict


class Backend(Protocol):
    """What the core needs of a backend. Arrays are the backend's own. One that is derived has what is said here."""

    info: BackendPlugin
    static_buffers: bool = False
    """Whether an executable is for buffers of fixed shapes; otherwise only what operators see must be static."""

    allocates_inside: bool = False
    """Whether segments make the buffers that they are the first to touch: they are given None for those.

    Where `shares_memory` is False they have `loop_ir.analysis.layouts.layouts_in_segments` in the order that it says.
    """

    takes_host_arrays: bool = False
    """Whether segments take NumPy's arrays as well, for less than `from_host` costs; they may look at them after they
    have returned, and so may what `from_host` gives."""

    takes_points: bool = False
    """Whether segments take, for an input that they read at points alone, a `ByPoint` of arrays in the place of one."""

    fuses_segments: bool = False
    """Whether one executable for all segments of a program without host calls is better than one for each.

    It is made for buffers of fixed shapes.
    """

    fixed_integers: bool = False
    """Whether segments compute indices in integers of a fixed size, rather than in Python's."""

    takes_signals: bool = True
    """Whether threads of its library may be interrupted by a signal's handler, as a profile's timer does."""

    reducing: float = 0.0
    """What an operator of its library may take for itself while it reduces an array, at most, as a part of the array.
    Memory plans do not know of it."""

    costs: Costs = EAGER
    """By which ways to run a program are compared: dims as axes or loops, and extents that vary."""

    processes: int = 1
    """On a mesh, in how many processes the program runs, each with the same calls."""

    process: int = 0
    """The number of this one among them."""

    coordinates: Mapping[str, int] | None = None
    """On a mesh whose devices are processes: the place of this one along each axis. It is given the program of its
    part, with `all_reduce` and `all_gather`. None: what compiles its segments makes the parts, as placements say."""

    donates: bool = False
    """Whether the memory of its arrays can be taken from whoever gave them (`take`, `delete`)."""

    shares_memory: bool = True
    """Whether an array may be a view of another one. Where it may, what a run returns is copied if need be."""

    def with_device(self, name: str) -> Backend:
        """The same backend on one of its devices; with one alone there is nothing to choose."""
        return self

    def with_mesh(self, mesh: Mesh) -> Backend:
        """The same backend on a mesh of devices, where its descriptor says `meshes`. Code is then made for programs of
        which buffers and results have a `placement`, and `allocate_on_mesh` and `laid` are told one."""
        raise NotImplementedError

    def for_products(self, matrix: Array, contracted: int, alone: bool) -> Array:
        """A matrix that a caller keeps, laid out for products of rows by it that contract this axis. `alone`: nothing
        else reads it."""
        return matrix

    def joined(self, part: Array, placement: Placement) -> Array:
        """Of an array that lies in parts this process has one: as the backend gives such arrays out."""
        return part

    def meet(self) -> None:
        """Where the program runs in several processes: wait for all of them."""

    @abstractmethod
    def operator(self, call: Call) -> Callable[..., Array]:
        """The function of one primitive on this backend's arrays.

        Raises `UnsupportedError` for what the descriptor excludes (`info.why_not`), and for nothing else.
        """

    def loop_passes(self, passes: tuple[LoopPass, ...]) -> tuple[LoopPass, ...]:
        """The passes on LoopIR at the sizes of a run: those of the core, and its own where these belong."""
        return passes

    @abstractmethod
    def compile_segment(self, request: SegmentRequest) -> CompiledSegment: ...

    @abstractmethod
    def allocate(self, shape: tuple[int, ...], dtype: str, fill: Any | None = None) -> Array:
        """A new array; its contents are arbitrary unless `fill` is given."""

    def allocate_on_mesh(self, shape: tuple[int, ...], dtype: str, fill: Any | None, placement: Placement) -> Array:
        """A new array that lies so on the mesh."""
        raise NotImplementedError

    def laid(self, array: np.ndarray[Any, Any] | Array, placement: Placement) -> Array:
        """A NumPy array, or one of the backend's own, as it is to lie on the mesh.

        Raises `InputError` for one that lies in other parts, which would have to be gathered."""
        raise NotImplementedError

    def native(self, value: Any) -> str | None:
        """The name of the dtype where `value` is an array of this backend, which then needs no conversion."""
        return None

    @abstractmethod
    def from_host(self, array: np.ndarray[Any, Any] | Array) -> Array:
        """A NumPy array, or one of the backend's own, on the backend's device; copied only where it must be."""

    @abstractmethod
    def to_host(self, array: Array) -> np.ndarray[Any, Any]: ...

    @abstractmethod
    def transpose(self, array: Array, axes: tuple[int, ...]) -> Array:
        """A view with permuted axes where the backend has views."""

    def shown(self, array: Array, axes: tuple[int, ...]) -> Array:
        """The same, to read parts of: NumPy's view where the backend has none, and NumPy reads its memory."""
        return self.transpose(array, axes)

    @abstractmethod
    def owned(self, array: Array) -> Array:
        """`array`, copied where it may share memory with an array that the caller can write to."""

    def take(self, array: Array) -> None:
        """Leave whoever gave a donated array without it, as far as what a run has of it (`from_host`) can stay."""

    def delete(self, array: Array) -> None:
        """Let go of the memory of a donated array, whoever still refers to it: that has nothing afterwards."""

    def stored(self, array: Array, axis: int, at: int, part: np.ndarray[Any, Any]) -> Array:
        """The array with `part` from position `at` of an axis on. It may be the one given, which is not used again; the
        backend may look at `part` after it has returned."""
        held = self.to_host(array)
        held[(slice(None),) * axis + (slice(at, at + part.shape[axis]),)] = part
        return self.from_host(held)

    def gathered(
        self, arrays: Sequence[Array], axes: Sequence[int], positions: np.ndarray[Any, Any]
    ) -> Sequence[Array]:
        """New arrays of these positions of an axis of each."""
        held = map(self.to_host, arrays)
        return [self.from_host(np.take(array, positions, axis)) for array, axis in zip(held, axes, strict=True)]

    def scattered(
        self, arrays: Sequence[Array], axes: Sequence[int], positions: np.ndarray[Any, Any], parts: Sequence[Array]
    ) -> Sequence[Array]:
        """The arrays with `parts` at these positions of an axis of each, no two of which are the same. They may be
        those given, which are not used again."""
        held = list(map(self.to_host, arrays))
        for array, axis, part in zip(held, axes, parts, strict=True):
            array[(slice(None),) * axis + (positions,)] = self.to_host(part)
        return list(map(self.from_host, held))

    def up_to(self, array: Array, axis: int, count: int) -> Array:
        """The first `count` positions of an axis, a number that each run may have another one of."""
        return array[(slice(None),) * axis + (slice(count),)]

    def padded(self, array: Array, shape: tuple[int, ...], fill: Any) -> Array:
        """An array of this shape that holds `array` before `fill`, along every axis."""
        given = self.to_host(array)
        made = np.full(shape, fill, given.dtype)
        made[tuple(map(slice, given.shape))] = given
        return self.from_host(made)

    @abstractmethod
    def array_functions(self) -> Mapping[str, Callable[..., Any]]:
        """What `tempo.loop_ir.codegen.python.ARRAY_FUNCTIONS` names, on this backend's arrays."""

    def room(self) -> int | None:
        """The bytes of memory that arrays can have on its device; None where nobody knows."""
        return host_room()

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether an error of its library says that an array does not fit into memory."""
        return isinstance(error, MemoryError)

    def tracer(self) -> Tracer | None:
        """Its own profiler, ready to start at once; None where it has none, or where the core sees all that there is
        to see: the lines of generated source (`run.profile`)."""
        return None

    def is_deleted(self, array: Array) -> bool:
        """Whether a call that failed has taken the array for its results."""
        return False

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work that was started is done."""


class GenericBackend(Backend):
    """`compile_segment` by generated Python source that calls the operator table."""

    emitter: type[Emitter] = Emitter

    def loop_passes(self, passes: tuple[LoopPass, ...]) -> tuple[LoopPass, ...]:
        return (*passes, ConcatInPlace(), UpdateInPlace(), LoopUnswitching(), DeadStores())

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        emitter = self.emitter(request.program, request.sizes, self.operator)
        source = emitter.segment(request.segment)
        namespace = {**self.array_functions(), **emitter.namespace}
        function = define(source, request.segment.name, namespace)
        trial, origins = partial(tried, emitter, request.segment), partial(self._origins, request)
        return CompiledSegment(function, source, trial=trial, origins=origins)

    def _origins(self, request: SegmentRequest) -> SourceMap:
        """It is emitted once more: of most segments nobody asks."""
        emitter = self.emitter(request.program, request.sizes, self.operator)
        text = emitter.segment(request.segment)
        assert emitter.emitted is not None
        return source_map(emitter.emitted, text)


def define(source: str, name: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The function `name` that `source` defines. Tracebacks show the source, as long as the function lives;
    `TEMPO_DUMP=DIR` saves it."""
    filename = f"<tempo {name} #{next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    if directory := os.environ.get(_DUMP_VARIABLE):
        Path(directory).mkdir(parents=True, exist_ok=True)
        Path(directory, f"{filename[1:-1].replace(' ', '_').replace('#', '')}.py").write_text(source + "\n")
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102 - running what was generated is the point
    function: Callable[..., Any] = namespace[name]
    weakref.finalize(function, linecache.cache.pop, filename, None).atexit = False
    return function
