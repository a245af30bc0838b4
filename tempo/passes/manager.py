"""The pass manager: runs passes on either IR, times, prints, checks, stops and leaves out."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TextIO, TypeVar

from tempo.analysis.demand.demand import Demand, demand
from tempo.analysis.demand.images import Readers
from tempo.errors import InputError, InternalError, TempoError, nearest
from tempo.logs import say
from tempo.sdg.graph import Graph
from tempo.sdg.operators import OPERATORS
from tempo.sdg.validate import validate
from tempo.symbolic import TRUE, Condition, Context, Symbol

P = TypeVar("P")
C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True)
class IR(Generic[P]):
    """What the manager knows of an IR: how many there are of each operator in a program, and what raises InternalError
    where one breaks an invariant."""

    name: str
    items: str  # what programs are made of
    count: Callable[[P], Mapping[str, int]]
    check: Callable[[P], None]


def count(graph: Graph) -> Mapping[str, int]:
    """How many nodes there are of each operator."""
    return Counter(node.op for node in graph.nodes.values())


SDG: IR[Graph] = IR("graph", "nodes", count, validate)


@dataclass(frozen=True)
class PassContext:
    """What passes may rely on beyond the graph: sizes, relations between them, and what was found out about graphs.

    `sizes` are those to count costs with; what is compiled is right at all others, too. `fixed` holds what rewriting
    ended with last: a pass that follows may change nothing.
    """

    ir: ClassVar[IR[Graph]] = SDG
    sizes: Mapping[Symbol, int] = field(default_factory=dict)
    facts: Condition = TRUE
    fixed: list[tuple[Graph, object, object]] = field(default_factory=list, compare=False, repr=False)
    _contexts: dict[object, Context] = field(default_factory=dict, compare=False, repr=False)
    _demands: list[tuple[Graph, Mapping[int, Demand]]] = field(default_factory=list, compare=False, repr=False)
    _readers: dict[Condition, Readers] = field(default_factory=dict, compare=False, repr=False)

    def is_fixed(self, graph: Graph, *how: object) -> bool:
        """Whether the last sweeps that ended did so with this very graph, and did the same."""
        return any(known is graph and list(rest) == list(how) for known, *rest in self.fixed)

    def demand(self, graph: Graph) -> Mapping[int, Demand]:
        """The demand of `graph`; that of the last one asked for is remembered: passes that change nothing share it."""
        if not self._demands or self._demands[-1][0] is not graph:
            self._demands[:] = [(graph, demand(graph, self.facts, self.readers(self.facts)))]
        return self._demands[-1][1]

    def readers(self, facts: Condition) -> Readers:
        """What the demands of all graphs of this compile share."""
        return self._readers.setdefault(facts, Readers(facts))

    def over(self, graph: Graph, domain: tuple[Symbol, ...]) -> Context:
        """The facts that hold at every point of `domain`. One object per domain, because contexts memoise."""
        key = tuple(graph.dim(symbol) for symbol in domain)
        if key not in self._contexts:
            facts = () if self.facts == TRUE else (self.facts,)
            self._contexts[key] = Context.of(key, *facts)
        return self._contexts[key]


@dataclass(frozen=True)
class Decided(Generic[P]):
    """A program, and what a pass that chooses between ways to run it chose, for `explain()`."""

    program: P
    decisions: tuple[object, ...]


class PassOn(Protocol[P, C_contra]):
    """A frozen dataclass: its fields are the pass's options, `name` is what users call it.

    One that cannot be left out has a class variable `needed`, which says what for.
    """

    @property
    def name(self) -> str: ...

    def apply(self, program: P, context: C_contra, /) -> P | Decided[P]: ...


Pass = PassOn[Graph, PassContext]


def needed(chosen: PassOn[Any, Any]) -> str | None:
    """What relies on the pass; None for one that may be left out."""
    return getattr(chosen, "needed", None)


Forced = str | int | Mapping[str, str | int] | None
"""How the user has dims run, whatever it costs (`tp.Options(mapping=...)`); None where it is ours to decide."""


def forced(mapping: Forced, dim: str) -> str | int | None:
    """How the user has one dim run."""
    return mapping.get(dim) if isinstance(mapping, Mapping) else mapping


def configured(passes: Iterable[PassOn[P, C]], **options: Any) -> tuple[PassOn[P, C], ...]:
    """The passes, each with those of the options that it has fields for."""
    return tuple(_with_options(each, options) for each in passes)


def _with_options(chosen: Any, options: Mapping[str, Any]) -> Any:
    known = [each.name for each in fields(chosen)] if is_dataclass(chosen) else []
    return replace(chosen, **{name: options[name] for name in known if name in options}) if known else chosen


class ContextOf(Protocol[P]):
    """What passes are given beside the program: options, facts, and what the IR is."""

    @property
    def ir(self) -> IR[P]: ...


@dataclass(frozen=True)
class PassRecord:
    """One run of one pass, for `explain()`. `seconds` is wall-clock time, `before` and `after` count by operator.

    `programs`: what it was given and what it made, where the manager keeps them.
    """

    name: str
    seconds: float
    before: Mapping[str, int]
    after: Mapping[str, int]
    items: str = "nodes"
    decisions: tuple[object, ...] = ()
    programs: tuple[Any, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def nodes_before(self) -> int:
        return sum(self.before.values())

    @property
    def nodes_after(self) -> int:
        return sum(self.after.values())

    def __str__(self) -> str:
        return f"{self.name:<20} {self.seconds * 1e3:9.2f} ms   {self.nodes_before} -> {self.nodes_after} {self.items}"


@dataclass(frozen=True)
class PassManager:
    """Runs passes in order; `passes` are all there are, on all IRs.

    `disabled` are left out, `printed` are printed before and after to `stream` (stderr), after `stop_after` only what
    is needed runs, and with `debug` every pass's result is checked. `keeps`: records have the programs themselves.
    """

    passes: tuple[PassOn[Any, Any], ...]
    disabled: frozenset[str] = frozenset()
    printed: frozenset[str] = frozenset()
    stop_after: str | None = None
    debug: bool = False
    stream: TextIO | None = None
    keeps: bool = False

    @staticmethod
    def configured(
        passes: Sequence[PassOn[Any, Any]],
        disable: Iterable[str] = (),
        debug: bool | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> PassManager:
        """Arguments and the variables TEMPO_DISABLE_PASSES, TEMPO_PRINT, TEMPO_STOP_AFTER, TEMPO_DEBUG together."""
        return PassManager(
            tuple(passes),
            frozenset(disable) | _names(environment.get("TEMPO_DISABLE_PASSES", "")),
            _names(environment.get("TEMPO_PRINT", "")),
            environment.get("TEMPO_STOP_AFTER") or None,
            environment.get("TEMPO_DEBUG", "0") not in {"", "0"} if debug is None else debug,
        )

    def run(
        self, program: P, context: ContextOf[P], passes: Sequence[PassOn[P, Any]] | None = None
    ) -> tuple[P, tuple[PassRecord, ...]]:
        """The program after `passes`, adjacent ones of the manager's (None: all), and what each took.

        Raises InputError when a pass that is named in the configuration does not exist or cannot be left out,
        InternalError when a pass fails or (with `debug`) makes a wrong program; errors of the user's program come
        through unchanged.
        """
        self.check_names()
        chosen = self.passes if passes is None else passes
        if self.debug:
            context.ir.check(program)
        records, stopped = [], self._is_stopped_before(chosen)
        for each in chosen:
            if needed(each) is None and (stopped or each.name in self.disabled):
                continue
            program, record = self._run_one(each, program, context)
            records.append(record)
            stopped = stopped or each.name == self.stop_after
        return program, tuple(records)

    def _is_stopped_before(self, passes: Sequence[PassOn[Any, Any]]) -> bool:
        names = [each.name for each in self.passes]
        return bool(passes) and self.stop_after in names[: names.index(passes[0].name)]

    def _run_one(self, chosen: PassOn[P, Any], program: P, context: ContextOf[P]) -> tuple[P, PassRecord]:
        self._print(chosen.name, "before", program)
        start = time.perf_counter()
        made = _apply(chosen, program, context)
        result, decisions = (made.program, made.decisions) if isinstance(made, Decided) else (made, ())
        seconds = time.perf_counter() - start
        self._print(chosen.name, "after", result)
        if self.debug and result is not program:
            _check_result(chosen, program, result, context.ir)
        count = context.ir.count
        programs = (program, result) if self.keeps else None
        record = PassRecord(chosen.name, seconds, count(program), count(result), context.ir.items, decisions, programs)
        say("passes", lambda: "\n".join(map(str, (record, *decisions))))
        return result, record

    def _print(self, name: str, when: str, program: object) -> None:
        if name in self.printed:
            (self.stream or sys.stderr).write(f"# {when} {name}\n{program}\n")

    def check_names(self) -> None:
        """Raises InputError for a name in the configuration, or in the environment, that no pass has, and for one that
        is to be left out and cannot be."""
        existing = {chosen.name: needed(chosen) for chosen in self.passes}
        wanted = self.disabled | self.printed | ({self.stop_after} if self.stop_after else set())
        for name in sorted(wanted - existing.keys()):
            raise InputError(f"no pass is named {name!r}", hint=nearest(name, existing, "passes"))
        for name in sorted(self.disabled):
            if existing[name] is not None:
                raise InputError(f"the pass {name!r} cannot be left out: {existing[name]}")


def operator_table(records: Sequence[PassRecord]) -> str:
    """Of the graph: a row per operator whose number changed, contractions first: as written, and after each pass that
    changed any."""
    records = [record for record in records if record.items == SDG.items]
    if not records:
        return "no pass ran"
    columns = [("as written", records[0].before)]
    columns += [(record.name, record.after) for record in records if record.before != record.after]
    names = {name for _, counts in columns for name in counts}
    changed = [name for name in names if len({counts.get(name, 0) for _, counts in columns}) > 1]
    rows = [["", *(title for title, _ in columns)]]
    for name in sorted(changed, key=lambda name: (OPERATORS[name].kind != "contraction", name)):
        rows.append([name, *(str(counts.get(name, 0)) for _, counts in columns)])
    return "\n".join("".join([f"{row[0]:<16}", *(f"{cell:>20}" for cell in row[1:])]) for row in rows)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _apply(chosen: PassOn[P, Any], program: P, context: ContextOf[P]) -> P | Decided[P]:
    noun = context.ir.name
    try:
        return chosen.apply(program, context)
    except InternalError as error:
        error.add_note(f"in the pass {chosen.name!r}, on the {noun}\n{program}")
        raise
    except TempoError:
        raise
    except Exception as error:
        failure = InternalError(f"the pass {chosen.name!r} failed: {type(error).__name__}: {error}")
        failure.add_note(f"on the {noun}\n{program}")
        raise failure from error


def _check_result(chosen: PassOn[P, Any], before: P, result: P, ir: IR[P]) -> None:
    try:
        ir.check(result)
    except InternalError as error:
        error.add_note(f"after the pass {chosen.name!r}\n{result}\n# before it\n{before}")
        raise
