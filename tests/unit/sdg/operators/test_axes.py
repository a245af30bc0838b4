"""The axis rule of every operator, held to its own NumPy function; and what those who ask for it make of the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tempo import dtypes
from tempo.conformance.by_operator import each_sample
from tempo.conformance.operator_samples import SAMPLES, Sample, as_int
from tempo.errors import ShapeError, TempoError
from tempo.loop_ir.ir import Compute
from tempo.loop_ir.transforms.dynamic_extent.regions import tracked
from tempo.passes.ragged.rules import RULES
from tempo.passes.ragged.static_extents import StaticExtents
from tempo.sdg.call import Array, Call, StaticType
from tempo.sdg.graph import Graph, TensorType
from tempo.sdg.operators import OPERATORS, Operator, Role, call_for
from tempo.sdg.operators.axes import Factor, Factors
from tempo.sdg.parse import parse
from tempo.sdg.rewriter import Rewriter, Tensors
from tempo.symbolic import Symbol, as_expr, const, dim
from tests.unit.passes.equivalence import check

KEPT = (Role.PARALLEL, Role.SCANNING)


@pytest.fixture(autouse=True)
def _silent():
    """Floating-point warnings are those of NumPy itself."""
    with np.errstate(all="ignore"):
        yield


@dataclass(frozen=True)
class Case:
    """A factor of an application of an operator."""

    sample: Sample
    call: Call
    factor: Factor

    def __str__(self) -> str:
        at = ",".join("-" if axis is None else str(axis) for axis in self.factor.operands)
        return f"{self.sample}-{at}"

    @property
    def operator(self) -> Operator:
        return OPERATORS[self.call.op]

    @property
    def size(self) -> int:
        number, axis = self.factor.places[0]
        return self.call.operands[number].shape[axis]

    def arrays(self) -> list[Array]:
        return self.sample.arrays(self.call)

    def run(self, arrays: list[Array], attrs: dict[str, Any] | None = None) -> Array:
        """The operator on other arrays, with what it says itself of their result."""
        attrs = self.sample.attrs if attrs is None else attrs
        types = [StaticType(array.shape, type.dtype) for array, type in zip(arrays, self.call.operands)]
        inferred = self.operator.infer(attrs, tuple(map(symbolic, types)))
        result = StaticType(tuple(map(as_int, inferred.shape)), inferred.dtype)
        found = self.operator.numpy(call_for(self.call.op, attrs, types, result, as_int))(*arrays, *self.sample.scalars)
        assert found.shape == result.shape
        return np.asarray(found)

    def changed(self, change: Any) -> list[Array]:
        """The operands, changed along the axis of those that have it."""
        arrays = self.arrays()
        for number, axis in self.factor.places:
            arrays[number] = change(arrays[number], axis)
        return arrays

    def resized(self, size: int) -> dict[str, Any]:
        if self.factor.result is None:
            return dict(self.sample.attrs)
        shape = list(self.call.result.shape)
        shape[self.factor.result] = size
        return self.operator.resized(self.sample.attrs, tuple(map(as_expr, shape)))


def symbolic(type: StaticType) -> TensorType:
    return TensorType(tuple(map(as_expr, type.shape)), type.dtype)


def factors(sample: Sample, call: Call) -> Factors:
    shapes = [symbolic(type).shape for type in call.operands]
    return OPERATORS[sample.op].axes(sample.attrs, shapes, symbolic(call.result).shape)


def call_of(sample: Sample) -> Call:
    return next(call for dtype in ("float32", "int32", "bool") if (call := sample.call(dtype)) is not None)


def cases(sample: Sample, *roles: Role) -> list[Case]:
    call = call_of(sample)
    kept = (each for each in factors(sample, call) if each.places and (each.role in roles or not roles))
    return [case for factor in kept if (case := Case(sample, call, factor)).size > 1]


def each_case(*roles: Role) -> Callable[[Callable[[Case], None]], Callable[[str], None]]:
    """Runs a test for every factor of such a role, or of any."""

    def decorate(test: Callable[[Case], None]) -> Callable[[str], None]:
        def of_sample(sample: Sample) -> None:
            for case in cases(sample, *roles):
                test(case)

        of_sample.__name__, of_sample.__doc__ = test.__name__, test.__doc__
        return each_sample([sample for sample in SAMPLES if cases(sample, *roles)])(of_sample)

    return decorate


def first(size: int) -> Any:
    return lambda array, axis: array.take(np.arange(size), axis)


@each_sample(SAMPLES)
def test_every_axis_is_that_of_one_factor(sample: Sample) -> None:
    call = call_of(sample)
    found = factors(sample, call)
    places = [place for factor in found for place in factor.places]
    results = [factor.result for factor in found if factor.result is not None]
    assert len(set(places)) == len(places)
    assert sorted(results) == list(range(call.result.rank))
    every = {(number, axis) for number, type in enumerate(call.operands) for axis in range(type.rank)}
    assert all(call.operands[number].shape[axis] == 1 for number, axis in every - set(places))


@each_case(*KEPT, Role.REDUCING)
def test_all_have_as_many_positions_along_a_factor(case: Case) -> None:
    sizes = {case.call.operands[number].shape[axis] for number, axis in case.factor.places}
    if case.factor.result is not None:
        sizes.add(case.call.result.shape[case.factor.result])
    assert len(sizes) == 1
    assert (case.factor.result is None) == (case.factor.role is Role.REDUCING)


@each_case(*KEPT)
def test_the_first_positions_of_a_kept_axis_need_no_others(case: Case) -> None:
    """At a random size. What is scanned is padded behind them."""
    size = int(np.random.default_rng(len(str(case))).integers(1, case.size))
    whole = case.arrays()
    fill = case.operator.padding(case.call.operands[0].dtype)
    if case.factor.role is Role.SCANNING and fill is not None:
        whole = case.changed(lambda array, axis: padded(array, axis, size, fill))
    expected = first(size)(case.run(whole), case.factor.result)
    cut = [first(size)(array, axis) if axis is not None else array for array, axis in zip(whole, case.factor.operands)]
    np.testing.assert_allclose(case.run(cut, case.resized(size)), expected, rtol=1e-5)


def padded(array: Array, axis: int, size: int, fill: Any) -> Array:
    """With `fill` from position `size` on."""
    found = np.moveaxis(array.copy(), axis, 0)
    found[size:] = fill
    return np.moveaxis(found, 0, axis)


@each_case(Role.PARALLEL, Role.REDUCING)
def test_positions_that_are_not_ordered_may_change_places(case: Case) -> None:
    if case.factor.ordered:
        return
    order = np.random.default_rng(0).permutation(case.size)
    expected = case.run(case.arrays())
    if case.factor.result is not None:
        expected = expected.take(order, case.factor.result)
    found = case.run(case.changed(lambda array, axis: array.take(order, axis)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@each_case(Role.REDUCING)
def test_padding_of_what_is_folded_changes_nothing_and_parts_combine(case: Case) -> None:
    expected, dtype = case.run(case.arrays()), case.call.operands[0].dtype
    fill, combine = case.operator.padding(dtype), case.operator.combine
    if fill is not None:
        longer = case.changed(lambda array, axis: np.insert(array, array.shape[axis], fill, axis))
        np.testing.assert_allclose(case.run(longer), expected, rtol=1e-5)
    if combine is None:
        return
    parts = [case.run(case.changed(lambda array, axis, part=part: array.take(part, axis)))
             for part in ([0], range(1, case.size))]  # fmt: skip
    types = tuple(StaticType(part.shape, dtypes.from_numpy(part.dtype)) for part in parts)
    joined = OPERATORS[combine].numpy(Call(combine, {}, types, types[0]))(*parts)
    np.testing.assert_allclose(joined, expected, rtol=1e-5, atol=1e-5)


@each_case(Role.WINDOW)
def test_a_window_makes_an_axis_longer_or_shorter_by_a_number(case: Case) -> None:
    if case.factor.stride == 1:
        number, axis = case.factor.places[0]
        grown = [np.insert(array, 0, 0, axis) if at == number else array for at, array in enumerate(case.arrays())]
        wanted = list(case.call.result.shape)
        wanted[case.factor.result] += 1
        assert case.run(grown).shape == tuple(wanted)


@each_case(Role.MAJOR)
def test_the_first_part_of_a_leading_axis_makes_the_first_part(case: Case) -> None:
    """For any parts of one size that both axes can be cut into."""
    result = case.call.result.shape[case.factor.result]
    expected = case.run(case.arrays())
    for count in (each for each in range(2, case.size + 1) if case.size % each == 0 and result % each == 0):
        found = case.run(case.changed(first(case.size // count)), case.resized(result // count))
        np.testing.assert_array_equal(found, first(result // count)(expected, case.factor.result))


# -- those who ask ---------------------------------------------------------------------------------------------------


@each_case()
def test_an_axis_is_followed_through_statements_or_there_is_a_reason(case: Case) -> None:
    """The statement at another extent is what the operator itself says of such operands."""
    types = tuple(map(symbolic, case.call.operands))
    names = tuple(f"x{number}" for number in range(len(types)))
    attrs, result = case.sample.attrs, symbolic(case.call.result)
    made = Compute("y", case.call.op, attrs, names, types, result, case.operator.scalars(attrs))
    found = tracked(made, case.factor.operands, as_int, case.size)
    if found is None:
        told = case.factor.role is Role.REDUCING and case.operator.padding("float32") is None
        moved = case.factor.role in (Role.MOVING, Role.MAJOR, Role.OPAQUE) or case.factor.stride != 1
        assert told or moved or attrs.get("checked")
        return
    *cuts, other = found.at(case.size + 3)
    assert not cuts
    inferred = case.operator.infer(other.attrs, other.operand_types)
    assert list(map(as_int, inferred.shape)) == list(map(as_int, other.type.shape))


def over_prefixes(case: Case, least: int) -> Graph:
    """The operator on prefixes of `t + least` positions along the factor, of inputs."""
    lines = [
        f"%{number}: {type.dtype}[{', '.join(map(str, type.shape))}] over (t) = input "
        f'{{layout: ({", ".join(["$t", *map(str, range(type.rank))])},), name: "x{number}", role: "input"}} @{number}'
        for number, type in enumerate(case.call.operands)
    ]
    dummy = f"%{len(lines)}: int32[] over (t) = index_value {{expr: `t`}}"
    out = f'output "out": int32[] over (t) = %{len(lines)}[t] as ($t,)'
    graph = parse("\n".join(["dims t: t.size", *lines, dummy, out]))
    tensors, length = Tensors(Rewriter(graph), None), dim("t") + least
    edges = [replace(graph.outputs[0].edge, node=number) for number in range(len(lines))]
    for number, axis in case.factor.places:
        edges[number] = tensors.cut(edges[number], axis, const(0), length)
    attrs = dict(case.sample.attrs)
    if case.factor.result is not None:
        shape = [as_expr(size) for size in case.call.result.shape]
        shape[case.factor.result] = length
        attrs = case.operator.resized(attrs, tuple(shape))
    made = tensors.apply(case.call.op, *edges, **attrs)
    for axis, size in enumerate(tensors.shape(made)):
        if size.dims():  # its last position
            made = tensors.cut(made, axis, size - 1, const(1))
    type = tensors.seen(made)
    layout = (Symbol("t", "dim"), *range(len(type.shape)))
    output = replace(graph.outputs[0], edge=made, type=type, layout=layout)
    return replace(graph, nodes=tensors.rewriter.nodes, outputs=(output,))


@each_case()
def test_an_axis_whose_length_varies_gets_a_static_extent_or_there_is_a_reason(case: Case) -> None:
    room = {Role.WINDOW: case.size - 1, Role.REDUCING: case.sample.attrs.get("k", 1)}  # for a kernel, for `k` elements
    least = max(1, room.get(case.factor.role, 1))
    taken = case.factor.role is Role.MOVING or case.sample.attrs.get("checked")
    if case.call.op in ("slice", "scatter_add") and taken:
        return  # of positions that a prefix lacks; `test_static_extents` has slices
    try:
        graph = over_prefixes(case, least)
    except ShapeError:
        assert case.factor.role in (
            Role.OPAQUE,
            Role.MOVING,
            Role.MAJOR,
        )  # of which the attributes name other positions
        return
    try:
        check(StaticExtents(), graph, {"t": case.size - least + 1}, {"t": 1}, checks=False)
    except TempoError as error:
        assert "cannot work along axis" in str(error) or "decompose" in str(error)  # noqa: PT017
        assert case.factor.role in (Role.OPAQUE, Role.MOVING, Role.WINDOW, Role.MAJOR)


@each_sample(SAMPLES)
def test_a_rule_steps_over_padding_where_positions_move_and_only_there(sample: Sample) -> None:
    roles = {factor.role for factor in factors(sample, call_of(sample))}
    if OPERATORS[sample.op].kind not in ("composite", "random"):
        assert not roles & {Role.MOVING, Role.WINDOW} or sample.op in RULES
