"""Fewer dims as axes where a plan is refused: no program is, that can be run with loops over all of its dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tempo.errors import UnsupportedError
from tempo.lowering.plan import Plan

Mapped = str | int | Mapping[str, str | int] | None


def with_fewer_axes(planned: Callable[[Mapped], Plan], mapping: Mapped, dims: Sequence[str]) -> Plan:
    """What `planned` makes of `mapping`; where it refuses that, with a loop over one of `dims`, or over all of them.

    Raises what it refused first where a loop over each dim does not help.
    """
    try:
        return planned(mapping)
    except UnsupportedError as error:
        refused = error
    ways = {dim: mapping.get(dim) if isinstance(mapping, Mapping) else mapping for dim in dims}
    open_dims = [dim for dim in dims if ways[dim] != "sequential"]
    found = _tried(planned, ways, open_dims) if open_dims else None
    if found is None:
        raise refused
    looped = open_dims
    for dim in reversed(open_dims) if len(open_dims) > 1 else ():
        smaller = _tried(planned, ways, [dim])
        if smaller is not None:
            found, looped = smaller, [dim]
            break
    why = f"{', '.join(looped)}: sequential, since with axes the plan is refused: {refused.message}"
    return replace(found, decisions=(why, *found.decisions))


def _tried(
    planned: Callable[[Mapped], Plan], ways: Mapping[str, str | int | None], looped: Sequence[str]
) -> Plan | None:
    """The plan with loops over some dims, if there is one."""
    mapping = {dim: "sequential" if dim in looped else way for dim, way in ways.items()}
    try:
        return planned({dim: way for dim, way in mapping.items() if way is not None})
    except UnsupportedError:
        return None
