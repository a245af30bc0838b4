"""The default pipeline: every pass of the core, in order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo.errors import TempoError
from tempo.passes.composites import Compose, Decompose
from tempo.passes.manager import Pass
from tempo.passes.pipelining.pipelining import Pipelining
from tempo.passes.ragged.static_extents import StaticExtents
from tempo.passes.recompute.axes import FoldBlocks
from tempo.passes.recompute.recompute import Recompute
from tempo.passes.recurrence.prefix import Accumulate, Recurrences
from tempo.passes.rewrite.driver import DeadCodeElimination
from tempo.passes.rewrite.patterns import Rule
from tempo.passes.simplify.cse import CommonSubexpressions
from tempo.passes.simplify.resolve_cases import Decide
from tempo.passes.simplify.simplify import Canonicalize, Simplify
from tempo.passes.splitting.index_set_split import Split
from tempo.passes.storage import ElementReads, MaterialiseOutputs
from tempo.passes.vectorize.search import Lift


def default_passes() -> tuple[Pass, ...]:
    return (
        Decompose(),
        Canonicalize(),
        Decide(),
        Simplify(),
        CommonSubexpressions(),
        DeadCodeElimination(),
        Pipelining(),
        Recurrences(),
        Accumulate(),
        Recompute(),
        FoldBlocks(),
        Simplify(),  # what single steps are made of
        Split(),
        Lift(),
        Simplify(),  # what lifting inserts: transpositions, reshapes, broadcasts
        Compose(),
        StaticExtents(),
        MaterialiseOutputs(),
        ElementReads(),
    )


@dataclass
class PassRegistry:
    """The passes of one compile. Plugins get it in `tempo_register_passes` and may add theirs."""

    passes: list[Pass] = field(default_factory=lambda: list(default_passes()))

    def add(self, added: Pass, *, before: str | None = None, after: str | None = None) -> None:
        """Adds a pass next to the first of the given name, or at the end.

        Raises TempoError when there is none of that name.
        """
        name, names = before or after, [known.name for known in self.passes]
        if name and name not in names:
            raise TempoError(f"no pass is named {name!r}", hint=f"passes: {', '.join(names)}")
        position = names.index(name) + (before is None) if name else len(names)
        self.passes.insert(position, added)

    def add_rules(self, *rules: Rule) -> None:
        """Adds rewrite rules to every `simplify`; they are tried after those of the core."""
        for position, known in enumerate(self.passes):
            if isinstance(known, Simplify):
                self.passes[position] = replace(known, extra=known.extra + rules)
