"""What schedulers are told of a program."""

from __future__ import annotations

import tempo as tp
from tempo.lowering.scheduling.clusters import build_problem
from tempo.schedule import SchedulingProblem
from tests.unit.lowering.planned import plan_of


def problem_of(program: tp.Program) -> SchedulingProblem:
    return plan_of(str(program.graph())).problem


def test_statements_say_what_a_point_costs_and_writes() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        w = tp.input("w", shape=(8, 4), dims=())
        h = tp.recurrent("h", shape=(8,), dims=(t,))
        h[0] = tp.ones((8,))
        h[t + 1] = tp.tanh(w @ (h @ w))
        tp.output("h", h)
    problem = problem_of(program)
    costs = {statement.name: statement.cost for statement in problem.statements}
    assert max(costs.values()) >= 2 * 2 * 8 * 4
    merged = next(statement for statement in problem.statements if statement.name.startswith("h_"))
    assert (merged.cost, merged.bytes) == (0.0, 8 * 4)


def test_reads_of_a_cluster_at_its_own_point_are_no_dependences() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        s = tp.recurrent("s", shape=(), dims=(t,))
        s[0] = x
        s[t + 1] = tp.tanh(s * 2 + 1)
        tp.output("s", s)
    plan = plan_of(str(program.graph()))
    described = [plan.problem.describe(dependence) for dependence in build_problem(plan.program).dependences]
    assert len(described) == len(set(described)) == 2  # the merge on the sum one step before, the sum on the merge
