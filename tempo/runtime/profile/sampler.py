"""Samples: a thread is interrupted some hundred times in a second, and shows in which frame it is.

A timer's handler in Python runs between two instructions, right after a call into C has returned, so the line is that
of the call which has just ended. Signals that come during a call are one: what has passed says a clock, not their
number. Only the main thread can have one, and a process has one timer. Elsewhere another thread looks, which is less
exact: it looks where the interpreter lets go of its lock, and that is where large operators are. So it does where
threads of a backend's must not be interrupted: the signal is the process's, and comes to any of its threads while one
waits for the main thread.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

FIRST_PERIOD, PERIOD, FIRST = 0.002, 0.004, 100
"""Seconds between so many first samples, for runs that are short, and between all others. One takes ten microseconds,
since caches are cold behind it. Each stands for the time since the one before, so the periods may differ."""
Take = Callable[[FrameType | None], None]


class Sampler(Protocol):
    """Calls a `Take` again and again from `start` to `stop`, with the innermost frame of the thread that made it."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


def sampler(take: Take, signals: bool = True) -> Sampler:
    """For the thread that calls this; the timer, unless somebody else has it, or there may be no `signals`."""
    return TimerSampler(take) if signals and _has_timer() else ThreadSampler(take, threading.get_ident())


def _has_timer() -> bool:
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


class TimerSampler:
    """By `ITIMER_REAL` and the signal of it. Once it is stopped both are as they were found."""

    def __init__(self, take: Take) -> None:
        first = iter(range(FIRST))

        def handle(number: int, frame: FrameType | None) -> None:
            take(frame)
            if next(first, None) == FIRST - 1:
                signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)

        self._handler: Callable[[int, FrameType | None], Any] = handle

    def start(self) -> None:
        signal.signal(signal.SIGALRM, self._handler)
        signal.siginterrupt(signal.SIGALRM, False)  # calls of the system that it interrupts go on
        signal.setitimer(signal.ITIMER_REAL, FIRST_PERIOD, FIRST_PERIOD)

    def stop(self) -> None:
        if signal.getsignal(signal.SIGALRM) is not self._handler:
            return  # somebody has taken it in the meantime, and the timer with it
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


class ThreadSampler:
    """By a thread that looks at another one's frames."""

    def __init__(self, take: Take, thread: int) -> None:
        self._take, self._of, self._ended = take, thread, threading.Event()
        self._looks = threading.Thread(target=self._run, name="tempo profile", daemon=True)

    def start(self) -> None:
        self._looks.start()

    def stop(self) -> None:
        self._ended.set()
        self._looks.join()

    def _run(self) -> None:
        first = iter(range(FIRST))
        while not self._ended.wait(PERIOD if next(first, None) is None else FIRST_PERIOD):
            self._take(sys._current_frames().get(self._of))
