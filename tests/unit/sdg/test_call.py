import numpy as np
import pytest

from tempo.sdg.call import ArrayValue, Call, StaticType, static_type
from tempo.sdg.graph import TensorType
from tempo.sdg.operators import call_for
from tempo.symbolic import as_expr, const, dim, size


def test_array_values_are_equal_by_dtype_shape_and_bytes():
    a, b = ArrayValue(np.arange(6.0)), ArrayValue(np.arange(6.0))
    assert a == b
    assert hash(a) == hash(b)
    assert len({a, b, ArrayValue(np.arange(6.0).reshape(2, 3)), ArrayValue(np.arange(6))}) == 3
    assert a != ArrayValue(np.arange(1.0, 7.0))
    assert a != "an array"


def test_nan_equals_itself_as_bytes_and_zeros_of_two_signs_differ():
    assert ArrayValue(np.array(np.nan)) == ArrayValue(np.array(np.nan))
    assert ArrayValue(np.array(0.0)) != ArrayValue(np.array(-0.0))


def test_an_array_value_does_not_follow_changes_of_the_users_array():
    given = np.zeros(3)
    value = ArrayValue(given)
    given[0] = 1
    assert value.array[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        value.array[0] = 1


def test_views_scalars_and_empty_arrays_are_values():
    assert ArrayValue(np.arange(6).reshape(2, 3).T) == ArrayValue(np.array([[0, 3], [1, 4], [2, 5]]))
    assert ArrayValue(np.float32(2)).shape == ()
    assert ArrayValue(np.zeros((0, 3))) == ArrayValue(np.zeros((0, 3)))
    assert ArrayValue(np.zeros((0, 3))) != ArrayValue(np.zeros((3, 0)))


def test_the_digest_is_computed_once():
    value = ArrayValue(np.arange(3))
    assert value.digest is value.digest


def test_calls_with_equal_content_are_equal_and_hash_alike():
    operand = StaticType((2, 3), "float32")
    a = Call("reduce_sum", {"axes": (0,)}, (operand,), StaticType((3,), "float32"))
    b = Call("reduce_sum", {"axes": (0,)}, (operand,), StaticType((3,), "float32"))
    assert a == b
    assert hash(a) == hash(b)
    assert a != Call("reduce_sum", {"axes": (1,)}, (operand,), StaticType((3,), "float32"))


def test_call_for_resolves_lengths_and_leaves_what_is_passed_at_run_time():
    t = dim("t")
    attrs = (("lengths", (size("t") - 1, const(3))), ("starts", (t, const(0))), ("steps", (1, 1)))

    def resolve(expr):
        return int(expr.evaluate(dict.fromkeys(expr.symbols(), 8)))

    operand = static_type(TensorType((size("t"), as_expr(3)), "float32"), resolve)
    call = call_for("slice", attrs, [operand], StaticType((7, 3), "float32"), resolve)
    assert call.operands == (StaticType((8, 3), "float32"),)
    assert call.attrs["lengths"] == (7, 3)
    assert call.attrs["starts"] == (t, const(0))


def test_static_types_know_their_rank_elements_and_text():
    type = StaticType((2, 0, 3), "bfloat16")
    assert (type.rank, type.elements, str(type)) == (3, 0, "bfloat16[2, 0, 3]")
    assert StaticType((), "int8").elements == 1
