"""Running a random program on a backend, and holding outputs, state, errors and host calls to the meaning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np

from tempo.compiler.options import Options
from tempo.conformance.mesh import drawn
from tempo.conformance.random_programs.description import Built, RandomProgram
from tempo.conformance.random_programs.recorder import RecordedCall
from tempo.dtypes import to_numpy
from tempo.errors import CycleError, DefinitionError, DomainError, ShapeError, TempoError, UnsupportedError
from tempo.language.program import Program
from tempo.reference.calls import feeding
from tempo.runtime.arguments.binding import input_nodes, stream_nodes
from tempo.runtime.arguments.call import CallChecker
from tempo.runtime.compile import compile
from tempo.runtime.engine import ReferenceEngine
from tempo.runtime.executable import Executable
from tempo.runtime.results.outputs import Outputs, Step
from tempo.sdg.graph import Graph, Node
from tempo.symbolic import Symbol, var

Array = np.ndarray[Any, Any]
MEANINGLESS = (CycleError, DefinitionError, DomainError, ShapeError)
_TOLERANCE = {"float16": 3e-2, "bfloat16": 1e-1, "float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True)
class Mode:
    """A way to run a program, as arguments of `tp.compile`; `to_host` makes NumPy arrays of the backend's own.

    `buckets`: every dim that may have one is in one. `strips`: one of the dims, and of how many points are its strips,
    which later loops compute again. `mesh`: of how many devices there is one. A third of the programs have a pool on
    the host, by how many nodes they have: one draw more would make others of all.
    """

    backend: Any
    options: Options
    scheduler: Any = None
    to_host: Callable[[Any], Array] = np.asarray
    buckets: bool = False
    strips: tuple[int, int] | None = None
    mesh: int | None = None

    def compiled(
        self,
        program: Program,
        sizes: Mapping[str, int] | None = None,
        known: Mapping[str, int] | None = None,
        **changed: Any,
    ) -> Any:
        """The executable; some options may be others. `known`: the sizes that it will be run at."""
        options = replace(self.options_for(program), **changed)
        given: dict[str, Any] = {"offload": "host" if len(program.graph().nodes) % 3 == 0 else None}
        if self.mesh is not None:
            given = drawn(program, known or sizes, self.mesh, options)
        return compile(program, self.backend, self.scheduler, sizes=sizes, options=options, **given)

    def options_for(self, program: Program) -> Options:
        options, dims = self.options, program.graph().dims
        free = [dim.symbol for dim in dims if dim.size == var(dim.symbol.of_kind("size"))]
        if self.buckets and free:
            options = replace(options, buckets={symbol.name: "pow2" for symbol in free})
        if self.strips is not None and dims:
            which, points = self.strips
            options = replace(options, recompute={dims[which % len(dims)].symbol.name: points})
        return options

    @property
    def name(self) -> str:
        """The name of the backend."""
        return self.backend if isinstance(self.backend, str) else str(self.backend.info.name)

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.options}{', in buckets' * self.buckets}{f', strips {self.strips}' * bool(self.strips)}"
        )


@dataclass(frozen=True)
class Situation:
    """One run: sizes of the dims, the seed of draws and of input arrays, whether these hold NaN and infinities.

    `continued` runs a second time, from the state at the end of the first. `chunk` streams over the first dim by so
    many points.
    """

    sizes: Mapping[str, int]
    seed: int = 0
    special: bool = False
    continued: bool = False
    chunk: int | None = None

    def divided(self, graph: Graph, devices: int | None) -> Situation:
        """With sizes that so many devices divide, where they are free."""
        if devices is None:
            return self
        free = {dim.symbol.name for dim in graph.dims if not dim.size.is_const}
        sizes = {name: -(-size // devices) * devices if name in free else size for name, size in self.sizes.items()}
        return replace(self, sizes=sizes)


@dataclass(frozen=True)
class Outcome:
    """What a run gave: an error, or arrays by name and the host calls in the order of the run."""

    error: TempoError | None = None
    arrays: Mapping[str, Array] = field(default_factory=dict)
    calls: tuple[RecordedCall, ...] = ()

    def __str__(self) -> str:
        return "arrays" if self.error is None else f"{type(self.error).__name__}: {self.error}"


class Disagreement(AssertionError):
    """A backend gives a program another meaning than the reference evaluator."""


WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"mapping": "full"},
    {"mapping": 2},
    {"mapping": "sequential"},
    {"extent": "specialise", "tile": 1},
    {"extent": "blocks", "tile": 1},
    {"extent": "specialise", "tile": 2, "mapping": "sequential"},
    {"extent": "blocks", "tile": 3, "mapping": "sequential"},
)
"""Every mapping, and every execution of extents that vary: of its own choice each runs at the hull, sizes are small."""


def numpy_modes(checks: bool = True) -> tuple[Mode, ...]:
    """The default backend, in all ways. New buffers and padding are full of NaN."""
    return tuple(Mode("numpy", Options(checks=checks, poison=True, debug=True, **each)) for each in WAYS)


def check(
    program: RandomProgram,
    situations: Sequence[Situation],
    modes: Sequence[Mode] | None = None,
    tally: Counter[str] | None = None,
) -> None:
    """Run `program` in every situation, in every mode on one executable, and compare with the reference.

    A single situation's sizes are told to `compile`, those of several to the calls.
    `tally` counts what happened, by runs where something is compared or refused. Raises `Disagreement`.
    """
    counts: Counter[str] = Counter() if tally is None else tally
    chosen = numpy_modes() if modes is None else modes
    checks = chosen[0].options.checks
    expected = meanings(program, situations, checks is not False)
    for outcome in expected:
        counts["runs without meaning" if outcome.error else "runs with meaning"] += 1
        if outcome.error:
            counts[f"meaning: {type(outcome.error).__name__}"] += 1
    for mode in chosen:
        _check_mode(program, mode, list(zip(situations, expected)), counts)


def _check_mode(
    program: RandomProgram, mode: Mode, pairs: Sequence[tuple[Situation, Outcome]], counts: Counter[str]
) -> None:
    built = program.build(mode.name)
    sizes = pairs[0][0].sizes if len(pairs) == 1 else None
    try:
        fails = any(expected.error for _, expected in pairs) and hasattr(mode.backend, "launched")
        chosen = replace(mode, mesh=None) if fails else mode  # processes would wait for the one that meets the error
        run = chosen.compiled(built.program, sizes=sizes, known=_divisors(pairs))
    except UnsupportedError as error:
        counts[_unsupported(error)] += len(pairs)
        _check_no_loop_runs(program, mode, pairs, error)
        return
    except TempoError as error:
        _check_refusal(program, mode, error, pairs, counts)
        return
    for situation, expected in pairs:
        found = _run(built, run, situation, mode.to_host)
        if isinstance(found.error, UnsupportedError):
            counts[_unsupported(found.error)] += 1
            _check_no_loop_runs(program, mode, [(situation, expected)], found.error)
            continue
        _compare(program, mode, situation, expected, found)
        counts["compared"] += 1
        if found.error is None and run.memory.peak_bytes < 0:
            _fail(program, mode, situation, f"the plan needs {run.memory.peak_bytes} bytes")


def _divisors(pairs: Sequence[tuple[Situation, Outcome]]) -> dict[str, int]:
    """By dim, what divides its size in all runs."""
    return {name: gcd(*(situation.sizes[name] for situation, _ in pairs)) for name in pairs[0][0].sizes}


def _check_no_loop_runs(
    program: RandomProgram, mode: Mode, pairs: Sequence[tuple[Situation, Outcome]], refused: UnsupportedError
) -> None:
    """What is refused with dims as axes must be refused with a loop over each dim, too, on one device."""
    if mode.options.mapping == "sequential" or refused.feature == "mesh":
        return
    built = program.build(mode.name)
    try:
        run = mode.compiled(built.program, mapping="sequential", known={})
        for situation, _ in pairs:
            if _run(built, run, situation, mode.to_host).error is None:
                _fail(program, mode, situation, f"it runs with mapping='sequential', and was refused: {refused}")
    except TempoError:
        return


def _unsupported(error: UnsupportedError) -> str:
    """What a backend declares is not held against it."""
    if error.feature:
        return "declared as unsupported"
    if "recompute=" in error.message:
        return "not computed again"
    return "future refused" if "may end early" in error.message else "unsupported"


def _check_refusal(
    program: RandomProgram,
    mode: Mode,
    error: TempoError,
    pairs: Sequence[tuple[Situation, Outcome]],
    counts: Counter[str],
) -> None:
    """What `compile` refuses has no meaning at any sizes; a case that no point reaches is its own to find."""
    counts[f"refused by compile: {type(error).__name__}"] += 1
    if isinstance(error, DefinitionError) and "reach" in str(error):
        return
    for situation, expected in pairs:
        if not isinstance(error, MEANINGLESS) or not isinstance(expected.error, MEANINGLESS):
            _fail(
                program, mode, situation, f"compile raised {type(error).__name__}: {error}\nthe meaning is {expected}"
            )


def meanings(program: RandomProgram, situations: Sequence[Situation], checks: bool = True) -> list[Outcome]:
    """What the reference evaluator makes of the program in every situation."""
    meaning = _Meaning(program, checks)
    return [meaning.outcome(situation) for situation in situations]


class _Meaning:
    """The reference evaluator on its own: none of the checks that compiled programs pass first."""

    def __init__(self, program: RandomProgram, checks: bool) -> None:
        self.built = program.build()
        self.graph = self.built.program.graph()
        self.engine = ReferenceEngine(self.graph, Options(checks=checks))
        self.calls = CallChecker(self.built.program, self.graph, None, self.engine.native)

    def outcome(self, situation: Situation) -> Outcome:
        inputs = arrays(self.built, situation)
        state = None
        try:
            for _ in range(2 if situation.continued else 1):
                self.built.calls.start(situation.sizes)
                arguments = self.calls.check(inputs, situation.sizes, state, situation.seed)
                with feeding(arguments.feeds):
                    results = self.engine.evaluator(arguments).run()
                state = results.state
        except TempoError as error:
            return Outcome(error)
        states = {f"state of {name}": array for name, array in results.state.items()}
        return Outcome(None, {**results.outputs, **states}, tuple(self.built.calls.calls))


def _run(built: Built, run: Executable, situation: Situation, to_host: Callable[[Any], Array]) -> Outcome:
    inputs: dict[str, Any] = dict(arrays(built, situation))
    state = None
    try:
        for _ in range(2 if situation.continued else 1):
            built.calls.start(situation.sizes)
            outputs = run(seed=situation.seed, sizes=situation.sizes, state=state, **inputs)
            state = outputs.state
    except TempoError as error:
        return Outcome(error, calls=tuple(built.calls.calls))
    if situation.chunk is not None:
        outputs = _streamed(built, run, situation, inputs, to_host) or outputs
    found = {name: to_host(array) for name, array in outputs.items()}
    found.update({f"state of {name}": to_host(array) for name, array in outputs.state.items()})
    return Outcome(None, found, tuple(built.calls.calls))


def _streamed(
    built: Built, run: Executable, situation: Situation, inputs: dict[str, Any], to_host: Callable[[Any], Array]
) -> Outputs | None:
    """The outputs of the program run chunk by chunk, held to what its steps gave; None where it cannot be."""
    dim = next(iter(built.program.dims), None)
    if dim is None or situation.continued:
        return None
    before = list(built.calls.calls)
    built.calls.start(situation.sizes)
    steps: list[Step] = []
    try:
        stream = run.stream(dim.name, chunk=situation.chunk or 1, seed=situation.seed, sizes=situation.sizes, **inputs)
        steps.extend(stream)
    except UnsupportedError:
        built.calls.calls[:] = before
        return None
    assert stream.result is not None
    for step in steps:
        for name, array in step.items():
            output = next(each for each in run.graph.outputs if each.name == name and each.role == "output")
            axis = output.layout.index(dim.symbol)
            kept = np.take(to_host(stream.result[name]), range(step.start, step.stop), axis)
            if not np.array_equal(to_host(array).reshape(kept.shape), kept, equal_nan=kept.dtype.kind == "f"):
                raise Disagreement(
                    f"{name} at {dim.name} = {step.start}:{step.stop} was streamed too early\n{array}\n\n{situation}"
                )
    return stream.result


def arrays(built: Built, situation: Situation) -> dict[str, Any]:
    """Arrays for the inputs of a program, small numbers that make no program explode; lists of them for streams."""
    graph = built.program.graph()
    sizes = {Symbol(name, "size"): size for name, size in situation.sizes.items()}
    extents = {dim.symbol: int(dim.size.evaluate(sizes)) for dim in graph.dims}
    made: dict[str, Any] = {}
    for place, (name, node) in enumerate(sorted(input_nodes(graph, "input").items())):
        shape = [extents[symbol] for symbol in node.domain] + [int(size.evaluate(sizes)) for size in node.shape]
        made[name] = _array(node, shape, situation, place)
    for place, (name, node) in enumerate(sorted(stream_nodes(graph).items()), start=len(made)):
        shape = [extents[symbol] for symbol in node.domain] + [int(size.evaluate(sizes)) for size in node.shape]
        made[name] = list(_array(node, shape, situation, place))
    return made


def _array(node: Node, shape: Sequence[int], situation: Situation, place: int) -> Array:
    random = np.random.default_rng((situation.seed, place))
    dtype = to_numpy(node.dtype)
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind in "iu":
        return random.integers(0 if dtype.kind == "u" else -2, 5, shape).astype(dtype)
    values = random.uniform(-1, 1, shape)
    if situation.special:
        picked = random.random(shape)
        values = np.where(picked < 0.1, np.nan, np.where(picked < 0.15, np.inf, values))
    return values.astype(dtype)


def _compare(program: RandomProgram, mode: Mode, situation: Situation, expected: Outcome, found: Outcome) -> None:
    if expected.error is not None or found.error is not None:
        if not _same_class(expected.error, found.error):
            _fail(program, mode, situation, f"the meaning is {expected}\nfound is {found}")
        return
    if expected.arrays.keys() != found.arrays.keys():
        _fail(program, mode, situation, f"outputs {sorted(expected.arrays)} became {sorted(found.arrays)}")
    tolerance = _tolerance(program)
    for name, wanted in expected.arrays.items():
        problem = difference(wanted, found.arrays[name], tolerance)
        if problem:
            _fail(program, mode, situation, f"{name}: {problem}")
    problem = calls_difference(expected.calls, found.calls, tolerance)
    if problem:
        _fail(program, mode, situation, problem)


def _same_class(expected: TempoError | None, found: TempoError | None) -> bool:
    """A program with several mistakes may be told any of them."""
    if isinstance(expected, MEANINGLESS) and isinstance(found, MEANINGLESS):
        return True
    return type(expected) is type(found)


def _tolerance(program: RandomProgram) -> float:
    """That of the least precise dtype in the program, since errors spread."""
    used = [value for name, value in _TOLERANCE.items() if name in program.source]
    return max([*used, _TOLERANCE["float32"]])


def difference(wanted: Array, found: Array, tolerance: float) -> str | None:
    """How arrays differ: dtype and shape, integers and bools exactly, floats within the tolerance, NaN by place."""
    if wanted.dtype != found.dtype or wanted.shape != found.shape:
        return f"{found.dtype}{list(found.shape)}, the meaning is {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "iub":
        equal = np.array_equal(wanted, found)
    else:
        left, right = wanted.astype(np.float64), found.astype(np.float64)
        equal = bool(np.allclose(right, left, rtol=tolerance, atol=tolerance, equal_nan=True))
    return None if equal else f"\n{found}\nthe meaning is\n{wanted}"


def calls_difference(wanted: Sequence[RecordedCall], found: Sequence[RecordedCall], tolerance: float) -> str | None:
    """How calls differ: per function, in order along what orders it, in arguments; among those of one resource."""
    ours, theirs = _ordered_runs(wanted), _ordered_runs(found)
    counts = [{key: len(run) for key, run in runs.items()} for runs in (ours, theirs)]
    if counts[0] != counts[1]:
        return f"calls by function and unordered coordinates: {counts[1]}, the meaning is {counts[0]}"
    for key, run in ours.items():
        for place, (one, other) in enumerate(zip(run, theirs[key])):
            for left, right in zip(one.arguments, other.arguments, strict=True):
                problem = difference(left, right, tolerance)
                if problem:
                    return f"call {place} of {key[0]}: {problem}"
    return misordered(found)


def _ordered_runs(calls: Sequence[RecordedCall]) -> dict[tuple[str, tuple[int, ...]], list[RecordedCall]]:
    """The calls of each function at each point of the dims that do not order it."""
    runs: dict[tuple[str, tuple[int, ...]], list[RecordedCall]] = {}
    for call in calls:
        free = [dim for dim in call.function.dims if dim not in call.function.ordered]
        runs.setdefault((call.function.name, call.coordinates(free)), []).append(call)
    return runs


def misordered(calls: Sequence[RecordedCall]) -> str | None:
    """Two calls with one resource that are not in the order of the dims that order both, then of declaration."""
    for place, later in enumerate(calls):
        for earlier in calls[:place]:
            one, other = earlier.function, later.function
            if one.resource is None or one.resource != other.resource:
                continue
            shared = [dim for dim in one.ordered if dim in other.ordered]
            if one == other and set(shared) != set(one.dims):
                continue
            before, after = (call.coordinates(shared) for call in (earlier, later))
            if (before, one.rank) > (after, other.rank):
                return f"{one.name} at {before} comes before {other.name} at {after} (along {shared})"
    return None


def _fail(program: RandomProgram, mode: Mode, situation: Situation, problem: str) -> None:
    raise Disagreement(f"{mode}, {situation}\n{problem}\n\n{program.source}")
