"""One manager runs the passes on the graph and those on LoopIR: printed, timed, left out, stopped after."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import numpy as np
import pytest

import tempo as tp
from tempo.compiler.driver import Compiler
from tempo.errors import InternalError
from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.passes import LoopContext
from tempo.loop_ir.pipeline import at_sizes, for_all_sizes
from tempo.passes.manager import PassManager, needed
from tempo.plugins.manager import get_backend
from tempo.runtime.engine import CompiledEngine
from tempo.schedule.problem import SchedulingProblem
from tempo.schedule.tree import ScheduleTree

OF_NUMPY = get_backend("numpy").loop_passes(at_sizes())
X = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)


def program() -> tp.Program:
    with tp.Program("sums") as made:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        h = tp.recurrent("h", (3,), (t,))
        h[0] = x
        h[t + 1] = tp.tanh((h[0 : t + 1] * x[t + 1]).sum(axis=0)) + x[t + 1]
        tp.output("h", h)
    return made


EXPECTED = tp.compile(program(), backend="reference")(x=X)["h"]


def run(**options: object) -> tp.Executable:
    made = tp.compile(program(), options=tp.Options(**options))  # type: ignore[arg-type]
    np.testing.assert_allclose(made(x=X)["h"], EXPECTED, rtol=1e-6)
    return made


def section(text: str, title: str) -> list[str]:
    return [line.split()[0] for line in text.split(f"# {title}\n")[1].split("\n\n")[0].splitlines()]


def test_explain_tells_the_passes_of_both() -> None:
    text = str(run().explain("all"))
    assert section(text, "passes")[-3:] == ["forwarding", "copy_propagation", "rematerialization"]
    assert section(text, "passes at t=4") == [each.name for each in OF_NUMPY]
    assert "statements" in text.split("# passes at t=4\n")[1].splitlines()[0]


@pytest.mark.parametrize("name", [each.name for each in (*for_all_sizes(), *OF_NUMPY)])
def test_each_pass_on_loop_ir_may_be_left_out(name: str) -> None:
    text = str(run(disable=(name,)).explain("all"))
    assert name not in section(text, "passes") + section(text, "passes at t=4")


@pytest.mark.parametrize("name", ["materialise_outputs", "chunked_outputs", "decompose"])
def test_what_is_needed_cannot_be_left_out(name: str) -> None:
    with pytest.raises(tp.InputError, match=f"the pass '{name}' cannot be left out: "):
        tp.compile(program(), options=tp.Options(disable=(name,)))


def test_a_pass_on_loop_ir_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TEMPO_PRINT", "dynamic_extents")
    run(extent="specialise", tile=2)
    before, after = capsys.readouterr().err.split("# after dynamic_extents\n")
    assert before.startswith("# before dynamic_extents\n")
    assert before.count("choose t <= 1:") == 0
    assert "choose t <= 1:" in after


@dataclass(frozen=True)
class Forgets:
    """Lets segments return nothing."""

    name: str = "forgets"

    def apply(self, program: LoopProgram, context: LoopContext) -> LoopProgram:
        return replace(program, segments=tuple(replace(each, results=()) for each in program.segments))


def test_what_a_pass_on_loop_ir_makes_is_verified() -> None:
    engine = run()._engine
    assert isinstance(engine, CompiledEngine)
    loops = engine.plan().loops
    manager = PassManager((Forgets(),))
    assert manager.run(loops, LoopContext())[0] != loops
    with pytest.raises(InternalError, match="it does not return b1") as caught:
        replace(manager, debug=True).run(loops, LoopContext())
    assert caught.value.__notes__[0].startswith("after the pass 'forgets'")
    assert str(loops) in caught.value.__notes__[0]


@pytest.mark.parametrize("stop", ["lift", "forwarding", "circular_reads"])
def test_after_the_stop_only_what_is_needed_runs(monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    monkeypatch.setenv("TEMPO_STOP_AFTER", stop)
    text = str(run().explain("all"))
    ran = section(text, "passes") + section(text, "passes at t=4")
    assert "mask_elimination" not in ran
    assert ("simplify" in ran, "circular_reads" in ran) == (True, stop == "circular_reads")
    behind = ran[ran.index(stop) + 1 :]
    assert behind == (["static_extents", "materialise_outputs"] if stop == "lift" else [])
    assert needed(at_sizes()[0]) is None


class Watching:
    """A scheduler that fails, and keeps whether the collector of cycles is at work meanwhile."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def schedule(self, problem: SchedulingProblem) -> ScheduleTree:
        self.seen.append(gc.isenabled())
        raise RuntimeError("no order today")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_cycles_is_paused_and_left_as_it_was(
    enabled: bool,
) -> None:
    scheduler = Watching()
    compiler = Compiler(program().graph(), get_backend("numpy"), scheduler, tp.Options())
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError, match="no order today"):
            compiler.plan()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert scheduler.seen == [False]
