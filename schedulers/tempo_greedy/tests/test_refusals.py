"""Orders that loops with delays cannot give: the message names the dependences and who can."""

from __future__ import annotations

import pytest
from tempo_greedy.scheduler import GreedyScheduler

from schedulers.tempo_greedy.tests.builders import make
from tempo.errors import UnsupportedError


def test_skewing_is_refused_with_the_dependences() -> None:
    problem = make("i j", {"a": "i j", "b": "i"}, ["a < a(i - 1, j + 1), a(i + 1, j - 2) where i >= 1", "b < a(i, 0)"])
    with pytest.raises(UnsupportedError) as caught:
        GreedyScheduler().schedule(problem)
    assert str(caught.value) == (
        "the scheduler 'greedy' finds no dim along which all dependences among a point one way:\n"
        "    a(i, j) after a(i - 1, j + 1) where i >= 1\n"
        "    a(i, j) after a(i + 1, j - 2) where i >= 1\n"
        "  Such an order needs skewed or split loops, which is beyond 'greedy'; the scheduler 'polyhedral' can find it"
        ' (pip install tempo-sdg-polyhedral), and backend="reference" needs none.'
    )


@pytest.mark.parametrize(
    ("statements", "dependences"),
    [
        ({"a": "s", "b": "t"}, ["a < b(s)", "b < a(t - 1)"]),  # a cycle along two different dims
        ({"a": "t"}, ["a < a(t.size - 1 - t)"]),  # a reversal
        ({"a": "t", "b": "t"}, ["a < b(t)", "b < a(t)"]),  # a real cycle
        ({"a": "t", "b": "t"}, ["a < b(t + 1)", "b < a(t - 1)"]),  # a real cycle, after shifting
        ({"a": "t", "b": "t"}, ["a < b(t - 1)", "b < a(t + 2)", "a < a(t - 1)"]),  # no direction fits both
    ],
)
def test_what_no_loop_serves_is_refused(statements: dict[str, str], dependences: list[str]) -> None:
    with pytest.raises(UnsupportedError, match="polyhedral"):
        GreedyScheduler().schedule(make("s t", statements, dependences))


def test_only_some_dependences_are_listed() -> None:
    dependences = [f"a < a(t - {step}), a(t + {step})" for step in range(1, 9)]
    with pytest.raises(UnsupportedError, match="and 10 more"):
        GreedyScheduler().schedule(make("t", {"a": "t"}, dependences))
