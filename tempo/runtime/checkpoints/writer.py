"""Writing beside a run: one thread, and at most one checkpoint in flight."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Writer:
    """`with Writer() as writer:` what is given to it is done in its order; leaving waits for the last.

    What one raises is raised where the next is given, or at the end.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "tempo-checkpoint")
        self._last: Future[None] | None = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        if error is None:
            self._wait()
        elif self._last is not None and (own := self._last.exception()) is not None and own is not error:
            error.add_note(f"and the last checkpoint was not written: {own}")

    def give(self, write: Callable[[], None]) -> None:
        """Returns when it is begun, which is when the one before is done."""
        self._wait()
        self._last = self._thread.submit(write)

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()
