"""Results that are kept: in memory, in files, and never from a file that is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tempo_polyhedral.cache import Cache, Entry
from tempo_polyhedral.numbered import Numbered
from tempo_polyhedral.scheduler import PolyhedralScheduler

from tempo.schedule import For, If, Run, ScheduleTree, Sequence
from tempo.symbolic import Symbol, const, dim, parse_condition, parse_expr, size, var
from tests.unit.schedule.problems import make

T = Symbol("t", "dim")
BODY = Sequence((Run("s0", (parse_expr("t - 7"),)), If(parse_condition("t >= 1 and t % 2 == 0"), Run("s1", ()))))
TREE = For(T, const(0), parse_expr("min(t.size, 7) + 3"), "backward", BODY)
ENTRY = Entry(TREE, "fusing")


def anything(tree: object) -> bool:
    return True


def only_file(directory: Path) -> Path:
    (path,) = [path for path in directory.rglob("*") if path.is_file()]
    return path


def test_another_process_finds_what_was_kept(tmp_path: Path) -> None:
    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    assert Cache(tmp_path).find("key", anything) == ENTRY
    assert Cache(tmp_path).find("other", anything) is None


def test_what_may_be_better_another_time_stays_in_memory(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep("key", ENTRY, lasting=False)
    assert cache.find("key", anything) == ENTRY
    assert Cache(tmp_path).find("key", anything) is None


@pytest.mark.parametrize(
    "break_it",
    [
        lambda text: "",
        lambda text: text[:-9],
        lambda text: text.replace("t - 7", "t - 6"),
        lambda text: "[1]",
        lambda text: "\x00",
        lambda text: "[" * 100_000,
        lambda text: text.replace("fusing", "other"),
    ],
)
def test_a_broken_file_counts_as_absent(tmp_path: Path, break_it: object) -> None:
    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    path = only_file(tmp_path)
    path.write_text(break_it(path.read_text()))
    assert Cache(tmp_path).find("key", anything) is None
    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    assert Cache(tmp_path).find("key", anything) == ENTRY


def test_a_directory_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "schedules").write_text("a file")
    cache = Cache(tmp_path)
    with pytest.warns(RuntimeWarning, match="schedules are not kept"):
        cache.keep("key", ENTRY, lasting=True)
    assert cache.find("key", anything) == ENTRY


def test_names_of_statements_do_not_matter_but_all_else_does() -> None:
    def digest(name: str = "a", read: str = "t - 1", bytes: float = 4.0, outermost: str | None = None) -> str:
        problem = make("t", {name: "t"}, [f"{name} < {name}({read})"], weights={name: bytes}, outermost=outermost)
        return Numbered.of(problem).digest()

    assert digest() == digest("b")
    assert len({digest(), digest(read="t - 2"), digest(bytes=8.0), digest(outermost="t")}) == 4


def test_a_file_under_the_name_of_another_counts_as_absent(tmp_path: Path) -> None:
    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    path = only_file(tmp_path)
    Cache(tmp_path).keep("other", ENTRY, lasting=True)
    (other,) = set(tmp_path.rglob("*.schedule")) - {path}
    os.replace(path, other)
    assert Cache(tmp_path).find("other", anything) is None


def test_what_is_not_sound_counts_as_absent(tmp_path: Path) -> None:
    def fails(tree: object) -> bool:
        raise KeyError(tree)

    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    assert Cache(tmp_path).find("key", lambda tree: tree != TREE) is None
    assert Cache(tmp_path).find("key", fails) is None


RUN = Run("s0", (var(T),))
FORGED = [
    Sequence(()),  # nothing runs
    Run("s0", (const(0),)),
    For(T, const(0), size("t"), "backward", RUN),  # against the dependence
    For(T, const(0), size("t"), "forward", Run("s7", (var(T),))),
    For(T, const(0), size("t"), "forward", Run("s0", ())),
    For(T, const(0), size("t"), "forward", Run("s0", (dim("u"),))),
    For(T, const(0), size("t"), "forward", Sequence((RUN, RUN))),
    If(parse_condition("u.size >= 1"), For(T, const(0), size("t"), "forward", RUN)),
]


@pytest.mark.parametrize("tree", FORGED)
def test_a_forged_tree_is_made_again(tmp_path: Path, tree: ScheduleTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_VERIFY", "0")
    problem = make("t", {"a": "t"}, ["a < a(t - 1)"])
    wanted = PolyhedralScheduler(cache=Cache(None)).schedule(problem).tree
    Cache(tmp_path).keep(Numbered.of(problem).digest(), Entry(tree, "fusing"), lasting=True)
    found = PolyhedralScheduler(cache=Cache(tmp_path)).schedule(problem)
    assert found.tree == wanted
    assert "found before" not in found.notes[0]
    assert "found before" in PolyhedralScheduler(cache=Cache(tmp_path)).schedule(problem).notes[0]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners here")
@pytest.mark.parametrize("below", ["", "schedules"])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, below: str) -> None:
    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    (tmp_path / below).chmod(0o777)
    cache = Cache(tmp_path)
    with pytest.warns(RuntimeWarning, match="schedules are not kept: others may write to .*chmod go-w"):
        assert cache.find("key", anything) is None
    cache.keep("other", ENTRY, lasting=True)
    assert cache.find("other", anything) == ENTRY
    only_file(tmp_path)


def test_our_folders_are_ours_alone(tmp_path: Path) -> None:
    Cache(tmp_path / "made").keep("key", ENTRY, lasting=True)
    assert {oct(each.stat().st_mode & 0o777) for each in (tmp_path / "made", tmp_path / "made" / "schedules")} == {
        "0o700"
    }
