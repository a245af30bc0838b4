"""Running programs of the language on the reference evaluator alone."""

from __future__ import annotations

from typing import Any

import numpy as np

import tempo as tp
from tempo.reference.evaluator import Evaluated, Evaluator
from tempo.symbolic import Symbol


def evaluator(program: tp.Program, sizes: dict[str, int] | None = None, **inputs: Any) -> Evaluator:
    """`inputs` by the names of inputs and, for parameters, of their initial values."""
    graph = program.graph()
    nodes = {node.attr("name"): node for node in graph.nodes.values() if node.op == "input"}
    given = {nodes[name].id: np.asarray(value, nodes[name].dtype) for name, value in inputs.items()}
    return Evaluator(graph, given, {Symbol(name, "size"): size for name, size in (sizes or {}).items()})


def run(program: tp.Program, sizes: dict[str, int] | None = None, **inputs: Any) -> Evaluated:
    return evaluator(program, sizes, **inputs).run()
