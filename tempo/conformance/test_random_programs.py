"""Family 13, random programs: generated over all of the language, shrunk on failure, held to the reference evaluator.

`--tempo-random-programs=3000 --hypothesis-seed=1` runs more, and others.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tempo.conformance.random_programs.agreement import WAYS, Mode, check
from tempo.conformance.random_programs.description import RandomProgram
from tempo.conformance.random_programs.gradients import comparable
from tempo.conformance.random_programs.strategies import differentiable_programs, programs, situations
from tempo.conformance.target import Configuration, Target

NORMAL = 100


@pytest.mark.one_configuration
@pytest.mark.planned
def test_random_programs(target: Target, random_programs: int) -> None:
    tally = agreement(target, programs(), random_programs)
    # The greedy scheduler finds no order for about one in fifty, however they are run.
    few = 5  # where a process has but few programs
    assert tally["programs without an order"] < max(few, 0.1 * tally["programs"])
    meaningless = tally["runs without meaning"]
    assert meaningless < max(2 * few, 0.2 * (tally["runs with meaning"] + meaningless))


@pytest.mark.one_configuration
@pytest.mark.planned
def test_gradients_of_random_losses(target: Target, random_programs: int) -> None:
    """Every program ends with a loss and its gradients, also where their derivatives jump at the same points."""
    tally = agreement(target, differentiable_programs(comparable), random_programs // 2, random_programs == NORMAL)
    assert tally["compared"] or tally["declared as unsupported"]


def agreement(
    target: Target, drawn: st.SearchStrategy[RandomProgram], count: int, normal: bool | None = None
) -> Counter[str]:
    """What happened in so many programs."""
    tally: Counter[str] = Counter()
    apart = target.mesh is not None and hasattr(target.backend, "launched")  # processes would not shrink alike
    can_check = target.info.capabilities.why_not("checks") is None

    @settings(
        max_examples=count,
        derandomize=count == NORMAL if normal is None else normal,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, *(() if apart else (Phase.shrink,))),
    )
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        program = data.draw(drawn)
        runs = data.draw(situations(program))
        passes = data.draw(st.sampled_from(Configuration.every() if target.thorough else Configuration.few()))
        checks = can_check and data.draw(st.integers(0, 4)) < 4
        way = data.draw(st.sampled_from(WAYS))
        blocks = data.draw(st.sampled_from((None, None, 2)))
        options = target.options(checks=checks, disable=passes.disable, fold_blocks=blocks, **way)
        tally["programs"] += 1
        refused = tally["unsupported"]
        in_buckets = data.draw(st.integers(0, 3)) == 0
        strips = data.draw(st.one_of(st.none(), st.none(), st.none(), st.tuples(st.integers(0, 2), st.integers(2, 3))))
        mode = Mode(target.backend, options, target.scheduler, target.to_numpy, in_buckets, strips, target.mesh)
        graph = program.build().program.graph()
        check(program, [each.divided(graph, target.mesh) for each in runs[:2]], [mode], tally)
        tally["programs without an order"] += tally["unsupported"] > refused

    agree()
    return tally
