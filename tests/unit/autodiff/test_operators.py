"""The rule of every operator in the table, against differences."""

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.by_operator import each_sample
from tempo.conformance.operator_samples import SAMPLES, Sample
from tempo.language.tensor import apply
from tempo.sdg.operators import OPERATORS
from tests.unit.autodiff.differences import check, numbers

# Where operands are drawn from, for operators that are not smooth, or have no value, everywhere.
RANGES = {
    **dict.fromkeys(("log", "log1p", "sqrt", "rsqrt", "pow"), (0.3, 2.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.8, 0.8)),
    "acosh": (1.3, 3.0),
    "tan": (-1.0, 1.0),
    "div": (0.5, 2.0),
    "mod": (0.6, 2.9),
    "reduce_prod": (0.5, 1.5),
}

FLOATING = [
    sample
    for sample in SAMPLES
    if (call := sample.call("float64")) is not None and call.result.dtype == "float64" and "*" in sample.dtypes
    if not OPERATORS[sample.op].gradient_note
]


def test_every_operator_has_a_rule_or_says_why_not():
    for operator in OPERATORS.values():
        if operator.kind in ("creation", "random"):
            continue  # nothing to differentiate
        assert (operator.gradient is None) == bool(operator.gradient_note), operator.name


@each_sample(FLOATING)
def test_a_rule_agrees_with_differences(sample: Sample):
    call = sample.call("float64")
    drawn = sample.arrays(call)
    low, high = RANGES.get(sample.op, (-1.5, 1.5))
    arrays = {
        f"x{place}": sample.fit(numbers(*array.shape, seed=place, low=low, high=high)) if given == "*" else array
        for place, (array, given) in enumerate(zip(drawn, sample.dtypes))
    }
    moving = max(sample.scalars, default=0)

    def declare():
        tp.dim("t", moving + 1)
        tensors = [tp.input(name, shape=array.shape, dims=(), dtype=str(array.dtype)) for name, array in arrays.items()]
        value = apply(sample.op, *tensors, attrs=sample.attrs)
        if value.symbols:
            value = value[moving]
        weights = tp.constant(numbers(*call.result.shape, seed=9), dtype=tp.float64)
        loss = (value * weights + value**2).sum()
        return loss, {f"x{place}": tensors[place] for place, given in enumerate(sample.dtypes) if given == "*"}

    check(declare, arrays)


def test_running_products_of_zeros():
    """None, one, two and three of them in a row of numbers, and one at either end."""
    rows = numbers(5, 6)
    for row, zeros in enumerate(([], [2], [1, 4], [0, 3, 4], [5])):
        rows[row, zeros] = 0

    def declare():
        x = tp.input("x", shape=rows.shape, dims=(), dtype="float64")
        return (tp.cumprod(x, axis=1) * tp.constant(numbers(5, 6, seed=9), dtype=tp.float64)).sum(), {"x": x}

    check(declare, {"x": rows})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_cast_between_floating_dtypes_casts_the_cotangent_back(dtype: str):
    with tp.Program("cast") as program:
        x = tp.input("x", shape=(3,), dims=(), dtype=tp.float64)
        weights = tp.constant([1.0, 2.0, 0.5], dtype=dtype)
        tp.output("grad", tp.grad((x.astype(dtype) * weights).sum().astype(tp.float32), x))
    found = tp.compile(program, backend="reference")(x=numbers(3))["grad"]
    assert found.dtype == np.float64
    assert found.tolist() == [1.0, 2.0, 0.5]
