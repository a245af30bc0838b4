"""What a scheduler returns: a tree of loops, guards and runs, which prints as pseudocode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tempo.analysis.dependence.levels import Direction
from tempo.symbolic import Condition, Expr, Symbol

_INDENT = "  "
_NOTE_COLUMN = 39  # loops' notes stand in one column
_LINE = 100


@dataclass(frozen=True)
class Sequence:
    """The items, one after another."""

    items: tuple[ScheduleTree, ...] = ()

    def __str__(self) -> str:
        return render(self)


@dataclass(frozen=True)
class For:
    """`body` at `lo, ..., hi - 1`, or at `hi - 1, ..., lo` when backward. Bounds may use the loops around this one."""

    var: Symbol
    lo: Expr
    hi: Expr
    direction: Direction
    body: ScheduleTree

    def __str__(self) -> str:
        return render(self)


@dataclass(frozen=True)
class If:
    """`body` where `condition`, over the loops around it, holds."""

    condition: Condition
    body: ScheduleTree

    def __str__(self) -> str:
        return render(self)


@dataclass(frozen=True)
class Run:
    """The instance of `statement` at `point`, one expression over the loops around it per dim."""

    statement: str
    point: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        return f"{self.statement}({', '.join(map(str, self.point))})"


ScheduleTree: TypeAlias = Sequence | For | If | Run


@dataclass(frozen=True)
class Scheduled:
    """A tree, and lines for `explain()` on how it was found: what a scheduler returns that has something to tell."""

    tree: ScheduleTree
    notes: tuple[str, ...] = ()


def sequence(items: Iterable[ScheduleTree]) -> ScheduleTree:
    """A `Sequence` without sequences in it, or the item itself where there is one."""
    flat: list[ScheduleTree] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Sequence) else (item,))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def walk(tree: ScheduleTree) -> Iterator[ScheduleTree]:
    """Every node of the tree, parents first, in the order written."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, Sequence):
            pending.extend(reversed(node.items))
        elif isinstance(node, For | If):
            pending.append(node.body)


def runs(tree: ScheduleTree) -> Iterator[Run]:
    """Every `Run` of the tree, in the order written."""
    return (node for node in walk(tree) if isinstance(node, Run))


def render(tree: ScheduleTree, note: Callable[[For], str | None] | None = None) -> str:
    """The tree as pseudocode; `note` gives what stands as a comment beside a loop (lowering: host or device).

    for i in 0..i.size:                    # host
      for t in 0..t.size:                  # device
        act(i, t); env(i, t)
      learn(i)
    """
    return "\n".join(_lines(tree, 0, note or (lambda loop: None)))


def _lines(tree: ScheduleTree, depth: int, note: Callable[[For], str | None]) -> Iterator[str]:
    indent = _INDENT * depth
    if isinstance(tree, Run):
        yield f"{indent}{tree}"
    elif isinstance(tree, Sequence):
        yield from _block(tree, depth, note)
    elif isinstance(tree, If):
        yield f"{indent}if {tree.condition}:"
        yield from _block(tree.body, depth + 1, note)
    else:
        span = f"{tree.lo}..{tree.hi}" if tree.direction == "forward" else f"{tree.hi}..{tree.lo} backwards"
        head, comment = f"{indent}for {tree.var.name} in {span}:", note(tree)
        yield f"{head:<{_NOTE_COLUMN}}# {comment}" if comment else head
        yield from _block(tree.body, depth + 1, note)


def _block(tree: ScheduleTree, depth: int, note: Callable[[For], str | None]) -> Iterator[str]:
    """The lines of a body: neighbouring runs share a line as long as it is short."""
    items = tree.items if isinstance(tree, Sequence) else (tree,)
    if not items:
        yield f"{_INDENT * depth}pass"
    line = ""
    for item in items:
        if isinstance(item, Run) and line and len(line) + len(str(item)) + 2 <= _LINE:
            line += f"; {item}"
            continue
        if line:
            yield line
            line = ""
        if isinstance(item, Run):
            line = f"{_INDENT * depth}{item}"
        else:
            yield from _lines(item, depth, note)
    if line:
        yield line
