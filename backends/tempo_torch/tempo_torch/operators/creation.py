"""Operators without operands, and random draws."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from tempo.backends.operators import OPERATORS, Call
from tempo_torch.arrays import from_host
from tempo_torch.operators.builder import Builder, Function, Operation


def _always_same(call: Call, device: torch.device) -> Function:
    """One tensor, made once. Nothing writes to a value in place."""
    tensor = from_host(np.array(OPERATORS[call.op].numpy(call)()), device)
    return lambda *scalars: tensor


def _index_value(call: Call, device: torch.device) -> Function:
    if device.type != "cpu":
        # Nothing is copied there.
        full = partial(torch.full, (), dtype=torch.int32, device=device)
        return lambda value: value.to(torch.int32) if isinstance(value, torch.Tensor) else full(value)
    array, int32, make = np.array, np.int32, torch.from_numpy  # half the cost of torch's own constructors
    return lambda value: make(array(value, int32))


def _condition_value(call: Call, device: torch.device) -> Function:
    true, false = (torch.full((), value, device=device) for value in (True, False))
    return lambda value: true if value else false


def _random_bits(call: Call, device: torch.device) -> Function:
    """Threefry as the core computes it: a hundred eager operators a draw would cost 0.3 ms."""
    draw = OPERATORS["random_bits"].numpy(call)

    def bits(seed: Any, *scalars: int) -> torch.Tensor:
        return from_host(np.asarray(draw(int(seed), *scalars)), device)

    return Operation(bits, number=0)


CREATION: Mapping[str, Builder] = {
    "constant": _always_same,
    "iota": _always_same,
    "index_value": _index_value,
    "condition_value": _condition_value,
    "random_bits": _random_bits,
}
