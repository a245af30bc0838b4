"""Results that are kept: in memory, in files, and never from a file that is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tempo_polyhedral.cache import Cache, Entry
from tempo_polyhedral.numbered import Numbered

from tempo.schedule import For, If, Run, Sequence
from tempo.symbolic import Symbol, const, parse_condition, parse_expr
from tests.unit.schedule.problems import make

T = Symbol("t", "dim")
BODY = Sequence((Run("s0", (parse_expr("t - 7"),)), If(parse_condition("t >= 1 and t % 2 == 0"), Run("s1", ()))))
TREE = For(T, const(0), parse_expr("min(t.size, 7) + 3"), "backward", BODY)
ENTRY = Entry(TREE, "fusing")


def only_file(directory: Path) -> Path:
    (path,) = [path for path in directory.rglob("*") if path.is_file()]
    return path


def test_another_process_finds_what_was_kept(tmp_path: Path) -> None:
    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    assert Cache(tmp_path).find("key") == ENTRY
    assert Cache(tmp_path).find("other") is None


def test_what_may_be_better_another_time_stays_in_memory(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep("key", ENTRY, lasting=False)
    assert cache.find("key") == ENTRY
    assert Cache(tmp_path).find("key") is None


def _changed(text: str) -> str:
    stored = json.loads(text)
    return json.dumps({**stored, "tree": stored["tree"].replace("t - 7", "t - 6")})


@pytest.mark.parametrize(
    "break_it", [lambda text: "", lambda text: text[:-9], _changed, lambda text: "[1]", lambda text: "\x00"]
)
def test_a_broken_file_counts_as_absent(tmp_path: Path, break_it: object) -> None:
    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    path = only_file(tmp_path)
    path.write_text(break_it(path.read_text()))
    assert Cache(tmp_path).find("key") is None
    Cache(tmp_path).keep("key", ENTRY, lasting=True)
    assert Cache(tmp_path).find("key") == ENTRY


def test_a_directory_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "schedules").write_text("a file")
    cache = Cache(tmp_path)
    cache.keep("key", ENTRY, lasting=True)
    assert cache.find("key") == ENTRY


def test_names_of_statements_do_not_matter_but_all_else_does() -> None:
    def digest(name: str = "a", read: str = "t - 1", bytes: float = 4.0, outermost: str | None = None) -> str:
        problem = make("t", {name: "t"}, [f"{name} < {name}({read})"], weights={name: bytes}, outermost=outermost)
        return Numbered.of(problem).digest()

    assert digest() == digest("b")
    assert len({digest(), digest(read="t - 2"), digest(bytes=8.0), digest(outermost="t")}) == 4
