"""Programs of which a prefix is known: the cut goes to every node of the cycle, and the meaning stays."""

from collections.abc import Callable

import numpy as np
import pytest

import tempo as tp
from tempo.passes.manager import PassContext
from tempo.passes.simplify.simplify import Canonicalize, Simplify
from tempo.passes.splitting.index_set_split import Split
from tempo.passes.vectorize.search import Lift
from tempo.sdg.components import strongly_connected
from tempo.sdg.graph import Graph
from tests.unit.passes.equivalence import check
from tests.unit.passes.texts import after, assert_becomes

SIZES = ({"p": 1, "t": 1}, {"p": 2, "t": 6}, {"p": 3, "t": 3}, {"p": 5, "t": 3}, {"p": 1, "t": 4})


def decoder() -> tp.Program:
    """Attention over what was said so far; the first tokens are given."""
    with tp.Program("decoder") as program:
        p, t = tp.dims("p t")
        prompt, weights = tp.input("prompt", (3,), (p,)), tp.input("w", (3, 3))
        token = tp.recurrent("token", (3,), (t,))
        key = tp.tanh(token @ weights)
        scores = tp.softmax(key[0 : t + 1] @ key, axis=0)
        token[t < p.size] = prompt[t]
        token[t + 1] = tp.sin(scores @ key[0 : t + 1])
        tp.output("token", token)
    return program


def teacher() -> tp.Program:
    """A recurrent network that is told its first outputs."""
    with tp.Program("teacher") as program:
        p, t = tp.dims("p t")
        given, u, w = tp.input("given", (3,), (p,)), tp.input("u", (3, 3)), tp.input("w", (3, 3))
        out, h = tp.recurrent("out", (3,), (t,)), tp.recurrent("h", (3,), (t,))
        h[0] = tp.zeros((3,))
        h[t + 1] = tp.tanh(h @ w + out @ u)
        out[t < p.size] = given[t]
        out[t + 1] = tp.sin(h @ w)
        tp.output("out", out)
        tp.output("h", h)
    return program


def counting() -> tp.Program:
    """Two cycles know the same points; the first has nothing that many points at once are worth."""
    with tp.Program("counting") as program:
        p, t = tp.dims("p t")
        given, w = tp.input("given", (3,), (p,)), tp.input("w", (3, 3))
        count, token = tp.recurrent("count", (), (t,)), tp.recurrent("token", (3,), (t,))
        count[t < p.size] = 0.0
        count[t] = count[t - 1] + 1.0
        seen = tp.tanh(token @ w)
        token[t < p.size] = given[t]
        token[t + 1] = tp.sin(seen[0 : t + 1].sum(axis=0)) / (count + 1.0)
        tp.output("token", token)
    return program


def layers() -> tp.Program:
    """Layers as a dim, between the tokens and what is read off the last of them; four positions are known."""
    with tp.Program("layers") as program:
        n, t = tp.dims("l t")
        given, w = tp.input("given", (3,), (t,)), tp.input("w", (3, 3), (n,))
        token, x = tp.recurrent("token", (3,), (t,)), tp.recurrent("x", (3,), (n, t))
        x[0, t] = token
        x[n + 1, t] = tp.tanh((x @ w)[n, 0 : t + 1].max(axis=0))
        token[t < 4] = given
        token[t + 1] = tp.sin(x[n.size - 1, t])
        tp.output("token", token)
    return program


def ending() -> tp.Program:
    """Backward in time, with the last outputs given."""
    with tp.Program("ending") as program:
        p, t = tp.dims("p t")
        given, w = tp.input("given", (3,), (t,)), tp.input("w", (3, 3))
        out = tp.recurrent("out", (3,), (t,))
        seen = tp.tanh(out @ w)
        out[t >= t.size - p.size] = given
        out[t] = tp.sin(seen[t + 1 : t.size].sum(axis=0))
        tp.output("out", out)
        tp.output("seen", seen)
    return program


def corrected() -> tp.Program:
    """A state that is observed from some step on."""
    with tp.Program("corrected") as program:
        p, t = tp.dims("p t")
        given, w = tp.input("given", (3,), (t,)), tp.input("w", (3, 3))
        state = tp.recurrent("state", (3,), (t,))
        following = tp.tanh(state @ w)
        state[0] = given
        state[t >= p.size] = given
        state[t + 1] = following
        tp.output("state", state)
        tp.output("following", following)
    return program


def stretch() -> tp.Program:
    """What is observed for a while: neither first nor last."""
    with tp.Program("stretch") as program:
        p, t = tp.dims("p t")
        given, w = tp.input("given", (3,), (t,)), tp.input("w", (3, 3))
        state = tp.recurrent("state", (3,), (t,))
        following = tp.tanh(state @ w)
        state[0] = given
        state[(t >= 2) & (t < p.size + 2)] = given
        state[t] = following[t - 1]
        tp.output("state", state)
        tp.output("following", following)
    return program


def twice() -> tp.Program:
    """Known up to a point in one way, and up to another in a second."""
    with tp.Program("twice") as program:
        p, t = tp.dims("p t")
        given, w = tp.input("given", (3,), (t,)), tp.input("w", (3, 3))
        state = tp.recurrent("state", (3,), (t,))
        seen = tp.tanh(state @ w)
        state[t < p.size] = given
        state[t < p.size + 2] = tp.sin(given)
        state[t + 1] = tp.sin(seen[0 : t + 1].sum(axis=0))
        tp.output("state", state)
    return program


PREFIXES = (decoder, teacher, counting)
OTHERS = (ending, corrected, stretch, twice)


def _graph(make: Callable[[], tp.Program]) -> Graph:
    graph = make().graph()
    for chosen in (Canonicalize(), Simplify()):
        graph = chosen.apply(graph, PassContext())
    return graph


def _on_cycles(graph: Graph) -> set[int]:
    reads = {id: [edge.node for _, edge in node.reads()] for id, node in graph.nodes.items()}
    found = strongly_connected(list(graph.nodes), reads)
    return {id for ids in found for id in ids if len(ids) > 1 or id in reads[id]}


@pytest.mark.parametrize("make", PREFIXES)
def test_a_contraction_leaves_the_cycle_below_the_cut(make: Callable[[], tp.Program]) -> None:
    graph = _graph(make)
    split = check(Split(), graph, *SIZES)
    known = next(dim for dim in split.dims if dim.symbol.name == "t_known")
    assert str(known.size) == "min(p.size, t.size)"
    free = [node for id, node in split.nodes.items() if id not in _on_cycles(split) and known.symbol in node.domain]
    assert any(node.op == "dot" for node in free)
    # No reader but the known side itself is told apart: the others read one merge.
    assert all(known.symbol not in node.domain for node in split.nodes.values() if node.name == "token")
    assert Split().apply(split, PassContext()) == split


@pytest.mark.parametrize("make", OTHERS)
def test_suffixes_stretches_and_several_cuts(make: Callable[[], tp.Program]) -> None:
    split = check(Split(), _graph(make), *SIZES, {"p": 2, "t": 9})
    known = [dim.symbol for dim in split.dims if dim.symbol.name.startswith("t_known")]
    assert len(known) == (2 if make is twice else 1)
    free = [node for id, node in split.nodes.items() if id not in _on_cycles(split)]
    assert all(any(symbol in node.domain for node in free if node.op == "dot") for symbol in known)


@pytest.mark.parametrize("make", [*PREFIXES, *OTHERS])
def test_the_known_side_is_lifted(make: Callable[[], tp.Program]) -> None:
    """Its contraction is one for all known points, though a loop goes through what it is read by."""
    context = PassContext()
    split = Split().apply(_graph(make), context)
    known = {dim.symbol for dim in split.dims if dim.symbol.name.startswith("t_known")}
    made = [node for node in split.nodes.values() if node.op == "dot" and not known.isdisjoint(node.domain)]
    looped = [node for node in Lift().apply(split, context).program.nodes.values() if node.op == "dot"]
    assert sum(not known.isdisjoint(node.domain) for node in looped) < len(made)


def test_layers_are_cut_as_well() -> None:
    split = check(Split(), _graph(layers), *({"l": n, "t": size} for n, size in ((1, 1), (2, 3), (3, 6))))
    assert "t_known" in {dim.symbol.name for dim in split.dims}


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("make", [*PREFIXES, layers, *OTHERS])
def test_compiled_programs_agree_with_the_reference(
    make: Callable[[], tp.Program], sizes: dict[str, int], lift: bool
) -> None:
    program, random = make(), np.random.default_rng(0)
    known = {name: size for name, size in sizes.items() if name in {dim.name for dim in program.dims}}
    known |= {"l": 2} if make is layers else {}
    shapes = {
        node.name: [known[symbol.name] for symbol in node.domain] + [size.as_int() for size in node.shape]
        for node in program.graph().nodes.values()
        if node.op == "input"
    }
    inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    wanted = tp.compile(program, backend="reference")(sizes=known, **inputs)
    found = tp.compile(program, options=tp.Options(lift=lift, debug=True, poison=True))(sizes=known, **inputs)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


CYCLE = """
dims p: p.size, t: t.size
%0: float32[3] over (p) = input {layout: ($p, 0), name: "g", role: "input"} @0 "g"
%1: float32[3] over (t) = merge {name: "x", role: "recurrent"} @1 "x"
  | CONDITION -> %0[min(t, p.size - 1)]
  | t >= 1 -> %2[t - 1]
%2: float32[3] over (t) = OPERATION
output "y": float32[3] over (t) = %1[t] as ($t, 0)
"""
DOT = """dot(%1[t], %3) {lhs_batch: (), lhs_contract: (0,), rhs_batch: (), rhs_contract: (0,)}
%3: float32[3, 3] = input {layout: (0, 1), name: "w", role: "input"} @3 "w\""""


@pytest.mark.parametrize(
    ("condition", "operation"),
    [
        ("t == 0", DOT),  # one point
        ("t % 2 == 0", DOT),
        ("t < p.size", "neg(%1[t])"),  # nothing that many points at once are worth
    ],
)
def test_what_frees_nothing_stays(condition: str, operation: str) -> None:
    text = CYCLE.replace("CONDITION", condition).replace("OPERATION", operation)
    assert_becomes(Split(), text, str(after(Split(), text)))
    assert "t_known" not in str(after(Split(), text))


def test_a_call_of_the_host_is_never_copied() -> None:
    call = """host_call(%4[t]) {batched: (), fn: !f, ordered_by: ($t,), resource: None} @2
%4: float32[3] over (t) = """
    text = CYCLE.replace("CONDITION", "t < p.size").replace("OPERATION", call + DOT.replace("@3", "@4"))
    text = text.replace('output "y"', 'output "z": float32[3] over (t) = %2[t] as ($t, 0)\noutput "y"')
    assert "t_known" not in str(after(Split(), text))
