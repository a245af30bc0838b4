"""Rules that cannot be read are refused where they are made use of, with the equation."""

import re

import pytest

from tempo.passes.rewrite.patterns import Rule


@pytest.mark.parametrize(
    ("equation", "what"),
    [
        ("neg(x", "never closed"),
        ("neg(x) = ", "invalid syntax"),
        ("neg(x) = x = y", "invalid syntax"),
        ("neg(x) = mul(x, y=1)", "'mul(x, y=1)' is no variable, number or operator"),
        ("neg(x) = p:mul(x, y=1)", "'p:mul(x, y=1)' is no variable, number or operator"),
        ("neg(x + y) = x", "'x + y' is no variable, number or operator"),
        ("neg('1') = x", "is no variable, number or operator"),
        ("p:x = x", "'p:x' is no variable, number or operator"),
    ],
)
def test_what_cannot_be_read_is_told_with_the_equation(equation: str, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"cannot read {equation!r}: ") + f".*{re.escape(what)}"):
        _ = Rule(equation).sides
