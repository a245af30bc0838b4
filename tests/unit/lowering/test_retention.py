"""What is said of why buffers are kept."""

import tempo as tp
from tempo.runtime.engine import CompiledEngine


def reasons(program: tp.Program) -> dict[str, str]:
    """By the name of a buffer, the first where there are several."""
    engine = tp.compile(program)._engine
    assert isinstance(engine, CompiledEngine)
    plan = engine.plan()
    return {
        buffer.name: str(plan.retention[id]).replace(__file__, "here")
        for id, buffer in reversed(plan.loops.buffers.items())
    }


def test_full_windows_and_points_are_said_with_the_read_that_asks_for_them() -> None:
    with tp.Program("kept") as program:
        t = tp.dim("t")
        x = tp.input("x", (4,), (t,))
        h = tp.recurrent("h", (4,), (t,))
        g = tp.recurrent("g", (), (t,))
        h[0] = tp.zeros(4)
        h[t + 1] = tp.tanh(h + x)
        g[t < 3] = 0.0
        g[t + 3] = g * 0.5 + g[t + 1] + x.sum()
        tp.output("sum", h[0 : t.size].sum())
        tp.output("last", g[t.size - 1])
    found = reasons(program)
    assert found["x"] == "given" and found["sum"] == "returned"
    assert found["h"].startswith("every point of t: h[0:t.size] is read by reduce_sum")
    assert "after the loop over t, here:" in found["h"]
    windows = [text for name, text in found.items() if "3 points of t: " in text]
    assert any("3 iterations of t later, here:" in text for text in windows), found


def test_what_is_returned_and_read_says_both() -> None:
    with tp.Program("both") as program:
        t = tp.dim("t", 5)
        h = tp.recurrent("h", (), (t,))
        h[0] = 1.0
        h[t + 1] = h * 2.0
        tp.output("h", h)
    said = reasons(program)["h"]
    assert said.startswith("returned")


def noise() -> float:
    return 1.0


def test_a_read_in_the_iteration_that_makes_it_is_told_as_that() -> None:
    with tp.Program("same") as program:
        t = tp.dim("t", 5)
        (drawn,) = tp.host_call(noise, out=[((), tp.float32)], ordered_by=(t,))
        h = tp.recurrent("h", (), (t,))
        h[0] = 1.0
        h[t + 1] = h * drawn
        tp.output("last", h[t.size - 1])
    assert "in the same iteration of t, here:" in reasons(program)["noise"]
