"""Runs that end early: where a graph says so, and what it means.

An output of role "stop" is named after a dim `t` and varies along it alone. Its value, an int32 scalar, is 0 at the
points after which the run goes on, and at point `p` where it ends the number of points kept, `p + 1`. Outputs along `t`
are cut to them. Of an output of role "state" or "stop" whose layout does not name `t`, the value at the last point that
is kept counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from tempo.sdg.graph import Graph, Output
from tempo.symbolic import Symbol


def stops_of(graph: Graph) -> Mapping[Symbol, Output]:
    """The outputs that end runs, by dim."""
    return {output.domain[0]: output for output in graph.outputs if output.role == "stop"}


def last_along(output: Output) -> Symbol | None:
    """The dim at whose last point the output is taken."""
    return next((symbol for symbol in output.domain if symbol not in output.layout), None)
