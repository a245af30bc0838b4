"""What builders share, and the way through NumPy for what torch has no kernel for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch

from tempo.backends.operators import OPERATORS, Call
from tempo_torch.arrays import TORCH_DTYPES, from_host, signed, to_host
from tempo_torch.waits import waits

Function = Callable[..., torch.Tensor]
_Operand = TypeVar("_Operand")


@dataclass(frozen=True)
class Ahead:
    """Of the operand at `place`, what `prepare(operand, times)` makes, where so many products follow; `function` takes
    that in its place. `copies`: it may be a copy."""

    place: int
    prepare: Callable[[torch.Tensor, int], Any]
    function: Function
    copies: bool = False


@dataclass(frozen=True, eq=False)
class Operation:
    """A function with other forms of it, for an emitter that knows more of the operands.

    in_place   the same into the memory of an operand that has the result's type and that nobody else needs; it is given
               that one first, then the others
    places     of which operands that may be
    ahead      what may be made of an operand before a loop that does not change it
    number     the operand without axes that is looked at on the host; may be given as a number
    bounded    whether it makes use of a number that a length, given on the device, is at most (`moving.Moving`)
    """

    function: Function
    in_place: Function | None = None
    places: tuple[int, ...] = (0,)
    ahead: Ahead | None = None
    number: int | None = None
    bounded: bool = False

    @property
    def why_waits(self) -> str | None:
        return None if self.number is None else "what it begins with is looked at on the host"

    def __call__(self, *given: Any) -> torch.Tensor:
        return self.function(*given)

    def place(self, free: Collection[int]) -> int | None:
        """Of the operands that are `free`, the one whose memory the result takes."""
        return next((at for at in self.places if at in free), None) if self.in_place else None


def moved_first(operands: Sequence[_Operand], place: int) -> list[_Operand]:
    """As `in_place` is given them."""
    return [operands[place], *operands[:place], *operands[place + 1 :]]


Builder = Callable[[Call, torch.device], Function]

HALF = frozenset({"float16", "bfloat16"})
"""Sums and contractions of them are computed in float32 and rounded once."""

HALVES = frozenset(TORCH_DTYPES[name] for name in HALF)

UNSIGNED = frozenset({"uint16", "uint32", "uint64"})
"""Torch stores these and has few kernels for them, on CUDA fewer than on the CPU (`tempo_torch.simulated`)."""


def result_dtype(call: Call) -> torch.dtype:
    return TORCH_DTYPES[call.result.dtype]


_CONVERTERS: Mapping[str, Function] = {
    "bool": torch.Tensor.bool,
    "uint8": torch.Tensor.byte,
    "int8": torch.Tensor.char,
    "int16": torch.Tensor.short,
    "int32": torch.Tensor.int,
    "int64": torch.Tensor.long,
    "float16": torch.Tensor.half,
    "bfloat16": torch.Tensor.bfloat16,
    "float32": torch.Tensor.float,
    "float64": torch.Tensor.double,
}
"""Each takes a microsecond less than `Tensor.to`."""


def converter(dtype: str) -> Function:
    """A cast; the tensor itself where it has the dtype."""
    target = TORCH_DTYPES[dtype]
    return _CONVERTERS.get(dtype) or (lambda x: x.to(target))


def is_unsigned(call: Call) -> bool:
    return any(type.dtype in UNSIGNED for type in (*call.operands, call.result))


def by_numpy(call: Call, device: torch.device) -> Function:
    """The core's own meaning, on the tensors' memory; on another device than the CPU through copies."""
    meaning = OPERATORS[call.op].numpy(call)

    @waits("torch has no kernel of that meaning, so it is computed on the host")
    def function(*given: Any) -> torch.Tensor:
        arguments = (to_host(each) if isinstance(each, torch.Tensor) else each for each in given)
        with np.errstate(all="ignore"):
            return from_host(np.asarray(meaning(*arguments)), device)

    return function


def unless_unsigned(builder: Builder) -> Builder:
    """What torch lacks for unsigned integers, NumPy does."""
    return lambda call, device: (by_numpy if is_unsigned(call) else builder)(call, device)


def in_place_of(function: Function) -> Function | None:
    """Torch's form of one of its functions that overwrites the first operand."""
    found: Function | None = getattr(torch.Tensor, f"{function.__name__}_", None)
    return found


def on_all(function: Function) -> Builder:
    """One function for every call, for what torch has for every dtype."""
    return lambda call, device: function


def always(function: Function) -> Builder:
    """One function for every call, but for unsigned integers."""
    return unless_unsigned(on_all(function))


def on_bits(operation: Operation) -> Builder:
    """One operation for every call. It makes the same bits of signed integers and of unsigned ones of that width (two's
    complement), so it is given these as those."""

    def builder(call: Call, device: torch.device) -> Function:
        if not is_unsigned(call):
            return operation
        function, overwrite, made = operation.function, operation.in_place, result_dtype(call)

        def in_place(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
            assert overwrite is not None
            overwrite(signed(x), *map(signed, others))
            return x

        return replace(
            operation,
            function=lambda *given: function(*map(signed, given)).view(made),
            in_place=in_place if overwrite else None,
        )

    return builder


def in_float32(function: Function, call: Call) -> Function:
    """The function, with halves computed in float32 and rounded once; masks stay as they are."""
    if call.result.dtype not in HALF:
        return function
    rounded = converter(call.result.dtype)
    return lambda *given, **named: rounded(
        function(*(x.float() if x.is_floating_point() else x for x in given), **named)
    )
