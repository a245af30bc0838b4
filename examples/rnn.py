"""An RNN."""

from __future__ import annotations

import tempo as tp


def rnn(
    x: tp.RecurrentTensor, wx: tp.RecurrentTensor, wh: tp.RecurrentTensor, bias: tp.RecurrentTensor, dims: tuple
) -> tp.RecurrentTensor:
    """The states of an Elman network that reads `x` along the last of `dims`."""
    t = dims[-1]
    before = tp.recurrent("before", shape=(wh.shape[0],), dims=dims)
    h = tp.tanh(x @ wx + before @ wh + bias)
    before[t == 0] = 0
    before[..., t + 1] = h
    return h
