"""`run.profile` on JAX: the profiler's events are of the user's tensors and lines."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tempo_jax import tracer
from tempo_jax.backend import JaxBackend
from tempo_jax.executables import function
from tempo_jax.scopes import Scopes

import tempo as tp
from tempo.backends import SegmentRequest
from tempo.caches import CACHE_VARIABLE
from tempo.errors import UnsupportedError
from tempo.loop_ir.ir import LoopProgram

pytestmark = pytest.mark.skipif(
    not hasattr(jax.profiler, "ProfileOptions"), reason="this JAX has no profiler that leaves Python out"
)
WIDTH = 96
TABLE = re.compile(r"\d+ |FileNames|FunctionNames|FileLocations|StackFrames")
"""Of lines of Python, behind the module's name."""


def uneven(steps: int = 60) -> tp.Program:
    """Of two tensors one takes a hundred times as long as the other."""
    with tp.Program("uneven") as program:
        t = tp.dim("t", steps)
        w = tp.input("w", (WIDTH, WIDTH))
        costly = tp.recurrent("costly", (WIDTH, WIDTH), (t,))
        cheap = tp.recurrent("cheap", (4,), (t,))
        costly[0], cheap[0] = tp.ones((WIDTH, WIDTH)), tp.ones(4)
        costly[t + 1] = tp.tanh(costly @ w @ w @ w @ w)
        cheap[t + 1] = cheap * 0.5 + 1.0
        tp.output("costly", costly[t.size - 1])
        tp.output("cheap", cheap[t.size - 1])
    return program


def elsewhere() -> tp.Program:
    """The same on other lines."""
    with tp.Program("elsewhere") as program:
        t, w = tp.dim("t", 60), tp.input("w", (WIDTH, WIDTH))
        costly, cheap = tp.recurrent("costly", (WIDTH, WIDTH), (t,)), tp.recurrent("cheap", (4,), (t,))
        costly[0], cheap[0] = tp.ones((WIDTH, WIDTH)), tp.ones(4)
        costly[t + 1] = tp.tanh((costly @ w @ w) @ w @ w)
        cheap[t + 1] = cheap * 0.5 + 1.0
        tp.output("costly", costly[t.size - 1])
        tp.output("cheap", cheap[t.size - 1])
    return program


def given() -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH}


def test_the_costly_line_comes_first(tmp_path: Path) -> None:
    run = tp.compile(uneven(), "jax")
    plain = run(**given())
    with run.profile(tmp_path / "trace.json") as profile:
        for _ in range(3):
            found = run(**given())
    np.testing.assert_allclose(found["costly"], plain["costly"], rtol=1e-5)
    result = profile.result
    assert result is not None
    assert result.looked
    first = next(each for each in result.lines if each.origin is not None)
    assert first.origin is not None
    assert first.origin.location is not None
    assert first.origin.location.text == "costly[t + 1] = tp.tanh(costly @ w @ w @ w @ w)"
    assert first.origin.op == "dot"


def test_the_trace_has_the_profilers_events(tmp_path: Path) -> None:
    run = tp.compile(uneven(), "jax")
    with run.profile(tmp_path / "trace.json"):
        run(**given())
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    operators = [each for each in events if each["ph"] == "X" and each["cat"] == "operator"]
    named = {each["args"]["operator"] for each in operators if "args" in each}
    assert "dot" in named
    assert all(Path(__file__).name in each["args"]["line"] for each in operators if "args" in each)
    calls = [each for each in events if each["ph"] == "X" and each["name"] == "run uneven"]
    start, end = calls[0]["ts"], calls[0]["ts"] + calls[0]["dur"]
    assert all(start <= each["ts"] and each["ts"] + each["dur"] <= end + 1 for each in operators)


def test_executables_from_the_cache_are_of_the_program_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    found: list[bool] = []
    look = function.recalled

    def looked(*arguments: Any) -> Any:
        made = look(*arguments)
        found.append(made is not None)
        return made

    monkeypatch.setattr(function, "recalled", looked)
    for program in (uneven(), elsewhere()):
        run = tp.compile(program, "jax")
        with run.profile(tmp_path / "trace.json") as profile:
            run(**given())
    half = len(found) // 2
    assert found == [False] * half + [True] * half
    texts = {each.origin.location.text for each in profile.lines if each.origin and each.origin.location}
    assert "costly[t + 1] = tp.tanh((costly @ w @ w) @ w @ w)" in texts
    assert not [text for text in texts if "tanh(costly @ w @ w @ w @ w)" in text]


def test_public_functions_do_where_there_is_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_session_type", lambda: tracer._PublicSession)
    run = tp.compile(uneven(), "jax")
    with run.profile(tmp_path / "trace.json") as profile:
        run(**given())
    assert profile.result is not None
    assert profile.result.looked
    assert any(each.origin is not None and each.origin.op == "dot" for each in profile.result.lines)
    jax.profiler.start_trace(tmp_path / "own")
    jax.profiler.stop_trace()


def test_nothing_is_left_running(tmp_path: Path) -> None:
    run = tp.compile(uneven(4), "jax")
    with run.profile(tmp_path / "trace.json"):
        run(**given())
    jax.profiler.start_trace(tmp_path / "own")
    jax.profiler.stop_trace()


def test_a_trace_of_the_users_is_in_the_way(tmp_path: Path) -> None:
    run = tp.compile(uneven(4), "jax")
    jax.profiler.start_trace(tmp_path / "own")
    try:
        with pytest.raises(UnsupportedError, match="JAX's profiler is in use"), run.profile(tmp_path / "trace.json"):
            run(**given())
    finally:
        jax.profiler.stop_trace()
    with run.profile(tmp_path / "trace.json"):
        run(**given())


def segment(program: tp.Program) -> SegmentRequest:
    found: list[SegmentRequest] = []
    compile_segment = JaxBackend.compile_segment

    def kept(self: JaxBackend, request: SegmentRequest) -> Any:
        found.append(request)
        return compile_segment(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JaxBackend, "compile_segment", kept)
        tp.compile(program, "jax", sizes={})
    return found[0]


def compiled_text(program: tp.Program) -> str:
    """What XLA makes of it, without metadata."""
    backend = JaxBackend()
    request = segment(program)
    made = backend.compile_segment(request).function
    arguments = [jax.ShapeDtypeStruct((WIDTH, WIDTH), "float32") if id in inputs(request.program) else None
                 for id in request.segment.buffers]  # fmt: skip
    text = made._whole.function.lower(None, None, *sizes(request), *arguments).compile().as_text()  # type: ignore[attr-defined]
    lines = (each for each in text.splitlines() if not TABLE.match(each))
    return "\n".join(re.sub(r", metadata=\{[^}]*\}", "", line) for line in lines)


def inputs(program: LoopProgram) -> set[int]:
    return set(program.inputs.values())


def sizes(request: SegmentRequest) -> list[int]:
    return [request.sizes.get(symbol, 0) for symbol in request.segment.arguments]


def test_scopes_change_nothing_that_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    with_scopes = compiled_text(uneven())
    monkeypatch.setattr(Scopes, "entered", lambda self, statement: nullcontext())
    assert compiled_text(uneven()) == with_scopes


def test_a_program_with_other_names_has_the_same_digest() -> None:
    first, second = Scopes.of(segment(uneven())), Scopes.of(segment(elsewhere()))
    assert first.digest == second.digest
    assert list(first.numbers.values()) == list(second.numbers.values())
    assert {each.location for each in first.numbers}.isdisjoint({each.location for each in second.numbers})
    assert Scopes.of(segment(uneven(61))).digest == first.digest


def test_a_fusion_is_of_the_operator_that_the_others_were_fused_into() -> None:
    scopes = Scopes.of(segment(uneven()))
    dot = next(number for origin, number in scopes.numbers.items() if origin.op == "dot")
    tanh = next(number for origin, number in scopes.numbers.items() if origin.op == "tanh")
    write = next(number for origin, number in scopes.numbers.items() if origin.op == "write")
    text = f"""
%fused (p: f32[4]) -> f32[4] {{
  %a.1 = f32[4] multiply(%p, %p), metadata={{op_name="jit(f)/while/body/tempo.{dot}/mul"}}
  %b.1 = f32[4] tanh(%a.1), metadata={{op_name="jit(f)/while/body/tempo.{tanh}/tanh"}}
  ROOT %c.1 = f32[4] copy(%b.1), metadata={{op_name="jit(f)/while/body/tempo.{write}/dus"}}
}}

ENTRY %main (p: f32[4]) -> f32[4] {{
  %p = f32[4] parameter(0)
  %copy.2 = f32[4] copy(%p)
  ROOT %c_fusion = f32[4] fusion(%p), calls=%fused, metadata={{op_name="jit(f)/while/body/tempo.{write}/dus"}}
}}
"""
    found = scopes.of_instructions(text)
    assert found["c_fusion"].op == "tanh"
    assert found["c.1"].op == "write"
    assert "copy.2" not in found
