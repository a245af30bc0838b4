"""Programs that people write, and some that only skewed loops can run, with the order that isl finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import dedent

import pytest
from tempo_polyhedral.isl import IslError
from tempo_polyhedral.numbered import Numbered
from tempo_polyhedral.settings import FUSING
from tempo_polyhedral.solve import solve

from tempo.schedule import SchedulingProblem, verify
from tempo.symbolic import Symbol
from tests.unit.schedule.problems import make

T = tuple({"t": size} for size in (1, 2, 7, 8, 20))
IT = ({"i": 1, "t": 1}, {"i": 3, "t": 5}, {"i": 2, "t": 1}, {"i": 1, "t": 6}, {"i": 5, "t": 3})


def expect(problem: SchedulingProblem, sizes: Iterable[Mapping[str, int]], text: str, separate: bool = False) -> None:
    numbered = Numbered.of(problem)
    tree = numbered.named(solve(numbered.problem, FUSING, separate))
    for given in sizes:
        verify(problem, tree, {Symbol(name, "size"): value for name, value in given.items()})
    assert str(tree) == dedent(text).strip()


def n_steps() -> SchedulingProblem:
    return make(
        "t",
        {"act": "t", "r": "t", "g": "t", "learn": "t"},
        ["act < act(t - 1)", "r < act(t)", "g < r(t..min(t + 8, t.size) - 1)", "learn < g(t)"],
    )


def test_n_step_learning_runs_behind_acting_in_one_loop() -> None:
    text = """
        for t in 0..t.size + 7:
          if t < t.size:
            act(t); r(t)
          if t >= 7:
            g(t - 7); learn(t - 7)
    """
    expect(n_steps(), T, text)


def test_separated_loops_have_no_conditionals() -> None:
    text = """
        for t in 0..min(t.size, 7):
          act(t); r(t)
        for t in 7..t.size:
          act(t); r(t); g(t - 7); learn(t - 7)
        for t in max(t.size - 7, 0)..t.size:
          g(t); learn(t)
    """
    expect(n_steps(), T, text, separate=True)


def test_returns_run_backwards_and_take_their_producers_and_readers_along() -> None:
    problem = make("t", {"r": "t", "g": "t", "y": "t"}, ["g < r(t)", "g < g(t + 1) where t + 1 < t.size", "y < g(t)"])
    expect(problem, T, "for t in t.size..0 backwards:\n  r(t); g(t); y(t)")


def test_monte_carlo_returns_wait_for_the_end() -> None:
    problem = make(
        "t",
        {"act": "t", "r": "t", "g": "t", "loss": ""},
        ["act < act(t - 1)", "r < act(t)", "g < r(t..t.size - 1)", "loss < g(0..t.size - 1)"],
    )
    text = """
        for t in 0..t.size:
          act(t); r(t)
        for t in 0..t.size:
          g(t)
        loss()
    """
    expect(problem, T, text)


def test_decoding_goes_token_by_token_through_the_layers() -> None:
    problem = make(
        "l t",
        {"token": "t", "x": "l t", "k": "l t", "attend": "l t", "out": "l t", "logits": "t"},
        [
            "token < logits(t - 1) where t >= 4",
            "x < token(t) where l == 0",
            "x < out(l - 1, t) where l >= 1",
            "k < x(l, t)",
            "attend < x(l, t), k(l, 0..t)",
            "out < attend(l, t)",
            "logits < out(l.size - 1, t)",
        ],
    )
    text = """
        for t in 0..t.size:
          token(t)
          for l in 0..l.size:
            x(l, t); k(l, t); attend(l, t); out(l, t)
          logits(t)
    """
    expect(problem, ({"l": 1, "t": 1}, {"l": 3, "t": 5}, {"l": 2, "t": 9}), text)


def test_a_prompt_of_run_time_length_cuts_the_cycle() -> None:
    problem = make(
        "p t",
        {"prompt": "p", "token": "t", "logits": "t"},
        ["token < prompt(t) where t < p.size", "token < logits(t - 1) where t >= p.size", "logits < token(0..t)"],
        facts="p.size <= t.size",
    )
    text = """
        for p in 0..p.size:
          prompt(p)
        for t in 0..t.size:
          token(t); logits(t)
    """
    expect(problem, ({"p": 1, "t": 1}, {"p": 3, "t": 7}, {"p": 4, "t": 4}), text)


def test_a_bidirectional_network_needs_two_loops() -> None:
    problem = make(
        "t",
        {"x": "t", "f": "t", "b": "t", "y": "t"},
        ["f < f(t - 1), x(t)", "b < b(t + 1), x(t)", "y < f(t), b(t)"],
    )
    expect(problem, T, "for t in t.size..0 backwards:\n  x(t); b(t)\nfor t in 0..t.size:\n  f(t); y(t)")


def test_skewed_loops_have_a_variable_of_their_own() -> None:
    problem = make("i t", {"a": "i t"}, ["a < a(i - 1, t + 1), a(i + 1, t - 2)"])
    text = """
        for wave in 0..i.size + t.size - 1:
          for i in max(wave - t.size + 1, 0)..min(wave + 1, i.size):
            a(i, wave - i)
    """
    expect(problem, IT, text)


def test_every_second_point_is_a_loop_with_a_step() -> None:
    problem = make("t", {"a": "t"}, ["a < a(t - 2)"], conditions={"a": "t % 2 == 1"})
    expect(problem, T, "for wave in 0..t.size//2:\n  a(2*wave + 1)")


def test_a_reversal_is_split_in_the_middle() -> None:
    problem = make("t", {"a": "t"}, ["a < a(t.size - 1 - t) where 2*t >= t.size"])
    tree = solve(problem, FUSING)
    for size in (1, 2, 5, 8):
        verify(problem, tree, {Symbol("t", "size"): size})


def test_an_inner_loop_that_is_skewed_alone_is_a_loop_over_its_dim() -> None:
    problem = make("t i", {"a": "t i"}, ["a < a(t - 1, i - 1..i + 1), a(t, i - 1)"])
    expect(problem, IT, "for t in 0..t.size:\n  for i in 0..i.size:\n    a(t, i)")


def test_what_never_runs_has_its_place() -> None:
    problem = make("t", {"a": "t", "b": "t"}, ["b < a(t)"], boxes={"a": {"t": "0..0"}})
    expect(problem, T, "for t in 0..0:\n  a(t)\nfor t in 0..t.size:\n  b(t)")


@pytest.mark.parametrize(
    ("statements", "dependences"),
    [
        ({"a": "t", "b": "t"}, ["a < b(t)", "b < a(t)"]),
        ({"a": "t", "b": "t"}, ["a < b(t + 1)", "b < a(t - 1)"]),
        ({"a": "t"}, ["a < a(t - 1), a(t + 1)"]),
        ({"a": "", "b": ""}, ["a < b()", "b < a()"]),
    ],
)
def test_a_cycle_is_an_error(statements: dict[str, str], dependences: list[str]) -> None:
    with pytest.raises(IslError):
        solve(make("t", statements, dependences), FUSING)


def test_nothing_is_a_schedule_of_nothing() -> None:
    expect(make("t", {}, []), T, "pass")
