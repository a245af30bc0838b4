"""Large matrices that rows are multiplied by many times, laid out for oneDNN.

A library brings a matrix into blocks that fit its registers in each product. For few rows that takes longer than the
product: 4 rows by a matrix of 4,096 x 1,024 take 1.6 ms, 0.4 where the matrix was brought into blocks before; 16 rows
by 2,048 x 512 take 0.45 and 0.31. Bringing it there takes as long as some ten or twenty products save.

These are the operators that `torch.compile` makes of a linear layer whose weights are frozen. They take matrices that
are outputs by inputs, as those of `torch.nn.Linear`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tempo.errors import InputError
from tempo_torch.operators.builder import Function

OFTEN = 32
"""Products of a loop from which on a matrix is packed before it."""
_LARGE = 1 << 18
"""Elements of a matrix from which on the operator's overhead, ten microseconds, does not matter."""
_HAS_MKL = torch.backends.mkl.is_available()
_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def has_bfloat16() -> bool:
    """Whether the processor has instructions for it (AVX-512 BF16): products of matrices use them, and take a quarter
    of the time of float32. Torch's of a matrix by a vector do not, and take five times as long."""
    return torch.cpu._is_avx512_bf16_supported()


@cache
def is_for_mkl() -> bool:
    """Whether MKL, by which torch multiplies what is not packed, has code for the processor's instructions: it has for
    those of Intel's alone."""
    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities()
    return _HAS_MKL and "Intel" in capabilities.get("cpu_name", "")


def multiplies(dtype: torch.dtype) -> bool:
    """Whether the processor multiplies matrices of these halves."""
    return dtype is torch.bfloat16 and has_bfloat16()


def may_be_packed(dtype: torch.dtype, device: torch.device) -> bool:
    return _HAS_ONEDNN and device.type == "cpu" and (dtype is torch.float32 or multiplies(dtype))


def least_rows(dtype: torch.dtype, contracted: int) -> int:
    """How many rows a product has at least that gains by a packed matrix.

    Fewer take as long as reading the matrix, and calling oneDNN takes longer than torch's own product (one row of
    float32 by 1,024 x 1,024: 196 us for 148). Torch's takes a step at two rows, at four where outputs lie first (three
    by 4,096 x 1,024: 683 us, four 1,169, 806 packed); its own of bfloat16 reads the matrix at half the speed.
    """
    if dtype is not torch.float32:
        return 1
    return 4 if contracted else 2


@dataclass
class _Forms:
    """A matrix as it was given, in oneDNN's layout for products along an axis, or both; what shares its memory shares
    these. One of them is there. `keeps`: as it was given it stays."""

    contracted: int
    plain: torch.Tensor | None
    keeps: bool
    packed: torch.Tensor | None = None

    def pack(self) -> torch.Tensor:
        plain = self.as_given()
        self.packed = made = packed(plain if self.contracted else plain.t())
        if not self.keeps:
            self.plain = None
        return made

    def as_given(self) -> torch.Tensor:
        if (plain := self.plain) is not None:
            return plain
        assert self.packed is not None
        made = self.packed.to_dense(self.packed.dtype)
        return made if self.contracted else made.t().contiguous()

    def as_any(self) -> torch.Tensor:
        """As it was given, for an operator: from now on it is there."""
        self.plain = made = self.as_given()
        return made


class PackedMatrix(torch.Tensor):
    """A matrix for a caller to keep, which products along one axis take in oneDNN's layout where they gain by it: all,
    or, where one row of float32 loses, those of a loop with several rows. Which do is a matter of the program, not of
    what has run: the same call has the same bits. So where one row loses the matrix stays as it was given, too.

    To everything else it is the matrix, as it was given or, where that is gone, a copy, which an operator that takes it
    leaves there: the next would make it again. It is not written to.
    """

    _forms: _Forms | None

    @staticmethod
    def of(matrix: torch.Tensor, contracted: int, keep: bool) -> torch.Tensor:
        """The matrix itself where it is small, or of a dtype that oneDNN does not multiply."""
        if matrix.dim() != 2 or matrix.numel() < _LARGE or isinstance(matrix, PackedMatrix):
            return matrix
        if not may_be_packed(matrix.dtype, matrix.device):
            return matrix
        all_gain = _all_gain(matrix.dtype, contracted)
        forms = _Forms(contracted, matrix.contiguous(), keep or not all_gain)
        if all_gain:
            forms.pack()
        return _matrix(matrix, forms)

    def operand(self, contracted: int, again: bool) -> torch.Tensor:
        """What rows are multiplied by along this axis: in oneDNN's layout or, inputs by outputs, as given. `again`: it
        is one of several products that gain by the layout."""
        forms = self._there
        if forms.contracted == contracted and (again or _all_gain(self.dtype, contracted)):
            return forms.packed if forms.packed is not None else forms.pack()
        plain = forms.as_any()
        return plain.t() if contracted else plain

    @property
    def contracted(self) -> int:
        """The axis along which products take it in oneDNN's layout."""
        return self._there.contracted

    @property
    def plain(self) -> torch.Tensor:
        return self._there.as_given()

    @property
    def kept(self) -> torch.Tensor | None:
        """The matrix as it was given, where it is there."""
        return None if self._forms is None else self._forms.plain

    @property
    def _there(self) -> _Forms:
        if self._forms is None:
            raise InputError(
                f"a matrix of shape {tuple(self.shape)} was donated to a run, which has let go of it",
                hint="put it again with device_put, or run with donate=False",
            )
        return self._forms

    def alike(self) -> torch.Tensor:
        """Another tensor of the same memory."""
        return _matrix(self, self._forms)

    def let_go(self) -> None:
        self._forms = None

    # What looks at memory, which torch asks no `__torch_dispatch__` for, has that of the plain matrix.

    def numpy(self, *, force: bool = False) -> Any:
        found = self.plain.numpy(force=force)
        found.flags.writeable = False
        return found

    def tolist(self) -> Any:
        return self.plain.tolist()

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        return self.plain.__dlpack__(*args, **kwargs)

    def untyped_storage(self) -> torch.UntypedStorage:
        return self._keep().untyped_storage()

    def data_ptr(self) -> int:
        return self._keep().data_ptr()

    def share_memory_(self) -> NoReturn:
        raise InputError(
            "a matrix that device_put may lay out for products lies in no memory that processes may share",
            hint="share the one that device_put was given, and put it in each process",
        )

    def __copy__(self) -> torch.Tensor:
        return self.alike()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        made: torch.Tensor = memo.setdefault(id(self), self.alike())
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A file has the matrix, as a tensor of torch's: how it lay here is nothing to whoever loads it."""
        return _alone(self.plain).__reduce_ex__(protocol)

    def _keep(self) -> torch.Tensor:
        """The plain matrix in memory of its own, for whoever has no hold on it."""
        forms = self._there
        forms.keeps = True
        forms.plain = made = _alone(forms.as_given())
        return made

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0].alike()
        if any(isinstance(each, PackedMatrix) for each in _written(func, args, kwargs or {})):
            raise InputError(
                "a matrix that device_put may lay out for products is not written to",
                hint="put another one in its place",
            )
        given = tree_map(as_given, (args, dict(kwargs or {})))
        return func(*given[0], **given[1])


def as_given(value: Any) -> Any:
    """A matrix of these as any tensor, and all else as it is; torch's way through `__torch_dispatch__` takes a tenth of
    a millisecond."""
    return value._there.as_any() if type(value) is PackedMatrix else value


def _alone(matrix: torch.Tensor) -> torch.Tensor:
    """In memory that holds nothing else."""
    return matrix if matrix.untyped_storage().nbytes() == matrix.numel() * matrix.itemsize else matrix.clone()


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments of an operator that it writes to."""
    for at, argument in enumerate(func._schema.arguments if func._schema.is_mutable else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tree_leaves(args[at] if at < len(args) else kwargs.get(argument.name))


def _matrix(like: torch.Tensor, forms: _Forms | None) -> PackedMatrix:
    made: PackedMatrix = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
        PackedMatrix, like.shape, dtype=like.dtype, device=like.device
    )
    made._forms = forms
    return made


def packed(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix of outputs by inputs, as a tensor in oneDNN's layout."""
    made: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix)
    return made


def _all_gain(dtype: torch.dtype, contracted: int) -> bool:
    """Whether all products do by a packed matrix: of one row of float32 where MKL has no code for the processor, and
    reads the matrix at two thirds of the speed (one by 3,584 x 1,024 on an AMD EPYC: 917 us, 655 packed)."""
    return least_rows(dtype, contracted) == 1 or (_HAS_MKL and not is_for_mkl())


def is_worth_packing(rows: int, elements: int, dtype: torch.dtype, contracted: int) -> bool:
    """Before a loop."""
    return rows >= least_rows(dtype, contracted) and elements >= _LARGE


@cache
def preparing(contracted: int, packs: bool) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """What makes of a matrix, before a loop, what `by_prepared` takes."""

    def prepared(matrix: torch.Tensor, times: int) -> torch.Tensor:
        if isinstance(matrix, PackedMatrix):
            if matrix.contracted == contracted:
                return matrix.operand(contracted, packs)
            matrix = as_given(matrix)
        if packs and times >= OFTEN:
            return packed(matrix if contracted else matrix.t())
        return matrix.t() if contracted else matrix

    return prepared


def by_prepared(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Rows, or one without an axis of them, by a matrix of inputs by outputs, or by one in oneDNN's layout."""
    return _by_packed(rows, matrix) if matrix.is_mkldnn else torch.matmul(rows, matrix)


@cache
def by_matrix(contracted: int) -> Function:
    """Rows, or one without an axis of them, by a matrix along one of its axes."""

    def multiplied(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        if type(matrix) is PackedMatrix:
            return by_prepared(rows, matrix.operand(contracted, again=False))
        return torch.matmul(rows, matrix.t() if contracted else matrix)

    return multiplied


@cache
def vector_by_matrix(contracted: int) -> Function:
    multiplied_by_packed = by_matrix(contracted)

    def multiplied(vector: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        if type(matrix) is PackedMatrix:
            return multiplied_by_packed(vector, matrix)
        return torch.mv(matrix if contracted else matrix.t(), vector)

    return multiplied


def turned(matrix: torch.Tensor, times: int) -> torch.Tensor:
    """What makes of a matrix of inputs by outputs, before a loop, what `vector_by_turned` takes."""
    del times
    found = matrix.operand(0, again=False) if type(matrix) is PackedMatrix else matrix
    return found if found.is_mkldnn else found.t()


def vector_by_turned(vector: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return _by_packed(vector, matrix) if matrix.is_mkldnn else torch.mv(matrix, vector)


def _by_packed(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")
    return made
