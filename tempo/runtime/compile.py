"""`tp.compile`, and `tp.stages`, of which it is the last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tempo.compiler.buckets import Buckets
from tempo.compiler.driver import Compiler, loop_passes_of, pass_manager, registered_passes
from tempo.compiler.options import Options
from tempo.compiler.plan import Scheduler
from tempo.errors import AtUserLine, InputError, ProgramError, UnsupportedError, nearest
from tempo.logs import configure
from tempo.passes.instrument import watched
from tempo.passes.manager import PassManager, forced
from tempo.passes.rows import rows_masked
from tempo.placement.mesh import Mesh
from tempo.placement.request import Pipeline, PlacementRequest
from tempo.plugins.descriptors import BackendPlugin
from tempo.plugins.manager import default_manager, get_backend, get_scheduler, list_backends, list_schedulers
from tempo.runtime.engine import CompiledEngine, Engine, ReferenceEngine
from tempo.runtime.executable import Executable
from tempo.runtime.host_pool import folder_of
from tempo.runtime.limit import limit_in_bytes
from tempo.runtime.results.finite import FiniteCheck
from tempo.runtime.stages import Stages
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol, var

if TYPE_CHECKING:
    from tempo.language.program import Program

BACKEND_VARIABLE = "TEMPO_BACKEND"
SCHEDULER_VARIABLE = "TEMPO_SCHEDULER"
AUTO = "auto"
"""In place of a scheduler's name: that of all there are whose plan holds least."""


def compile(
    program: Program,
    backend: Any = None,
    scheduler: Any = None,
    device: str | None = None,
    sizes: Mapping[str, int] | None = None,
    options: Options | None = None,
    memory_limit: int | str | None = None,
    offload: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
    shard: Mapping[str, str] | None = None,
    place: Mapping[str, tuple[str | None, ...]] | None = None,
    pipeline: Pipeline | None = None,
) -> Executable:
    """Compile a program for a backend.

    `backend` and `scheduler` are names or instances; the defaults are the variables TEMPO_BACKEND and TEMPO_SCHEDULER,
    else "numpy" and "greedy". The scheduler "auto" asks all that there are and takes the plan that holds least.
    `device` is one of the backend's ("cpu"). `sizes` gives sizes of dims by name; those that are not given come from
    the program or with a call. What is wrong for every size is raised here, what is wrong for some sizes as soon as all
    sizes are known.

    `memory_limit` is the most that a run may hold, with what it is given and returns: bytes, or a text ("2GiB",
    "500MB"). Where the plan holds more, others are looked for that hold less and take longer; `run.memory.choices` and
    `run.explain()` say which, and `MemoryLimitError` by how much none fits, before anything runs. It is for runs as a
    whole: what a stream holds depends on what is kept of it.

    `offload` allows a pool on the host: "host" is its memory, else a folder, in which files are mapped. What one loop
    keeps for a later one goes there point by point, and comes back a chunk ahead of where it is read: the backend's
    arrays have places for a few chunks. Without a limit all goes there that may, with one what has to;
    `run.memory.pool_bytes` and `run.memory.traffic` say how much. Inputs, outputs, and what is read whole stay.

    `mesh`: the program runs on many devices as one (`tp.Mesh({"data": 4, "model": 2})`), and means the same. `shard`
    says along which axis of the mesh a dim lies, `{"b": "data"}`: all tensors that have it, draws included; it becomes
    an axis wherever it can. `place` says so of spatial axes of named tensors, `{"w": (None, "model")}`. How everything
    else lies follows; `run.explain()` lists what the devices exchange, with bytes and lines, and what is gathered is
    warned of (`tp.GatherWarning`). Sizes are divided by the counts of devices. Inputs may be JAX arrays that lie so
    already. `run.memory` is that of one device. `pipeline` gives equal runs of a dim along which something is carried
    to devices that hand it on, `tp.Pipeline("l", over="stage", microbatches="m")`: with M microbatches and S stages
    they work in M of M + S - 1 waves.

    Raises `UnknownBackendError`, `UnknownSchedulerError`, `BrokenPluginError`, `UnsupportedError`, `SizeError`,
    `DomainError`, `DefinitionError`, `CycleError`, `MemoryLimitError`, and `InputError` for options that do not fit the
    program.
    """
    return stages(
        program, backend, scheduler, device, sizes, options, memory_limit, offload, mesh, shard, place, pipeline
    ).executable


def stages(
    program: Program,
    backend: Any = None,
    scheduler: Any = None,
    device: str | None = None,
    sizes: Mapping[str, int] | None = None,
    options: Options | None = None,
    memory_limit: int | str | None = None,
    offload: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
    shard: Mapping[str, str] | None = None,
    place: Mapping[str, tuple[str | None, ...]] | None = None,
    pipeline: Pipeline | None = None,
) -> Stages:
    """What `compile` makes of a program, one form after the other, each to look at; it takes the same arguments.

    `.graph` is the symbolic dependence graph as declared, `.optimized` that after all passes, `.schedule` the order of
    statements, `.loops` the loops and buffers that are run, `.executable` what `compile` returns. Each is made when it
    is first asked for. All but the last are a `Stage`: `print` shows it, with its `cost` and its `memory`.

    What is wrong for every size is raised here, as `compile` does.

    >>> import tempo as tp
    >>> with tp.Program("sum") as program:
    ...     t = tp.dim("t", 100)
    ...     x, s = tp.input("x", (), (t,)), tp.recurrent("s", (), (t,))
    ...     s[0] = x
    ...     s[t] = s[t - 1] + x
    ...     tp.output("s", s[t.size - 1])
    >>> stages = tp.stages(program)
    >>> stages.graph.memory, stages.schedule.memory  # all points; what the order keeps: x, and a few of the sums
    (1200, 412)
    >>> stages.executable(x=range(100))["s"].item()
    4950.0
    """
    from tempo.language.program import Program  # the language builds on nothing of the runtime

    with AtUserLine():
        configure()
        if not isinstance(program, Program):
            raise ProgramError(
                f"tp.compile takes a tp.Program, not {type(program).__name__}",
                hint='write `with tp.Program("name") as program:` and compile that',
            )
        if not isinstance(options, Options | None):
            raise InputError(f"options= is a {type(options).__name__}", hint="write options=tp.Options(...)")
        options, limit, folder = options or Options(), limit_in_bytes(memory_limit), folder_of(offload)
        placement = PlacementRequest.of(program.graph(), mesh, shard, place, pipeline)
        chosen = get_backend(backend if backend is not None else os.environ.get(BACKEND_VARIABLE) or "numpy")
        named = scheduler if scheduler is not None else os.environ.get(SCHEDULER_VARIABLE) or "greedy"
        if limit is not None and getattr(chosen, "interprets", False):
            raise UnsupportedError("the reference backend plans nothing, so it keeps no memory_limit")
        if offload is not None and getattr(chosen, "interprets", False):
            raise UnsupportedError("the reference backend plans nothing, so it has no pool to offload to")
        if offload is not None and placement is not None:
            raise UnsupportedError("a pool on the host (offload=) is that of one device, and mesh= has many")
        if device is not None and placement is not None:
            raise InputError("device= is one device, mesh= many", hint="leave device= out: a mesh has its own devices")
        if device is not None:
            chosen = _on_device(chosen, device)
        given_options = options
        if placement is not None:
            chosen, options = _on_mesh(chosen, placement), _with_axes(options, placement)
        name = named if isinstance(named, str) else type(named).__name__
        asked, rivals = named, dict[str, Scheduler]()
        if named == AUTO:
            name, *others = _schedulers()
            asked, rivals = name, {each: get_scheduler(each) for each in others}
        manager = default_manager()
        manager.call("tempo_compile_started", program=program, backend=chosen.info.name, scheduler=name)
        graph, watches = program.graph(), None
        passes = registered_passes()
        _check_names(graph, pass_manager(passes, loop_passes_of(chosen, options, placement), options), given_options)
        if options.check_finite:
            graph, watches = watched(graph)
        engine: Engine = (
            ReferenceEngine(graph, options)
            if getattr(chosen, "interprets", False)
            else CompiledEngine(
                Compiler(
                    rows_masked(graph),
                    chosen,
                    get_scheduler(asked),
                    options,
                    passes,
                    _likely(graph, sizes),
                    buckets=_buckets(graph, options),
                    memory_limit=limit,
                    offload=None if offload is None else "kept",
                    rivals=rivals,
                    placement=placement,
                ),
                name,
                folder,
                program.declared(),
            )
        )
        check = None if watches is None else FiniteCheck(program.graph(), watches, engine.on_host)
        given = chosen.info.name if backend is None else backend
        recipe = partial(
            compile,
            program,
            given,
            named,
            device,
            sizes,
            given_options,
            memory_limit,
            offload,
            mesh,
            shard,
            place,
            pipeline,
        )
        executable = Executable(program, sizes, engine, recipe, check)

        def ready() -> Executable:
            with AtUserLine():
                executable.prepared()
                manager.call("tempo_compile_finished", program=program, executable=executable)
            return executable

        return Stages(executable, engine, ready)


def _schedulers() -> list[str]:
    """Those that can be used, the core's own first."""
    usable = [listing.name for listing in list_schedulers() if listing.descriptor is not None]
    return sorted(usable, key=lambda name: name != "greedy")


def _check_names(graph: Graph, manager: PassManager, options: Options) -> None:
    """Raises for a dim or a pass that an option names and that is not there."""
    dims = [dim.symbol.name for dim in graph.dims]
    for name in options.mapping if isinstance(options.mapping, Mapping) else ():
        if name not in dims:
            raise InputError(f"mapping= names {name!r}, which is no dim of the program", hint=nearest(name, dims))
    for name in options.strips:
        if name not in dims:
            raise InputError(f"recompute= names {name!r}, which is no dim of the program", hint=nearest(name, dims))
    manager.check_names()


def _buckets(graph: Graph, options: Options) -> Buckets:
    """Raises for a dim that the program has not, or that has no size of its own."""
    dims = {dim.symbol.name: dim for dim in graph.dims}
    for name in options.buckets or ():
        if name not in dims:
            raise InputError(f"buckets= names {name!r}, which is no dim of the program", hint=nearest(name, dims))
        if dims[name].size != var(dims[name].symbol.of_kind("size")):
            raise InputError(
                f"buckets= names {name!r}, whose size is {dims[name].size} in the program",
                hint="buckets are for dims whose size comes with a call",
            )
    return Buckets({dims[name].symbol: bucket for name, bucket in (options.buckets or {}).items()})  # type: ignore[misc]


def _likely(graph: Graph, sizes: Any) -> dict[Symbol, int]:
    """The sizes given that are numbers; `Executable` says what is wrong with the others."""
    given = sizes if isinstance(sizes, Mapping) else {}
    symbols = {dim.symbol.name: symbol for dim in graph.dims for symbol in dim.size.sizes()}
    return {symbols[name]: size for name, size in given.items() if name in symbols and type(size) is int}


def _on_mesh(backend: Any, placement: PlacementRequest) -> Any:
    if not backend.info.capabilities.meshes:
        usable = (each.descriptor for each in list_backends() if isinstance(each.descriptor, BackendPlugin))
        able = ", ".join(each.name for each in usable if each.capabilities.meshes)
        raise UnsupportedError(
            f"the backend {backend.info.name!r} runs on one device", hint=f"on a mesh run: {able or 'none'}"
        )
    return backend.with_mesh(placement.mesh)


def _with_axes(options: Options, placement: PlacementRequest) -> Options:
    """Dims that lie along a mesh become axes wherever they can: a loop would go through all devices' points."""
    ways = {dim.symbol.name: forced(options.mapping, dim.symbol.name) for dim in placement.graph.dims}
    for symbol in placement.shard:
        name, asked = symbol.name, placement.asked_by(symbol)
        if ways[name] not in (None, "full"):
            raise InputError(
                f"{asked}= cuts {name} into parts for many devices, and mapping= makes a loop of it",
                hint=f'leave {name} out of mapping=, which may name dims: mapping={{"t": 2}}',
            )
        if name in (options.buckets or {}):
            raise InputError(f"{name} is in {asked}= and in buckets=", hint=f"leave {name} out of one of them")
        ways[name] = "full"
    if placement.stages is not None:
        stages, microbatches = placement.stages, placement.stages.microbatches.name
        for each in (symbol.name for symbol in stages.dims if symbol.name in options.strips):
            raise UnsupportedError(
                f"recompute= cuts {each} into strips, and pipeline= gives it to stages",
                hint=f"leave {each} out of recompute=",
            )
        if microbatches in (options.buckets or {}):
            raise InputError(
                f"{microbatches} is in pipeline= and in buckets=: a pipeline is planned for each number of them",
                hint=f"leave {microbatches} out of buckets=",
            )
        ways |= {stages.stage.name: "full", stages.wave.name: "sequential", stages.layer.name: "sequential"}
    return replace(options, mapping={name: way for name, way in ways.items() if way is not None})


def _on_device(backend: Any, device: str) -> Any:
    devices = backend.info.capabilities.devices
    if device not in devices:
        raise UnsupportedError(
            f"the backend {backend.info.name!r} does not run on {device!r}", hint=f"its devices: {', '.join(devices)}"
        )
    return backend.with_device(device)
