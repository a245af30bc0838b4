"""Fewer dims as axes where a plan is refused: no program is, that can be run with loops over all of its dims.

Last of all, without the passes that code can do without: they may make operators that a backend has not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tempo.compiler.plan import Plan
from tempo.errors import UnsupportedError
from tempo.passes.manager import Forced, forced


def with_fewer_axes(
    planned: Callable[[Forced], Plan], mapping: Forced, dims: Sequence[str], as_written: Callable[[], Plan]
) -> Plan:
    """What `planned` makes of `mapping`; where it refuses that, with a loop over one of `dims`, or over all of them, or
    what `as_written` makes, without passes.

    Raises what it refused first where that does not help.
    """
    try:
        return planned(mapping)
    except UnsupportedError as error:
        refused = error
    ways = {dim: forced(mapping, dim) for dim in dims}
    open_dims = [dim for dim in dims if ways[dim] != "sequential"]
    found = _tried(planned, ways, open_dims) if open_dims else None
    if found is None:
        try:
            return _explained(as_written(), "no pass is run that may be left out, since with them", refused)
        except UnsupportedError:
            raise refused from None
    looped = open_dims
    for dim in reversed(open_dims) if len(open_dims) > 1 else ():
        smaller = _tried(planned, ways, [dim])
        if smaller is not None:
            found, looped = smaller, [dim]
            break
    return _explained(found, f"{', '.join(looped)}: sequential, since with axes", refused)


def _explained(plan: Plan, what: str, refused: UnsupportedError) -> Plan:
    return replace(plan, decisions=(f"{what} the plan is refused: {refused.message}", *plan.decisions))


def _tried(
    planned: Callable[[Forced], Plan], ways: Mapping[str, str | int | None], looped: Sequence[str]
) -> Plan | None:
    """The plan with loops over some dims, if there is one."""
    mapping = {dim: "sequential" if dim in looped else way for dim, way in ways.items()}
    try:
        return planned({dim: way for dim, way in mapping.items() if way is not None})
    except UnsupportedError:
        return None
