"""Recurrent tensors: functions from the points of their domain to arrays of one shape and dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from tempo.errors import IndexExpressionError, user_location
from tempo.language.indexing.expression import Dim, IndexExpression
from tempo.language.program import Program, current_program
from tempo.language.unknown_names import UnknownName
from tempo.sdg.graph import Edge, Node, Point, TensorType, identity_map
from tempo.sdg.operators.axes import show
from tempo.symbolic import Symbol

if TYPE_CHECKING:  # what methods call is made of tensors: `tempo.language` binds these names when all are there
    from tempo.language import definitions, functions
    from tempo.language.indexing import spatial, temporal
    from tempo.language.indexing.spatial import SpatialIndexer

_Operator: TypeAlias = "Callable[[RecurrentTensor, Any], RecurrentTensor]"


def _operator(name: str) -> _Operator:
    """The operator of Python that is the function of this name."""

    def applied(self: RecurrentTensor, other: Any) -> RecurrentTensor:
        return getattr(functions, name)(self, other)  # type: ignore[no-any-return]

    return applied


def _both_ways(name: str) -> tuple[_Operator, _Operator]:
    """That operator, and with the operands exchanged."""

    def reflected(self: RecurrentTensor, other: Any) -> RecurrentTensor:
        return getattr(functions, name)(other, self)  # type: ignore[no-any-return]

    return _operator(name), reflected


class RecurrentTensor:
    """A function from the points of `domain` to arrays of `shape` and `dtype`.

    It is a view: a read of a node of the program's graph. `x[t - 1]` reads at other points, `x.spatial[0]` indexes the
    shape, operators and methods mean what NumPy's do. It holds no numbers while the program is written.
    """

    __slots__ = ("program", "edge", "weak")
    __array_priority__ = 1000

    def __init__(self, program: Program, edge: Edge, weak: bool = False) -> None:
        self.program = program
        self.edge = edge
        self.weak = weak

    # What it is.

    @property
    def node(self) -> Node:
        return self.program.builder.nodes[self.edge.node]

    @property
    def type(self) -> TensorType:
        """Shape, as symbolic expressions, and dtype."""
        return self.program.builder.seen_type(self.edge)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The dims of the domain, as symbols."""
        return self.program.builder.canonical(self.edge.dims())

    @property
    def domain(self) -> tuple[Dim, ...]:
        """The dims along which it varies, in canonical order."""
        return tuple(self.program.dim_of(symbol) for symbol in self.symbols)

    @property
    def shape(self) -> tuple[int | IndexExpression, ...]:
        """The spatial shape: numbers, and index expressions where a size is not known or varies."""
        sizes = self.type.shape
        return tuple(s.as_int() if s.is_const else IndexExpression(self.program, s) for s in sizes)

    @property
    def dtype(self) -> str:
        return self.node.results[self.edge.result].dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def name(self) -> str:
        """The name it was declared with; empty for what is computed."""
        return self.node.name

    @property
    def is_identity(self) -> bool:
        """Whether it reads every dim of its node at itself."""
        return self.edge.map == identity_map(self.node.domain)

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"the tensor {self.name!r}" if self.name else f"the result of {self.node.op}"

    def __repr__(self) -> str:
        name = self.name or self.node.op
        items = (str(i.index) if isinstance(i, Point) else f"{i.start}:{i.start + i.length}" for i in self.edge.map)
        read = "" if self.is_identity else f"[{', '.join(items)}]"
        domain, shape = show(self.symbols), show(self.shape)
        return f"RecurrentTensor({name}{read}, domain={domain}, shape={shape}, dtype={self.dtype})"

    # Reading and defining.

    def __getitem__(self, key: Any) -> RecurrentTensor:
        """Index temporal dims, in the order of the domain; a slice becomes a spatial axis in front."""
        return temporal.read(self, key)

    def at(self, **index: Any) -> RecurrentTensor:
        """Index temporal dims by name: `x.at(t=t - 1)`."""
        return temporal.read_named(self, index)

    def gather(self, dim: Dim | str, index: Any, within: slice | None = None) -> RecurrentTensor:
        """Read along `dim` at the values of the integer tensor `index`.

        Result: the domain of `index` with the other dims of this tensor, shape `index.shape + self.shape`. `within` is
        the promise that the values lie in `lo:hi` (default `0:dim.size`); one outside raises `IndexOutOfRangeError`
        when the program runs with checks, and is clamped otherwise.
        """
        return temporal.gather(self, dim, index, within)

    @property
    def spatial(self) -> SpatialIndexer:
        """Indexes the shape as NumPy does: `x.spatial[0, 1:]`, `x.spatial[t]`, `x.spatial[index]`."""
        return spatial.SpatialIndexer(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Define one case of a tensor declared with `tp.recurrent` or `tp.parameter`."""
        definitions.define(self, key, value)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name.startswith("_"):  # protocols that others look for
            raise AttributeError(message)
        raise UnknownName(message, name, dir(type(self)), "x")

    # What has no value while the program is written.

    def __bool__(self) -> bool:
        self._no_value("bool", "choose by data with tp.where(mask, a, b), by dims with tp.cases((t == 0, a), b)")

    def __float__(self) -> float:
        self._no_value("float")

    def __int__(self) -> int:
        self._no_value("int")

    def __index__(self) -> int:
        self._no_value("index", "read at a tensor's values with x.gather(t, index) or x.spatial[index]")

    def __complex__(self) -> complex:
        self._no_value("complex")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._no_value("array", "use the functions of tempo (tp.exp) instead of numpy's, tp.stack to join tensors")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> RecurrentTensor:
        """What `array + x` calls; other functions of NumPy than operators take no tensors."""
        name = ufunc.__name__
        if method != "__call__" or kwargs or name not in _NUMPY_OPERATORS:
            self._no_value("array", _instead_of(name))
        operator: Callable[..., RecurrentTensor] = getattr(functions, _NUMPY_OPERATORS[name])
        return operator(*inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        self._no_value("array", _instead_of(function.__name__))

    def __len__(self) -> int:
        self._no_value("length", "x.shape[0] is the size of its first axis, t.size that of a dim")

    def __iter__(self) -> NoReturn:
        self._no_value("iterator", "index it: x[t] along dims, x.spatial[0] along axes, tp.unstack(x) to take it apart")

    def __contains__(self, item: Any) -> bool:
        self._no_value("bool", "compare elementwise and reduce: (x == item).any()")

    def _no_value(self, wanted: str, hint: str = "make it an output and run the program") -> NoReturn:
        raise IndexExpressionError(
            f"{self.label} has no value as {wanted} while the program is written",
            location=user_location(),
            hint=hint,
        )

    # Operators.

    __hash__ = object.__hash__

    __add__, __radd__ = _both_ways("add")
    __sub__, __rsub__ = _both_ways("subtract")
    __mul__, __rmul__ = _both_ways("multiply")
    __truediv__, __rtruediv__ = _both_ways("divide")
    __floordiv__, __rfloordiv__ = _both_ways("floor_divide")
    __mod__, __rmod__ = _both_ways("mod")
    __pow__, __rpow__ = _both_ways("power")
    __matmul__, __rmatmul__ = _both_ways("matmul")
    __and__, __rand__ = _both_ways("bitwise_and")
    __or__, __ror__ = _both_ways("bitwise_or")
    __xor__, __rxor__ = _both_ways("bitwise_xor")
    __lshift__ = _operator("left_shift")
    __rshift__ = _operator("right_shift")
    __eq__ = _operator("equal")  # type: ignore[assignment]
    __ne__ = _operator("not_equal")  # type: ignore[assignment]
    __lt__ = _operator("less")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater")
    __ge__ = _operator("greater_equal")

    def __divmod__(self, other: Any) -> tuple[RecurrentTensor, RecurrentTensor]:
        return functions.floor_divide(self, other), functions.mod(self, other)

    def __neg__(self) -> RecurrentTensor:
        return functions.negative(self)

    def __pos__(self) -> RecurrentTensor:
        return self

    def __abs__(self) -> RecurrentTensor:
        return functions.absolute(self)

    def __invert__(self) -> RecurrentTensor:
        return functions.bitwise_not(self)

    # Methods, as NumPy's.

    @property
    def T(self) -> RecurrentTensor:
        return functions.transpose(self)

    @property
    def mT(self) -> RecurrentTensor:
        """With the last two axes exchanged."""
        return functions.swapaxes(self, -1, -2)

    def astype(self, dtype: Any) -> RecurrentTensor:
        return functions.astype(self, dtype)

    def reshape(self, *shape: Any) -> RecurrentTensor:
        return functions.reshape(self, shape[0] if len(shape) == 1 else shape)

    def flatten(self) -> RecurrentTensor:
        return functions.reshape(self, (-1,))

    ravel = flatten

    def transpose(self, *axes: Any) -> RecurrentTensor:
        order = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        return functions.transpose(self, order if axes else None)

    def swapaxes(self, axis1: int, axis2: int) -> RecurrentTensor:
        return functions.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: int | tuple[int, ...] | None = None) -> RecurrentTensor:
        return functions.squeeze(self, axis)

    def sum(self, axis: Any = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.mean(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.amax(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.amin(self, axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.prod(self, axis, keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.any(self, axis, keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.all(self, axis, keepdims)

    def var(self, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> RecurrentTensor:
        return functions.var(self, axis, ddof, keepdims)

    def std(self, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> RecurrentTensor:
        return functions.std(self, axis, ddof, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.argmax(self, axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> RecurrentTensor:
        return functions.argmin(self, axis, keepdims)

    def cumsum(self, axis: int | None = None) -> RecurrentTensor:
        return functions.cumsum(self, axis)

    def cumprod(self, axis: int | None = None) -> RecurrentTensor:
        return functions.cumprod(self, axis)

    def sort(self, axis: int | None = -1, descending: bool = False, stable: bool = True) -> RecurrentTensor:
        """Sorted; the tensor itself stays as it is."""
        return functions.sort(self, axis, descending, stable)

    def argsort(self, axis: int | None = -1, descending: bool = False, stable: bool = True) -> RecurrentTensor:
        return functions.argsort(self, axis, descending, stable)

    def clip(self, min: Any = None, max: Any = None) -> RecurrentTensor:
        return functions.clip(self, min, max)

    def round(self) -> RecurrentTensor:
        return functions.round(self)

    def dot(self, other: Any) -> RecurrentTensor:
        return functions.dot(self, other)


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


def apply(
    op: str, *operands: RecurrentTensor, attrs: Mapping[str, Any] | None = None, weak: bool = False
) -> RecurrentTensor:
    """The result of operator `op` of the table. Operands have the dtypes that its rule wants."""
    program = open_program(*operands)
    edge = program.builder.pure(op, tuple(operand.edge for operand in operands), attrs or {}, user_location)
    return RecurrentTensor(program, edge, weak)


def open_program(*operands: RecurrentTensor) -> Program:
    """The program that is open, which the operands must belong to. Raises `ProgramError`."""
    program = current_program()
    for operand in operands:
        program.require(operand.program, operand.label)
    return program
