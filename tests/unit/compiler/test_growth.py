"""Planning is linear in a program's length: no function is called four times as often for twice the program."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable

import pytest

import tempo as tp
from benchmarks.compile_scaling.programs import deep, recurrences

_MOST_GROWTH = 2.8  # n log n is 2.4 here
_FEW = 1_000


def _calls(declare: Callable[[int], tp.Program], count: int) -> dict[tuple[str, int, str], int]:
    profile = cProfile.Profile()
    with profile:
        program = declare(count)
        sizes = {dim.name: 3 for dim in program.dims if not program.graph().dim(dim.symbol).size.is_const}
        tp.compile(program, sizes=sizes)
    return {function: found[1] for function, found in pstats.Stats(profile).stats.items()}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "declare",
    [
        pytest.param(lambda count: recurrences(count, chained=False), id="recurrences", marks=pytest.mark.slow),
        pytest.param(lambda count: recurrences(count, chained=True), id="a chain of recurrences"),
        pytest.param(deep, id="a chain with its gradient", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_done_for_every_pair(declare: Callable[[int], tp.Program]) -> None:
    _calls(declare, 2)  # what is imported or made once
    once, twice = _calls(declare, 40), _calls(declare, 80)
    growth = {name: count / once[name] for name, count in twice.items() if count > _FEW and once.get(name)}
    assert not {name: times for name, times in growth.items() if times > _MOST_GROWTH}
