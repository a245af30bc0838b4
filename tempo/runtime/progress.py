"""`progress=` of a call: a bar, or a function that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tempo.errors import InputError, MissingPackageError
from tempo.waiting import told

Report = Callable[[int, int], None]


def reporter(progress: bool | Report | None) -> AbstractContextManager[Report | None]:
    """Gives a function of (done, total) iterations, or None. Raises `InputError` for what says neither."""
    given: Any = progress
    if callable(given):
        return nullcontext(given)
    if not isinstance(given, bool | None):
        hint = "write progress=True for a bar, or give a function of (done, total)"
        raise InputError(f"progress={given!r} is a {type(given).__name__}", hint=hint)
    return _bar(_tqdm()) if given else nullcontext(None)


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        hint = "install it with: python -m pip install 'tempo-sdg[progress]'"
        raise MissingPackageError("progress=True needs tqdm", hint=hint) from error
    return tqdm


@contextmanager
def _bar(tqdm: Any) -> Iterator[Report]:
    with tqdm(unit="step") as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.set_description_str("", refresh=False)
            bar.update(done - bar.n)

        with told(bar.set_description_str):
            yield report
