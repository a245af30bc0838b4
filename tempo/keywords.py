"""The keywords of a call, of which no input may have the name: decided here, for every way of running a program.

An input is given by its name (`run(x=...)`), to a call as to a stream, so neither may have a keyword that could be
one.
"""

from __future__ import annotations

RESERVED = (
    "seed", "sizes", "state", "strict", "donate", "progress", "chunk", "keep", "from_point", "checkpoint", "resume",
    "outputs",
)  # fmt: skip
