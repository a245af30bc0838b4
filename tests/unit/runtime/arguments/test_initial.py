"""Initial values: what no call changes is made once, what a call changes is made in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.reference.evaluator import Evaluator


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[Evaluator]:
    """Grows with each run of the evaluator, which nothing but initial values needs on a compiled backend."""
    found: list[Evaluator] = []
    run = Evaluator.run

    def counted(self: Evaluator) -> Any:
        found.append(self)
        return run(self)

    monkeypatch.setattr(Evaluator, "run", counted)
    return found


def program(init: Any) -> tp.Program:
    with tp.Program("grown") as made:
        i, c = tp.dims("i c")
        w = tp.parameter("w", (c.size,), init=init, dims=(i,))
        w[i + 1] = w + 1
        tp.output("w", w)
    return made


def test_zeros_are_made_once(evaluations: list[Evaluator]):
    run = tp.compile(program(0), sizes={"i": 3, "c": 2})
    for _ in range(3):
        np.testing.assert_array_equal(run()["w"], [[0, 0], [1, 1], [2, 2]])
    assert len(evaluations) == 1


def test_other_sizes_have_values_of_their_own(evaluations: list[Evaluator]):
    run = tp.compile(program(0), sizes={"i": 2})
    for count in (2, 3, 2, 2):
        np.testing.assert_array_equal(run(sizes={"c": count})["w"], [[0] * count, [1] * count])
    assert len(evaluations) == 3  # those of the last call are kept


def test_draws_are_made_in_every_call(evaluations: list[Evaluator]):
    run = tp.compile(program(tp.nn.init.uniform(-1, 1)), sizes={"i": 2, "c": 2})
    first, second, again = (run(seed=seed)["w"][0] for seed in (0, 1, 0))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    assert len(evaluations) == 3


def test_large_values_are_not_kept(evaluations: list[Evaluator]):
    run = tp.compile(program(0), sizes={"i": 2, "c": 1 << 17})
    assert run()["w"][-1].min() == run()["w"][-1].max() == 1
    assert len(evaluations) == 2


def test_a_given_state_is_taken_in_place_of_what_is_kept():
    run = tp.compile(program(0), sizes={"i": 2, "c": 2})
    assert run()["w"][0, 0] == 0
    assert run(state={"w": np.full(2, 5, np.float32)})["w"][0, 0] == 5
    assert run()["w"][0, 0] == 0


def test_states_are_measured_at_the_sizes_of_each_call():
    run = tp.compile(program(0), sizes={"i": 2})
    for count in (2, 3):
        assert run(sizes={"c": count}, state={"w": np.ones(count, np.float32)})["w"].shape == (2, count)
    with pytest.raises(tp.InputError, match="shape"):
        run(sizes={"c": 3}, state={"w": np.ones(2, np.float32)})
