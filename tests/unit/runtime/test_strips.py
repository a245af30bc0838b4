"""Points in strips: each is taken once and run once, in order, whatever fails."""

from __future__ import annotations

import itertools

import pytest

from tempo.errors import HostCallError
from tempo.runtime.strips import in_strips


@pytest.mark.parametrize(("strip", "back"), [(2, 0), (2, 1), (5, 0), (5, 1), (5, 4)])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 10])
def test_what_is_taken_is_run_once_and_in_order(strip: int, back: int, size: int) -> None:
    """All of it where nothing fails, else what lies before; `renew` comes before what is taken is written."""
    for fails in (None, *range(3, 3 + size)):
        log: list[tuple[str, int, int]] = []

        def take(at: int, fails: int | None = fails, log: list[tuple[str, int, int]] = log) -> None:
            if at == fails:
                raise HostCallError("gone")
            log.append(("take", at, at + 1))

        def run(first: int, end: int, log: list[tuple[str, int, int]] = log) -> None:
            log.append(("run", first, end))

        stop = 3 + size
        renew = lambda log=log: log.append(("renew", 0, 0))  # noqa: E731
        if fails is None:
            in_strips(3, stop, strip, back, renew, take, run)
        else:
            with pytest.raises(HostCallError, match="gone"):
                in_strips(3, stop, strip, back, renew, take, run)
        end = stop if fails is None else fails
        assert [first for kind, first, _ in log if kind == "take"] == list(range(3, end))
        runs = [(first, last) for kind, first, last in log if kind == "run"]
        assert [at for first, last in runs for at in range(first, last)] == list(range(3, end))
        assert all(last - first <= strip for first, last in runs)
        assert all(last - first == 1 for first, last in runs if last > end - back)
        for place, (kind, _, last) in enumerate(log):
            if kind == "run":
                assert ("take", last - 1, last) in log[:place]
        kinds = [kind for kind, _ in itertools.groupby(kind for kind, _, _ in log)]
        assert all(kinds[at - 1] == "renew" for at, kind in enumerate(kinds) if kind == "take")
