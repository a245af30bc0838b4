"""The operators and methods of tensors, which mean what NumPy's do: the functions of the language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tempo.language import functions
from tempo.language.definitions import define
from tempo.language.indexing import temporal
from tempo.language.indexing.expression import both_ways
from tempo.language.indexing.spatial import SpatialIndexer
from tempo.language.tensor import RecurrentTensor

Binary = Callable[[Any, Any], RecurrentTensor]
Unary = Callable[[Any], RecurrentTensor]


class Methods:
    """What `RecurrentTensor` gets when all functions are there, which are made of it."""

    __slots__ = ()

    # Reading and defining.

    __getitem__ = temporal.read
    __setitem__ = define
    at = temporal.read_named
    gather = temporal.gather

    @property
    def spatial(self: Any) -> SpatialIndexer:
        """Indexes the shape as NumPy does: `x.spatial[0, 1:]`, `x.spatial[t]`, `x.spatial[index]`."""
        return SpatialIndexer(self)

    # Operators.

    __hash__ = object.__hash__

    __add__, __radd__ = both_ways(functions.add)
    __sub__, __rsub__ = both_ways(functions.subtract)
    __mul__, __rmul__ = both_ways(functions.multiply)
    __truediv__, __rtruediv__ = both_ways(functions.divide)
    __floordiv__, __rfloordiv__ = both_ways(functions.floor_divide)
    __mod__, __rmod__ = both_ways(functions.mod)
    __pow__, __rpow__ = both_ways(functions.power)
    __matmul__, __rmatmul__ = both_ways(functions.matmul)
    __and__, __rand__ = both_ways(functions.bitwise_and)
    __or__, __ror__ = both_ways(functions.bitwise_or)
    __xor__, __rxor__ = both_ways(functions.bitwise_xor)
    __lshift__: ClassVar[Binary] = functions.left_shift
    __rshift__: ClassVar[Binary] = functions.right_shift
    __eq__: ClassVar[Binary] = functions.equal  # type: ignore[assignment]
    __ne__: ClassVar[Binary] = functions.not_equal  # type: ignore[assignment]
    __lt__: ClassVar[Binary] = functions.less
    __le__: ClassVar[Binary] = functions.less_equal
    __gt__: ClassVar[Binary] = functions.greater
    __ge__: ClassVar[Binary] = functions.greater_equal
    __neg__: ClassVar[Unary] = functions.negative
    __pos__ = functions.positive
    __abs__ = functions.absolute
    __invert__: ClassVar[Unary] = functions.bitwise_not

    def __divmod__(self: Any, other: Any) -> tuple[RecurrentTensor, RecurrentTensor]:
        return self // other, self % other

    def __array_ufunc__(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> RecurrentTensor:
        """What `array + x` calls; other functions of NumPy than operators take no tensors."""
        name = ufunc.__name__
        if method != "__call__" or kwargs or name not in _NUMPY_OPERATORS:
            self.no_value("array", _instead_of(name))
        operator: Binary = getattr(functions, _NUMPY_OPERATORS[name])
        return operator(*inputs)

    def __array_function__(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        self.no_value("array", _instead_of(function.__name__))

    # Methods.

    @property
    def T(self: Any) -> RecurrentTensor:
        return functions.transpose(self)

    @property
    def mT(self: Any) -> RecurrentTensor:
        """With the last two axes exchanged."""
        return functions.swapaxes(self, -1, -2)

    def reshape(self: Any, *shape: Any) -> RecurrentTensor:
        return functions.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self: Any, *axes: Any) -> RecurrentTensor:
        order = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        return functions.transpose(self, order if axes else None)

    astype = functions.astype
    flatten = ravel = functions.ravel
    swapaxes = functions.swapaxes
    squeeze = functions.squeeze
    sum = functions.sum
    mean = functions.mean
    max = functions.amax
    min = functions.amin
    prod = functions.prod
    any = functions.any
    all = functions.all
    var = functions.var
    std = functions.std
    argmax = functions.argmax
    argmin = functions.argmin
    cumsum = functions.cumsum
    cumprod = functions.cumprod
    sort = functions.sort
    argsort = functions.argsort
    clip = functions.clip
    round = functions.round
    dot = functions.dot


# The operators of Python as NumPy calls them, with the names of ours.
_NUMPY_OPERATORS = {
    **{name: name for name in ("add", "subtract", "multiply", "divide", "floor_divide", "power", "matmul")},
    **{name: name for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")},
    **{name: name for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")},
    "remainder": "mod",
}


def _instead_of(name: str) -> str:
    known = hasattr(functions, name)
    return f"write tp.{name} instead of numpy's" if known else "use the functions of tempo instead of numpy's"
