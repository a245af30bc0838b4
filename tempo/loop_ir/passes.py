"""What passes on LoopIR are given, and what the pass manager knows of LoopIR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from tempo.costs import EAGER, Costs
from tempo.loop_ir.ir import Compute, LoopProgram, walk
from tempo.loop_ir.verify import verify
from tempo.passes.manager import IR, PassOn
from tempo.plugins.descriptors import Exclusion
from tempo.symbolic import Symbol

MOST_POINTS = 32
"""Of a streamed input that are taken at once."""


Offload = Literal["kept", "all"] | None
"""What goes to a pool on the host: what one loop keeps for a later one; or that, inputs, and what the iterations of a
loop hand on to one another."""


class Narrow(NamedTuple):
    """Outputs, by name, of which a caller takes the points along `dim` as they come: `width` of them are kept."""

    outputs: tuple[str, ...]
    dim: Symbol
    width: int


def count(program: LoopProgram) -> Mapping[str, int]:
    """How many statements there are of each operator, and of each other kind."""
    return Counter(each.op if isinstance(each, Compute) else type(each).__name__ for each in program.statements())


def _has_all(op: str, *dtypes: str) -> Exclusion | None:
    return None


@dataclass(frozen=True)
class LoopContext:
    """`sizes`: those that shapes are made of, none where a pass is for all of them.

    The rest is what there is to know of the backend (`tempo.backends.base.Backend`), with what it excludes and why, and
    of the run: `whole`: nobody runs its loops in chunks; `ahead`: so many arrays of a streamed input may be taken at
    once; `narrow`: outputs that are taken as they come; `offload`: what goes to a host pool.
    """

    sizes: Mapping[Symbol, int] = field(default_factory=dict)
    costs: Costs = EAGER
    fuses_segments: bool = False
    allocates_inside: bool = False
    why_not: Callable[..., Exclusion | None] = _has_all
    whole: bool = True
    ahead: int = MOST_POINTS
    narrow: Narrow | None = None
    offload: Offload = None

    @property
    def ir(self) -> IR[LoopProgram]:
        return IR("program", "statements", count, partial(verify, sizes=self.sizes))

    def lacking(self, program: LoopProgram) -> Exclusion | None:
        """The first operator of the program that the backend declares not to have."""
        computed = (each for segment in program.segments for each in walk(segment.body) if isinstance(each, Compute))
        types = ((each.op, dict.fromkeys(type.dtype for type in (each.type, *each.operand_types))) for each in computed)
        return next((found for op, dtypes in types if (found := self.why_not(op, *dtypes)) is not None), None)


LoopPass = PassOn[LoopProgram, LoopContext]
