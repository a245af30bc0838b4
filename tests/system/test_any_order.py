"""Any legal order gives what the program means: random programs under schedules that were changed at random, each by
default and in two of the other ways.

TEMPO_RANDOM_ORDERS says how many, else as many as a property has examples. A failure prints the program and the seed of
its order.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tempo.conformance.random_programs.agreement import check, numpy_modes
from tempo.conformance.random_programs.orders import Reordering
from tempo.conformance.random_programs.strategies import programs, situations
from tempo.plugins.manager import get_scheduler
from tempo.symbolic import Symbol

_COUNT = int(os.environ.get("TEMPO_RANDOM_ORDERS", settings.default.max_examples * 4 // 5))


@pytest.mark.slow
@pytest.mark.hypothesis
def test_random_orders_agree_with_the_reference() -> None:
    tally: Counter[str] = Counter()

    @settings(
        max_examples=_COUNT,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    @given(data=st.data())
    def agree(data: st.DataObject) -> None:
        program = data.draw(programs())
        runs = data.draw(situations(program))
        sizes = [{Symbol(name, "size"): value for name, value in run.sizes.items()} for run in runs]
        base = get_scheduler("greedy")
        scheduler = Reordering(base, sizes, data.draw(st.integers(0, 1 << 20)), data.draw(st.integers(0, 8)))
        modes = [replace(mode, scheduler=scheduler) for mode in numpy_modes()]
        others = data.draw(st.lists(st.integers(1, len(modes) - 1), min_size=2, max_size=2, unique=True))
        check(program, runs, [modes[0], *(modes[at] for at in others)], tally)

    agree()
    few = 6  # runs: of few programs, and others each time
    assert tally["unsupported"] < few + 0.3 * (tally["compared"] + tally["unsupported"])
