"""What a page knows, found out from an executable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.errors import Location
from tempo.loop_ir.codegen.source_map import Origin
from tempo.runtime.engine import CompiledEngine
from tempo.runtime.report.collect import contents_of
from tempo.runtime.report.contents import NOWHERE, Contents
from tempo.symbolic import Symbol

STEPS, WIDTH = 12, 3


def network() -> tp.Program:
    """A state of which a gradient needs all points, and a sum of which the last is enough."""
    with tp.Program("network") as program:
        t = tp.dim("t", STEPS)
        x = tp.input("x", (WIDTH,), (t,))
        w = tp.input("w", (WIDTH, WIDTH))
        h = tp.recurrent("h", (WIDTH,), (t,))
        h[0] = x
        h[t] = tp.tanh(h[t - 1] @ w + x)
        loss = (h[t.size - 1] ** 2).sum()
        tp.output("loss", loss)
        tp.output("gradient", tp.grad(loss, w))
    return program


def contents(
    program: tp.Program,
    profile: Mapping[Origin, float] | None = None,
    sizes: Mapping[str, int] | None = None,
    **how: Any,
) -> Contents:
    run = tp.compile(program, "numpy", sizes=sizes or {}, **how)
    engine = run._engine
    assert isinstance(engine, CompiledEngine)
    return contents_of(program.name, engine, run.last_sizes or {}, profile)


@pytest.fixture(scope="module")
def found() -> Contents:
    return contents(network())


def test_contents_are_json(found: Contents) -> None:
    read = json.loads(found.as_json())
    assert read["program"] == "network"
    assert read["memory"]["peak"] == found.memory.peak
    assert [each["name"] for each in read["buffers"]] == [each.name for each in found.buffers]


def test_nothing_in_json_ends_a_script() -> None:
    with tp.Program("</script><!--") as program:
        tp.output("</SCRIPT>", tp.ones((2,)) + 1)
    text = contents(program).as_json()
    assert "<" not in text
    assert json.loads(text)["program"] == "</script><!--"


def test_a_line_stands_once_however_many_stages_have_it(found: Contents) -> None:
    lines = list(zip(found.lines.text, found.lines.place, strict=True))
    assert len(set(lines)) == len(lines)
    assert sum(len(stage.lines) for stage in found.stages) > len(lines)


def test_stages_are_those_between_passes_that_change_something(found: Contents) -> None:
    assert {stage.ir for stage in found.stages} == {"graph", "loops"}
    assert found.stages[0].title == "as written"
    for run in found.passes:
        assert (run.given == run.made) == (found.stages[run.given] is found.stages[run.made])
        assert found.stages[run.made].ir == ("graph" if run.items == "nodes" else "loops")
    assert any(run.given != run.made for run in found.passes)


def test_a_stage_is_the_text_of_its_program() -> None:
    program = network()
    run = tp.compile(program, "numpy")
    made = contents(program)
    text = "\n".join(made.lines.text[number] for number in made.stages[made.passes[0].given].lines)
    assert text.splitlines()[0] == str(run.graph).splitlines()[0]
    assert "tanh" in text


def test_nodes_say_what_they_read(found: Contents) -> None:
    lines = found.lines
    by_node = {lines.node[at]: at for at in found.stages[0].lines if lines.node[at] != NOWHERE}
    (tanh,) = (at for at in by_node.values() if "= tanh(" in lines.text[at])
    assert [("add(" in lines.text[by_node[read]]) for read in lines.reads[tanh]] == [True]


def test_places_are_lines_of_the_users_source(found: Contents) -> None:
    (file,) = found.files
    assert (file.path, file.short) == (__file__, "test_collect.py")
    texts = [file.lines[line] for _, line in found.places]
    assert any("h[t] = tp.tanh" in text for text in texts)


def test_buffers_say_how_much_they_keep_and_why(found: Contents) -> None:
    by_name = {each.name: each for each in found.buffers}
    h = by_name["h"]
    assert (h.kept, h.way) == (f"all {STEPS} points of t, made once", "full")
    assert [found.files[0].lines[found.places[each.place][1]] for each in h.why]
    assert all("h[" in each.text for each in h.why)
    assert by_name["x"].kept.startswith("given: there all the time")
    assert "returned when the run has ended" in by_name["loss"].kept
    assert [each.text for each in by_name["loss"].why][:1] == ["returned"]
    assert by_name["h"].bytes == STEPS * WIDTH * 4


def test_a_window_keeps_the_last_points() -> None:
    with tp.Program("fibonacci") as program:
        t = tp.dim("t", 9)
        f = tp.recurrent("f", (), (t,))
        f[0], f[1] = tp.ones(()), tp.ones(())
        f[t] = f[t - 1] + f[t - 2]
        tp.output("f", f[t.size - 1])
    (kept,) = (each for each in contents(program).buffers if each.name == "f" and each.role == "internal")
    assert (kept.kept, kept.way) == ("the last 2 points of t, made once", "window")


def test_a_dim_that_became_an_axis_is_told_as_points() -> None:
    with tp.Program("batch") as program:
        b, t = tp.dim("b", 5), tp.dim("t", 7)
        s = tp.recurrent("s", (), (b, t))
        s[b, 0] = tp.ones(()) * tp.input("x", (), (b,))
        s[b, t] = tp.tanh(s[b, t - 1])
        tp.output("s", s[b, t.size - 1])
    made = contents(program)
    assert "all 5 points of b, replaced at each t" in {each.kept for each in made.buffers if each.name == "s"}
    (output,) = (each.kept for each in made.buffers if each.role == "output")
    assert output == "all 5 points of b, made once; returned when the run has ended"
    assert {each.name: each.how for each in made.dims} == {"b": "an axis, all points at once", "t": "a loop"}


def test_memory_is_as_the_run_tells_it() -> None:
    run = tp.compile(network(), "numpy")
    made = contents(network())
    assert made.memory.peak == run.memory.peak_bytes == max(made.lifetimes.live)
    assert made.lifetimes.live[made.lifetimes.peak] == made.memory.peak
    assert sum(bytes for _, bytes in made.lifetimes.at_peak) == made.memory.peak
    assert not made.lifetimes.estimated


def test_tracks_live_in_spans_one_after_another(found: Contents) -> None:
    for track in found.lifetimes.tracks:
        assert list(track.spans) == sorted(track.spans)
        assert len(track.spans) % 2 == 0
        assert track.spans[-1] <= len(found.lifetimes.live)


def test_bands_lie_inside_each_other(found: Contents) -> None:
    bands = found.lifetimes.bands
    for band in bands:
        outer = [each for each in bands if each.depth == band.depth - 1 and each.start <= band.start < each.stop]
        assert len(outer) == (band.depth > 0)
        assert all(band.stop <= each.stop for each in outer)
    loops = [band for band in bands if band.text.startswith("for t")]
    assert {band.text for band in loops} >= {"for t in 0..12"} or any("backwards" in band.text for band in loops)
    assert all(band.begins for band in loops)


def test_code_says_of_which_line_it_is(found: Contents) -> None:
    assert [len(each.lines) == len(each.makers) for each in found.code]
    ops = {found.makers[maker].op for code in found.code for maker in code.makers if maker != NOWHERE}
    assert "tanh" in ops


def test_the_schedule_has_every_statement(found: Contents) -> None:
    seen = []

    def walk(steps: Any) -> None:
        for step in steps:
            seen.append(step.statement)
            walk(step.body)

    walk(found.schedule)
    assert set(range(len(found.statements))) <= set(seen)


def test_a_profile_is_told_what_took_longest_first() -> None:
    origin = Origin("tanh", "h", Location(__file__, 31))
    measured = contents(network(), {Origin("add", "v1", None): 0.25, origin: 0.5}).profile
    assert measured is not None
    assert [(each.op, each.seconds) for each in measured] == [("tanh", 0.5), ("add", 0.25)]
    assert measured[1].place == NOWHERE
    assert contents(network()).profile is None


def test_plans_that_were_compared_are_told() -> None:
    made = contents(network(), memory_limit="1MB")
    assert made.choices
    assert "fits" in made.choices[-1]


def test_a_program_without_passes_is_told() -> None:
    made = contents(network(), options=tp.Options(disable=("canonicalize", "lift")))
    assert made.stages[0].ir == "graph"
    assert {"canonicalize", "lift"}.isdisjoint(run.name for run in made.passes)


def test_sizes_are_those_of_the_run() -> None:
    with tp.Program("sizes") as program:
        t = tp.dim("t")
        tp.output("y", tp.input("x", (), (t,)) + 1)
    made = contents(program, sizes={"t": 5})
    assert made.sizes == {"t": 5}
    assert [(each.name, each.points) for each in made.dims] == [("t", 5)]


def test_what_is_planned_again_is_the_plan() -> None:
    run = tp.compile(network(), "numpy")
    engine = run._engine
    assert isinstance(engine, CompiledEngine)
    sizes: Mapping[Symbol, int] = run.last_sizes or {}
    plan, made = engine.planned_again(sizes)
    assert str(plan.loops) == str(engine.plan_for(sizes).loops)
    assert str(made.loops) == str(engine.at(engine.plan_for(sizes), sizes).compiled.program)
    assert all(each.programs for each in (*plan.passes, *made.passes))


def test_an_axis_of_some_points_is_told_as_these() -> None:
    with tp.Program("later") as program:
        t, s = tp.dim("t", 8), tp.dim("s", 8)
        x = tp.exp(tp.input("x", (), (t,)))
        y = tp.recurrent("y", (), (s,))
        y[0] = x[5:8].sum()
        y[s] = tp.tanh(y[s - 1])
        tp.output("y", y[s.size - 1] + x[6])
    kept = {each.kept for each in contents(program).buffers if each.name.startswith("exp")}
    assert kept == {"3 of the 8 points of t, made once"}


@pytest.mark.parametrize(
    "how",
    [
        {"offload": "host"},
        {"options": tp.Options(recompute={"t": 4})},
        {"options": tp.Options(mapping="sequential")},
        {"options": tp.Options(buckets={"t": "pow2"})},
        {"memory_limit": "2kB"},
        {"scheduler": "auto"},
    ],
    ids=str,
)
def test_what_is_planned_otherwise_is_told_as_that(how: dict[str, Any]) -> None:
    with tp.Program("otherwise") as program:
        t = tp.dim("t")
        x, w = tp.input("x", (WIDTH,), (t,)), tp.input("w", (WIDTH, WIDTH))
        h = tp.recurrent("h", (WIDTH,), (t,))
        h[0] = x
        h[t] = tp.tanh(h[t - 1] @ w + x)
        tp.output("gradient", tp.grad((h[t.size - 1] ** 2).sum(), w))
    made = contents(program, sizes={"t": STEPS}, **how)
    assert json.loads(made.as_json())["buffers"]
    assert made.dims[0].name == "t"
    assert made.lifetimes.live[made.lifetimes.peak] == made.memory.peak
    assert all(each.kept for each in made.buffers)


def test_rows_with_lengths_of_their_own_are_told() -> None:
    with tp.Program("ragged") as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), dtype="int32"))
        h = tp.recurrent("h", (WIDTH,), (b, t))
        h[b, 0] = tp.input("x", (WIDTH,), (b, t))
        h[b, t] = tp.tanh(h[b, t - 1])
        tp.output("h", h)
    run = tp.compile(program, "numpy")
    run(x=np.ones((3, 5, WIDTH), np.float32), n=np.array([2, 5, 3], np.int32))
    engine = run._engine
    assert isinstance(engine, CompiledEngine)
    made = contents_of("ragged", engine, run.last_sizes or {})
    assert "h" in {each.name for each in made.buffers}
