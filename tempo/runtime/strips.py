"""Loops of the host in strips: see `tempo.loop_ir.transforms.read_ahead`."""

from __future__ import annotations

from collections.abc import Callable

from tempo.errors import TempoError


def in_strips(
    start: int,
    stop: int,
    strip: int,
    back: int,
    renew: Callable[[], None],
    take: Callable[[int], None],
    run: Callable[[int, int], None],
) -> None:
    """`take` for each point of `start <= i < stop`, and `run(first, end)` for all of them, `strip` at a time.

    The last `back` of them are run one by one, and so are the last before a `take` that fails, whose error is raised
    when all points before it have been run. So nothing of these is lost, and each of the last is remembered. `renew` is
    called before more is taken: what a run was given may still be read.
    """
    done = taken = start
    failure: TempoError | None = None
    while taken < stop and failure is None:
        renew()
        end = min(done + strip, stop)
        try:
            while taken < end:
                take(taken)
                taken += 1
        except TempoError as error:  # raised below
            failure = error
        if taken - back > done:
            run(done, taken - back)
            done = taken - back
    for at in range(done, taken):
        run(at, at + 1)
    if failure is not None:
        raise failure
