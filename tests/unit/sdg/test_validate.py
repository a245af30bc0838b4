import pytest

from tempo.errors import InternalError
from tempo.sdg.parse import parse
from tempo.sdg.validate import validate

VALID = """
dims b: 4, t: t.size
%0: float32[3] over (t) = input {layout: ($t, 0), name: "x", role: "input"} @0 "x"
%1: float32[t + 1, 3] over (t) = neg(%0[0 +: t + 1])
%2: float32[3] over (t) = reduce_sum(%1[t]) {axes: (0,)}
%3: float32[3] over (t) = merge {name: "h", role: "recurrent"} @1 "h"
  | t == 0 -> %2[0]
  | True -> %4[t - 1]
%4: float32[3] over (t) = add(%3[t], %2[t + 1])
%5: nothing over (t) = sink(%3[t]) {batched: (), fn: !f, ordered_by: ($t,), resource: None} @2
%6: float32[3] over (t) = neg(%3[t])
output "y": float32[3] over (t) = %3[t] as ($t, 0)
sinks %5
"""


def test_a_valid_graph_passes() -> None:
    validate(parse(VALID))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("add(%3[t], %2[t + 1])", "add(%3[t], %9[t + 1])", "node %9, which is read, does not exist"),
        ("add(%3[t], %2[t + 1])", "add(%3[t], %2.1[t + 1])", "%2 has no result 1"),
        ("add(%3[t], %2[t + 1])", "add(%3[t], %2)", "0 positions for 1 dims"),
        ("add(%3[t], %2[t + 1])", "add(%3[t], %2[b])", "the map to %2 uses b"),
        ("add(%3[t], %2[t + 1])", "nothing(%3[t])", "no operator 'nothing'"),
        ("%6: float32[3] over (t)", "%6: float32[3] over (b, t)", "nothing varies along b"),
        ("%6: float32[3] over (t)", "%6: float32[3] over (t, b)", "not canonical"),
        ("%2: float32[3] over (t)", "%2: float32[4] over (t)", r"rule gives float32\[3\]"),
        ("%2: float32[3] over (t)", "%2: int32[3] over (t)", r"rule gives float32\[3\]"),
        ("%3: float32[3] over (t)", "%3: float32[5] over (t)", r"the case at %2 gives float32\[3\]"),
        ("{axes: (0,)}", "{axes: (5,)}", "the operator's rule refuses this"),
        ("resource: None} @2", "resource: None} @1", "declaration 1 is also that of %3"),
        ("resource: None} @2", "resource: None}", "needs a declaration number"),
        ("{axes: (0,)}", "{axes: (0,)} @7", "a pure node has no declaration"),
        ("| t == 0 ->", "| t == b ->", "b vary outside the domain"),
        ("{layout: ($t, 0)", "{layout: (0,)", "does not name each dim and axis once"),
        ("ordered_by: ($t,)", "ordered_by: ($b,)", "ordered by a dim that is not in its domain"),
        ("as ($t, 0)", "as ($t, 1)", "does not name each dim and axis once"),
        ("as ($t, 0)", "as ($t)", "does not name each dim and axis once"),
        ('"y": float32[3]', '"y": float32[2]', r"the edge gives float32\[3\]"),
        ("sinks %5", "sinks %4", "a node that is no sink"),
        ("sinks %5", "sinks %8", "sink %8 does not exist"),
        ("add(%3[t], %2[t + 1])", "add(%4[t - 1], %2[t + 1])", "a cycle runs through no merge"),
    ],
)
def test_what_is_broken_is_named_with_its_node(old: str, new: str, problem: str) -> None:
    assert old in VALID
    with pytest.raises(InternalError, match=problem):
        validate(parse(VALID.replace(old, new)))
