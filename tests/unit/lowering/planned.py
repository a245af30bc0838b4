"""Plans of programs given as SDG text, run on NumPy and held to the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tempo.compiler.driver import Compiler
from tempo.compiler.options import Options
from tempo.compiler.plan import Plan
from tempo.plugins.manager import get_backend, get_scheduler
from tempo.reference.evaluator import Evaluator
from tempo.runtime.arguments.binding import expected_shape, input_nodes
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.engine import CompiledEngine
from tempo.sdg.graph import Graph, Port
from tempo.sdg.parse import parse
from tempo.symbolic import Symbol


def engine_of(text: str, **options: Any) -> CompiledEngine:
    chosen = Options(poison=True, **options)
    return CompiledEngine(Compiler(parse(text), get_backend("numpy"), get_scheduler("greedy"), chosen), "greedy")


def plan_of(text: str, **options: Any) -> Plan:
    return engine_of(text, **options).plan()


def storage(plan: Plan) -> dict[str, str]:
    """Storage by tensor name, of everything but inputs, outputs and constants."""
    kept = {buffer.name: buffer.storage for buffer in plan.loops.buffers.values() if buffer.role == "internal"}
    return {**kept, **{buffer.name: "register" for buffer in plan.loops.registers}}


def sources(text: str, **sizes: int) -> str:
    engine = engine_of(text)
    known = symbols(**sizes)
    return "\n".join(segment.source for segment in engine.at(engine.plan(), known).compiled.segments)


def symbols(**sizes: int) -> dict[Symbol, int]:
    return {Symbol(name, "size"): value for name, value in sizes.items()}


def random_arguments(graph: Graph, sizes: dict[Symbol, int]) -> Arguments:
    generator = np.random.default_rng(0)
    arrays = {Port("seed", "seed"): np.asarray(0, np.uint32)}
    for node in input_nodes(graph, "input").values():
        shape = expected_shape(graph, node, sizes)
        arrays[node.port] = generator.standard_normal(shape).astype(np.float32)
    return Arguments(sizes, arrays, 0)


def check(text: str, **sizes: int) -> None:
    """The program gives what the reference gives, with every buffer filled with NaN at first."""
    engine = engine_of(text)
    arguments = random_arguments(engine.graph, symbols(**sizes))
    made = engine.run(arguments, None)
    inputs = {node.id: arguments.arrays[node.port] for node in input_nodes(engine.graph, "input").values()}
    expected = Evaluator(engine.graph, inputs, arguments.sizes).run()
    for name, array in {**expected.outputs, **expected.state}.items():
        found = {**made.outputs, **made.state}[name]
        assert found.shape == array.shape and found.dtype == array.dtype
        np.testing.assert_allclose(found, array, rtol=2e-6, err_msg=f"{name} at {sizes}")
