"""What happens in runs while they are profiled: calls, stretches of the driver's items, samples and looks.

Items are run in stretches (`ProgramRun`): whole, or a loop in chunks. A sample stands for the time since the one
before, as far as a stretch ran. What is over when a stretch ends is carried on to the next, so that runs of less than a
sample's period are seen, too, each as often as it takes.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from tempo.backends.tracing import Origin, TracedEvent, Tracer
from tempo.runtime.profile.looks import LEAST, Looks, Seen
from tempo.waiting import surrounded

if TYPE_CHECKING:
    from tempo.runtime.compiled import Compiled
    from tempo.runtime.program_run import ProgramRun

RECORDER: ContextVar[Recorder | None] = ContextVar("tempo_recorder", default=None)
"""Of the call that this thread makes."""
Place = tuple[str, int]
"""The name of the file of generated source, and the line."""
MOST_EVENTS = 300_000
"""That are kept for the trace, of each kind; the table is of all."""
_CHUNK = 0.05  # seconds of a loop between which there may be a look
_GROWS = 100  # times the steps of the stretch before
_MOST_UNREAD = 8  # looks, of which the profiler's own records are kept
_MUCH = 0.1  # of the time: what an item takes at least to be worth a look


@dataclass(eq=False)
class ItemTimes:
    """What is known of one item of a program's driver. `rate`: seconds a step, with no look; `looked`: seconds that
    looks have seen, of `seconds`; `own`: what the backend's profiler says of operators."""

    code: Compiled
    number: int
    seconds: float = 0.0
    rate: float | None = None
    steps: int = 0
    looked: float = 0.0
    sampled: dict[Place | None, float] = field(default_factory=dict)
    own: dict[Origin | str, float] = field(default_factory=dict)


@dataclass
class Span:
    """Something that took from `start` to `end`; `place` is that of samples."""

    name: str
    start: float
    end: float
    times: ItemTimes | None = None
    place: Place | None = None


class Recorder:
    """Of one thread. Its methods are called by that one, and `take` by a handler of signals, or by another thread."""

    def __init__(self, tracer: Tracer | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.thread, self.is_over = threading.get_ident(), False
        self.looks = None if tracer is None else Looks(tracer)
        self.calls, self.samples, self.call_seconds, self.waited = 0, 0, 0.0, 0.0
        self.spans: list[Span] = []
        """Of the thread, each within the others or apart from them."""
        self.traced: list[tuple[float, TracedEvent]] = []
        """With the time from which their start is counted."""
        self._clock, self._items = clock, dict[tuple[int, int], ItemTimes]()
        self._times: ItemTimes | None = None  # of the stretch that runs; None while it waits
        self._since = self._last = self._carried = 0.0
        self._sample: Span | None = None
        self._in_call = self._in_stretch = False
        self._ran: list[tuple[float, ItemTimes]] = []  # the stretches of the look that is open, by when they began
        self._unread = deque[tuple[Seen, Sequence[tuple[float, ItemTimes]]]]()
        self._may_look = True
        self._whole_call = 0.0  # seconds of the last one
        self.began = clock()

    @property
    def items(self) -> Sequence[ItemTimes]:
        return tuple(self._items.values())

    @property
    def _is_elsewhere(self) -> bool:
        """Whether what runs is not to be recorded: in another thread, or when the block has ended."""
        return self.is_over or threading.get_ident() != self.thread

    def end(self) -> None:
        """Nothing is recorded any more, and what looks have seen is read."""
        self.is_over = True
        while self._unread:
            self._read(*self._unread.popleft())

    # -- calls and stretches -----------------------------------------------------------------------------------------

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Around a call of the executable. One that a call of the host makes in the middle is part of that."""
        if self._is_elsewhere or self._in_call:
            yield
            return
        token, self._in_call, began = RECORDER.set(self), True, self._clock()
        spent, waited = self._spent, self.waited
        try:
            with surrounded(self._waiting):
                yield
        finally:
            self._end_look()
            RECORDER.reset(token)
            self._in_call, ended = False, self._clock()
            self.calls += 1
            seconds = max(0.0, ended - began - (self._spent - spent))
            self.call_seconds += seconds
            self._add(Span(name, began, ended))
            self._weigh(seconds - (self.waited - waited))

    def runs_in_chunks(self) -> bool:
        """Whether the call at hand is to run its loops so that there may be looks. Others are run as ever: some
        backends make other code for chunks."""
        self._may_look = self.looks is not None and self.looks.affords(is_new=False)
        return self._may_look

    def _weigh(self, seconds: float) -> None:
        """What a call in chunks took longer than one without is the price of looks."""
        if self.looks is None:
            return
        if not self._may_look:
            self._whole_call = seconds
        elif self._whole_call:
            self.looks.spent += max(0.0, seconds - self._whole_call)
        self._may_look = True

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Around the beginning of a stream, whose steps are then recorded."""
        token = RECORDER.set(None if self._is_elsewhere else self)
        try:
            yield
        finally:
            RECORDER.reset(token)

    @contextmanager
    def stretch(self, run: ProgramRun, start: int, stop: int) -> Iterator[None]:
        """Around the item that runs, or a chunk of it."""
        if self._is_elsewhere or self._in_stretch:
            yield
            return
        times, steps = self._of(run.compiled, run.item), max(1, stop - start)
        if self.looks is not None and self._is_due(times):
            self.looks.begin()
        with ExitStack() as stack:
            if not self._in_call:
                stack.enter_context(surrounded(self._waiting))
            waited, began = self.waited, self._clock()
            self._in_stretch = True
            self._open(times)
            try:
                yield
                if self.looks is not None:
                    self.looks.wait(run.buffers)
            finally:
                self._close()
                self._in_stretch, ended = False, self._clock()
                self._add(Span(_shown(times, start, stop), began, ended, times))
                self._count(times, steps, began, ended, ended - began - (self.waited - waited))

    def chunk(self, run: ProgramRun) -> int:
        """How many steps the next stretch of the loop that runs is to have."""
        times = self._of(run.compiled, run.item)
        if times.rate is None:
            return 1
        seconds, looks = _CHUNK, self.looks
        if looks is not None and (looks.is_open or self._is_due(times)):
            seconds = LEAST
        elif looks is not None:
            seconds = max(seconds, looks.wait_for_next(is_new=not times.looked))
        return max(1, min(int(seconds / max(times.rate, 1e-9)), _GROWS * times.steps))

    def _is_due(self, times: ItemTimes) -> bool:
        """Whether a look may begin at an item. In a first call the first loop that goes on is where the time goes, or
        all there is."""
        looks = self.looks
        if looks is None or looks.is_open or not self._may_look:
            return False
        if looks.is_first and self.calls == 0:
            has_loops = any(item.loop is not None for item in times.code.items)
            return not has_loops or (times.code.items[times.number].loop is not None and times.rate is not None)
        most = max(each.seconds for each in self._items.values() if each.code is times.code)
        if looks.is_first:
            return times.seconds == most
        return times.seconds > _MUCH * most and looks.affords(is_new=not times.looked)

    def _of(self, code: Compiled, number: int) -> ItemTimes:
        key = id(code), number  # it is kept, so nothing else can have its id
        if key not in self._items:
            self._items[key] = ItemTimes(code, number)
        return self._items[key]

    def _count(self, times: ItemTimes, steps: int, began: float, ended: float, seconds: float) -> None:
        times.seconds += seconds
        looks, known, rate = self.looks, times.rate, seconds / steps
        if looks is not None:
            looks.seconds += seconds
        times.steps = steps
        if looks is None or not looks.is_open:
            times.rate = rate
            return
        times.looked += seconds
        times.rate = rate if known is None else min(known, rate)
        is_first = known is None and times.code.items[times.number].loop is not None
        tells = 0.0 if is_first else times.rate * steps  # of a loop, the beginning alone tells little
        looks.add(tells, 0.0 if known is None else max(0.0, seconds - times.rate * steps), times.code.segments)
        self._ran.append((began, times))
        if looks.is_enough or not self._in_call:
            self._end_look()

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        """What is compiled in between is no line's time."""
        times, began = self._times, self._clock()
        if times is not None:
            self._close()
        try:
            yield
        finally:
            ended = self._clock()
            if threading.get_ident() == self.thread:
                self.waited += ended - began
                self._add(Span(what, began, ended))
                if times is not None:
                    self._open(times)

    # -- samples -----------------------------------------------------------------------------------------------------

    def take(self, frame: FrameType | None) -> None:
        """A sample: the thread is in this frame."""
        times = self._times
        if times is None:
            return
        now, place = self._clock(), _place(frame)
        seconds, self._last = max(0.0, now - self._last), now
        self.samples += 1
        times.sampled[place] = times.sampled.get(place, 0.0) + seconds
        last = self._sample
        if last is not None and last.place == place and last.end >= self._since:
            last.end = now
            return
        self._sample = Span("", max(now - seconds, self._since), now, times, place)
        self._add(self._sample)

    def _open(self, times: ItemTimes) -> None:
        self._since = now = self._clock()
        self._last = now - self._carried
        self._times = times

    def _close(self) -> None:
        self._times = None
        self._carried = max(0.0, self._clock() - self._last)

    def _add(self, span: Span) -> None:
        if len(self.spans) < MOST_EVENTS:
            self.spans.append(span)

    # -- looks -------------------------------------------------------------------------------------------------------

    @property
    def _spent(self) -> float:
        return 0.0 if self.looks is None else self.looks.spent

    def _end_look(self) -> None:
        if self.looks is None or not self.looks.is_open:
            return
        stretches, self._ran = self._ran, []
        self._unread.append((self.looks.end(), stretches))
        if len(self._unread) > _MOST_UNREAD:
            began = self._clock()
            self._read(*self._unread.popleft())
            self.looks.spent += self._clock() - began

    def _read(self, seen: Seen, stretches: Sequence[tuple[float, ItemTimes]]) -> None:
        """An operator is of the item that ran when it began."""
        events = list(seen.events)
        room = max(0, MOST_EVENTS - len(self.traced))
        self.traced += [(seen.began, event) for event in events[:room]]
        starts = [start for start, _ in stretches]
        for event, seconds in own_seconds([each for each in events if each.is_operator]):
            at = bisect_right(starts, seen.began + event.start) - 1
            if stretches:
                own, key = stretches[max(0, at)][1].own, event.origin or event.name
                own[key] = own.get(key, 0.0) + seconds


def own_seconds(events: Sequence[TracedEvent]) -> Iterator[tuple[TracedEvent, float]]:
    """Each event with the seconds of it that no event inside of it takes."""
    inside = dict[int, float]()
    open_events: list[tuple[float, int, str]] = []
    order = sorted(range(len(events)), key=lambda at: (events[at].thread, events[at].start, -events[at].seconds))
    for at in order:
        event = events[at]
        while open_events and (open_events[-1][2] != event.thread or open_events[-1][0] <= event.start):
            open_events.pop()
        if open_events:
            outer = open_events[-1][1]
            inside[outer] = inside.get(outer, 0.0) + event.seconds
        open_events.append((event.start + event.seconds, at, event.thread))
    for at in order:
        yield events[at], max(0.0, events[at].seconds - inside.get(at, 0.0))


def _place(frame: FrameType | None) -> Place | None:
    """The line of generated source that the frame is in, or was called from."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<tempo "):
            return file, frame.f_lineno or 0
        frame = frame.f_back
    return None


def _shown(times: ItemTimes, start: int, stop: int) -> str:
    loop = times.code.items[times.number].loop
    return item_name(times) if loop is None else f"{item_name(times)}, {loop.var.name} from {start} to {stop}"


def item_name(times: ItemTimes) -> str:
    """As the program's text has it."""
    called = times.code.items[times.number].segment
    return f"item_{times.number}" if called is None else times.code.program.segments[called].name
