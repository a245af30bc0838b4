"""What is lifted where a dim is a loop for a part of a program only, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.costs import EAGER, FUSED
from tempo.passes.manager import PassContext
from tempo.passes.vectorize.search import Decision, Lift
from tempo.sdg.graph import Graph
from tempo.sdg.parse import parse
from tests.unit.passes.equivalence import check

SIZES = ({"t": 1}, {"t": 2}, {"t": 5})
X = '%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0'
SUM = """
%1: float32[3] over (t) = merge {name: "h", role: "recurrent"} @1
  | t == 0 -> %0[t]
  | True -> %2[t]
%2: float32[3] over (t) = add(%1[t - 1], %0[t])
"""
BACK = """
%3: float32[3] over (t) = merge {name: "g", role: "recurrent"} @2
  | t == t.size - 1 -> %1[t]
  | True -> %4[t]
%4: float32[3] over (t) = add(%3[t + 1], %1[t])
"""


def lift(body: str, *sizes: dict[str, int], **options: object) -> tuple[Graph, list[Decision]]:
    """The graph after the pass, of the same meaning at all sizes, and what was decided."""
    graph = parse(f"dims t: t.size\n{body}")
    check(Lift(), graph, *(sizes or SIZES))
    made = Lift(**options).apply(graph, PassContext())
    return made.program, list(made.decisions)


def domains(graph: Graph, *ids: int) -> list[int]:
    """How many dims the nodes still have."""
    return [len(graph.nodes[id].domain) for id in ids]


def test_a_draw_in_a_sequential_loop_is_made_for_all_steps_at_once() -> None:
    after, _ = lift("""
%0: uint32[] = input {layout: (), name: "seed", role: "seed"} @0
%1: uint32[2] over (t) = random_bits(%0) {bits: 32, coordinates: (`t`, 0), declaration: 1, shape: (2,)} @1
%2: float32[2] over (t) = cast(%1[t]) {dtype: "float32"}
%3: float32[2] = constant {value: array(float32, (2,), (0.0, 0.0))}
%4: float32[2] over (t) = merge {name: "h", role: "recurrent"} @2
  | t == 0 -> %3
  | True -> %5[t]
%5: float32[2] over (t) = add(%4[t - 1], %2[t])
output "y": float32[2] = %4[t.size - 1] as (0)
""")
    assert domains(after, 1, 2, 4, 5) == [0, 0, 1, 1]


def test_what_reads_the_last_step_of_a_loop_alone_stays_in_it() -> None:
    """Lifted it would keep all of h; in the loop it keeps one point."""
    after, _ = lift(f"""
{X}{SUM}
%5: float32[3] over (t) = tanh(%1[t])
%6: float32[] over (t) = reduce_max(%5[t]) {{axes: (0,)}}
%7: float32[] over (t) = merge {{name: "m", role: "recurrent"}} @3
  | t == 0 -> %6[t]
  | True -> %8[t]
%8: float32[] over (t) = maximum(%7[t - 1], %6[t])
output "y": float32[] = %7[t.size - 1] as ()
""")
    assert domains(after, 5, 6) == [1, 1]


def test_what_reads_a_loop_that_is_kept_anyway_is_computed_at_once() -> None:
    """g goes backward through all of h, so h is there in full when the sum over products is made."""
    after, decisions = lift(f"""
{X}{SUM}{BACK}
%5: float32[3] over (t) = mul(%1[t], %3[t])
%6: float32[3] = reduce_sum(%5[0 +: t.size]) {{axes: (0,)}}
output "y": float32[3] = %6 as (0)
""")
    assert domains(after, 1, 3, 5) == [1, 1, 0]
    assert [decision.kind for decision in decisions if 5 in decision.nodes] == ["full"]


@pytest.mark.parametrize(("forced", "dims"), [("full", 0), ("sequential", 1), ({"t": "full"}, 0), ({"s": "full"}, 0)])
def test_a_decision_can_be_forced(forced: object, dims: int) -> None:
    after, _ = lift(
        f"""
{X}
%1: float32[3] over (t) = tanh(%0[t])
output "y": float32[3] over (t) = %1[t] as ($t, 0)
""",
        mapping=forced,
    )
    assert domains(after, 1) == [dims]


def test_a_shifted_read_of_a_loop_is_one_slice() -> None:
    after, _ = lift(
        f"""
{X}{SUM}
%5: float32[3] over (t) = tanh(%1[max(t - 1, 0)])
%6: float32[3] over (t) = sub(%1[t + 1], %0[t])
%7: float32[3] over (t) = merge {{name: "c", role: "cases"}} @5
  | t < t.size - 1 -> %6[t]
  | True -> %5[t]
output "y": float32[3] over (t) = %7[t] as ($t, 0)
""",
        mapping="full",
    )
    (read,) = [edge for edge in after.nodes[6].operands if after.nodes[edge.node].op == "merge"]
    assert (str(read.map[0].start), str(read.map[0].length)) == ("1", "t.size - 1")


def test_explain_names_what_was_decided() -> None:
    with tp.Program("p") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(3,), dims=(t,))
        tp.output("y", tp.tanh(x))
    run = tp.compile(program, sizes={"t": 3})
    assert "# mapping\nt: full" in run.explain("all")
    np.testing.assert_allclose(run(x=np.ones((3, 3), np.float32))["y"], np.tanh(np.ones((3, 3))), rtol=1e-6)


@pytest.mark.parametrize("wrong", ["quick", {"t": "quick"}])
def test_an_unknown_way_is_an_input_error(wrong: object) -> None:
    with pytest.raises(tp.InputError, match="mapping="):
        tp.Options(mapping=wrong)  # type: ignore[arg-type]


def test_what_fuses_with_the_loop_that_reads_it_is_not_kept_for_it() -> None:
    """h is kept for g anyway. Where each operator is a call, all points of the factor at once are one."""
    body = f"""
{X}{SUM}
%3: float32[3] over (t) = merge {{name: "g", role: "recurrent"}} @2
  | t == t.size - 1 -> %1[t]
  | True -> %4[t]
%6: float32[3] over (t) = mul(%1[t], %1[t])
%5: float32[3] over (t) = mul(%3[t + 1], %6[t])
%4: float32[3] over (t) = add(%5[t], %1[t])
output "y": float32[3] = %3[0] as (0)
"""
    fused, decisions = lift(body, costs=FUSED)
    eager, _ = lift(body, costs=EAGER)
    assert (domains(fused, 6), domains(eager, 6)) == ([1], [0])
    assert [decision.why for decision in decisions if 6 in decision.nodes] == ["part of what reads it"]


LATER = """
%3: float32[{shape}] over (t) = merge {{name: "g", role: "recurrent"}} @2
  | t == t.size - 1 -> %6[t]
  | True -> %4[t]
{factor}
%5: float32[{shape}] over (t) = mul(%3[t + 1], %6[t])
%4: float32[{shape}] over (t) = add(%5[t], %6[t])
output "y": float32[{shape}] = %3[0] as ({axes})
output "h": float32[3] over (t) = %1[t] as ($t, 0)
"""
FREE = """
%7: float32[3] over (t) = exp(%0[t])
%6: float32[3] over (t) = mul(%1[t], %7[t])
"""
GROWN = """
%7: float32[3, 1] over (t) = reshape(%1[t]) {shape: (`3`, `1`)}
%8: float32[3, 64] over (t) = broadcast(%7[t]) {shape: (`3`, `64`)}
%6: float32[3, 64] over (t) = exp(%8[t])
"""
TWICE = """
%6: float32[3] over (t) = mul(%1[t], %1[t])
"""


@pytest.mark.parametrize(
    ("factor", "shape", "lifts"),
    [(FREE, "3", True), (GROWN, "3, 64", True), (TWICE, "3", False)],
    ids=["free", "grown", "twice"],
)
def test_what_would_make_more_work_in_the_loop_that_reads_it_is_made_at_once(
    factor: str, shape: str, lifts: bool
) -> None:
    """A loop that makes the factor would have what is there for all points come to it one by one, or write more than
    it reads: 1.3 and 1.6 times the time."""
    later = LATER.format(factor=factor, shape=shape, axes="0, 1" if "," in shape else "0")
    graph, _ = lift(X + SUM + later, costs=FUSED)
    assert domains(graph, 6) == ([0] if lifts else [1])
