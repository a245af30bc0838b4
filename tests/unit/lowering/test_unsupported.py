"""What the scheduler cannot order is reported at the user's line."""

import pytest

import tempo as tp
from tempo.schedule import SchedulingProblem


def test_an_order_that_no_loop_has() -> None:
    """`UnsupportedError` (the operator or the dependences, the backend or scheduler, what else could run it)"""
    with tp.Program() as program:
        t = tp.dim("t")
        h = tp.recurrent("h", shape=(), dims=(t,))
        h[0] = 1.0
        h[True] = h[(t + 1) % 3] + 1  # in the order 0, 2, 1, 3
        tp.output("h", h)
    run = tp.compile(program)
    with pytest.raises(tp.UnsupportedError, match=r'test_unsupported.py:\d+\n *h = tp.recurrent(.|\n)*"reference"'):
        run(sizes={"t": 4})
    assert tp.compile(program, backend="reference")(sizes={"t": 4})["h"].tolist() == [1, 3, 2, 4]


def test_an_order_that_there_is_at_the_sizes_of_a_call() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        h = tp.recurrent("h", shape=(), dims=(t,))
        h[0] = 1.0
        h[True] = h[t.size - 1 - t] + 1
        tp.output("h", h)
    assert tp.compile(program)(sizes={"t": 2})["h"].tolist() == [1, 2]


class Failing:
    def schedule(self, problem: SchedulingProblem) -> None:
        raise ValueError(f"{len(problem.statements)} are too many")


class Silent:
    def schedule(self, problem: SchedulingProblem) -> None:
        del problem


@pytest.mark.parametrize(("scheduler", "message"), [(Failing(), "ValueError: 1 are too many"), (Silent(), "NoneType")])
def test_a_scheduler_that_is_broken_is_named(scheduler: Failing | Silent, message: str) -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        tp.output("y", tp.input("x", shape=(), dims=(t,)) * 2)
    with pytest.raises(tp.InternalError, match=f"the scheduler '{type(scheduler).__name__}' .*{message}"):
        tp.compile(program, scheduler=scheduler)(x=[1.0])
