"""Operators without operands: constants, iotas, and the values of index expressions and conditions."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo.backends.operators import Builder, Call
from tempo_jax.operators.elementwise import caster
from tempo_jax.operators.values import Function, Scalar, Value, index


def _constant(call: Call) -> Function:
    array = call.attrs["value"].array
    return lambda: jnp.asarray(array, array.dtype)


def _iota(call: Call) -> Function:
    shape, axis, convert = call.result.shape, call.attrs["axis"], caster("int32", call.result.dtype)
    return lambda: convert(lax.broadcasted_iota(np.int32, shape, axis))


def _index_value(call: Call) -> Function:
    return index


def _condition_value(call: Call) -> Function:
    def condition_value(condition: Scalar) -> Value:
        return jnp.asarray(condition, np.bool_)

    return condition_value


CREATION: Mapping[str, Builder] = {
    "constant": _constant,
    "iota": _iota,
    "index_value": _index_value,
    "condition_value": _condition_value,
}
