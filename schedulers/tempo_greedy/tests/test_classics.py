"""Programs that people write, with the schedule that they should get."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from textwrap import dedent

import pytest

from schedulers.tempo_greedy.tests.builders import make, scheduled

T = ({"t": 1}, {"t": 2}, {"t": 7}, {"t": 20})
IT = ({"i": 1, "t": 1}, {"i": 3, "t": 5}, {"i": 2, "t": 1}, {"i": 1, "t": 6})
LT = ({"l": 1, "t": 1}, {"l": 3, "t": 5}, {"l": 2, "t": 9})


def expect(problem: object, sizes: tuple[Mapping[str, int], ...], text: str) -> None:
    assert scheduled(problem, *sizes) == dedent(text).strip()  # type: ignore[arg-type]


def test_rnn_is_one_loop_with_a_guard_for_the_step_that_nobody_needs() -> None:
    problem = make(
        "t",
        {"x": "t", "h": "t", "step": "t", "y": "t"},
        ["h < step(t - 1) where t >= 1", "step < h(t), x(t)", "y < h(t)"],
        boxes={"step": {"t": "0..t.size - 1"}},
    )
    text = """
        for t in 0..t.size:
          x(t); h(t)
          if t < t.size - 1:
            step(t)
          y(t)
    """
    expect(problem, T, text)


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


def test_n_step_learning_runs_behind_acting_in_one_loop() -> None:
    problem = make(
        "t",
        {"act": "t", "r": "t", "g": "t", "learn": "t"},
        ["act < act(t - 1)", "r < act(t)", "g < r(t..min(t + 8, t.size) - 1)", "learn < g(t)"],
    )
    text = """
        for t in 0..t.size + 7:
          if t < t.size:
            act(t); r(t)
          if t >= 7:
            g(t - 7); learn(t - 7)
    """
    expect(problem, T, text)


def test_what_only_a_delayed_reader_needs_is_delayed_with_it() -> None:
    problem = make(
        "t",
        {"act": "t", "r": "t", "small": "t", "big": "t", "g": "t"},
        ["act < act(t - 1)", "r < act(t)", "small < r(t)", "big < r(t)", "g < r(t..min(t + 3, t.size - 1)), big(t)"],
        weights={"small": 1.0, "big": 400.0},
    )
    text = """
        for t in 0..t.size + 3:
          if t < t.size:
            act(t); r(t); small(t)
          if t >= 3:
            big(t - 3); g(t - 3)
    """
    expect(problem, T, text)


def test_reinforcement_learning_acts_forward_and_learns_backward_in_every_iteration() -> None:
    problem = make(
        "i t",
        {"w": "i", "act": "i t", "env": "i t", "r": "i t", "gae": "i t", "loss": "i t", "update": "i"},
        [
            "w < update(i - 1) where i >= 1",
            "act < w(i), env(i, t - 1)",
            "env < act(i, t)",
            "order: env < env(i - 1, 0..t.size - 1)",
            "order: env < env(i, t - 1)",
            "r < env(i, t)",
            "gae < r(i, t), gae(i, t + 1)",
            "loss < gae(i, t), act(i, t)",
            "update < w(i), loss(i, 0..t.size - 1)",
        ],
        host="env",
        boxes={"update": {"i": "0..i.size - 1"}},
        outermost="i",
    )
    text = """
        for i in 0..i.size:
          w(i)
          for t in 0..t.size:
            act(i, t); env(i, t); r(i, t)
          for t in t.size..0 backwards:
            gae(i, t); loss(i, t)
          if i < i.size - 1:
            update(i)
    """
    expect(problem, IT, text)


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
    expect(problem, LT, text)


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


def test_a_recurrence_in_two_dims_loops_over_both() -> None:
    problem = make("i t", {"h": "i t", "y": "i"}, ["h < h(i - 1, t), h(i, t - 1)", "y < h(i, t.size - 1)"])
    expect(problem, IT, "for i in 0..i.size:\n  for t in 0..t.size:\n    h(i, t)\n  y(i)")


def test_a_stencil_in_time_may_look_both_ways_in_space() -> None:
    problem = make("t i", {"a": "t i"}, ["a < a(t - 1, i - 1..i + 1), a(t, i - 1)"])
    expect(problem, IT, "for t in 0..t.size:\n  for i in 0..i.size:\n    a(t, i)")


def test_directions_may_differ_by_dim() -> None:
    problem = make("i t", {"a": "i t"}, ["a < a(i + 1, t), a(i, t - 1)"])
    expect(problem, IT, "for i in i.size..0 backwards:\n  for t in 0..t.size:\n    a(i, t)")


def test_a_bidirectional_network_needs_two_loops() -> None:
    problem = make(
        "t",
        {"x": "t", "f": "t", "b": "t", "y": "t"},
        ["f < f(t - 1), x(t)", "b < b(t + 1), x(t)", "y < f(t), b(t)"],
    )
    expect(problem, T, "for t in 0..t.size:\n  x(t); f(t)\nfor t in t.size..0 backwards:\n  b(t); y(t)")


def test_mutual_recurrences_that_look_ahead_are_shifted() -> None:
    problem = make("t", {"a": "t", "b": "t"}, ["a < b(t + 1)", "b < a(t - 3)"])
    text = """
        for t in 0..t.size + 1:
          if t < t.size:
            b(t)
          if t >= 1:
            a(t - 1)
    """
    expect(problem, T, text)


def test_a_statement_after_a_loop_stays_after_it() -> None:
    problem = make("t", {"h": "t", "last": "", "z": "t"}, ["h < h(t - 1)", "last < h(t.size - 1)", "z < last(), h(t)"])
    expect(problem, T, "for t in 0..t.size:\n  h(t)\nlast()\nfor t in 0..t.size:\n  z(t)")


def test_a_recurrence_joins_the_outer_loop_of_what_it_reads() -> None:
    problem = make(
        "i t",
        {"w": "i", "r": "i t", "g": "i t", "y": "i"},
        ["w < w(i - 1)", "r < w(i), r(i, t - 1)", "g < r(i, t), g(i, t + 1)", "y < g(i, 0)"],
    )
    text = """
        for i in 0..i.size:
          w(i)
          for t in 0..t.size:
            r(i, t)
          for t in t.size..0 backwards:
            g(i, t)
          y(i)
    """
    expect(problem, IT, text)


def test_a_parallel_statement_takes_the_loop_of_its_reader() -> None:
    problem = make("i t", {"u": "i t", "h": "i t"}, ["h < h(0..i.size - 1, t - 1), u(i, t)"])
    expect(problem, IT, "for t in 0..t.size:\n  for i in 0..i.size:\n    u(i, t); h(i, t)")


def test_independent_recurrences_share_a_loop_so_that_a_reader_of_both_can_too() -> None:
    problem = make("t", {"a": "t", "b": "t", "y": "t"}, ["a < a(t - 1)", "b < b(t - 1)", "y < a(t), b(t)"])
    expect(problem, T, "for t in 0..t.size:\n  a(t); b(t); y(t)")


def test_a_pure_loop_stays_out_of_a_host_loop_that_it_has_nothing_to_do_with() -> None:
    problem = make(
        "t",
        {"env": "t", "obs": "t", "h": "t", "y": "t"},
        ["order: env < env(t - 1)", "h < h(t - 1)", "y < h(t)", "obs < env(t)"],
        host="env",
    )
    expect(problem, T, "for t in 0..t.size:\n  env(t); obs(t)\nfor t in 0..t.size:\n  h(t); y(t)")


def test_host_calls_of_one_resource_keep_their_order() -> None:
    problem = make(
        "i t",
        {"reset": "i", "step": "i t", "log": "i"},
        [
            "step < reset(i) where t == 0",
            "order: step < reset(i)",
            "order: step < step(i, t - 1) where t >= 1",
            "order: reset < step(i - 1, 0..t.size - 1) where i >= 1",
            "log < step(i, 0..t.size - 1)",
        ],
        host="reset step log",
    )
    expect(problem, IT, "for i in 0..i.size:\n  reset(i)\n  for t in 0..t.size:\n    step(i, t)\n  log(i)")


def test_the_stream_is_the_outermost_loop() -> None:
    problem = make(
        "b i",
        {"h": "b i", "g": "b i", "s": "i"},
        ["h < h(b - 1, i)", "g < h(b, i)", "s < g(0..b.size - 1, i)"],
        outermost="i",
    )
    expect(
        problem,
        ({"b": 3, "i": 4},),
        "for i in 0..i.size:\n  for b in 0..b.size:\n    h(b, i); g(b, i)\n  s(i)",
    )


def test_guards_stand_as_high_as_they_can() -> None:
    problem = make(
        "i t",
        {"a": "i t", "b": "i t", "c": "i t"},
        ["a < a(i, t - 1)", "b < a(i, t..min(t + 2, t.size - 1))", "c < b(i, t)"],
        conditions=dict.fromkeys("abc", "i >= 1") | {"c": "i >= 1 and t % 2 == 0"},
    )
    text = """
        for i in 0..i.size:
          if i >= 1:
            for t in 0..t.size + 2:
              if t < t.size:
                a(i, t)
              if t >= 2:
                b(i, t - 2)
                if t % 2 == 0:
                  c(i, t - 2)
    """
    expect(problem, IT, text)


def test_a_guard_that_the_box_implies_is_not_written() -> None:
    problem = make("t", {"a": "t"}, [], boxes={"a": {"t": "1..t.size"}}, conditions={"a": "t >= 1"})
    expect(problem, T, "for t in 1..t.size:\n  a(t)")


def test_a_cycle_that_the_conditions_cut_is_no_cycle() -> None:
    problem = make(
        "t",
        {"a": "t", "b": "t"},
        ["a < b(t.size - 1 - t) where t >= 4", "b < a(0)"],
        conditions={"a": "t < 4"},
    )
    expect(problem, T, "for t in 0..t.size:\n  if t <= 3:\n    a(t)\n  b(t)")


def test_nothing_is_a_schedule_of_nothing() -> None:
    expect(make("t", {}, []), T, "pass")


@pytest.mark.parametrize("count", [1, 3])
def test_statements_without_dims_run_in_order(count: int) -> None:
    names = [f"s{number}" for number in range(count)]
    problem = make("", dict.fromkeys(names, ""), [f"{a} < {b}()" for a, b in pairwise(names)])
    expect(problem, ({},), "; ".join(f"{name}()" for name in reversed(names)))
