"""Optimizers, written in the language: an update is one more case of a parameter.

>>> import tempo as tp
>>> with tp.Program("train") as program:
...     i = tp.dim("i")
...     w = tp.parameter("w", (3,), init=1.0, dims=(i,))
...     w[i + 1] = tp.optim.SGD(0.1).update(w, 2 * w)
...     tp.output("w", w)
>>> tp.compile(program)(sizes={"i": 2})["w"].tolist()[1][0]
0.800000011920929
"""

from tempo.optim.optimizers import (
    SGD,
    Adam,
    AdamW,
    Optimizer,
    clip_by_global_norm,
    clip_by_value,
    define_next,
    global_norm,
)
from tempo.optim.schedules import constant, cosine_decay, exponential_decay, linear, warmup

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "clip_by_global_norm",
    "clip_by_value",
    "constant",
    "cosine_decay",
    "define_next",
    "exponential_decay",
    "global_norm",
    "linear",
    "warmup",
]
