"""Tests that walk the operator table, as one test to an operator: ten samples of `add` are no ten tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tempo.conformance.operator_samples import Sample


def each_sample(samples: Iterable[Sample]) -> Callable[[Callable[[Sample], None]], Callable[[str], None]]:
    """Runs a test of a sample for all samples of an operator; what one of them raises names it.

    >>> from tempo.conformance.operator_samples import SAMPLES
    >>> @each_sample(SAMPLES)
    ... def test_it_prints(sample: Sample) -> None:
    ...     assert str(sample).startswith(sample.op)
    """
    of_operator: dict[str, list[Sample]] = {}
    for sample in samples:
        of_operator.setdefault(sample.op, []).append(sample)

    def decorate(test: Callable[[Sample], None]) -> Callable[[str], None]:
        def of_all(operator: str) -> None:
            for sample in of_operator[operator]:
                _named(test, sample)

        of_all.__doc__ = test.__doc__
        of_all.__name__ = test.__name__
        return pytest.mark.parametrize("operator", list(of_operator))(of_all)

    return decorate


def _named(test: Callable[[Sample], None], sample: Sample) -> None:
    try:
        test(sample)
    except BaseException as error:
        error.add_note(f"of the sample {sample} {sample.attrs}")
        raise
