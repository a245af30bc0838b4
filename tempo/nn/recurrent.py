"""Layers with memory: a state along a dim, which reads its own value one point earlier."""

from __future__ import annotations

from typing import Any

import tempo as tp
from tempo.nn import init as initialisers
from tempo.nn.layers import Linear
from tempo.nn.module import Init, Module


class _Recurrent(Module):
    """`inputs` numbers in, `hidden` out, at every point of `x`; a state of the same width from one point to the next.

    Both maps are one matrix for all gates, as in PyTorch: weights (inputs, gates * hidden) and
    (hidden, gates * hidden).
    """

    gates: int

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        name: str,
        dims: Any = (),
        dtype: Any = tp.float32,
        weight_init: Init | None = None,
    ) -> None:
        super().__init__(name, dims, dtype)
        self.inputs, self.hidden = inputs, hidden
        init = weight_init or initialisers.uniform(-(hidden**-0.5), hidden**-0.5)
        width = self.gates * hidden
        self.input_map, self.hidden_map = (
            self.submodule(
                Linear(given, width, name=f"{name}.{part}", dims=dims, dtype=dtype, weight_init=init, bias_init=init)
            )
            for part, given in (("input", inputs), ("hidden", hidden))
        )

    def _state(self, part: str, maps: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """A new recurrent tensor at every point at which `maps` of the input is."""
        shape = (*maps.shape[:-1], self.hidden)
        return tp.recurrent(f"{self.name}.{part}", shape, maps.domain, dtype=maps.dtype)

    def _split(self, maps: tp.RecurrentTensor) -> list[tp.RecurrentTensor]:
        return [maps.spatial[..., at * self.hidden : (at + 1) * self.hidden] for at in range(self.gates)]


def _before(state: tp.RecurrentTensor, dim: tp.Dim, first: Any) -> tp.RecurrentTensor:
    """The state one point earlier along `dim`; `first` where there is none, 0 unless given."""
    start = tp.zeros(state.shape, dtype=state.dtype) if first is None else first
    return tp.cases((dim == 0, start), state.at(**{dim.name: dim - 1}))


class RNN(_Recurrent):
    """`h[t] = tanh(input(x[t]) + hidden(h[t - 1]))`. Source: Elman 1990."""

    gates = 1

    def __call__(self, x: tp.RecurrentTensor, dim: tp.Dim, h0: Any = None) -> tp.RecurrentTensor:
        """The states along `dim`, shape (..., inputs) to (..., hidden); `h0` stands before the first point."""
        maps = self.input_map(x)
        h = self._state("h", maps)
        h[True] = tp.tanh(maps + self.hidden_map(_before(h, dim, h0)))
        return h


class LSTM(_Recurrent):
    """Long short-term memory with a forget gate; gates in PyTorch's order: input, forget, cell, output.

    Source: Hochreiter and Schmidhuber 1997; Gers, Schmidhuber and Cummins 2000.
    """

    gates = 4

    def __call__(
        self, x: tp.RecurrentTensor, dim: tp.Dim, h0: Any = None, c0: Any = None
    ) -> tuple[tp.RecurrentTensor, tp.RecurrentTensor]:
        """Outputs and cells along `dim`, each (..., hidden); `h0` and `c0` stand before the first point."""
        maps = self.input_map(x)
        h, c = self._state("h", maps), self._state("c", maps)
        take, forget, cell, show = self._split(maps + self.hidden_map(_before(h, dim, h0)))
        c[True] = tp.sigmoid(forget) * _before(c, dim, c0) + tp.sigmoid(take) * tp.tanh(cell)
        h[True] = tp.sigmoid(show) * tp.tanh(c)
        return h, c


class GRU(_Recurrent):
    """Gated recurrent unit, the reset gate after the map, as in PyTorch; gates: reset, update, new.

    Source: Cho et al. 2014; the variant of cuDNN.
    """

    gates = 3

    def __call__(self, x: tp.RecurrentTensor, dim: tp.Dim, h0: Any = None) -> tp.RecurrentTensor:
        """The states along `dim`, shape (..., inputs) to (..., hidden); `h0` stands before the first point."""
        maps = self.input_map(x)
        h = self._state("h", maps)
        past = _before(h, dim, h0)
        reset_x, update_x, new_x = self._split(maps)
        reset_h, update_h, new_h = self._split(self.hidden_map(past))
        reset, update = tp.sigmoid(reset_x + reset_h), tp.sigmoid(update_x + update_h)
        h[True] = (1 - update) * tp.tanh(new_x + reset * new_h) + update * past
        return h
