"""`progress=` of a call: a bar, or a function that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tempo.errors import InputError

Report = Callable[[int, int], None]


@contextmanager
def reporter(progress: bool | Report) -> Iterator[Report | None]:
    """A function of (done, total) iterations, or None."""
    if callable(progress):
        yield progress
    elif progress:
        with _bar() as report:
            yield report
    else:
        yield None


@contextmanager
def _bar() -> Iterator[Report]:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise InputError("progress=True needs tqdm", hint="python -m pip install tempo-sdg[progress]") from error
    with tqdm(unit="step") as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report
