import numpy as np
import pytest

from tempo.errors import InternalError
from tempo.sdg.call import ArrayValue
from tempo.sdg.operators import OPERATORS
from tempo.symbolic import Ge, const, dim, size
from tests.unit.sdg.operators.apply import apply, infer


def test_constants_have_the_type_of_their_array():
    value = ArrayValue(np.arange(6, dtype=np.int8).reshape(2, 3))
    assert infer("constant", value=value).dtype == "int8"
    assert apply("constant", value=value).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_iota_counts_along_its_axis():
    assert apply("iota", shape=(2, 3), axis=0, dtype="int32").tolist() == [[0, 0, 0], [1, 1, 1]]
    assert infer("iota", shape=(size("t"),), axis=0, dtype="float16").shape == (size("t"),)


def test_values_made_once_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        apply("iota", shape=(3,), axis=0, dtype="int32")[0] = 5


def test_index_and_condition_values_are_their_scalars():
    assert apply("index_value", scalars=(7,), expr=dim("t")) == np.int32(7)
    assert apply("condition_value", scalars=(True,), condition=Ge(dim("t"))) == np.bool_(True)
    assert OPERATORS["condition_value"].scalars({"condition": Ge(dim("t"))}) == (Ge(dim("t")),)


def test_an_expression_that_is_passed_at_run_time_stays_one():
    changed = OPERATORS["index_value"].with_exprs({"expr": dim("t")}, lambda expr: 3)
    assert changed == {"expr": const(3)}


@pytest.mark.parametrize("name", ["input", "merge", "host_call", "sink"])
def test_nominal_operators_have_a_declared_type_and_no_function(name: str):
    with pytest.raises(InternalError, match="declared"):
        OPERATORS[name].infer({}, ())
    with pytest.raises(InternalError, match="no function on arrays"):
        OPERATORS[name].numpy(None)
