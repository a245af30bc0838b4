"""Checked indices wait for the stop of the point before the one that asks for them."""

from dataclasses import replace

from tempo.passes.instrument import unchecked_past_stops
from tempo.sdg.parse import parse
from tempo.sdg.validate import validate

BEFORE = """
dims t: t.size
%0: float32[4] = input {layout: (0,), name: "v", role: "input"} @1 "v"
%1: int32[] over (t) = input {layout: ($t,), name: "idx", role: "input"} @2 "idx"
%2: float32[] over (t) = merge {name: "h", role: "recurrent"} @3 "h"
  | t == 0 -> %3
  | t >= 1 -> %5[t - 1]
%3: float32[] = constant {value: array(float32, (), (0.0))}
%4: float32[] over (t) = gather(%0, %1[t]) {axis: 0, batch: 0, checked: True}
%5: float32[] over (t) = add(%2[t], %4[t])
%6: float32[] = constant {value: array(float32, (), (2.5))}
%7: bool[] over (t) = gt(%2[t], %6)
%8: int32[] over (t) = index_value {expr: `t + 1`}
%9: int32[] = constant {value: array(int32, (), (0))}
%10: int32[] over (t) = where(%7[t], %8[t], %9)
output "h": float32[] over (t) = %2[t] as ($t)
stop "t": int32[] over (t) = %10[t] as ()
"""
AFTER = """
%4: float32[] over (t) = gather(%0, %16[t]) {axis: 0, batch: 0, checked: True}
%11: bool[] = constant {value: array(bool, (), (True))}
%12: int32[] = constant {value: array(int32, (), (0))}
%13: bool[] over (t) = eq(%10[t], %12)
%14: bool[] over (t) = merge {name: "t goes on", role: "recurrent"} @4
  | t == 0 -> %11
  | True -> %15[t - 1]
%15: bool[] over (t) = logical_and(%14[t], %13[t])
%16: int32[] over (t) = where(%14[t + 1], %1[t], %12)
"""


def test_an_index_is_masked_from_the_end_on() -> None:
    graph = parse(BEFORE)
    found = unchecked_past_stops(graph)
    validate(found)
    changed = {id: node for id, node in found.nodes.items() if graph.nodes.get(id) != node}
    assert str(replace(found, nodes=changed, outputs=())).splitlines()[1:] == AFTER.strip().splitlines()


def test_only_checked_indices_of_a_run_that_may_end_wait() -> None:
    for text in (BEFORE.replace("checked: True", "checked: False"), BEFORE[: BEFORE.index("stop ")]):
        graph = parse(text)
        assert unchecked_past_stops(graph) is graph


def test_a_dim_without_an_end_has_no_stop_to_wait_for() -> None:
    graph = parse(BEFORE.replace("= %10[t] as", "= %9 as"))
    assert unchecked_past_stops(graph) is graph
