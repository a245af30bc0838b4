import pytest

from tempo.errors import InternalError
from tempo.passes.manager import PassContext
from tempo.passes.rewrite.driver import rewrite_graph
from tempo.passes.simplify.simplify import Canonicalize
from tempo.sdg.parse import parse
from tests.unit.passes.texts import after, assert_becomes

X = '%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"'
Z = '%1: float32[3] over (b, t) = input {layout: ($b, $t, 0), name: "z", role: "input"} @1 "z"'


def _program(body: str) -> str:
    return f"dims b: b.size, t: t.size\n{X}\n{Z}\n{body}\n"


def test_indices_are_simplified_by_the_domain() -> None:
    assert_becomes(
        Canonicalize(),
        _program("""
            %2: float32[3] over (t) = neg(%0[max(t, 0)])
            %3: float32[3] over (t) = neg(%2[min(t + 1, t.size)])
            output "y": float32[3] over (t) = %3[(2*t + 1)//2] as ($t, 0)"""),
        _program("""
            %2: float32[3] over (t) = neg(%0[t])
            %3: float32[3] over (t) = neg(%2[t + 1])
            output "y": float32[3] over (t) = %3[t] as ($t, 0)"""),
    )


def test_equal_nodes_become_one() -> None:
    assert_becomes(
        Canonicalize(),
        _program("""
            %2: float32[3] over (t) = neg(%0[t])
            %3: float32[3] over (t) = neg(%0[t])
            %4: float32[3] over (t) = exp(%3[t])
            %5: float32[3] over (t) = exp(%2[t])
            %6: float32[3] over (t) = add(%4[t - 1], %5[t])
            output "y": float32[3] over (t) = %6[t] as ($t, 0)"""),
        _program("""
            %2: float32[3] over (t) = neg(%0[t])
            %4: float32[3] over (t) = exp(%2[t])
            %6: float32[3] over (t) = add(%4[t - 1], %4[t])
            output "y": float32[3] over (t) = %6[t] as ($t, 0)"""),
    )


def test_nominal_nodes_are_never_one() -> None:
    text = _program("""
        %2: uint32[] = input {layout: (), name: "seed", role: "seed"} @2
        %3: float32[3] over (t) = merge {name: "a", role: "recurrent"} @3
          | t == 0 -> %0[t]
          | True -> %0[t - 1]
        %4: float32[3] over (t) = merge {name: "a", role: "recurrent"} @4
          | t == 0 -> %0[t]
          | True -> %0[t - 1]
        output "y": float32[3] over (t) = %3[t] as ($t, 0)
        output "z": float32[3] over (t) = %4[t] as ($t, 0)""")
    result = after(Canonicalize(), text)
    assert {3, 4} <= set(result.nodes)


def test_signed_zeros_are_not_equal() -> None:
    text = _program("""
        %2: float32[4] over (t) = pad(%0[t]) {high: (0,), low: (1,), value: 0.0}
        %3: float32[4] over (t) = pad(%0[t]) {high: (0,), low: (1,), value: -0.0}
        output "y": float32[4] over (t) = %2[t] as ($t, 0)
        output "z": float32[4] over (t) = %3[t] as ($t, 0)""")
    assert {2, 3} <= set(after(Canonicalize(), text).nodes)


def test_reads_go_through_copies() -> None:
    assert_becomes(
        Canonicalize(),
        _program("""
            %2: float32[3] over (b, t) = copy(%1[b, t - 2])
            %3: float32[3] over (b, t) = neg(%2[b + 1, t + 5])
            %4: float32[t, 3] over (b, t) = neg(%2[b, 2 +: t])
            output "y": float32[3] over (b, t) = %3[b, t] as ($b, $t, 0)
            output "z": float32[7, 3] over (b) = %4[b, 7] as ($b, 0, 1)"""),
        _program("""
            %3: float32[3] over (b, t) = neg(%1[b + 1, t + 3])
            %4: float32[t, 3] over (b, t) = neg(%1[b, 0 +: t])
            output "y": float32[3] over (b, t) = %3[b, t] as ($b, $t, 0)
            output "z": float32[7, 3] over (b) = %4[b, 7] as ($b, 0, 1)"""),
    )


@pytest.mark.parametrize(
    ("copied", "domain", "shape", "read"),
    [
        ("%0[2*t]", "(t)", "4, 3", "0 +: 4"),  # a strided read is no slice
        ("%0[t % 2]", "(t)", "4, 3", "0 +: 4"),
        ("%1[t, b]", "(b, t)", "4, 5, 3", "0 +: 4, 0 +: 5"),  # the axes would change places
        ("%1[t, 0 +: 2]", "(t)", "4, 2, 3", "0 +: 4"),  # this one goes through: see below
        ("%1[0 +: 2, t]", "(t)", "4, 2, 3", "0 +: 4"),  # the axes would change places
    ],
)
def test_a_slice_of_a_copy_is_read_in_one_only_where_it_shows_the_same(
    copied: str, domain: str, shape: str, read: str
) -> None:
    inner = ", ".join(shape.split(", ")[domain.count(",") + 1 :])
    text = _program(f"""
        %2: float32[{inner}] over {domain} = copy({copied})
        %3: float32[{shape}] = neg(%2[{read}])
        output "y": float32[{shape}] = %3 as ({", ".join(map(str, range(shape.count(",") + 1)))})""")
    kept = any(node.op == "copy" for node in after(Canonicalize(), text).nodes.values())
    assert kept == (copied != "%1[t, 0 +: 2]")


def test_a_merge_whose_first_case_always_holds_is_a_copy() -> None:
    assert_becomes(
        Canonicalize(),
        _program("""
            %2: float32[3] over (t) = merge {name: "a", role: "recurrent"} @2
              | t < 0 -> %0[t + 7]
              | t >= 0 -> %0[t - 1]
              | True -> %0[t - 2]
            %3: float32[3] over (t) = neg(%2[t + 1])
            output "y": float32[3] over (t) = %3[t] as ($t, 0)"""),
        _program("""
            %3: float32[3] over (t) = neg(%0[t])
            output "y": float32[3] over (t) = %3[t] as ($t, 0)"""),
    )


def test_a_copy_gives_its_name_to_what_it_copies() -> None:
    result = after(
        Canonicalize(),
        _program("""
            %2: float32[3] over (t) = neg(%0[t])
            %3: float32[3] over (t) = merge {name: "a", role: "recurrent"} @2 "a"
              | True -> %2[t]
            output "y": float32[3] over (t) = %3[t] as ($t, 0)"""),
    )
    assert result.nodes[2].name == "a"


def test_cases_that_no_point_takes_are_dropped() -> None:
    assert_becomes(
        Canonicalize(),
        _program("""
            %2: float32[3] over (t) = merge {name: "a", role: "recurrent"} @2
              | t == 0 -> %0[t]
              | t < 1 -> %0[t + 7]
              | t >= 1 -> %2[t - 1]
              | True -> %0[t - 2]
            output "y": float32[3] over (t) = %2[t] as ($t, 0)"""),
        _program("""
            %2: float32[3] over (t) = merge {name: "a", role: "recurrent"} @2
              | t == 0 -> %0[t]
              | t >= 1 -> %2[t - 1]
            output "y": float32[3] over (t) = %2[t] as ($t, 0)"""),
    )


def test_a_cycle_keeps_a_merge() -> None:
    text = _program("""
        %2: float32[3] over (t) = merge {name: "a", role: "recurrent"} @2
          | True -> %3[t - 1]
        %3: float32[3] over (t) = add(%2[t], %0[t])
        output "y": float32[3] over (t) = %2[t] as ($t, 0)""")
    assert_becomes(Canonicalize(), text, text)


def test_what_does_not_vary_along_a_dim_loses_it() -> None:
    assert_becomes(
        Canonicalize(),
        _program("""
            %2: float32[3] over (b, t) = merge {name: "a", role: "recurrent"} @2
              | True -> %0[t]
            %3: float32[3] over (b, t) = neg(%2[b, t])
            %4: float32[3] over (b, t) = add(%3[b, t - 1], %1[b, t])
            output "y": float32[3] over (b, t) = %4[b, t] as ($b, $t, 0)
            output "z": float32[3] over (b, t) = %3[b, t] as ($b, $t, 0)"""),
        _program("""
            %3: float32[3] over (t) = neg(%0[t])
            %4: float32[3] over (b, t) = add(%3[t - 1], %1[b, t])
            output "y": float32[3] over (b, t) = %4[b, t] as ($b, $t, 0)
            output "z": float32[3] over (b, t) = %3[t] as ($b, $t, 0)"""),
    )


def test_a_slice_over_a_lost_dim_becomes_a_broadcast() -> None:
    assert_becomes(
        Canonicalize(),
        _program("""
            %2: float32[3] over (b, t) = merge {name: "a", role: "recurrent"} @2
              | True -> %0[t]
            %3: float32[b.size, 4, 3] = neg(%2[0 +: b.size, 0 +: 4])
            %4: float32[4, t + 1, 3] over (t) = neg(%5[0 +: 4, 0 +: t + 1])
            %5: float32[3] over (b, t) = merge {name: "c", role: "recurrent"} @3
              | True -> %6[b]
            %6: float32[3] over (b) = neg(%1[b, 0])
            output "y": float32[b.size, 4, 3] = %3 as (0, 1, 2)
            output "z": float32[4, 2, 3] = %4[1] as (0, 1, 2)"""),
        _program("""
            %7: float32[b.size, 4, 3] = broadcast(%0[0 +: 4]) {shape: (`b.size`, `4`, `3`)}
            %3: float32[b.size, 4, 3] = neg(%7)
            %6: float32[3] over (b) = neg(%1[b, 0])
            %8: float32[4, 1, 3] = reshape(%6[0 +: 4]) {shape: (`4`, `1`, `3`)}
            %9: float32[4, t + 1, 3] over (t) = broadcast(%8) {shape: (`4`, `t + 1`, `3`)}
            %4: float32[4, t + 1, 3] over (t) = neg(%9[t])
            output "y": float32[b.size, 4, 3] = %3 as (0, 1, 2)
            output "z": float32[4, 2, 3] = %4[1] as (0, 1, 2)"""),
    )


def test_an_empty_slice_over_a_lost_dim_still_reads_nothing() -> None:
    text = """
        dims s: s.size, t: t.size
        %0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
        %1: float32[3] over (s, t) = merge {name: "a", role: "recurrent"} @1 "a"
          | True -> %0[t - 1]
        %2: float32[t, 3] over (t) = neg(%1[0 +: t, t])
        %3: float32[3] over (t) = reduce_sum(%2[t]) {axes: (0,)}
        output "y": float32[3] over (t) = %3[t] as ($t, 0)
    """
    expected = """
        dims s: s.size, t: t.size
        %0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
        %4: float32[t, 3] over (t) = broadcast(%0[t - 1]) {shape: (`t`, `3`)}
        %5: float32[] = constant {value: array(float32, (), (0.0))}
        %6: float32[t, 3] over (t) = broadcast(%5) {shape: (`t`, `3`)}
        %7: float32[t, 3] over (t) = merge {name: "a", role: "cases"} @2 "a"
          | t >= 1 -> %4[t]
          | True -> %6[t]
        %2: float32[t, 3] over (t) = neg(%7[t])
        %3: float32[3] over (t) = reduce_sum(%2[t]) {axes: (0,)}
        output "y": float32[3] over (t) = %3[t] as ($t, 0)
    """
    assert_becomes(Canonicalize(), text, expected)


def test_rewrites_that_undo_each_other_are_a_bug() -> None:
    from tempo.passes.rewrite.driver import Sweep, Term
    from tempo.sdg.graph import Node

    def swap(node: Node, sweep: Sweep) -> Term | None:
        return Term(node.op, node.operands[::-1]) if node.op == "add" else None

    graph = parse(
        _program("""
        %2: float32[3] over (b, t) = add(%1[b, t], %0[t])
        output "y": float32[3] over (b, t) = %2[b, t] as ($b, $t, 0)""")
    )
    with pytest.raises(InternalError, match="does not end"):
        rewrite_graph(graph, PassContext(), [swap])
