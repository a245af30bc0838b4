"""Windows of a contraction's operand that is not masked, so that what is not finite outside of a window stays outside.

    sum_s w[t, s] v[s],   s in the window of t,   w[t, s] = 0 outside of it

0 times NaN is NaN, and so is 0 times infinity. So w is multiplied by v where it is finite, by its sign where it is
infinite, and by 0 where it is NaN; what these elements add is known from how many of them each window holds, a
difference of two prefix sums: NaN from a NaN; infinity from infinities if all their products have one sign, else NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tempo import dtypes
from tempo.passes.ragged.values import Frame
from tempo.sdg.call import ArrayValue
from tempo.sdg.graph import Edge
from tempo.sdg.rewriter import Tensors
from tempo.symbolic import const

_COUNTS = "int32"


@dataclass(frozen=True)
class WholeOperand:
    """Operand `side`, contracted over the windows that `frame` gives along `axis`, and over all of the others."""

    tensors: Tensors
    edge: Edge
    axis: int
    frame: Frame
    contracted: Iterable[int]
    side: int

    def multiplied(self) -> Edge:
        """What stands for the operand in the product."""
        finite = self.tensors.apply("isfinite", self.edge)
        return self.tensors.apply("where", finite, self.edge, self.infinite_signs(self.dtype))

    @property
    def dtype(self) -> str:
        return self.tensors.rewriter.seen_type(self.edge).dtype

    def infinite_signs(self, dtype: str) -> Edge:
        """1 where it is infinite, -1 where it is so below zero, else 0."""
        infinite = self.tensors.apply("isinf", self.edge)
        signs = where(self.tensors, infinite, self.tensors.apply("sign", self.edge), 0)
        return signs if dtype == self.dtype else self.tensors.apply("cast", signs, dtype=dtype)

    def infinite(self) -> Edge:
        """How many infinities each window holds; the contracted axes stay, of size 1."""
        return self._counted("isinf")

    def undefined(self) -> Edge:
        """How many NaNs each window holds; the contracted axes stay, of size 1."""
        return self._counted("isnan")

    def _counted(self, test: str) -> Edge:
        tensors, axis, frame = self.tensors, self.axis, self.frame
        found = tensors.apply("cast", tensors.apply(test, self.edge), dtype=_COUNTS)
        shape, gone = tensors.shape(found), tuple(sorted(place for place in self.contracted if place != axis))
        if gone:
            kept = (const(1) if place in gone else size for place, size in enumerate(shape))
            found = tensors.reshape(tensors.apply("reduce_sum", found, axes=gone), kept)
        sums = tensors.surrounded(tensors.apply("cumsum", found, axis=axis), axis, const(1), const(0))
        count = tensors.cut(sums, axis, frame.shift + frame.length, const(1))
        if frame.shift == const(0):
            return count
        return tensors.apply("sub", count, tensors.cut(sums, axis, frame.shift, const(1)))


def with_infinities(tensors: Tensors, product: Edge, signs: Edge, infinite: Edge, undefined: Edge) -> Edge:
    """The product, and what the elements that are not finite add to it.

    `signs` is the sum of the signs of the products that are infinite; there are `infinite` elements of such, and
    `undefined` that are NaN.
    """
    dtype, exact = (tensors.rewriter.seen_type(edge).dtype for edge in (product, signs))
    many = tensors.apply("cast", infinite, dtype=exact)
    added = number(tensors, np.nan, dtype)
    for sign in (-1, 1):
        every = many if sign > 0 else tensors.apply("neg", many)
        added = tensors.apply("where", tensors.apply("eq", signs, every), number(tensors, sign * np.inf, dtype), added)
    added = where(tensors, tensors.apply("eq", undefined, number(tensors, 0, _COUNTS)), added, np.nan)
    others = tensors.apply("gt", tensors.apply("add", infinite, undefined), number(tensors, 0, _COUNTS))
    return tensors.apply("where", others, tensors.apply("add", product, added), product)


def where(tensors: Tensors, mask: Edge, edge: Edge, fill: bool | int | float) -> Edge:
    """`edge` where the mask holds, else `fill`."""
    return tensors.apply("where", mask, edge, number(tensors, fill, tensors.rewriter.seen_type(edge).dtype))


def number(tensors: Tensors, value: bool | int | float, dtype: str) -> Edge:
    return tensors.apply("constant", value=ArrayValue(np.asarray(value, dtypes.to_numpy(dtype))))
