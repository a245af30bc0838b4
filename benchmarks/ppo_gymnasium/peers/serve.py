"""How a peer talks to the benchmark: one line of JSON per line that it is given.

It is started as `python PEER SETTINGS`, with SETTINGS as JSON, by an interpreter of its own, so it imports nothing but
this, torch and its library. Its first line says what it is; each line of input starts a round.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Round = Callable[[], tuple[int, float]]
"""Trains for `iterations`, and returns the gradient steps made and the mean return of the last episodes."""


def serve(name: str, prepare: Callable[[dict[str, Any]], Round]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer
    settings = json.loads(sys.argv[1])
    train = prepare(settings)
    _answer(answers, {"name": name})
    for _ in sys.stdin:
        start = time.perf_counter()
        updates, returns = train()
        _answer(answers, {"seconds": time.perf_counter() - start, "updates": updates, "return": returns})


def _answer(answers: Any, found: dict[str, Any]) -> None:
    answers.write(json.dumps(found) + "\n")
    answers.flush()
