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
    return lambda step: end + (start - end) * 0.5 * (1 + tp.cos(math.pi * _progress(step, steps)))


def exponential_decay(start: float, rate: float, steps: int = 1) -> Schedule:
    """`start * rate ** (step / steps)`."""
    return lambda step: start * tp.exp(math.log(rate) * step / steps)


def warmup(schedule: Schedule, steps: int) -> Schedule:
    """`schedule`, which starts after `steps` updates; before, a line from 0 to where it starts."""
    return lambda step: schedule(tp.maximum(step - steps, 0.0)) * tp.minimum((step + 1) / steps, 1.0)


def _progress(step: tp.RecurrentTensor, steps: int) -> tp.RecurrentTensor:
    return tp.minimum(step / steps, 1.0)
