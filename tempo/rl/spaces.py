"""What a policy gives against what an environment takes."""

from __future__ import annotations

from typing import Any

import tempo as tp
from tempo import dtypes
from tempo.errors import user_location


def check_batch(batch: Any) -> None:
    """Raises `InputError` where `batch` is no number of environments."""
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise tp.InputError(f"batch={batch!r} is no number of environments", location=user_location())


def check_actions(action: tp.RecurrentTensor, actions: int | tuple[int, ...], batch: int) -> None:
    """Raises `DTypeError` or `ShapeError` where `action` is not what `batch` environments take.

    `actions` is a number of choices, which are integers of shape (batch,), or the shape of continuous ones.
    """
    if not isinstance(action, tp.RecurrentTensor):
        raise tp.ShapeError(f"the policy gives a {type(action).__name__}, no tensor", location=user_location())
    chooses = isinstance(actions, int)
    takes = f"one of {actions} actions, an integer" if chooses else f"actions of shape {actions}, floating"
    if dtypes.is_float(action.dtype) == chooses:
        policy = "Categorical(logits)" if chooses else "Normal(mean, log_std)"
        raise tp.DTypeError(
            f"the policy gives actions of {action.dtype}; each environment takes {takes}",
            location=user_location(),
            hint=f"choose them by tp.rl.{policy}.sample()",
        )
    wanted = (batch,) if isinstance(actions, int) else (batch, *actions)
    if action.shape != wanted:
        raise tp.ShapeError(
            f"the policy gives actions of shape {action.shape}; {batch} environments take {wanted}: {takes} for each",
            location=user_location(),
        )
