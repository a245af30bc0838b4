"""Small programs that the tests of the runtime share."""

from __future__ import annotations

import tempo as tp


def running_sum(outputs: str = "all") -> tp.Program:
    """s[t] = x[0] + ... + x[t]."""
    with tp.Program("running_sum") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        s = tp.recurrent("s", shape=(3,), dims=(t,))
        s[0] = x
        s[t + 1] = s + x[t + 1]
        tp.output("s", s if outputs == "all" else s[t.size - 1])
    return program


def counter() -> tp.Program:
    """A parameter that grows by one at every step but the first, along `i`."""
    with tp.Program("counter") as program:
        i = tp.dim("i")
        w = tp.parameter("w", (2,), init=[1.0, 2.0], dims=(i,))
        w[i + 1] = w + 1
        tp.output("w", w)
    return program
