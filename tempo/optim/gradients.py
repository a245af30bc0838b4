"""Gradients before an optimizer takes them: norms and clipping, over lists or dicts of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import tempo as tp

Gradients = TypeVar("Gradients")  # a tensor, or a list or dict of tensors


def global_norm(gradients: Any) -> tp.RecurrentTensor:
    """The square root of the sum of all squares; shape ()."""
    squares = [(each * each).sum() for each in _tensors(gradients)]
    return tp.sqrt(sum(squares[1:], squares[0]))


def clip_by_global_norm(gradients: Gradients, max_norm: float) -> Gradients:
    """All of them scaled by one factor, so that their global norm is at most `max_norm`.

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
    """
    factor = max_norm / tp.maximum(global_norm(gradients), max_norm)
    return _mapped(gradients, lambda each: each * factor)  # type: ignore[no-any-return]


def clip_by_value(gradients: Gradients, limit: float) -> Gradients:
    """Every element within `-limit, limit`."""
    return _mapped(gradients, lambda each: tp.clip(each, -limit, limit))  # type: ignore[no-any-return]


def _tensors(gradients: Any) -> list[tp.RecurrentTensor]:
    if isinstance(gradients, tp.RecurrentTensor):
        return [gradients]
    return list(gradients.values() if isinstance(gradients, Mapping) else gradients)


def _mapped(gradients: Any, change: Callable[[tp.RecurrentTensor], tp.RecurrentTensor]) -> Any:
    if isinstance(gradients, tp.RecurrentTensor):
        return change(gradients)
    if isinstance(gradients, Mapping):
        return {name: change(each) for name, each in gradients.items()}
    return [change(each) for each in gradients]
