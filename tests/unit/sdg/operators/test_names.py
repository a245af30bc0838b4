"""Who may name an operator outside of the operators, and why: what one does to an axis is asked of its rule."""

from __future__ import annotations

import ast

import pytest

from benchmarks.weight import NAMES_ALLOWED, PARTS, modules, operators_by_name
from tempo.sdg.operators import OPERATORS

REASONS = {
    "backends/": "a line for each operator in the table of a backend, and Python's own operators on scalars",
    "tempo/analysis/": "what the runtime makes (inputs, calls, definitions), and what may raise",
    "tempo/autodiff/": "placeholders of gradients, and the transposes of reads",
    "tempo/backends/numpy/": "as of a backend",
    "tempo/language/": "functions of users have the names of what they make",
    "tempo/llm/": "what configurations of checkpoints call activations",
    "tempo/loop_ir/": "constants, calls and masks, which are statements of their own kind; forms of scalars in Python",
    "tempo/lowering/": "inputs, constants, definitions and calls become buffers and items, no operators",
    "tempo/passes/attention/": "the form of attention, as it is spelled out",
    "tempo/passes/composites.py": "the forms of a softmax and of activations, as they are spelled out",
    "tempo/passes/compaction.py": "the number of a point, which is not its place where rows are moved",
    "tempo/passes/ragged/": "what moves positions steps over padding in its own way",
    "tempo/passes/pipelining/": "what goes from stage to stage, and what one of them has made",
    "tempo/passes/recompute/": "the element that is read of a row",
    "tempo/passes/recurrence/": "the recurrences that are known",
    "tempo/passes/rewrite/": "nodes that no rule sees, and constants",
    "tempo/passes/simplify/": "the equations that hold",
    "tempo/passes/storage.py": "reads of elements",
    "tempo/passes/wavefront/": "reads of points at indices, and placeholders of gradients",
    "tempo/passes/vectorize/": "what varies along a dim by an expression, no operand; definitions, inputs and calls",
    "tempo/placement/": "what is cut, made whole and added up",
    "tempo/reference/": "what no function on arrays makes",
    "tempo/runtime/": "what no function on arrays makes, and what gives values that are not finite",
    "tempo/sdg/": "nominal nodes, and the nodes that rewriting inserts",
    "tempo/symbolic/": "`floordiv` and `mod` are expressions, too",
}

AXES = {
    "tempo/passes/ragged/alignment.py": set(),
    "tempo/passes/ragged/masking.py": {"conv", "dot", "iota", "pad", "reduce_sum"},
    "tempo/passes/ragged/rules.py": {
        "banded_attention", "concat", "conv", "flip", "gather", "gather_pairs", "pad", "reshape", "scatter_add",
        "shift", "slice", "softmax",
    },
    "tempo/passes/ragged/values.py": set(),
    "tempo/loop_ir/transforms/circular_reads.py": set(),
    "tempo/loop_ir/transforms/dynamic_extent/regions.py": set(),
    "tempo/loop_ir/transforms/dynamic_extent/tile.py": {"mask"},
    "tempo/loop_ir/transforms/dynamic_extent/versions.py": {"mask"},
    "backends/tempo_torch/tempo_torch/flow.py": set(),
    "tempo/placement/propagation.py": set(),
    "tempo/placement/partition.py": set(),
}  # fmt: skip
"""Those who ask what an operator does to an axis, and what they name all the same."""


@pytest.fixture(scope="module")
def naming() -> dict[str, ast.Module]:
    """The modules that name operators."""
    every = (named for folder in PARTS.values() for named in modules(folder))
    return {name: module for name, module in every if not name.startswith(NAMES_ALLOWED) and operators_by_name(module)}


def test_a_module_that_names_an_operator_has_a_reason(naming: dict[str, ast.Module]) -> None:
    assert naming
    assert not [name for name in naming if not name.startswith(tuple(REASONS))]


@pytest.mark.parametrize("name", AXES)
def test_who_asks_for_axes_names_no_more_operators_than_these(naming: dict[str, ast.Module], name: str) -> None:
    found = set[str]()
    for node in ast.walk(naming[name]) if name in naming else ():
        if isinstance(node, ast.Compare | ast.Set | ast.Dict):
            parts = ast.walk(node) if not isinstance(node, ast.Dict) else filter(None, node.keys)
            found |= {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    assert found & OPERATORS.keys() <= AXES[name]
