"""The interface between the compiler and schedulers: the problem, the tree, the verifier; in `levels` the loops that
dependences need. A scheduler imports nothing else of the core but `tempo.symbolic`, `tempo.errors`, `tempo.plugins`
and, to keep files, `tempo.caches`.
"""

from tempo.analysis.dependence.levels import Direction
from tempo.schedule.problem import Dependence, Interval, SchedulingProblem, Statement
from tempo.schedule.tree import For, If, Run, Scheduled, ScheduleTree, Sequence, render, runs, sequence, walk
from tempo.schedule.verify import verify

__all__ = [
    "Dependence",
    "Direction",
    "For",
    "If",
    "Interval",
    "Run",
    "ScheduleTree",
    "Scheduled",
    "SchedulingProblem",
    "Sequence",
    "Statement",
    "render",
    "runs",
    "sequence",
    "verify",
    "walk",
]
