from __future__ import annotations

import pytest

from tempo.symbolic import TRUE, Condition, conjunction, dim, disjunction, parse_condition, projected

T, U = (dim(name) for name in ("t", "u"))
(SYMBOL,), (OTHER,) = T.dims(), U.dims()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("t >= 1 and t <= u", "u >= 1"),
        ("t == u + 2 and t <= 5", "u <= 3"),
        ("(t >= 3 or t <= -1) and t >= 0 and t <= u", "u >= 3"),
        ("t >= 0 and u >= 4", "u >= 4"),
        ("t // 2 >= u", ""),
    ],
)
def test_what_is_left_without_a_symbol(text: str, left: str) -> None:
    found = projected([SYMBOL], [parse_condition(text)])
    assert found == (parse_condition(left) if left else TRUE)


def test_it_holds_wherever_a_value_of_the_symbol_is_found() -> None:
    conditions = [(T - U).ge(0), (2 * T + U).le(9), disjunction([T.ge(3), T.eq(U)])]
    found = projected([SYMBOL], conditions)
    for u in range(-9, 10):
        some = any(conjunction(conditions).evaluate({SYMBOL: t, OTHER: u}) for t in range(-20, 20))
        assert not some or found.evaluate({OTHER: u})


def test_too_many_alternatives_say_nothing() -> None:
    choices: list[Condition] = [disjunction([(T - k).ge(0), (T + k).le(-1)]) for k in range(1, 20)]
    bounds = [T.ge(1), (U - T).ge(0)]
    found = projected([SYMBOL], [*bounds, *choices])
    assert found.evaluate({OTHER: 40})
