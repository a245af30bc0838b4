"""Recurrent tensors: functions from the points of their domain to arrays of one shape and dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from tempo.errors import IndexExpressionError, user_location
from tempo.language.indexing.expression import Dim, IndexExpression
from tempo.language.program import Program, current_program
from tempo.language.unknown_names import UnknownName
from tempo.sdg.graph import Edge, Node, Point, TensorType, identity_map
from tempo.sdg.operators.axes import show
from tempo.symbolic import Symbol

if TYPE_CHECKING:  # its functions are made of tensors: `tempo.language` puts them on the class when all are there
    from tempo.language.methods import Methods
else:
    Methods = object


def _refused(*wanted: str) -> Callable[..., Any]:
    """A method that asks for a value, which a tensor has only when the program runs."""

    def method(self: RecurrentTensor, *args: Any, **kwargs: Any) -> NoReturn:
        self.no_value(*wanted)

    return method


class RecurrentTensor(Methods):
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
        domain, shape = show(self.symbols), show(self.shape)
        return f"RecurrentTensor({self.spelled}, domain={domain}, shape={shape}, dtype={self.dtype})"

    @property
    def spelled(self) -> str:
        """The read, as it might be written: `x[t - 1]`."""
        items = (str(i.index) if isinstance(i, Point) else f"{i.start}:{i.start + i.length}" for i in self.edge.map)
        return (self.name or self.node.op) + ("" if self.is_identity else f"[{', '.join(items)}]")

    def __getattr__(self, name: str) -> NoReturn:
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name.startswith("_"):  # protocols that others look for
            raise AttributeError(message)
        raise UnknownName(message, name, dir(type(self)), "x")

    # What has no value while the program is written.

    __bool__ = _refused("bool", "choose by data with tp.where(mask, a, b), by dims with tp.cases((t == 0, a), b)")
    __float__ = _refused("float")
    __int__ = _refused("int")
    __index__ = _refused("index", "read at a tensor's values with x.gather(t, index) or x.spatial[index]")
    __complex__ = _refused("complex")
    __array__ = _refused("array", "use the functions of tempo (tp.exp) instead of numpy's, tp.stack to join tensors")
    __len__ = _refused("length", "x.shape[0] is the size of its first axis, t.size that of a dim")
    __iter__ = _refused(
        "iterator", "index it: x[t] along dims, x.spatial[0] along axes, tp.unstack(x) to take it apart"
    )
    __contains__ = _refused("bool", "compare elementwise and reduce: (x == item).any()")

    def no_value(self, wanted: str, hint: str = "make it an output and run the program") -> NoReturn:
        raise IndexExpressionError(
            f"{self.label} has no value as {wanted} while the program is written",
            location=user_location(),
            hint=hint,
        )


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
