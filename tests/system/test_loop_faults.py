"""The verifier of LoopIR finds every planted fault that changes what a program gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from random import Random

import numpy as np

from tempo.analysis.demand.instances import demanded
from tempo.compiler.driver import Specialised
from tempo.errors import InternalError
from tempo.loop_ir.ir import LoopProgram
from tempo.loop_ir.verify import verify
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.compiled import Ready, compile_program
from tempo.runtime.engine import CompiledEngine
from tempo.runtime.program_run import ProgramRun
from tests.system.saboteur.loop_faults import KINDS
from tests.unit.loop_ir.programs import WAYS, counting, decoding, engine_of, recurrence, sizes_of
from tests.unit.lowering.planned import random_arguments

FAULTS = 200


def outputs(engine: CompiledEngine, program: LoopProgram, arguments: Arguments) -> dict[str, np.ndarray] | str:
    """What the program gives, or the name of what it raises."""
    plan = engine.plan()
    static = engine.compiler.static(plan, arguments.sizes)
    try:
        compiled = compile_program(Specialised(program, static, (), program), engine.backend, arguments.sizes)
        named = plan.graph.named_sizes(arguments.sizes)
        ready = Ready(plan, compiled, arguments.sizes, partial(demanded, plan.graph, arguments.sizes), named)
        run = ProgramRun(ready, arguments.arrays, True)
        for item in compiled.items:
            run.whole(item)
        return {key: np.asarray(run.output(id)) for key, id in program.outputs.items()}
    except Exception as error:  # noqa: BLE001 - whatever a fault leads to
        return type(error).__name__


def is_same(found: dict[str, np.ndarray] | str, wanted: dict[str, np.ndarray] | str) -> bool:
    if isinstance(found, str) or isinstance(wanted, str):
        return False
    return all(np.array_equal(found[key], wanted[key], equal_nan=True) for key in wanted)


def programs() -> Iterator[tuple[CompiledEngine, LoopProgram, Arguments]]:
    for make in (recurrence, decoding, counting):
        for way in WAYS:
            engine = engine_of(make, way)
            arguments = random_arguments(engine.graph, sizes_of(engine))
            yield engine, engine.at(engine.plan(), arguments.sizes).compiled.program, arguments


def test_what_changes_a_result_is_found() -> None:
    draw, given, planted, found = Random(0), list(programs()), Counter[str](), Counter[str]()
    right = [outputs(*each) for each in given]
    assert not any(isinstance(each, str) for each in right)
    while sum(planted.values()) < FAULTS:
        place, kind = draw.randrange(len(given)), KINDS[sum(planted.values()) % len(KINDS)]
        engine, program, arguments = given[place]
        wrong = kind(program, arguments.sizes, draw)
        if wrong is None or wrong == program:
            continue
        planted[kind.__name__] += 1
        try:
            verify(wrong, arguments.sizes)
        except InternalError:
            found[kind.__name__] += 1
            continue
        assert is_same(outputs(engine, wrong, arguments), right[place]), f"{kind.__name__} was not found in\n{wrong}"
    assert all(found[kind.__name__] >= 0.8 * planted[kind.__name__] for kind in KINDS), (planted, found)
