"""What a run gives at its end, and what can be seen of it before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tempo.errors import BackendCallError, HostCallError, TempoError
from tempo.passes.instrument.finite_checks import WATCH
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
    found: dict[str, Arrays] = {"": {}, "state": {}}
    for key, id in run.compiled.program.outputs.items():
        role, colon, name = key.partition(":")
        if not colon or role not in ("state", "stop", WATCH):  # an output of the user's, whose name may hold a colon
            role, name = "", key
        if role in found and not (role == "" and name in without):
            found[role][name] = run.output(id)
    kept = {dim: run.kept(slot) for dim, slot in run.compiled.stops.items()}
    return Results(found[""], found["state"], {dim: count for dim, count in kept.items() if count}, watched(run))


def watched(run: ProgramRun) -> Arrays:
    """What the outputs of role "watch" hold so far, as far as there is anything of them."""
    prefix, backend = f"{WATCH}:", run.compiled.backend
    outputs = run.compiled.program.outputs.items()
    held = {key: id for key, id in outputs if key.startswith(prefix) and run.buffers[id] is not None}
    return {key.removeprefix(prefix): backend.to_host(run.output(id)) for key, id in held.items()}
