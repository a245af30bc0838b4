"""What the suite is run against, and how results are compared."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import dtypes
from tempo.conformance.mesh import drawn
from tempo.loop_ir.pipeline import at_sizes, for_all_sizes
from tempo.passes.manager import PassOn, needed
from tempo.passes.pipeline import default_passes
from tempo.plugins.descriptors import BackendPlugin
from tempo.runtime.executable import Executable
from tempo.runtime.results.outputs import Outputs
from tempo.testing import difference

Array = np.ndarray[Any, Any]


def typical(
    values: Iterable[Any], chosen: Container[Any], others: pytest.MarkDecorator = pytest.mark.slow
) -> list[Any]:
    """Parameters of a test, of which those that are not among `chosen` have the mark `others`: what they find is rarely
    their own."""
    return [each if each in chosen else pytest.param(each, marks=others) for each in values]


@dataclass(frozen=True)
class Configuration:
    """The passes that run: "all", "none" (but those that code cannot do without), or one alone."""

    name: str
    disable: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def few() -> tuple[Configuration, ...]:
        return Configuration("all"), Configuration("none", tuple(_optional()))

    @staticmethod
    def every() -> tuple[Configuration, ...]:
        """Also each pass alone."""
        alone = (
            Configuration(f"only-{name}", tuple(other for other in _optional() if other != name))
            for name in _optional()
        )
        return (*Configuration.few(), *alone)


def _optional() -> list[str]:
    """Of both IRs."""
    passes: tuple[PassOn[Any, Any], ...] = (*default_passes(), *for_all_sizes(), *at_sizes())
    return list(dict.fromkeys(each.name for each in passes if needed(each) is None))


@dataclass(frozen=True)
class Target:
    """A backend on one of its devices, or on a mesh of so many (`tempo.conformance.mesh`), and a scheduler."""

    backend: Any
    scheduler: str | None = None
    configuration: Configuration = field(default_factory=lambda: Configuration("all"))
    mesh: int | None = None
    thorough: bool = True  # else a test may leave out combinations that take long to compile
    validates: bool = True

    @property
    def info(self) -> BackendPlugin:
        info: BackendPlugin = self.backend.info
        return info

    @cached_property
    def interprets(self) -> bool:
        """Whether it evaluates the graph itself; then there is no plan, no memory to look at, no order to stream in."""
        return bool(getattr(self.backend, "interprets", False))

    def options(self, **given: Any) -> tp.Options:
        """Buffers and padding full of NaN, graphs validated after every pass unless the run is a brief one."""
        disable = self.configuration.disable
        return tp.Options(**{"disable": disable, "debug": self.validates, "poison": True, **given})

    def compile(
        self,
        program: tp.Program,
        sizes: Mapping[str, int] | None = None,
        offload: Any = None,
        known: Mapping[str, int] | None = None,
        **options: Any,
    ) -> Executable:
        """`known`: the sizes that it will be run at, by which a mesh is drawn."""
        chosen = self.options(**options)
        given = {"sizes": sizes, "options": chosen, "offload": offload}
        if self.mesh is not None and offload is None and isinstance(program, tp.Program):
            given |= drawn(program, known or sizes, self.mesh, chosen)
        run: Executable = tp.compile(program, self.backend, self.scheduler, **given)
        return run

    def to_numpy(self, array: Any) -> Array:
        return np.asarray(array if self.interprets else self.backend.to_host(array))

    def arrays(self, outputs: Mapping[str, Any]) -> dict[str, Array]:
        return {name: self.to_numpy(array) for name, array in outputs.items()}

    def supports(self, operator: str, dtype: str) -> bool:
        return self.info.why_not(operator, dtype) is None

    def agrees(
        self,
        program: tp.Program,
        expected: Mapping[str, Any] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        seed: int = 0,
        tolerance: float = 1.0,
        options: Mapping[str, Any] | None = None,
        offload: Any = None,
        **inputs: Any,
    ) -> Outputs:
        """Runs the program and compares outputs and state with the reference evaluator's, and with `expected`.

        `tolerance` scales those of `tempo.testing`. Raises AssertionError with every output that differs.
        """
        meaning = tp.compile(program, "reference", options=tp.Options(**dict(options or {})))
        wanted = meaning(sizes=sizes, seed=seed, **inputs)
        run = self.compile(program, offload=offload, known=wanted.sizes, **dict(options or {}))
        found = run(sizes=sizes, seed=seed, **inputs)
        assert_same(self.arrays(found), dict(wanted), tolerance)
        assert_same(self.arrays(found.state), dict(wanted.state), tolerance)
        assert found.sizes == wanted.sizes
        assert_same(found.lengths, wanted.lengths)
        if expected is not None:
            closed = {
                name: np.asarray(value).astype(np.asarray(wanted[name]).dtype) for name, value in expected.items()
            }
            assert_same({name: self.to_numpy(found[name]) for name in closed}, closed, tolerance)
        return found


def assert_same(found: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float = 1.0) -> None:
    """Names, shapes and dtypes; integers and bools exactly, floats within the tolerance of their dtype."""
    assert sorted(found) == sorted(wanted)
    problems = {name: difference(found[name], np.asarray(wanted[name]), tolerance) for name in wanted}
    told = [f"{name}: {problem}" for name, problem in problems.items() if problem]
    assert not told, "\n".join(told)


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    """Small numbers of the dtype that every float holds exactly, with signs where the dtype has them."""
    random = np.random.default_rng(seed)
    low = 0 if dtypes.kind(dtype) in ("uint", "bool") else -8
    whole = random.integers(low, 9, shape)
    if dtypes.is_float(dtype):
        return (whole / 4).astype(dtypes.to_numpy(dtype))
    return (whole % 2 if dtype == "bool" else whole).astype(dtypes.to_numpy(dtype))
