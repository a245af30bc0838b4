"""Each line of generated source is of a tensor of the user's."""

import numpy as np
import pytest

import tempo as tp
from tempo.loop_ir.codegen.source_map import Origin
from tempo.runtime.compiled import Compiled
from tempo.runtime.engine import CompiledEngine


def compiled(program: tp.Program, backend: str = "numpy", **sizes: int) -> Compiled:
    run = tp.compile(program, backend=backend, sizes=sizes)
    engine = run._engine
    assert isinstance(engine, CompiledEngine) and run._sizes is not None
    return engine.at(engine.plan_for(run._sizes), run._sizes).compiled


def recurrence() -> tuple[tp.Program, int]:
    """And the line of its state."""
    with tp.Program("recurrence") as program:
        t = tp.dim("t")
        x = tp.input("x", (64,), (t,))
        h = tp.recurrent("h", (64,), (t,))
        h[0] = tp.zeros(64)
        h[t + 1] = tp.tanh(h * 0.5 + x)
        tp.output("total", h[0 : t.size].sum())
    location = program.graph().nodes[h.edge.node].location
    assert location is not None
    return program, location.line


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
def test_lines_of_segments_name_tensors_and_lines(backend: str) -> None:
    program, first = recurrence()
    code = compiled(program, backend, t=5)
    listings = [code.segment_listing(number) for number in range(len(code.segments))]
    found = {
        (origin.op, text.split("\n")[line - 1].strip().split(" ")[0], origin.location.line - first)
        for text, origins in listings
        for line, origin in origins.items()
        if origin.location is not None
    }
    assert {("tanh", 2), ("mul", 2), ("reduce_sum", 3)} <= {(op, line) for op, _, line in found}
    assert {line for op, _, line in found if op == "write"} >= {0, 3}


def test_lines_of_a_chain_in_blocks_are_of_its_operators() -> None:
    with tp.Program("chain") as program:
        x = tp.input("x", (1 << 20,))
        tp.output("y", tp.exp(x) * tp.sin(x))
    code = compiled(program)
    ((text, origins),) = [code.segment_listing(number) for number in range(len(code.segments))]
    inside = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("        ")]
    assert inside and all(number in origins for number in inside)


def test_the_driver_names_calls_of_the_host() -> None:
    with tp.Program("calls") as program:
        t = tp.dim("t", 3)
        s = tp.recurrent("s", (), (t,))
        s[0] = tp.zeros(())
        s[t + 1] = tp.host_call(lambda s: (s + np.float32(1),), s, out=[((), "float32")])[0]
        tp.output("s", s[t.size - 1])
    code = compiled(program)
    origins = [each for number in range(len(code.items)) for each in code.item_listing(number)[1].values()]
    (call,) = {each for each in origins if each.op == "call"}
    assert isinstance(call, Origin) and call.location is not None and call.location.path == __file__
