"""Family 3, operators: every primitive with every dtype, through the whole compiler.

Programs hold many operators each, so that a backend compiles few of them. An operator that a backend's capabilities
declare as unsupported is left out of these and must raise `tp.UnsupportedError` on its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo import dtypes
from tempo.conformance.operator_samples import SAMPLES, Sample
from tempo.conformance.target import Array, Target, numbers, typical
from tempo.language.tensor import apply
from tempo.sdg.call import Call
from tempo.sdg.operators import OPERATORS
from tempo.sdg.operators.elementwise import BINARY, UNARY

KINDS = ("elementwise", "movement", "reduction", "scan", "contraction", "composite", "indexing", "creation")
IN_LOOPS = ("float32", "int32", "bool")
WILD = (0, 1, -1, 2, -2, 3, 0.5, -0.5, 1.5, 2.5, -7, 7.25, 30, -30, 87, -87, 1e-3, -1e-3, 300.7, -300.7, 1e10, -1e10)
LIMITS = (np.inf, -np.inf, np.nan, -0.0)
every_dtype = pytest.mark.parametrize("dtype", dtypes.DTYPES)
TYPICAL = ("float32", "bfloat16", "int32", "uint8", "bool")
every_dtype_slowly = pytest.mark.parametrize("dtype", typical(dtypes.DTYPES, TYPICAL))


def wild(dtype: str) -> Array:
    """Values over the whole range of the dtype, with its extremes."""
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_float(dtype):
        with np.errstate(over="ignore"):
            return np.array([*WILD, *LIMITS]).astype(dtypes.to_numpy(dtype))
    limits = np.iinfo(dtypes.to_numpy(dtype))
    values = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2, 3, 7, 31, 100]
    values += [-1, -2, -3, -7, -100] if limits.min < 0 else []
    return np.array(values, dtypes.to_numpy(dtype))


def takes(op: str, *types: str) -> bool:
    """Whether the operator's rule admits operands of these dtypes."""
    return Sample(op, ((),) * len(types), {}, types).call("") is not None


def runs(target: Target, sample: Sample, dtype: str) -> bool:
    """Whether the sample exists for the dtype, and the backend claims everything that occurs in it."""
    call = sample.call(dtype)
    if call is None or not target.supports(sample.op, dtype):
        return False
    return all(type.dtype in target.info.dtypes for type in (*call.operands, call.result))


def chosen_samples(target: Target, dtype: str, kind: str) -> list[Sample]:
    """The samples of a kind; of each elementwise operator one, in turn of the shapes that there are."""
    samples = [each for each in SAMPLES if OPERATORS[each.op].kind == kind]
    if kind == "elementwise":
        of_op: dict[str, list[Sample]] = {}
        for each in samples:
            of_op.setdefault(each.op, []).append(each)
        samples = [found[place % len(found)] for place, found in enumerate(of_op.values())]
    return [each for each in samples if runs(target, each, dtype)]


@pytest.mark.few_configurations
@pytest.mark.parametrize("kind", KINDS)
@every_dtype_slowly
def test_primitives_at_every_point_of_a_dim(target: Target, dtype: str, kind: str) -> None:
    """The samples of one kind, each an output of one program: lifted over the dim, or in a loop along it."""
    if target.configuration.name == "none" and not target.thorough and dtype not in IN_LOOPS:
        pytest.skip("compiling takes long: in loops, one dtype of each kind")
    chosen = chosen_samples(target, dtype, kind)
    if not chosen:
        pytest.skip(f"no operator of this kind takes {dtype}")
    arrays: dict[str, Any] = {}
    with tp.Program(f"{kind} {dtype}") as program:
        t = tp.dim("t", 2)  # the dim of the samples whose starts and lengths vary
        for number, sample in enumerate(chosen):
            call = sample.call(dtype)
            assert call is not None
            names = [f"x{number}_{place}" for place in range(len(call.operands))]
            points = [sample.arrays(call, number), sample.arrays(call, number + 1)]
            arrays |= {name: np.stack(each) for name, each in zip(names, zip(*points))}
            given = [tp.input(name, type.shape, (t,), type.dtype) for name, type in zip(names, call.operands)]
            tp.output(f"{number}: {sample}", apply(sample.op, *given, attrs=sample.attrs))
    # Kernels round attention's weights to halves, as a program that says it in operators does, and have an erf of their
    # own: sums near 0 tell.
    with np.errstate(all="ignore"):
        target.agrees(program, **arrays, tolerance=12 if kind == "composite" else 2)


@pytest.mark.one_configuration
@every_dtype
def test_unary_functions_over_the_whole_range(target: Target, dtype: str) -> None:
    if dtype not in target.info.dtypes:
        pytest.skip(f"{target.info.name} has no {dtype}")
    names = [each.name for each in UNARY if takes(each.name, dtype) and target.supports(each.name, dtype)]
    with tp.Program() as program:
        x = tp.input("x", (3 * len(wild(dtype)),), dtype=dtype)  # long enough for vector instructions
        for name in names:
            tp.output(name, apply(name, x))
        for other in target.info.dtypes:
            if target.supports("cast", other):
                tp.output(f"to {other}", apply("cast", x, attrs={"dtype": other}))
    with np.errstate(all="ignore"):
        target.agrees(program, x=np.tile(wild(dtype), 3), tolerance=2)


@pytest.mark.one_configuration
@every_dtype
def test_binary_functions_of_all_pairs(target: Target, dtype: str) -> None:
    """Signs of integer division, shifts by a word, powers, comparisons with NaN."""
    names = [each.name for each in BINARY if takes(each.name, dtype, dtype) and target.supports(each.name, dtype)]
    values = wild(dtype)
    with tp.Program() as program:
        x = tp.input("x", (len(values), 1), dtype=dtype)
        y = tp.input("y", values.shape, dtype=dtype)
        for name in names:
            tp.output(name, apply(name, x, y))
    with np.errstate(all="ignore"):
        target.agrees(program, x=values[:, None], y=values, tolerance=4)


@pytest.mark.one_configuration
@every_dtype
def test_order_with_ties_and_nan(target: Target, dtype: str) -> None:
    if dtype not in target.info.dtypes:
        pytest.skip(f"{target.info.name} has no {dtype}")
    values = np.concatenate([wild(dtype)[::-1], wild(dtype)])
    with tp.Program() as program:
        x = tp.input("x", values.shape, dtype=dtype)
        for name in ("argmax", "argmin", "sort", "argsort"):
            if takes_axis(name, dtype) and target.supports(name, dtype):
                tp.output(name, apply(name, x, attrs={"axis": 0}))
        for name in ("reduce_max", "reduce_min"):
            if target.supports(name, dtype):
                tp.output(name, apply(name, x, attrs={"axes": (0,)}))
    target.agrees(program, x=values)


@pytest.mark.one_configuration
@every_dtype
def test_sorts_keep_the_order_of_equals_in_both_directions(target: Target, dtype: str) -> None:
    """Bit for bit: 0.0 and -0.0 are equal, NaN is greater than all. The gradient goes back by the same order."""
    if dtype not in target.info.dtypes or not target.supports("sort", dtype) or not target.supports("argsort", dtype):
        pytest.skip(f"{target.info.name} does not sort {dtype}")
    values = np.concatenate([wild(dtype)[::-1], wild(dtype)])
    weights = np.arange(1, len(values) + 1).astype(values.dtype)
    with tp.Program() as program:
        x = tp.input("x", values.shape, dtype=dtype)
        for name, falls in (("up", False), ("down", True)):
            tp.output(name, x.sort(descending=falls))
            tp.output(f"{name} at", tp.argsort(x, descending=falls))
            if dtypes.is_float(dtype):
                tp.output(f"{name} gradient", tp.grad((x.sort(0, falls) * weights).sum(), x))
    plain = values.astype(float).tolist() if dtype == "bfloat16" else values.tolist()
    ascending = sorted(range(len(plain)), key=lambda at: (plain[at] != plain[at], _or_zero(plain[at])))
    descending = sorted(range(len(plain)), key=lambda at: (plain[at] == plain[at], -_or_zero(plain[at])))
    found = target.arrays(target.compile(program)(x=values))
    for name, order in (("up", ascending), ("down", descending)):
        assert found[f"{name} at"].tolist() == order
        assert found[name].tobytes() == values[order].tobytes()
        if dtypes.is_float(dtype):
            np.testing.assert_array_equal(found[f"{name} gradient"][order], weights)


def _or_zero(value: Any) -> Any:
    return 0 if value != value else int(value) if isinstance(value, bool) else value


def takes_axis(op: str, dtype: str) -> bool:
    return Sample(op, ((2,),), {"axis": 0}, (dtype,)).call("") is not None


def test_floor_division_and_remainder_have_the_signs_of_numpy(target: Target) -> None:
    pairs = np.array([(a, b) for a in (-7, -6, -1, 0, 1, 6, 7) for b in (-3, -2, -1, 1, 2, 3)], np.int32)
    with tp.Program() as program:
        x, y = tp.input("x", (len(pairs),), dtype=tp.int32), tp.input("y", (len(pairs),), dtype=tp.int32)
        tp.output("quotient", x // y)
        tp.output("remainder", x % y)
        tp.output("real", x / y)
        tp.output("float_quotient", x.astype(tp.float32) // y)
        tp.output("float_remainder", x.astype(tp.float32) % y)
    a, b = pairs.T
    expected = {
        "quotient": a // b,
        "remainder": a % b,
        "real": a / b,
        "float_quotient": a // b,
        "float_remainder": a % b,
    }
    target.agrees(program, expected, x=a, y=b)


@pytest.mark.one_configuration
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_accumulated_in_float32(target: Target, dtype: str) -> None:
    """In halves, adding 1 to 2048 (or 256) gives 2048 (256) again."""
    if dtype not in target.info.dtypes:
        pytest.skip(f"{target.info.name} has no {dtype}")
    ones = np.ones((4096,), dtypes.to_numpy(dtype))
    with tp.Program() as program:
        x = tp.input("x", (4096,), dtype=dtype)
        tp.output("sum", x.sum())
        tp.output("mean", x.mean())
        tp.output("dot", x @ x)
    target.agrees(program, {"sum": 4096, "mean": 1, "dot": 4096}, x=ones)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_contractions_with_int8(target: Target, dtype: str) -> None:
    """Numbers that are stored in 8 bits beside floats, whichever side they are on and however many rows there are."""
    if dtype not in target.info.dtypes:
        pytest.skip(f"{target.info.name} has no {dtype}")
    rng = np.random.default_rng(0)
    w_data = rng.integers(-3, 4, (4, 6, 8)).astype(np.int8)
    x_data = rng.integers(-2, 3, (4, 5, 8)).astype(dtypes.to_numpy(dtype))
    with tp.Program() as program:
        l = tp.dim("l")
        w, x = tp.input("w", (6, 8), (l,), tp.int8), tp.input("x", (5, 8), (l,), dtype)
        for name, rows in (("one", 1), ("few", 3), ("many", 5)):
            tp.output(name, x.spatial[0:rows] @ w.T.astype(dtype))
        tp.output("vector", x.spatial[0] @ w.astype(dtype).T)
        tp.output("turned", w.astype(dtype) @ x.spatial[0])
        tp.output("batched", tp.einsum("loi,lri->lor", w[0 : l.size].astype(dtype), x[0 : l.size]))
        tp.output("inputs_first", x.spatial[0:2, 0:6] @ w.astype(dtype))
    wide, floats = w_data.astype(np.float32), x_data.astype(np.float32)
    whole = np.einsum("lri,loi->lro", floats, wide)
    expected = {name: whole[:, :rows] for name, rows in (("one", 1), ("few", 3), ("many", 5))}
    expected |= {"vector": whole[:, 0], "turned": whole[:, 0], "batched": whole.transpose(0, 2, 1)}
    expected["inputs_first"] = floats[:, :2, :6] @ wide
    target.agrees(program, expected, x=x_data, w=w_data)


@pytest.mark.few_configurations
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_contractions_with_int8_of_any_width(target: Target, dtype: str) -> None:
    """Also of what no kernel's steps divide, and of rows that begin at an address that nothing is aligned to."""
    if dtype not in target.info.dtypes:
        pytest.skip(f"{target.info.name} has no {dtype}")
    rng = np.random.default_rng(0)
    x_data = rng.integers(-1, 2, (3, 140)).astype(dtypes.to_numpy(dtype))
    data: dict[str, Any] = {f"w{width}": rng.integers(-9, 10, (7, width)) for width in (1, 5, 17, 30, 32, 33, 96, 129)}
    data = {name: each.astype(np.int8) for name, each in data.items()}
    expected: dict[str, Any] = {}
    with tp.Program() as program:
        x = tp.input("x", x_data.shape, dtype=dtype)
        for name, each in data.items():
            w, width = tp.input(name, each.shape, dtype=tp.int8), each.shape[1]
            for rows, start in ((1, 0), (1, 3), (3, 0)):
                tp.output(f"{name} {rows} {start}", x.spatial[:rows, start : start + width] @ w.astype(dtype).T)
                shown = x_data[:rows, start : start + width].astype(np.float32)
                expected[f"{name} {rows} {start}"] = shown @ each.T.astype(np.float32)
    target.agrees(program, expected, x=x_data, **data)


@pytest.mark.one_configuration
def test_promotion(target: Target) -> None:
    """Of every pair of dtypes, of weak scalars, and of what reductions and divisions make."""
    named = [name for name in dtypes.DTYPES if name in target.info.dtypes]
    with tp.Program() as program:
        tensors = {name: tp.input(name, (2,), dtype=name) for name in named}
        for name, x in tensors.items():
            for other, y in tensors.items():
                tp.output(f"{name} + {other}", x | y if name == other == "bool" else x + y)
            for text, value in (("int", 2), ("float", 0.5), ("bool", True)):
                tp.output(f"{name} * {text}", x * value)
            tp.output(f"sum {name}", x.sum())
            tp.output(f"mean {name}", x.mean())
            tp.output(f"ratio {name}", x / 2)
    arrays: dict[str, Any] = {name: numbers((2,), name) for name in named}
    target.agrees(program, **arrays)


@pytest.mark.few_configurations
@pytest.mark.one_device
def test_zeros_of_both_signs_are_two_numbers(target: Target) -> None:
    """Also where they are attributes, in one program."""
    x_data = -np.abs(numbers((4, 2))) - 1
    expected: dict[str, Any] = {}
    with tp.Program() as program:
        t = tp.dim("t", 4)
        x = tp.input("x", (2,), (t,))
        for name, zero in (("plus", 0.0), ("minus", -0.0)):
            padded = tp.pad(x, ((1, 0),), constant_values=zero)
            h = tp.recurrent(f"{name} h", (3,), (t,))
            h[0] = padded
            h[t + 1] = abs(h) * padded
            prefix = tp.pad(x[0 : t + 1], ((0, 3), (0, 0)), constant_values=zero)
            outputs = {
                "twice": tp.pad(tp.pad(x, ((1, 0),), constant_values=0.0), ((1, 0),), constant_values=zero).spatial[0],
                "recurrent": h.spatial[0],
                "behind": prefix.spatial[t + 1, 0],
                "largest": prefix.max(axis=0).spatial[0],
                "joined": tp.concatenate([tp.full((1,), zero), x]).spatial[0],
                "case": tp.cases((t < 2, zero), padded.spatial[0]),
            }
            for kind, value in outputs.items():
                tp.output(f"{name} {kind}", 1 / value)
                expected[f"{name} {kind}"] = np.full(4, np.copysign(np.inf, zero))
    target.agrees(program, expected, x=x_data)


@pytest.mark.few_configurations
def test_what_numpy_gives_keeps_its_bits_in_float64(target: Target) -> None:
    """It has the dtype of what it meets before it is rounded."""
    scalar, pair, x_data = np.float64(0.1), np.array([0.1, 0.2]), numbers((3, 2), "float64")
    with tp.Program() as program:
        t = tp.dim("t", 3)
        x = tp.input("x", (2,), (t,), dtype=tp.float64)
        h = tp.recurrent("h", (2,), (t,), dtype=tp.float64)
        h[0] = scalar
        h[t + 1] = h + pair
        w = tp.parameter("w", (2,), init=pair, dtype=tp.float64)
        tp.output("w", w)
        tp.output("h", h)
        tp.output("product", scalar * x + x * pair)
        tp.output("chosen", tp.cases((t == 1, pair), tp.where(x > 0, x, scalar)))
        tp.output("padded", tp.pad(x, 1, constant_values=scalar))
        tp.output("joined", tp.concatenate([pair, x]))
        tp.output("halves", tp.as_tensor(pair) * x)
    ends = np.full((3, 1), scalar)
    expected = {
        "w": pair,
        "h": [[scalar] * 2, scalar + pair, scalar + pair + pair],
        "product": scalar * x_data + x_data * pair,
        "chosen": [pair if t == 1 else np.where(x > 0, x, scalar) for t, x in enumerate(x_data)],
        "padded": np.concatenate([ends, x_data, ends], axis=1),
        "joined": np.concatenate([np.broadcast_to(pair, (3, 2)), x_data], axis=1),
        "halves": pair.astype(np.float32) * x_data,  # as_tensor meets nothing
    }
    target.agrees(program, expected, x=x_data)


@pytest.mark.parametrize("size", [0, 1, 17])
def test_sizes_of_nothing_of_one_and_of_primes(target: Target, size: int) -> None:
    x_data = numbers((3, size))
    with tp.Program() as program:
        x = tp.input("x", (3, size))
        w = tp.input("w", (size, 2))
        tp.output("doubled", x * 2 + tp.ones((3, 1)))
        tp.output("sum", x.sum(axis=1))
        tp.output("product", x.prod(axis=1))
        tp.output("all", (x > 0).all(axis=1))
        tp.output("any", (x > 0).any(axis=1))
        tp.output("matmul", x @ w)
        tp.output("joined", tp.concatenate([x, x, tp.zeros((3, 1))], axis=1))
        tp.output("flipped", tp.flip(x, axis=1))
        tp.output("turned", x.T.reshape((size, 3, 1)))
        tp.output("running", tp.cumsum(x, axis=1))
        tp.output("padded", tp.pad(x, ((0, 1), (1, 2))))
        tp.output("sorted", tp.sort(x, axis=1))
    w_data = numbers((size, 2), seed=1)
    expected = {"doubled": x_data * 2 + 1, "sum": x_data.sum(1), "matmul": x_data @ w_data, "running": x_data.cumsum(1)}
    target.agrees(program, expected, x=x_data, w=w_data, tolerance=4)


def excluded(target: Target) -> Iterator[tuple[str, Sample, Call]]:
    """For each feature that the backend declares it does not run, some calls that need it.

    Of an operator those with its dtypes, or with the one named; of a dtype any operator.
    """
    given = target.info.capabilities.unsupported
    pairs = [(feature, *feature.partition(":")[::2]) for feature in given]
    pairs += [(dtype, "reshape", dtype) for dtype in dtypes.DTYPES if dtype not in target.info.dtypes]
    for feature, op, only in pairs:
        named = [only] if only else target.info.dtypes
        samples = [sample for sample in SAMPLES if sample.op == op and not sample.scalars]
        calls = [(sample, call) for sample in samples for dtype in named if (call := sample.call(dtype))]
        yield from ((feature, sample, call) for sample, call in calls[:3])


def test_what_is_declared_unsupported_is_refused(target: Target) -> None:
    """By `compile`, at the line of the user who asks for it: a wrong number is never acceptable."""
    for feature, sample, call in excluded(target):
        with tp.Program() as program:
            given = [tp.input(f"x{n}", type.shape, dtype=type.dtype) for n, type in enumerate(call.operands)]
            tp.output("y", apply(sample.op, *given, attrs=sample.attrs))
        with pytest.raises(tp.UnsupportedError, match=repr(target.info.name)) as caught:
            target.compile(program)
        assert caught.value.feature == feature
        assert repr(sample.op) in str(caught.value) or feature in dtypes.DTYPES
        assert caught.value.location is not None


def makes(target: Target, call: Call) -> bool:
    try:
        target.backend.operator(call)
    except tp.UnsupportedError:
        return False
    return True


@pytest.mark.planned
@pytest.mark.one_configuration
def test_what_is_declared_unsupported_is_not_made(target: Target) -> None:
    """A declaration that is no longer true hides what the backend can do, and leaves it untested."""
    for feature, _, call in excluded(target):
        assert not makes(target, call), f"{feature!r} is declared as unsupported, but operator() makes it: {call}"
