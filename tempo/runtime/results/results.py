"""What a run gives at its end, and what can be seen of it before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tempo.errors import BackendCallError, HostCallError, TempoError
from tempo.runtime.compiled import ProgramRun

Arrays = dict[str, Any]
Look = Callable[[Arrays, bool], None]
"""Raises where what is watched is not finite; told whether there is more to come."""


class Results(NamedTuple):
    """What a run gives by name: outputs, parameters at its end, and the points kept along dims that it ended early.

    `watched`: the outputs of role "watch", as NumPy's.
    """

    outputs: Arrays
    state: Arrays
    kept: dict[str, int]
    watched: Arrays


@contextmanager
def looking_after(so_far: Callable[[], Arrays], look: Look | None) -> Iterator[None]:
    """Inside, a call that fails may do so because of what it was given: what is not finite is raised in its place."""
    try:
        yield
    except (HostCallError, BackendCallError) as error:
        if look is not None:
            try:
                look(so_far(), False)
            except TempoError as found:
                found.outputs, found.state = error.outputs, error.state
                raise
        raise


def collect(run: ProgramRun, without: Collection[str] = ()) -> Results:
    """What a run that has ended gives; of outputs over a dim that the caller has taken bit by bit, nothing."""
    run.compiled.backend.synchronize()
    outputs = run.compiled.program.outputs.items()
    taken = {port.name: run.output(id) for port, id in outputs if port.role == "output" and port.name not in without}
    states = {port.name: run.output(id) for port, id in outputs if port.role == "state"}
    kept = {dim: run.kept(slot) for dim, slot in run.compiled.stops.items()}
    return Results(taken, states, {dim: count for dim, count in kept.items() if count}, watched(run))


def watched(run: ProgramRun) -> Arrays:
    """What the outputs of role "watch" hold so far, as far as there is anything of them."""
    outputs = run.compiled.program.outputs.items()
    held = ((port.name, id) for port, id in outputs if port.role == "watch" and run.buffers[id] is not None)
    return {name: run.compiled.backend.to_host(run.output(id)) for name, id in held}
