"""The process that calls isl: `python -m tempo_polyhedral.worker`.

It reads requests from its standard input and answers on its standard output. It is started by the
client alone, imports nothing of the user's, and ends when its input does. isl may take long, or crash: then this
process is ended, and the compiler's is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tempo.schedule import ScheduleTree, SchedulingProblem
from tempo_polyhedral.isl import IslError
from tempo_polyhedral.messages import READY, Answer, Request, receive, send
from tempo_polyhedral.settings import Settings
from tempo_polyhedral.solve import solve


def answer(request: Request, attempt: Callable[[SchedulingProblem, Settings], ScheduleTree] = solve) -> Answer:
    try:
        return Answer(attempt(request.problem, request.settings))
    except IslError as error:
        return Answer(None, str(error))


def main() -> None:
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what isl prints is no answer
    send(answers, READY)
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        send(answers, answer(request))


if __name__ == "__main__":
    main()
