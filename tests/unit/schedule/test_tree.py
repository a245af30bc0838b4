"""Trees as pseudocode."""

from __future__ import annotations

from textwrap import dedent

from tempo.schedule import For, If, Run, Sequence, render, runs, sequence, walk
from tempo.symbolic import Symbol, const, size, var

I, T = Symbol("i", "dim"), Symbol("t", "dim")


def run(name: str, *symbols: Symbol) -> Run:
    return Run(name, tuple(var(symbol) for symbol in symbols))


def learning() -> For:
    forward = For(T, const(0), size("t"), "forward", Sequence((run("act", I, T), run("env", I, T))))
    backward = For(T, const(0), size("t"), "backward", run("returns", I, T))
    return For(I, const(0), size("i"), "forward", Sequence((forward, backward, run("learn", I))))


def test_a_tree_prints_as_pseudocode_with_notes_beside_its_loops() -> None:
    kinds = {I: "host", T: "device"}
    expected = """
        for i in 0..i.size:                    # host
          for t in 0..t.size:                  # device
            act(i, t); env(i, t)
          for t in t.size..0 backwards:        # device
            returns(i, t)
          learn(i)
    """
    assert render(learning(), lambda loop: kinds[loop.var]) == dedent(expected).strip()


def test_without_notes_str_is_the_same_text() -> None:
    assert str(learning()) == render(learning())
    assert "#" not in str(learning())


def test_guards_and_shifted_points_print() -> None:
    t = var(T)
    tree = For(T, const(0), size("t") + 7, "forward", If(t.ge(7), Run("learn", (t - 7,))))
    assert str(tree) == "for t in 0..t.size + 7:\n  if t >= 7:\n    learn(t - 7)"


def test_runs_share_lines_of_limited_length() -> None:
    lines = str(Sequence(tuple(run(f"statement{number}", I, T) for number in range(20)))).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 100
    assert "; ".join(lines).count("statement") == 20


def test_an_empty_body_says_so() -> None:
    assert str(Sequence()) == "pass"


def test_sequence_flattens() -> None:
    a, b, c = run("a"), run("b"), run("c")
    assert sequence([Sequence((a, b)), c]) == Sequence((a, b, c))
    assert sequence([a]) == a


def test_walk_and_runs_go_in_the_order_written() -> None:
    assert [one.statement for one in runs(learning())] == ["act", "env", "returns", "learn"]
    assert [type(node).__name__ for node in walk(learning())][:4] == ["For", "Sequence", "For", "Sequence"]
