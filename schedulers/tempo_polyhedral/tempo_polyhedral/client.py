"""The compiler's end of the worker: started when first needed, kept warm, ended when late, started again when gone."""

from __future__ import annotations

import atexit
import functools
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any, BinaryIO

from tempo_polyhedral.messages import Answer, Request, receive, send

COMMAND = (sys.executable, "-P", "-m", "tempo_polyhedral.worker")
_START_SECONDS = 60.0  # Python, NumPy and islpy from a cold disk
_END = None


class WorkerError(RuntimeError):
    """The worker gave no answer: it was late, or ended, or could not be started."""


@dataclass
class _Process:
    """A worker, and a thread that puts what it says into a queue, for a pipe cannot be read with a limit."""

    owner: int
    popen: subprocess.Popen[bytes]
    answers: queue.Queue[Any]


class Worker:
    """One process, used by one thread at a time. A process that was forked off this one starts a worker of its own."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self._command = command
        self._process: _Process | None = None
        self._lock = threading.Lock()
        atexit.register(self.close)

    def ask(self, request: Request, seconds: float) -> Answer:
        """The answer; WorkerError when there is none after `seconds`, which ends the process."""
        with self._lock:
            process = self._started()
            try:
                send(_pipe(process.popen.stdin), request)
            except OSError as error:
                self._end()
                raise WorkerError(f"its process ended: {error}") from error
            found = self._next(process, seconds)
            if not isinstance(found, Answer):
                self._end()
                raise WorkerError("its process does not say what it should")
            return found

    def close(self) -> None:
        with self._lock:
            self._end()

    def _started(self) -> _Process:
        if self._process is not None and self._process.owner == os.getpid():
            return self._process
        try:
            popen = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(), bufsize=-1
            )
        except OSError as error:
            raise WorkerError(f"its process cannot be started: {error}") from error
        self._process = _Process(os.getpid(), popen, queue.Queue())
        reader = threading.Thread(target=_read, args=(_pipe(popen.stdout), self._process.answers), daemon=True)
        reader.start()
        self._next(self._process, _START_SECONDS)
        return self._process

    def _next(self, process: _Process, seconds: float) -> Any:
        try:
            found = process.answers.get(timeout=seconds)
        except queue.Empty:
            self._end()
            raise WorkerError(f"no answer within {seconds:g} s") from None
        if found is _END:
            status = self._end()
            raise WorkerError(f"its process ended with status {status}")
        return found

    def _end(self) -> int | None:
        """Ends the process if there is one of ours; its status."""
        process, self._process = self._process, None
        if process is None or process.owner != os.getpid():
            return None
        status = process.popen.poll()
        process.popen.kill()
        process.popen.wait()
        _pipe(process.popen.stdin).close()
        return process.popen.returncode if status is None else status


def _read(stream: BinaryIO, answers: queue.Queue[Any]) -> None:
    with stream:
        while True:
            try:
                answers.put(receive(stream))
            except (EOFError, OSError):
                answers.put(_END)
                return


def _pipe(stream: Any) -> BinaryIO:
    assert stream is not None
    found: BinaryIO = stream
    return found


def _environment() -> dict[str, str]:
    """This process's, so that the worker imports the packages that this process has."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path}


@functools.cache
def default_worker() -> Worker:
    """The one worker of this process."""
    return Worker()
