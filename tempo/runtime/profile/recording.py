"""`with run.profile("trace.json") as profile:` - the block, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tempo.backends.tracing import Tracer
from tempo.errors import ProgramError, user_location
from tempo.runtime.profile.lines import LineProfile, Origins, Profile, profile_of
from tempo.runtime.profile.recorder import Recorder
from tempo.runtime.profile.sampler import Sampler, sampler
from tempo.runtime.profile.trace import write_trace


class Recording:
    """A block in which the runs of an executable are profiled; printed behind it, it is the table.

    `result` is the profile, once the block has ended.
    """

    def __init__(
        self,
        path: Path,
        program: str,
        tracer: Callable[[], Tracer | None],
        signals: bool,
        begin: Callable[[Recorder], None],
        end: Callable[[Profile | None], None],
    ) -> None:
        """`signals`: whether threads may be interrupted; `begin` is given what records, and raises where something
        does; `end` is given the profile."""
        self.path, self.result = path, None
        self._program, self._tracer, self._begin, self._end = program, tracer, begin, end
        self._signals = signals
        self._recorder: Recorder | None = None
        self._sampler: Sampler | None = None

    result: Profile | None

    @property
    def lines(self) -> tuple[LineProfile, ...]:
        """Those of the result."""
        if self.result is None:
            raise ProgramError("the profile has not ended", location=user_location(), hint="look behind the block")
        return self.result.lines

    def __enter__(self) -> Recording:
        if self._recorder is not None:
            raise ProgramError("a profile is recorded once", location=user_location(), hint="call run.profile again")
        recorder = Recorder(self._tracer())
        self._begin(recorder)
        self._recorder, self._sampler = recorder, sampler(recorder.take, self._signals)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._recorder is not None
        assert self._sampler is not None
        self._sampler.stop()
        try:
            self._recorder.end()
            origins = Origins()
            self.result = profile_of(self._recorder, self.path, origins)
            write_trace(self.path, self._recorder, self._program, origins)
        finally:
            self._end(self.result)

    def __str__(self) -> str:
        return f"a profile that has not ended, for {self.path}" if self.result is None else str(self.result)
