"""The pass manager: runs a list of passes, times, prints, validates, stops and leaves out."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from tempo.analysis.demand.demand import Demand, demand
from tempo.errors import InputError, InternalError, TempoError, nearest
from tempo.sdg.graph import Graph
from tempo.sdg.operators import OPERATORS
from tempo.sdg.validate import validate
from tempo.symbolic import TRUE, Condition, Context, Symbol


@dataclass(frozen=True)
class PassContext:
    """What passes may rely on beyond the graph: options of the compile, relations between sizes.

    `sizes` are those to count costs with; what is compiled is right at all others, too. `fixed` holds what rewriting
    ended with last: a pass that follows may change nothing. `decisions` is where a pass that chooses between ways to
    run a program says what it chose, for `explain()`.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[Symbol, int] = field(default_factory=dict)
    facts: Condition = TRUE
    decisions: list[object] = field(default_factory=list, compare=False, repr=False)
    fixed: list[tuple[Graph, object, object]] = field(default_factory=list, compare=False, repr=False)
    _contexts: dict[object, Context] = field(default_factory=dict, compare=False, repr=False)
    _demands: list[tuple[Graph, Mapping[int, Demand]]] = field(default_factory=list, compare=False, repr=False)

    def is_fixed(self, graph: Graph, *how: object) -> bool:
        """Whether the last sweeps that ended did so with this very graph, and did the same."""
        return any(known is graph and list(rest) == list(how) for known, *rest in self.fixed)

    def demand(self, graph: Graph) -> Mapping[int, Demand]:
        """The demand of `graph`; that of the last one asked for is remembered: passes that change nothing share it."""
        if not self._demands or self._demands[-1][0] is not graph:
            self._demands[:] = [(graph, demand(graph, self.facts))]
        return self._demands[-1][1]

    def forced(self, dim: Symbol) -> str | int | None:
        """How the user has the dim run, whatever it costs; None where it is ours to decide (`tp.Options`)."""
        mapping = self.options.get("mapping")
        forced: str | int | None = mapping.get(dim.name) if isinstance(mapping, Mapping) else mapping
        return forced

    def over(self, graph: Graph, domain: tuple[Symbol, ...]) -> Context:
        """The facts that hold at every point of `domain`. One object per domain, because contexts memoise."""
        key = tuple(graph.dim(symbol) for symbol in domain)
        if key not in self._contexts:
            facts = () if self.facts == TRUE else (self.facts,)
            self._contexts[key] = Context.of(key, *facts)
        return self._contexts[key]


class Pass(Protocol):
    """A frozen dataclass: its fields are the pass's options, `name` is what users call it."""

    @property
    def name(self) -> str: ...

    def apply(self, graph: Graph, context: PassContext) -> Graph: ...


@dataclass(frozen=True)
class PassRecord:
    """One run of one pass, for `explain()`. `seconds` is wall-clock time, `before` and `after` count by operator."""

    name: str
    seconds: float
    before: Mapping[str, int]
    after: Mapping[str, int]

    @property
    def nodes_before(self) -> int:
        return sum(self.before.values())

    @property
    def nodes_after(self) -> int:
        return sum(self.after.values())

    def __str__(self) -> str:
        return f"{self.name:<16} {self.seconds * 1e3:9.2f} ms   {self.nodes_before} -> {self.nodes_after} nodes"


@dataclass(frozen=True)
class PassManager:
    """Runs `passes` in order.

    `disabled` are left out, `printed` are printed before and after to `stream` (stderr), nothing runs after
    `stop_after`, and with `debug` every pass's result is validated.
    """

    passes: tuple[Pass, ...]
    disabled: frozenset[str] = frozenset()
    printed: frozenset[str] = frozenset()
    stop_after: str | None = None
    debug: bool = False
    stream: TextIO | None = None

    @staticmethod
    def configured(
        passes: Sequence[Pass],
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

    def run(self, graph: Graph, context: PassContext) -> tuple[Graph, tuple[PassRecord, ...]]:
        """The graph after the passes, and what each took.

        Raises InputError when a pass that is named in the configuration does not exist, InternalError when a pass
        fails or (with `debug`) makes an invalid graph; errors of the user's program come through unchanged.
        """
        self.check_names()
        if self.debug:
            validate(graph)
        records = []
        for chosen in self.passes:
            if chosen.name in self.disabled:
                continue
            graph, record = self._run_one(chosen, graph, context)
            records.append(record)
            if chosen.name == self.stop_after:
                break
        return graph, tuple(records)

    def _run_one(self, chosen: Pass, graph: Graph, context: PassContext) -> tuple[Graph, PassRecord]:
        self._print(chosen.name, "before", graph)
        start = time.perf_counter()
        result = _apply(chosen, graph, context)
        seconds = time.perf_counter() - start
        self._print(chosen.name, "after", result)
        if self.debug:
            _validate_result(chosen, graph, result)
        return result, PassRecord(chosen.name, seconds, count(graph), count(result))

    def _print(self, name: str, when: str, graph: Graph) -> None:
        if name in self.printed:
            (self.stream or sys.stderr).write(f"# {when} {name}\n{graph}\n")

    def check_names(self) -> None:
        """Raises InputError for a name in the configuration, or in the environment, that no pass has."""
        existing = {chosen.name for chosen in self.passes}
        wanted = self.disabled | self.printed | ({self.stop_after} if self.stop_after else set())
        for name in sorted(wanted - existing):
            raise InputError(f"no pass is named {name!r}", hint=nearest(name, existing, "passes"))


def count(graph: Graph) -> Mapping[str, int]:
    """How many nodes there are of each operator."""
    return Counter(node.op for node in graph.nodes.values())


def operator_table(records: Sequence[PassRecord]) -> str:
    """A row per operator whose number changed, contractions first: as written, and after each pass that changed any."""
    if not records:
        return "no pass ran"
    columns = [("as written", records[0].before)]
    columns += [(record.name, record.after) for record in records if record.before != record.after]
    names = {name for _, counts in columns for name in counts}
    changed = [name for name in names if len({counts.get(name, 0) for _, counts in columns}) > 1]
    rows = [["", *(title for title, _ in columns)]]
    for name in sorted(changed, key=lambda name: (OPERATORS[name].kind != "contraction", name)):
        rows.append([name, *(str(counts.get(name, 0)) for _, counts in columns)])
    return "\n".join("".join([f"{row[0]:<16}", *(f"{cell:>15}" for cell in row[1:])]) for row in rows)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _apply(chosen: Pass, graph: Graph, context: PassContext) -> Graph:
    try:
        return chosen.apply(graph, context)
    except InternalError as error:
        error.add_note(f"in the pass {chosen.name!r}, on the graph\n{graph}")
        raise
    except TempoError:
        raise
    except Exception as error:
        failure = InternalError(f"the pass {chosen.name!r} failed: {type(error).__name__}: {error}")
        failure.add_note(f"on the graph\n{graph}")
        raise failure from error


def _validate_result(chosen: Pass, graph: Graph, result: Graph) -> None:
    try:
        validate(result)
    except InternalError as error:
        error.add_note(f"after the pass {chosen.name!r}\n{result}\n# before it\n{graph}")
        raise
