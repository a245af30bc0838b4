"""An LSTM."""

from __future__ import annotations

import tempo as tp


def lstm(
    x: tp.RecurrentTensor, wx: tp.RecurrentTensor, wh: tp.RecurrentTensor, bias: tp.RecurrentTensor, dims: tuple
) -> tp.RecurrentTensor:
    """What an LSTM makes of `x`, along the last of `dims`. The gates stand in the weights as in, forget, cell, out."""
    t, hidden = dims[-1], wh.shape[0]
    h = tp.recurrent("h", shape=(hidden,), dims=dims)  # before the step
    c = tp.recurrent("c", shape=(hidden,), dims=dims)
    enter, forget, new, leave = tp.split(x @ wx + h @ wh + bias, 4, axis=-1)
    cell = tp.sigmoid(forget) * c + tp.sigmoid(enter) * tp.tanh(new)
    out = tp.sigmoid(leave) * tp.tanh(cell)
    h[t == 0] = 0
    h[..., t + 1] = out
    c[t == 0] = 0
    c[..., t + 1] = cell
    return out
