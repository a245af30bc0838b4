"""What `tp.compile` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tempo.analysis.checks.checks import check_at, check_index_values, check_symbolic, surely_fit
from tempo.analysis.checks.stopping import check_stops
from tempo.analysis.reports import beginning_at
from tempo.analysis.rows import check_means
from tempo.backends.tracing import Tracer
from tempo.compiler.once import Once
from tempo.costs import Cost
from tempo.errors import (
    AtUserLine,
    InputError,
    ProgramError,
    SizeError,
    UnsupportedError,
    nearest,
    package,
    user_location,
)
from tempo.loop_ir.analysis.work import loops_cost
from tempo.reference.calls import feeding
from tempo.runtime.arguments.call import Arguments, CallChecker
from tempo.runtime.checkpoints.folder import Checkpoints
from tempo.runtime.checkpoints.resume import Resumed, resumed
from tempo.runtime.dynamic.rows import RowChecks
from tempo.runtime.engine import CompiledEngine, Engine, Progress, ReferenceEngine, planning
from tempo.runtime.explain import check_sections, explain
from tempo.runtime.from_point import LateBeginnings
from tempo.runtime.memory import BufferMemory, Memory, buffers_of, memory_of, told_what_is_large
from tempo.runtime.pickling import compiled_again, portable
from tempo.runtime.profile.lines import Profile
from tempo.runtime.profile.recorder import Recorder
from tempo.runtime.profile.recording import Recording
from tempo.runtime.report.collect import contents_of
from tempo.runtime.report.page import write_page
from tempo.runtime.results.finite import FiniteCheck
from tempo.runtime.results.outputs import Outputs, outputs_of
from tempo.runtime.results.paths import path_to_write
from tempo.runtime.results.salvage import Look, looked
from tempo.runtime.streaming import Stream
from tempo.sdg.graph import Port
from tempo.symbolic import LARGEST_SIZE, Symbol, conjunction, var
from tempo.waiting import told

if TYPE_CHECKING:
    from tempo.language.program import Program
    from tempo.language.tensor import RecurrentTensor
    from tempo.sdg.graph import Graph


class Executable:
    """A compiled program. Calling it is pure: it starts from the parameters' `init`, or from `state=`.

    It may be called with other sizes, from several threads, and again after a call that failed. A pickle of it holds
    what it was compiled from; where it is read it is compiled again.
    """

    def __init__(
        self,
        program: Program,
        sizes: Mapping[str, int] | None,
        engine: Engine,
        recipe: Callable[[], Executable],
        finite: FiniteCheck | None = None,
    ) -> None:
        """`recipe`: the call of `tp.compile` that makes it again."""
        self.program, self.graph = program, program.graph()
        self._engine, self._recipe, self._finite = engine, recipe, finite
        check_stops(self.graph)
        check_means(self.graph, dict(program.builder.means))
        self._verdict = check_symbolic(self.graph, finds_order=engine.finds_order)
        self._calls = CallChecker(program, self.graph, sizes, engine.native)
        self._rows = RowChecks(program, engine.on_host)
        self._late = LateBeginnings(engine)
        self._checked: Once[frozenset[tuple[Symbol, int]], None] = Once()
        self._donated = frozenset[Port]()  # in the call before
        self._recorder: Recorder | None = None
        self.last_profile: Profile | None = None
        """What the last `profile` found that has ended."""
        self._sizes = self._calls.known_sizes()
        if self._sizes is not None:
            self._check_sizes(self._sizes)
            self._sizes = engine.sizes(self._sizes)

    def prepared(self) -> Executable:
        """With code for the sizes that are known."""
        if self._sizes is not None:
            self._prepare(self._sizes)
        return self

    def __call__(
        self,
        /,
        *,
        seed: int | None = None,
        sizes: Mapping[str, int] | None = None,
        state: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        donate: bool = False,
        progress: bool | Callable[[int, int], None] = False,
        from_point: Mapping[str, int] | None = None,
        checkpoint: Checkpoints | None = None,
        resume: bool = False,
        outputs: Literal["all", "new"] = "all",
        **inputs: Any,
    ) -> Outputs:
        """Run the program.

        `inputs` are arrays by name, the domain's dims in front, and iterators for streamed inputs; `sizes` gives sizes
        of dims that no input carries; `seed` is that of all draws (None: 0); `progress` shows a bar (True), or is
        called with (done, total). `state` holds parameters to start from: the `.state` of a run, what `tp.load` gives,
        or arrays by name. A name that is no parameter is an error; with `strict=False` it is left out, as it is from
        the state of a run without `strict`.

        `donate`: the run may have the memory of arrays of JAX's or PyTorch's that it is given, as `jax.jit` may with
        `donate_argnums`: what it reads no more makes room, and results may lie where it was. They must not be used
        afterwards, after a run that fails, too: JAX's are deleted, PyTorch's are empty. NumPy's stay as they are. A
        `memory_limit` is that of runs that keep what they are given.

        `from_point={"i": 399}`: the run begins at point 399 of `i`, where parameters have the values of `state=`; those
        that a run of 400 points ended with, so that both are one run, or others, after the program was changed. Draws,
        and schedules of rates, go on where they would be. Outputs over `i` have the points from there on, of inputs
        over it (all of whose points are given) these are read, and a streamed one gives the array of that point first.
        What a parameter has at several points of dims inside it begins with at the first of them.

        `checkpoint`: the run keeps in a folder what it needs to go on (`tp.Checkpoints`). With `resume` it goes on at
        the last checkpoint that is whole, or begins where there is none: it gives bit for bit what it would have given
        with no interruption. Inputs are given again, and must be the same; seed and sizes are those of the checkpoint,
        but for more points of `along`, where nothing reads how many there are. A stream that has `state_dict` and
        `load_state_dict` goes on where it was; of another one as many arrays are skipped as were taken. Outputs over
        `along` have all points, or with `outputs="new"` those that were not complete at the checkpoint.

        Raises `InputError`, `SizeError`, `DTypeError`, `DomainError`, `DefinitionError`, `CycleError`,
        `IndexOutOfRangeError`, `HostCallError`, `MemoryLimitError`, `CheckpointError`, and `NotFiniteError` where
        `tp.Options(check_finite=True)` was given.
        """
        with AtUserLine():
            kept = resumed(checkpoint, resume, outputs, self.graph, self.program.name)
            seed, sizes = (0 if seed is None else seed, sizes) if kept is None else kept.call(seed, sizes, self._calls)
        if kept is not None and donate is True:
            donate = False  # what it is given is looked at again where it goes on
        arguments = self._arguments(inputs, sizes, state, seed, strict, donate)
        engine, asked = self._engine, arguments.sizes
        first: Mapping[Symbol, int] = {}
        with AtUserLine():
            if from_point is not None:
                self._rows.check_proven("begins at a later point")
                engine, arguments, first = self._late.at(from_point, arguments, state)
            if kept is not None:
                kept.begin(arguments, asked, planning(engine, "keeps no checkpoints"), from_point)
            reporting = _reporter(progress)
        planned = partial(self._planned, engine, arguments.sizes)
        with reporting as report, told_what_is_large(planned), feeding(arguments.feeds), beginning_at(first):
            if self._recorder is None:
                return self._run(engine, arguments, report, kept)
            with self._recorder.call(f"run {self.program.name}"):
                return self._run(engine, arguments, report, kept)

    def _run(self, engine: Engine, arguments: Arguments, report: Progress | None, kept: Resumed | None) -> Outputs:
        look = self._look(arguments)
        if kept is None:
            results = engine.run(arguments, report, look)
        else:
            with AtUserLine():
                results = planning(engine, "keeps no checkpoints").checkpointed(arguments, report, look, kept.run)
        with AtUserLine():
            arguments = self._rows.made(arguments, results)
        outputs = outputs_of(results, self.graph, arguments, self._engine.from_host)
        if look is not None:
            looked(partial(look, results.watched, False), outputs, outputs.state)
        return outputs if kept is None else kept.shown(outputs)

    def applied(
        self,
        inputs: Mapping[str, Any],
        state: Mapping[str, Any],
        seed: Any = 0,
        sizes: Mapping[str, int] | None = None,
        known: bool = True,
        rows: bool = True,
    ) -> Outputs:
        """A run inside another framework, given all parameters: `seed` is an integer, or a uint32 scalar of the
        backend's. `known`: whether arrays have values; else (where a framework traces) nothing looks at them first.
        `rows`: whether reads along rows with lengths of their own are looked at."""
        is_array = self._engine.native(seed) == "uint32"
        looks = rows if known else None
        arguments = self._arguments(inputs, sizes, state, 0 if is_array else seed, None, rows=looks)
        if is_array:
            arguments = replace(arguments, arrays={**arguments.arrays, Port("seed", "seed"): seed})
        if known or not isinstance(self._engine, CompiledEngine):
            return self._run(self._engine, arguments, None, None)
        results = self._engine.in_any_order(arguments, None, None)
        return outputs_of(results, self.graph, arguments, self._engine.from_host)

    def check_rows(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Raises what a run would, for reads along rows with lengths of their own."""
        self._arguments(inputs, None, state, 0, None)

    def _look(self, arguments: Arguments) -> Look | None:
        """What looks whether values are finite, if that is asked for; those that are given are looked at here."""
        if self._finite is None:
            return None
        self._finite.given(arguments)
        return partial(self._finite.made, arguments)

    def stream(
        self,
        dim: str,
        /,
        *,
        chunk: int = 1,
        keep: bool | None = None,
        from_point: int = 0,
        seed: int = 0,
        sizes: Mapping[str, int | None] | None = None,
        state: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        **inputs: Any,
    ) -> Stream:
        """Run along `dim`, the outermost ordered dim, `chunk` points at a time; yields the outputs over it.

        `keep`: whether the stream's `result` has the outputs over `dim`, all of their points; False: only the chunk at
        hand is in memory. None: yes where the size of `dim` is known. Points before `from_point` are no steps; where
        outputs are kept they are run at once. `so_far()` of a stream gives all points up to its last step. Without an
        end, `sizes={"t": None}` where `t` is streamed, it goes on for as long as it is asked, until a streamed input
        ends, in constant memory.

        Raises `UnsupportedError` where the program cannot be run along it; without an end, where something reads the
        size or a later point, or is kept at every point.
        """
        engine = planning(self._engine, "has no order to stream in", 'use backend="numpy"')
        names = {each.symbol.name: each.symbol for each in self.graph.dims}
        if dim not in names:
            raise InputError(
                f"the program has no dim {dim!r}", location=user_location(), hint=nearest(str(dim), names, "dims")
            )
        endless = isinstance(sizes, Mapping) and dim in sizes and sizes[dim] is None
        length, keeps, first = _chunk_length(chunk), _keeps(keep, dim, endless), _first_point(from_point)
        if endless:
            engine, arguments = self._endless(engine, names[dim], inputs, sizes or {}, state, seed, strict)
            look = None
        else:
            arguments = self._arguments(inputs, sizes, state, seed, strict)
            look = self._look(arguments)
        with nullcontext() if self._recorder is None else self._recorder.recording():
            return Stream(engine, arguments, names[dim], length, keeps, self._rows, endless, look, first)

    def profile(self, path: str | os.PathLike[str]) -> Recording:
        """Inside the block it is recorded where the time of runs goes; printed behind it, a table of costliest lines.

        `path` is that of a trace, which https://ui.perfetto.dev and chrome://tracing open; it is written at the end of
        the block, also where that fails. What the thread that opens the block does with this executable is recorded:
        calls, with or without checkpoints, and steps of streams that begin inside. `donate` is without effect in it
        where the backend has a profiler of its own (JAX, PyTorch).

        Lines of generated code are found by samples, 250 in a second. The backend's profiler tells what happens
        in XLA's executables, and is on for a small share of the run: loops are run in chunks for it, as with
        `progress=True`, for which JAX compiles them once more. What is compiled inside of the block is told apart.

        Raises `MissingFileError` where there is no such folder, `InputError` for what is no path of a file,
        `ProgramError` where the executable is profiled already, and `UnsupportedError` on the reference backend, and
        where the backend's profiler is in use.

        >>> import tempfile
        >>> import tempo as tp
        >>> with tp.Program("halves") as program:
        ...     t = tp.dim("t", 1000)
        ...     x = tp.recurrent("x", (64, 64), (t,))
        ...     x[0] = tp.ones((64, 64))
        ...     x[t + 1] = x @ x / 64
        ...     tp.output("x", x[t.size - 1])
        >>> run = tp.compile(program)
        >>> with tempfile.TemporaryDirectory() as folder, run.profile(f"{folder}/trace.json") as profile:
        ...     _ = run()
        >>> profile.result.calls, sum(each.share for each in profile.lines) > 0.9
        (1, True)
        """
        engine = planning(self._engine, "has no generated code, so there is nothing to profile", 'use backend="numpy"')
        with AtUserLine():
            found = path_to_write(path, 'run.profile("trace.json")')
        tracer, signals = partial(_tracer, engine), getattr(engine.backend, "takes_signals", True)
        return Recording(found, self.program.name, tracer, signals, self._begin_profile, self._end_profile)

    def _begin_profile(self, recorder: Recorder) -> None:
        if self._recorder is not None:
            raise ProgramError(
                "the executable is profiled already", location=user_location(), hint="one profile at a time"
            )
        self._recorder = recorder

    def _end_profile(self, profile: Profile | None) -> None:
        self._recorder, self.last_profile = None, profile or self.last_profile

    def _endless(
        self,
        engine: CompiledEngine,
        dim: Symbol,
        inputs: Mapping[str, Any],
        sizes: Mapping[str, Any],
        state: Mapping[str, Any] | None,
        seed: int,
        strict: bool | None,
    ) -> tuple[CompiledEngine, Arguments]:
        """The dim is given as many points as there can be at most; nothing that is made depends on how many."""
        if self._finite is not None:
            raise UnsupportedError(
                f"tp.Options(check_finite=True) remembers every point of {dim.name}, which has no end",
                hint="compile without it, or give the size",
                location=user_location(),
            )
        unending = engine.endless(dim)
        others = {name: size for name, size in sizes.items() if name != dim.name}
        with AtUserLine():
            arguments = self._calls.check(inputs, others, state, seed, strict, endless=(dim, LARGEST_SIZE))
            arguments = replace(arguments, lengths=self._rows.lengths(arguments))
            check_index_values(self.graph, {**arguments.sizes, _size(dim): 1})
        sizes_of_all = _as_far_as_indices_fit(unending.graph, arguments.sizes, dim)
        arguments = replace(arguments, sizes=unending.sizes(sizes_of_all))
        facts = conjunction(var(each).eq(at) for each, at in arguments.sizes.items() if each != _size(dim))
        if not check_symbolic(unending.graph, facts, unending.finds_order).proven:
            raise UnsupportedError(
                f"it is not proven that the program is right at every size of {dim.name}, which has no end",
                location=user_location(),
                hint=f"give the size of {dim.name}",
            )
        return unending, arguments

    def device_put(self, **inputs: Any) -> dict[str, Any]:
        """Some of the inputs, by name, as the backend keeps them: calls that are given them copy nothing.

        What varies along dims may be a list of arrays, one for each point. It stays so where the backend reads it at
        points, at the sizes last compiled or run, and is laid out as one array, part by part, elsewhere. On a processor
        arrays are not copied that need not be: they share the caller's memory. PyTorch's large matrices that rows are
        multiplied by are, at once or by the first call whose loops gain by it: they are laid out for these products,
        are not to be written to, and what is written later to the matrix that was given calls may not see.

        Raises `InputError` for a name that is no input, and as a call does for what does not fit.

        >>> import numpy as np
        >>> import tempo as tp
        >>> with tp.Program("layers") as program:
        ...     n = tp.dim("n", 3)
        ...     w, x = tp.input("w", (2, 2), (n,)), tp.recurrent("x", (2,), (n,))
        ...     x[0] = tp.ones(2)
        ...     x[n + 1] = w @ x
        ...     tp.output("x", x[n.size - 1])
        >>> run = tp.compile(program)
        >>> weights = run.device_put(w=[np.eye(2, dtype="float32") * 2 for _ in range(3)])
        >>> run(**weights)["x"].tolist()
        [4.0, 4.0]
        """
        with AtUserLine():
            given = self._calls.inputs_of(inputs)
        if not isinstance(self._engine, CompiledEngine):
            return {port.name: np.asarray(array) for port, array in given.items()}
        return self._engine.device_put(given, self._sizes)

    def compile_ahead(self, **inputs: Any) -> None:
        """Compile all that a run would at the sizes last compiled or run, before it: parts of it beside each other, and
        before its arrays take memory. A run by itself compiles each part when it comes to it.

        `inputs` are those that will be given as lists of arrays, one for each point; their elements are not looked at.
        Runs that are asked for in chunks (`stream`, `progress=`, checkpoints), that are given what they may overwrite
        (`donate=`), or of which indices or rows say what is run, compile more, or something else. Where nothing is
        compiled but Python (PyTorch, NumPy) this does nothing.

        Raises `SizeError` where no sizes are known, and `InputError` for a name that is no input.

        >>> import tempo as tp
        >>> with tp.Program("sum") as program:
        ...     n = tp.dim("n")
        ...     tp.output("y", tp.input("x", (), (n,))[0:n.size].sum())
        >>> run = tp.compile(program, sizes={"n": 3})
        >>> run.compile_ahead()
        >>> run(x=[1.0, 2.0, 3.0])["y"].item()
        6.0
        """
        with AtUserLine():
            given = self._calls.inputs_of(inputs)
            if isinstance(self._engine, CompiledEngine):
                engine, sizes = self._with_sizes("")
                engine.compile_ahead(given, sizes)

    def value(
        self,
        tensor: RecurrentTensor,
        point: Mapping[str, int] | tuple[int, ...] = (),
        /,
        *,
        seed: int = 0,
        sizes: Mapping[str, int] | None = None,
        state: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        **inputs: Any,
    ) -> np.ndarray[Any, Any]:
        """The value of a tensor at one point of its domain, for debugging; only on `backend="reference"`."""
        if not isinstance(self._engine, ReferenceEngine):
            message, hint = "only the reference backend evaluates single points", 'use backend="reference"'
            raise UnsupportedError(message, location=user_location(), hint=hint)
        self._check_tensor(tensor)
        given = _by_symbol(tensor.symbols, point)
        arguments = self._arguments(inputs, sizes, state, seed, strict)
        with feeding(arguments.feeds):
            return np.asarray(self._engine.evaluator(arguments).value(tensor.edge, given))

    def _check_tensor(self, tensor: Any) -> None:
        owner = getattr(tensor, "program", None)
        if owner is None or not hasattr(tensor, "edge"):
            raise InputError(f"a {type(tensor).__name__} is no tensor", location=user_location())
        if owner is not self.program:
            raise ProgramError(f"{tensor.label} belongs to the program {owner.name!r}", location=user_location())
        if tensor.edge.node not in self.graph.nodes:
            raise ProgramError(
                f"{tensor.label} was made after the program was compiled",
                location=user_location(),
                hint="compile the program again",
            )

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def last_sizes(self) -> Mapping[Symbol, int] | None:
        """The sizes last compiled for or run with; None where none are known yet."""
        return self._sizes

    @property
    def given_sizes(self) -> Mapping[Symbol, int]:
        """What is known of sizes of what `tp.compile` was told, which need not be all."""
        return {symbol: claim.value for symbol, claim in self._calls.table().claims.items()}

    @property
    def cost(self) -> Cost:
        """What the model of costs foretells for a run at the sizes last compiled or run: operations, bytes moved,
        launches of operators, changes to the host and back, and seconds, which it knows to a factor, not to a percent.
        """
        engine, sizes = self._at_last_sizes("plans nothing, so it has no run.cost")
        code = engine.at(engine.chosen(sizes).plan, sizes).compiled
        return loops_cost(code.program, engine.backend.costs, sizes)

    @property
    def memory(self) -> Memory:
        """What a run holds, for the sizes last compiled or run, and as that run was donated its inputs or not."""
        engine, sizes = self._at_last_sizes("plans nothing, so it has no run.memory")
        found = engine.chosen(sizes)
        donated = self._donated if self._donated and engine.takes(sizes) else frozenset[Port]()
        return memory_of(engine.at(found.plan, sizes, donated=donated), found.choices)

    def _at_last_sizes(self, otherwise: str) -> tuple[CompiledEngine, Mapping[Symbol, int]]:
        """What ran last, or would run. Raises `SizeError` where no sizes are known."""
        engine, sizes = self._with_sizes(otherwise)
        return engine.of_last_run(sizes)

    def _with_sizes(self, otherwise: str) -> tuple[CompiledEngine, Mapping[Symbol, int]]:
        engine = planning(self._engine, otherwise)
        if self._sizes is None:
            hint = "give sizes= to tp.compile, or run the program"
            raise SizeError("no sizes are known yet", location=user_location(), hint=hint)
        return engine, self._sizes

    @property
    def executables(self) -> int:
        """How many executables were made so far: one per value of the sizes that shapes are made of."""
        return planning(self._engine, "plans nothing, so it has no run.executables").executables

    def explain(self, *sections: str) -> str:
        """What became of the program, as far as it fits a screen; or sections by name, or "all" of them.

        "passes", "operators", "times" of compiling, "rows" that run apart or in tiles, "mapping" of dims to axes and
        loops, "graph", "statements", "schedule", "buffers", why they are "kept", "plans" that were compared, "extents"
        that vary, "placement" on a mesh, "memory", "code". Raises `InputError` for a name that none has.
        """
        if not isinstance(self._engine, CompiledEngine):
            check_sections(sections)
            return f"backend reference: evaluates the graph on demand\n\n{self.graph}"
        return explain(self._engine, self._sizes, sections)

    def report(self, path: str | Path) -> Path:
        """Write a page on all that the compiler decided, for the sizes last compiled or run; gives where it is.

        The page is one file, which any browser shows without a network: what is kept for how long and why, memory over
        the schedule, the graph by your lines, before and after each pass, generated code, times of compiling, and what
        the last `profile` has found, if there was one. The program is planned once more for it.

        Raises `SizeError` where no sizes are known, `MissingFileError` where the folder is not there, `InputError`
        where `path` is a folder, and `UnsupportedError` on the reference backend, which plans nothing.

        >>> import tempfile
        >>> import tempo as tp
        >>> with tp.Program("sums") as program:
        ...     t = tp.dim("t", 4)
        ...     s = tp.recurrent("s", (), (t,))
        ...     s[0] = tp.ones(())
        ...     s[t] = s[t - 1] + 1
        ...     tp.output("s", s)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tp.compile(program).report(f"{folder}/sums.html").name
        'sums.html'
        """
        engine, sizes = self._with_sizes("plans nothing, so there is nothing to report")
        with AtUserLine():
            found = path_to_write(path, 'run.report("report.html")')
        measured = None if self.last_profile is None else self.last_profile.by_origin
        write_page(contents_of(self.program.name, engine, sizes, measured), found)
        return Path(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return compiled_again, (portable(self._recipe, self.program),)

    def __repr__(self) -> str:
        return f"Executable({self.program!r}, {self._engine!r})"

    # -- calls -----------------------------------------------------------------------------------------------------

    def _arguments(
        self,
        inputs: Mapping[str, Any],
        sizes: Mapping[str, Any] | None,
        state: Mapping[str, Any] | None,
        seed: int,
        strict: bool | None,
        donate: bool = False,
        rows: bool | None = True,
    ) -> Arguments:
        """`rows`: whether reads along rows with lengths of their own are looked at; None: nor lengths, either."""
        with AtUserLine():
            if not isinstance(donate, bool):
                raise InputError(f"donate={donate!r} is a {type(donate).__name__}", hint="write True or False")
            arguments = self._calls.check(inputs, sizes, state, seed, strict, donate=donate and self._finite is None)
            self._check_sizes(arguments.sizes)
            if rows is not None:
                arguments = replace(arguments, lengths=self._rows.lengths(arguments, rows))
            arguments = replace(arguments, sizes=self._engine.sizes(arguments.sizes))
        self._sizes = arguments.sizes  # another thread's call may put its own here
        self._donated = arguments.donated
        return arguments

    def _check_sizes(self, sizes: Mapping[Symbol, int]) -> None:
        def check() -> None:
            if not self._verdict.proven:
                check_at(self.graph, sizes, self._verdict)
            check_index_values(self.graph, sizes)
            self._engine.check_at(sizes)

        self._checked.get(frozenset(sizes.items()), check)

    def _prepare(self, sizes: Mapping[Symbol, int]) -> None:
        if isinstance(self._engine, CompiledEngine):
            with told_what_is_large(partial(self._planned, self._engine, sizes)):
                plan = self._engine.plan_for(sizes)
                if self._engine.tiles is None:  # else the arrays say what is run
                    self._engine.at(plan, sizes)

    def _planned(self, engine: Engine, sizes: Mapping[Symbol, int]) -> tuple[BufferMemory, ...]:
        return buffers_of(engine.plan_for(sizes).loops, sizes) if isinstance(engine, CompiledEngine) else ()


def _tracer(engine: CompiledEngine) -> Tracer | None:
    """Where several processes run together they would have to agree on what is looked at."""
    tracer = getattr(engine.backend, "tracer", None)
    return None if tracer is None or engine.backend.processes > 1 else tracer()


def _size(dim: Symbol) -> Symbol:
    return Symbol(dim.name, "size")


def _as_far_as_indices_fit(graph: Graph, sizes: Mapping[Symbol, int], dim: Symbol) -> Mapping[Symbol, int]:
    """With fewer points of the dim, where an index expression would exceed 32 bits."""
    while not surely_fit(graph, sizes) and sizes[_size(dim)] > 1:
        sizes = {**sizes, _size(dim): sizes[_size(dim)] // 2}
    return sizes


def _keeps(keep: Any, dim: str, endless: bool) -> bool:
    if keep is not None and not isinstance(keep, bool | np.bool_):
        raise InputError(f"keep must be True, False or None, not {keep!r}", location=user_location())
    if keep and endless:
        raise InputError(
            f"keep=True keeps every point of {dim}, which has no end: sizes= says None",
            location=user_location(),
            hint="take what is wanted from the steps, or give the size",
        )
    return not endless if keep is None else bool(keep)


def _chunk_length(chunk: Any) -> int:
    if isinstance(chunk, bool) or not isinstance(chunk, int | np.integer) or chunk < 1:
        raise InputError(f"chunk must be an integer of at least 1, not {chunk!r}", location=user_location())
    return int(chunk)


def _first_point(point: Any) -> int:
    if isinstance(point, bool) or not isinstance(point, int | np.integer) or point < 0:
        raise InputError(f"from_point must be an integer of at least 0, not {point!r}", location=user_location())
    return int(point)


def _by_symbol(domain: tuple[Symbol, ...], point: Any) -> dict[Symbol, int]:
    """The coordinates of a point, given by name or in the order of the domain."""
    names = [symbol.name for symbol in domain]
    wanted = f"write one integer for each of its dims, ({', '.join(names)})"
    values = point if isinstance(point, Mapping) else dict(zip(names, point)) if isinstance(point, tuple) else None
    if values is None or set(values) != set(names) or (isinstance(point, tuple) and len(point) != len(names)):
        raise InputError(f"{point!r} is no point of the tensor's domain", location=user_location(), hint=wanted)
    if not all(isinstance(value, int | np.integer) for value in values.values()):
        raise InputError(f"the point {point!r} is not made of integers", location=user_location(), hint=wanted)
    return {symbol: int(values[symbol.name]) for symbol in domain}


def _reporter(progress: Any) -> AbstractContextManager[Progress | None]:
    """Gives a function of (done, total) iterations, or None. Raises `InputError` for what says neither."""
    if callable(progress):
        return nullcontext(progress)
    if not isinstance(progress, bool | None):
        hint = "write progress=True for a bar, or give a function of (done, total)"
        raise InputError(f"progress={progress!r} is a {type(progress).__name__}", hint=hint)
    return _bar(package("tqdm.auto", "progress=True", "progress").auto.tqdm) if progress else nullcontext(None)


@contextmanager
def _bar(tqdm: Any) -> Iterator[Progress]:
    with tqdm(unit="step") as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.set_description_str("", refresh=False)
            bar.update(done - bar.n)

        with told(bar.set_description_str):
            yield report
