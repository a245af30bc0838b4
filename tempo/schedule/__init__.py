"""The interface between the compiler and schedulers: the problem, the tree, the verifier."""

from tempo.schedule.problem import Dependence, Interval, SchedulingProblem, Statement
from tempo.schedule.tree import Direction, For, If, Run, Scheduled, ScheduleTree, Sequence, render, runs, sequence, walk
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
