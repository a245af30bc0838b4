"""What is fused: the components of a level, each with the loops that are legal around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tempo.errors import UnsupportedError
from tempo.schedule import SchedulingProblem, Statement
from tempo.schedule.levels import DIRECTIONS, Direction, LegalLoop, components, loops
from tempo.symbolic import Symbol
from tempo_greedy.links import ActiveLink

_DEPENDENCES_SHOWN = 6

Dims = Mapping[int, tuple[Symbol, ...]]  # for each statement the dims that have no loop yet, in canonical order


@dataclass(frozen=True)
class Item:
    """Statements that must share their next loop; `options` are the loops that serve, the preferred one first.

    Without options it is one statement all of whose dims have loops.
    """

    members: tuple[int, ...]
    options: tuple[LegalLoop[int], ...]
    host: bool

    def option(self, dim: Symbol, direction: Direction) -> LegalLoop[int] | None:
        return next((loop for loop in self.options if (loop.dim, loop.direction) == (dim, direction)), None)


def items_of(
    problem: SchedulingProblem, dims: Dims, links: Sequence[ActiveLink]
) -> tuple[list[Item], Sequence[ActiveLink]]:
    """The components in an order that the links between them allow, else in the order of the problem.

    Also returns the links without those that were in the way and constrain nothing. Raises UnsupportedError with the
    dependences of a component that no loop serves.
    """
    while True:
        found = components(dims, links)
        items = [_item(problem, members, dims, inner) for members, inner in found]
        stuck = [inner for item, (_, inner) in zip(items, found) if inner and not item.options]
        if not stuck:
            return items, links
        void = {id(link) for inner in stuck for link in inner if link.is_void()}
        if not void:
            raise _unsupported(problem, stuck[0])
        links = [link for link in links if id(link) not in void]


def _item(problem: SchedulingProblem, members: tuple[int, ...], dims: Dims, inner: Sequence[ActiveLink]) -> Item:
    host = any(problem.statements[index].host for index in members)
    if inner:
        options = list(loops(members, dims, inner))
    else:
        options = [LegalLoop(dim, way, {members[0]: 0}, False) for dim in dims[members[0]] for way in DIRECTIONS]
    streamed = [loop for loop in options if loop.dim == problem.outermost]
    return Item(members, tuple(streamed[:1] or options), host)


def _unsupported(problem: SchedulingProblem, links: Sequence[ActiveLink]) -> UnsupportedError:
    lines = list(dict.fromkeys(problem.describe(link.dependence) for link in links))
    more = [f"and {len(lines) - _DEPENDENCES_SHOWN} more"] if len(lines) > _DEPENDENCES_SHOWN else []
    statements: list[Statement] = [problem.statements[index] for index in sorted({link.target for link in links})]
    names = ", ".join(statement.name for statement in statements[:_DEPENDENCES_SHOWN])
    shown = "\n".join(f"    {line}" for line in [*lines[:_DEPENDENCES_SHOWN], *more])
    return UnsupportedError(
        f"the scheduler 'greedy' finds no dim along which all dependences among {names} point one way:\n{shown}",
        hint="Such an order needs skewed or split loops, which is beyond 'greedy'; the scheduler 'polyhedral' can"
        ' find it (pip install tempo-sdg-polyhedral), and backend="reference" needs none.',
        statements=(statement.name for statement in statements),
    )
