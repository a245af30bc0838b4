"""Plans are kept on disk: found again by all that they follow from, and never believed where a file is not whole."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import caches
from tempo.compiler import driver, recall
from tempo.compiler.driver import Compiler
from tempo.compiler.options import Options
from tempo.compiler.recall import RecalledPlan
from tempo.passes.manager import PassContext
from tempo.plugins.manager import get_backend, get_scheduler
from tempo.sdg.graph import Graph

GIVEN = np.arange(20, dtype=np.float32)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TEMPO_CACHE_DIR", str(tmp_path))
    return tmp_path / "plans"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """Has an entry for each time that something is planned."""
    calls: list[str] = []
    plain = driver.planned

    def counted(*arguments: Any) -> Any:
        calls.append("planned")
        return plain(*arguments)

    monkeypatch.setattr(driver, "planned", counted)
    return calls


def program(more: float = 1.0) -> tp.Program:
    with tp.Program("kept") as made:
        t = tp.dim("t")
        x = tp.recurrent("x", (20,), (t,))
        x[0] = tp.constant(GIVEN * more)
        x[t + 1] = tp.tanh(x) + 1.0
        tp.output("x", x)
    return made


def looked_up() -> tp.Program:
    with tp.Program("looked up") as made:
        t = tp.dim("t")
        at = tp.input("at", (), (t,), tp.int32)
        tp.output("y", tp.constant(GIVEN).spatial[at])
    return made


def test_a_plan_is_made_once(planned: list[str], folder: Path):
    expected = tp.compile(program())(sizes={"t": 4})["x"]
    assert planned == ["planned"]
    assert len(list(folder.iterdir())) == 1
    again = tp.compile(program())
    np.testing.assert_array_equal(again(sizes={"t": 4})["x"], expected)
    assert planned == ["planned"]
    assert "# passes" in again.explain("all")  # for which it is made after all
    assert len(planned) == 2


def test_what_is_recalled_is_what_was_made(folder: Path):
    def plan() -> Any:
        return Compiler(looked_up().graph(), get_backend("numpy"), get_scheduler("greedy"), Options()).plan()

    made, found = plan(), plan()
    assert isinstance(found, RecalledPlan)
    assert not isinstance(made, RecalledPlan)
    assert found.loops == made.loops
    assert [each.location for each in recall._located(found.loops)] == [
        each.location for each in recall._located(made.loops)
    ]
    assert found.graph == made.graph
    assert found.facts == made.facts


def test_an_error_points_at_the_line_of_this_process(planned: list[str]):
    """The line moves when something is written above it, which is no reason to plan anew."""
    source = "\n".join(
        [
            "with tp.Program('looked up') as made:",
            "    t = tp.dim('t')",
            "    at = tp.input('at', (), (t,), tp.int32)",
            "    tp.output('y', tp.constant(GIVEN).spatial[at])",
        ]
    )
    for name, blank in (("one", 0), ("other", 5)):
        known: dict[str, Any] = {"tp": tp, "GIVEN": GIVEN}
        exec(compile("\n" * blank + source, name, "exec"), known)
        run = tp.compile(known["made"])
        with pytest.raises(tp.IndexOutOfRangeError) as caught:
            run(at=np.array([30], np.int32))
        assert caught.value.location is not None
        assert (caught.value.location.path, caught.value.location.line) == (name, blank + 4)
    assert planned[:1] == ["planned"]


def test_a_stream_runs_by_a_plan_that_was_recalled(planned: list[str]):
    for _ in range(2):
        stream = tp.compile(program()).stream("t", sizes={"t": 3})
        assert [np.asarray(step["x"]).shape for step in stream] == [(20,)] * 3


@dataclass(frozen=True)
class Idle:
    number: int = 0
    name: str = "idle"

    def apply(self, graph: Graph, context: PassContext) -> Graph:
        return graph


class Unprintable(Idle):
    def __init__(self) -> None:
        object.__setattr__(self, "secret", object())


def key(of: tp.Program | None = None, options: Options | None = None, **changed: Any) -> str | None:
    compiler = Compiler(
        (of or program()).graph(),
        get_backend(changed.pop("backend", "numpy")),
        get_scheduler("greedy"),
        options or Options(),
        **changed,
    )
    found: list[str | None] = []
    plain = driver.recalled
    driver.recalled = lambda key, *rest: found.append(key) or plain(None, *rest)  # type: ignore[func-returns-value]
    try:
        compiler.plan()
    finally:
        driver.recalled = plain
    return found[0]


def test_all_that_a_plan_follows_from_tells_it_from_others(folder: Path, monkeypatch: pytest.MonkeyPatch):
    symbol = program().graph().dims[0].size.sizes()
    likely = dict.fromkeys(symbol, 7)
    keys = [
        key(),
        key(program(2.0)),
        key(options=Options(mapping="sequential")),
        key(options=Options(disable=("cse",))),
        key(options=Options(checks=False)),
        key(may_speculate=False),
        key(likely=likely),
    ]
    for name, text in (("stamps", "other sources"), ("versions", "other versions")):
        with monkeypatch.context() as patch:
            patch.setattr(recall, name, lambda *_, text=text: text)
            keys.append(key())
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


def test_who_takes_part_is_told_by_fields_and_sources(monkeypatch: pytest.MonkeyPatch):
    graph, backend = program().graph(), get_backend("numpy")
    assert recall.key_of(graph, {}, [Idle()], backend) is None  # pytest has imported it, so nobody finds its source
    monkeypatch.setattr(recall, "stamps", lambda packages: " ".join(packages))
    keys = [recall.key_of(graph, {}, makers, backend) for makers in ([], [Idle()], [Idle(1)], [Unprintable()])]
    assert len(set(keys)) == 4
    assert keys[-1] is None


def test_a_program_with_functions_is_planned_each_time(planned: list[str], folder: Path):
    with tp.Program("calls") as made:
        t = tp.dim("t")
        (twice,) = tp.host_call(lambda at: at * 2, tp.as_tensor(t), out=(((), tp.int32),))
        tp.output("y", twice)
    for _ in range(2):
        tp.compile(made)(sizes={"t": 3})
    assert len(planned) == 2
    assert not folder.exists() or not list(folder.iterdir())


def resealed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """A file whose digest is right and whose content is not."""

    def damage(path: Path) -> None:
        stored = json.loads(caches.read(path) or b"")
        change(stored)
        caches.write(path, json.dumps(stored).encode())

    return damage


def changed(change: Callable[[str], str]) -> Callable[[Path], None]:
    return lambda path: path.write_text(change(path.read_text())) and None


@pytest.mark.parametrize(
    "damage",
    [
        changed(lambda text: ""),
        changed(lambda text: text[: len(text) // 2]),
        changed(lambda text: "[]"),
        changed(lambda text: text.replace("tanh", "sinh")),
        resealed(lambda stored: stored.update(loops="driver:\n  run segment_7\n")),
        resealed(lambda stored: stored.update(loops=stored["loops"].replace("tanh", "nonsense"))),
        resealed(lambda stored: stored.update(loops=stored["loops"].replace("segment segment_0", "segment 0"))),
        resealed(lambda stored: stored.update(lines=[])),
        resealed(lambda stored: stored.update(arrays={})),
    ],
)
def test_a_file_that_is_not_whole_is_made_again(planned: list[str], folder: Path, damage: Callable[[Path], None]):
    expected = tp.compile(program())(sizes={"t": 4})["x"]
    (kept,) = folder.iterdir()
    whole = kept.read_text()
    damage(kept)
    np.testing.assert_array_equal(tp.compile(program())(sizes={"t": 4})["x"], expected)
    assert len(planned) == 2
    assert kept.read_text() == whole


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners here")
def test_a_folder_that_others_may_write_to_is_not_used(planned: list[str], folder: Path):
    folder.mkdir()
    folder.chmod(0o777)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="plans are not kept: others may write to"):
            tp.compile(program())(sizes={"t": 4})
    assert len(planned) == 2


def test_without_a_folder_nothing_is_kept(planned: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TEMPO_CACHE_DIR", "")
    for _ in range(2):
        tp.compile(program())(sizes={"t": 4})
    assert len(planned) == 2


def test_nothing_is_kept_where_a_source_has_changed_since_the_process_began(
    planned: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """What was imported may be older than what lies there."""
    monkeypatch.setattr(caches, "_STARTED", 0)
    caches.stamps.cache_clear()
    try:
        for _ in range(2):
            tp.compile(program())(sizes={"t": 4})
    finally:
        caches.stamps.cache_clear()
    assert len(planned) == 2
