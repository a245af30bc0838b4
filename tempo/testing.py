"""For tests of programs: whether backends agree on what one means, and how arrays are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo import dtypes
from tempo.compiler.options import Options
from tempo.errors import AtUserLine, InputError, ProgramError, TempoError, UnsupportedError
from tempo.language.program import Program
from tempo.plugins.manager import get_backend, list_backends
from tempo.runtime.arguments import binding
from tempo.runtime.compile import compile
from tempo.runtime.results.outputs import Outputs, Packed
from tempo.sdg.graph import Node

Array = np.ndarray[Any, Any]

TOLERANCES = {"float16": 4e-3, "bfloat16": 3.2e-2, "float32": 1e-5, "float64": 1e-12}
"""Relative, per dtype: libraries differ by some units in the last place, and sums in the order of their terms."""

_SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}
_FIRST_SIZE = 3
_STANDARD = "reference"


def assert_equivalent(
    program: Program,
    backends: Sequence[Any] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    seed: int = 0,
    tolerance: float = 1.0,
    options: Options | None = None,
) -> None:
    """Raises AssertionError where backends disagree on what the program gives, with every output that differs.

    Outputs, parameters at the end, sizes and lengths are compared with those of the first of `backends`, names or
    instances; None: the reference evaluator and every backend that is installed. Integers and bools must be equal,
    floats within `tolerance` times `TOLERANCES`: 1 allows for other orders of sums. `inputs` that are not given are
    drawn, floats from -1 to 1, integers from 0 to 2, by `seed`, which is that of the program's draws, too; sizes that
    nothing says are 3, 4, 5 and so on. A backend that has not what the program needs (`tp.UnsupportedError`) is an
    error, but where `backends` is None: then it is left out.

    Raises what the first backend does. An error that only another one raises is a disagreement.

    >>> import tempo as tp
    >>> with tp.Program("sum") as program:
    ...     t = tp.dim("t")
    ...     x = tp.input("x", (), (t,))
    ...     tp.output("sum", x[0:t + 1].sum())
    >>> assert_equivalent(program, ["reference", "numpy"], sizes={"t": 8})
    """
    with AtUserLine():
        if not isinstance(program, Program):
            raise ProgramError(f"a tp.Program is wanted, not a {type(program).__name__}")
        chosen = [_STANDARD, *_others()] if backends is None else list(backends)
        if len(chosen) < 2:
            raise InputError("one backend has nothing to agree with", hint='write backends=["reference", "numpy"]')
        known, given = _drawn(program, sizes, inputs, seed)
        run = _Run(program, known, given, state, seed, options)
    first, *others = chosen
    standard, problems = run.on(first), list[str]()
    for each in others:
        try:
            made = run.on(each)
        except UnsupportedError as error:
            if backends is not None:
                problems.append(f"{_name(each)} refuses it: {error}")
            continue
        except TempoError as error:
            problems.append(f"{_name(each)} raises {type(error).__name__}: {error}")
            continue
        told = (difference(made[name], array, tolerance) for name, array in standard.items())
        problems += [f"{_name(each)}: {name}: {why}" for name, why in zip(standard, told, strict=True) if why]
    if problems:
        at = ", ".join(f"{name}={size}" for name, size in known.items())
        drawn = sorted(given.keys() - (inputs or {}).keys())
        inputs_drawn = f", drawn: {', '.join(drawn)}" if drawn else ""
        told_at = f"{program.name!r} does not mean the same as on {_name(first)}, with seed={seed}"
        raise AssertionError("\n  ".join([f"{told_at}, sizes: {at or 'none'}{inputs_drawn}", *problems]))


@dataclass(frozen=True)
class _Run:
    """One call, on any backend."""

    program: Program
    sizes: Mapping[str, int]
    inputs: Mapping[str, Any]
    state: Mapping[str, Any] | None
    seed: int
    options: Options | None

    def on(self, backend: Any) -> dict[str, Array]:
        """All that the run gives, by what it is."""
        run = compile(self.program, backend, options=self.options)
        outputs = run(sizes=self.sizes, state=self.state, seed=self.seed, **self.inputs)
        return _arrays(outputs, get_backend(backend))


def _arrays(outputs: Outputs, backend: Any) -> dict[str, Array]:
    def host(array: Any) -> Array:
        return np.asarray(array if getattr(backend, "interprets", False) else backend.to_host(array))

    found: dict[str, Array] = {}
    for name, made in outputs.items():
        if isinstance(made, Packed):
            found |= {f"{name}, values": host(made.values), f"{name}, offsets": made.offsets}
        else:
            found[name] = host(made)
    found |= {f"the parameter {name} at the end": host(array) for name, array in outputs.state.items()}
    found |= {f"the lengths along {name}": array for name, array in outputs.lengths.items()}
    return found | {f"the size of {name}": np.asarray(size) for name, size in outputs.sizes.items()}


def _others() -> list[str]:
    """The backends that can be used, but for the standard."""
    return [each.name for each in list_backends() if each.state == "ok" and each.name != _STANDARD]


def _name(backend: Any) -> str:
    return backend if isinstance(backend, str) else backend.info.name


def _drawn(
    program: Program, sizes: Mapping[str, int] | None, inputs: Mapping[str, Any] | None, seed: int
) -> tuple[dict[str, int], dict[str, Any]]:
    """The size of every dim by name, and every input."""
    graph, table = program.graph(), binding.SizeTable(program.graph())
    nodes, streams = binding.input_nodes(graph, "input"), binding.stream_nodes(graph)
    given = dict(binding.by_name(inputs, "inputs=", 'inputs={"x": array}'))
    for name in given:
        if name not in nodes and name not in streams:
            binding.check_names({name: None}, {**nodes, **streams}, "input")
    table.claim_named(sizes, "sizes=")
    for name, node in nodes.items():
        if name in given:
            given[name] = binding.as_array(given[name], node, binding.called(node))
            binding.claim_shape(table, node, given[name])
    for at, name in enumerate(table.missing()):
        table.claim_named({name: _FIRST_SIZE + at}, "drawn sizes")
    known, random = table.complete(), np.random.default_rng(seed)
    for name, node in {**nodes, **streams}.items():
        if name not in given:
            made = _numbers(node, binding.expected_shape(graph, node, known), random)
            given[name] = list(made) if name in streams else made
    return graph.named_sizes(known), given


def _numbers(node: Node, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    dtype = dtypes.to_numpy(node.dtype)
    if dtypes.is_float(node.dtype):
        return random.uniform(-1, 1, shape).astype(dtype)
    return random.integers(0, 2 if node.dtype == "bool" else 3, shape).astype(dtype)


def difference(found: Array, wanted: Array, tolerance: float = 1.0) -> str | None:
    """How the arrays differ, or None."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{list(found.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    name = dtypes.from_numpy(wanted.dtype)
    if not dtypes.is_float(name):
        return None if np.array_equal(found, wanted) else _places(found, wanted, found != wanted)
    left, right = found.astype(np.float64), wanted.astype(np.float64)
    smallest = _SMALLEST[name]  # what is below the normal numbers may be flushed to zero
    scale = float(np.max(np.abs(right), initial=0.0, where=np.isfinite(right)))
    # Cancellation loses digits of the largest operand, of which the largest result is the trace that is left.
    allowed = smallest + TOLERANCES[name] * tolerance * (np.abs(right) + 1e-2 * min(scale, 1.0))
    with np.errstate(invalid="ignore"):
        near = np.isfinite(right) & (np.abs(left - right) <= allowed)
        equal = (left == right) | near | (np.isnan(left) & np.isnan(right))
    return None if equal.all() else _places(found, wanted, ~equal)


def _places(found: Array, wanted: Array, wrong: Array) -> str:
    first = tuple(int(index[0]) for index in np.nonzero(np.atleast_1d(wrong)))
    at = first if found.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} differ, first at {list(at)}: {found[at]!r}, expected {wanted[at]!r}"


__all__ = ["TOLERANCES", "assert_equivalent", "difference"]
