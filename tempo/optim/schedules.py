"""Learning rates that change: functions of how many updates were made before.

The count is a tensor of shape (), float64 where the parameter is, else float32; so is the rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tempo as tp

Schedule = Callable[[tp.RecurrentTensor], tp.RecurrentTensor]


def constant(value: float) -> Schedule:
    """Always `value`."""
    return lambda step: tp.full_like(step, value)


def linear(start: float, end: float, steps: int) -> Schedule:
    """From `start` to `end` in `steps` updates, then `end`."""
    return lambda step: start + (end - start) * _progress(step, steps)


def cosine_decay(start: float, steps: int, end: float = 0.0) -> Schedule:
    """From `start` to `end` along half a cosine. Source: Loshchilov and Hutter 2017, equation 5."""

    def decayed(step: tp.RecurrentTensor) -> tp.RecurrentTensor:
        turned: tp.RecurrentTensor = tp.cos(math.pi * _progress(step, steps))
        return end + (start - end) * 0.5 * (1 + turned)

    return decayed


def exponential_decay(start: float, rate: float, steps: int = 1) -> Schedule:
    """`start * rate ** (step / steps)`."""

    def decayed(step: tp.RecurrentTensor) -> tp.RecurrentTensor:
        factor: tp.RecurrentTensor = tp.exp(math.log(rate) * step / steps)
        return start * factor

    return decayed


def warmup(schedule: Schedule, steps: int) -> Schedule:
    """`schedule`, which starts after `steps` updates; before, a line from 0 to where it starts."""

    def warmed(step: tp.RecurrentTensor) -> tp.RecurrentTensor:
        slowed: tp.RecurrentTensor = tp.minimum((step + 1) / steps, 1.0)
        return schedule(tp.maximum(step - steps, 0.0)) * slowed

    return warmed


def _progress(step: tp.RecurrentTensor, steps: int) -> tp.RecurrentTensor:
    fraction: tp.RecurrentTensor = tp.minimum(step / steps, 1.0)
    return fraction
