"""The generator of random programs, and what compares their runs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.random_programs import Choices, RandomProgram, RecordedCall, Recorder, Statement, random_program
from tempo.conformance.random_programs.agreement import (
    Disagreement,
    Situation,
    calls_difference,
    check,
    difference,
    misordered,
    numpy_modes,
)
from tempo.conformance.random_programs.differences import check_differences
from tempo.conformance.random_programs.gradients import comparable, smooth
from tempo.conformance.random_programs.session import Session, Value


def test_a_seed_always_gives_the_same_program() -> None:
    assert [random_program(seed) for seed in range(5)] == [random_program(seed) for seed in range(5)]
    assert len({random_program(seed).source for seed in range(20)}) > 15


def test_programs_print_as_source_that_runs() -> None:
    for seed in range(10):
        program = random_program(seed)
        namespace: dict[str, object] = {}
        exec(str(program), namespace)
        built = namespace["program"]
        assert isinstance(built, tp.Program)
        # Names and locations stand outside equality, and host functions are new ones.
        if not program.functions:
            assert str(built.graph()) == str(program.build().program.graph())


def test_what_no_output_needs_is_left_out() -> None:
    program = RandomProgram(
        (Statement('f0 = calls.function("f0")', ("f0",)),),
        (
            Statement('t = tp.dim("t")', ("t",)),
            Statement('x0 = tp.input("x0", shape=(), dims=(t,))', ("x0",)),
            Statement('h0 = tp.recurrent("h0", shape=(), dims=(t,))', ("h0",)),
            Statement("v0 = x0 + 1", ("v0",)),
            Statement("v1 = x0 + 2", ("v1",)),
            Statement("h0[0] = v0", extends="h0"),
            Statement("h0[t + 1] = h0", extends="h0"),
            Statement('tp.output("y", h0)', effect=True),
        ),
    )
    kept = program.without_dead_code()
    assert kept.functions == ()
    assert [s.source for s in program.statements if s not in kept.statements] == ["v1 = x0 + 2"]


def test_a_backend_with_another_meaning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from tempo.backends.numpy.backend import NumpyBackend

    program = RandomProgram(
        (),
        (
            Statement('t = tp.dim("t")', ("t",)),
            Statement('x0 = tp.input("x0", shape=(), dims=(t,))', ("x0",)),
            Statement('tp.output("y", tp.tanh(x0))', effect=True),
        ),
    )
    tally: Counter[str] = Counter()
    check(program, [Situation({"t": 3}), Situation({"t": 5})], tally=tally)
    assert tally["compared"] == 2 * len(numpy_modes())
    operator = NumpyBackend.operator
    wrong = lambda self, call: np.sin if call.op == "tanh" else operator(self, call)  # noqa: E731
    monkeypatch.setattr(NumpyBackend, "operator", wrong)
    with pytest.raises(Disagreement, match=r"(?s)y: .*tp\.tanh\(x0\)"):
        check(program, [Situation({"t": 3})])


def test_floats_differ_by_more_than_the_tolerance_or_in_their_nans() -> None:
    x = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference(x, x + np.float32(1e-6), 1e-4) is None
    assert difference(x, x + np.float32(1e-2), 1e-4)
    assert difference(x, np.array([1.0, 2.0, np.inf], np.float32), 1e-4)
    assert difference(x, x.astype(np.float64), 1e-4)
    assert difference(np.array([1]), np.array([2]), 10.0)


def _calls(ordered: tuple[str, ...], *points: tuple[int, int], resource: str | None = None) -> list[RecordedCall]:
    recorder = Recorder()
    function = recorder.function("f0", dims=("b", "t"), ordered=ordered, resource=resource)
    for b, t in points:
        function(np.float32(b + t), np.int32(b), np.int32(t))
    return recorder.calls


def test_calls_are_held_to_their_order_along_what_orders_them() -> None:
    wanted = _calls(("t",), (0, 0), (0, 1), (1, 0), (1, 1))
    assert calls_difference(wanted, _calls(("t",), (0, 0), (1, 0), (0, 1), (1, 1)), 1e-4) is None
    assert calls_difference(wanted, _calls(("t",), (0, 1), (0, 0), (1, 0), (1, 1)), 1e-4)
    assert calls_difference(wanted, wanted[:-1], 1e-4)


def test_calls_of_one_resource_are_held_to_their_order() -> None:
    assert misordered(_calls(("b", "t"), (0, 0), (0, 1), (1, 0), resource="one")) is None
    assert misordered(_calls(("b", "t"), (0, 1), (0, 0), resource="one"))


def test_a_wrong_gradient_is_found() -> None:
    def program(slope: str) -> RandomProgram:
        return RandomProgram(
            (),
            (
                Statement('t = tp.dim("t")', ("t",)),
                Statement('x0 = tp.input("x0", shape=(), dims=(t,), dtype=tp.float32)', ("x0",)),
                Statement("loss0 = tp.sin(x0)", ("loss0",)),
                Statement('tp.output("loss", loss0)', effect=True),
                Statement(f'tp.output("slope_x0", {slope})', effect=True),
            ),
        )

    tally: Counter[str] = Counter()
    check_differences(program("tp.grad(loss0, x0)"), Situation({"t": 3}), tally)
    assert tally == {"compared": 1}
    with pytest.raises(Disagreement, match="the gradient by x0 says"):
        check_differences(program("tp.grad(loss0, x0) * 1.01"), Situation({"t": 3}), tally)


def test_differences_that_approach_nothing_are_not_held_against_a_gradient() -> None:
    program = RandomProgram(
        (),
        (
            Statement('t = tp.dim("t")', ("t",)),
            Statement('x0 = tp.input("x0", shape=(), dims=(t,), dtype=tp.float64)', ("x0",)),
            Statement("loss0 = tp.sin(1e9 * x0)", ("loss0",)),
            Statement('tp.output("loss", loss0)', effect=True),
            Statement('tp.output("slope_x0", tp.grad(loss0, x0))', effect=True),
        ),
    )
    tally: Counter[str] = Counter()
    check_differences(program, Situation({"t": 3}), tally)
    assert tally == {"too steep for differences": 1}


def test_losses_are_differentiated_where_all_take_the_same_side() -> None:
    with tp.Program("jumps") as program:
        session = Session(Choices.seeded(0), program)
        x = tp.input("x", shape=(3,), dims=())
        exact, rounded = tp.relu(x).sum(), tp.relu(tp.sin(x)).sum()
        hidden = (x > 0.5).astype(tp.float32).sum()
        unbounded = tp.sqrt(x).sum()
        losses = [Value("loss", each) for each in (x.sum(), exact, rounded, hidden, unbounded)]
    assert [comparable(session.program, loss) for loss in losses] == [True, True, False, True, False]
    assert [smooth(session.program, loss) for loss in losses] == [True, False, False, False, False]
