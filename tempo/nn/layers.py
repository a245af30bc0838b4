"""Layers, and what they share: named parameters, of their own and of the layers in them.

Linear maps, embeddings and norms have no memory. What has, has a state along a dim, which reads its own value one point
earlier.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import tempo as tp
from tempo.nn import init as initialisers
from tempo.nn.init import Init

Activation = Callable[[tp.RecurrentTensor], tp.RecurrentTensor]


class Module:
    """Declares parameters as `name.part`, and knows those of its submodules.

    `name` is unique in the program: parameters of the same names hand their values from one program to another
    (`state=trained.state`). `dims` are those along which the parameters vary, `dtype` is theirs.
    """

    def __init__(self, name: str, dims: Any = (), dtype: Any = tp.float32) -> None:
        self.name, self.dims, self.dtype = name, dims, dtype
        self._parameters: dict[str, tp.RecurrentTensor] = {}
        self._modules: list[Module] = []

    def parameters(self) -> dict[str, tp.RecurrentTensor]:
        """All parameters by name, in the order of declaration: what `tp.grad` and optimizers take."""
        found = dict(self._parameters)
        for module in self._modules:
            found.update(module.parameters())
        return found

    def parameter(self, part: str, shape: tuple[Any, ...], init: Init) -> tp.RecurrentTensor:
        """Declare the parameter `name.part`; `init` is one of `tp.nn.init`, or any initialiser or array."""
        name = f"{self.name}.{part}"
        tensor = tp.parameter(name, shape=shape, init=init, dims=self.dims, dtype=self.dtype)
        self._parameters[name] = tensor
        return tensor

    def submodule(self, module: Any) -> Any:
        """`module`, whose parameters then count as this one's."""
        self._modules.append(module)
        return module

    def at(self, **index: Any) -> Self:
        """The same layers with every parameter read at other points: `net.at(e=0)` acts with the first epoch's."""
        return self.mapped(lambda tensor: tensor.at(**index))

    def mapped(self, change: Callable[[tp.RecurrentTensor], tp.RecurrentTensor]) -> Self:
        """The same layers with what `change` makes of every parameter in its place; it is called once for each."""
        changed: dict[int, tp.RecurrentTensor] = {}

        def once(tensor: tp.RecurrentTensor) -> tp.RecurrentTensor:
            if id(tensor) not in changed:
                changed[id(tensor)] = change(tensor)
            return changed[id(tensor)]

        mapped: Self = _mapped(self, once)
        return mapped

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tensor.shape}" for name, tensor in self.parameters().items())
        return f"{type(self).__name__}({shapes})"


def _mapped(value: Any, change: Callable[[tp.RecurrentTensor], tp.RecurrentTensor]) -> Any:
    if isinstance(value, tp.RecurrentTensor):
        return change(value)
    if isinstance(value, Module):
        module = copy.copy(value)
        vars(module).update({name: _mapped(each, change) for name, each in vars(value).items()})
        return module
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    if isinstance(value, dict):
        return {key: _mapped(each, change) for key, each in value.items()}
    return value


class Linear(Module):
    """`x @ weight + bias` over the last axis: shape (..., inputs) to (..., outputs); weight (inputs, outputs)."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        name: str,
        bias: bool = True,
        dims: Any = (),
        dtype: Any = tp.float32,
        weight_init: Init | None = None,
        bias_init: Init = initialisers.zeros,
    ) -> None:
        super().__init__(name, dims, dtype)
        self.weight = self.parameter("weight", (inputs, outputs), weight_init or initialisers.fan_in_uniform())
        self.bias = self.parameter("bias", (outputs,), bias_init) if bias else None

    def __call__(self, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class MLP(Module):
    """Linear layers of the widths `sizes` with `activation` between them: (..., sizes[0]) to (..., sizes[-1]).

    `last_init` initialises the last weight where it should differ from the others (a policy's small first actions).
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        name: str,
        activation: Activation = tp.tanh,
        dims: Any = (),
        dtype: Any = tp.float32,
        weight_init: Init | None = None,
        last_init: Init | None = None,
    ) -> None:
        super().__init__(name, dims, dtype)
        if len(sizes) < 2:
            raise tp.ShapeError(f"an MLP needs at least the widths of its input and its output, not {tuple(sizes)}")
        self.activation = activation
        inits = [weight_init] * (len(sizes) - 2) + [last_init or weight_init]
        self.layers = [
            self.submodule(Linear(a, b, name=f"{name}.{at}", dims=dims, dtype=dtype, weight_init=init))
            for at, (a, b, init) in enumerate(zip(sizes, sizes[1:], inits))
        ]

    def __call__(self, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)  # type: ignore[no-any-return]


class Embedding(Module):
    """Row `index` of a table: integers of shape (...) to (..., width); weight (count, width)."""

    def __init__(
        self,
        count: int,
        width: int,
        *,
        name: str,
        dims: Any = (),
        dtype: Any = tp.float32,
        weight_init: Init | None = None,
    ) -> None:
        super().__init__(name, dims, dtype)
        self.weight = self.parameter("weight", (count, width), weight_init or initialisers.normal())

    def __call__(self, index: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return self.weight.spatial[index]


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axis, then `* weight + bias`.

    Source: Ba, Kiros and Hinton 2016, section 3.
    """

    def __init__(
        self,
        width: int,
        *,
        name: str,
        epsilon: float = 1e-5,
        bias: bool = True,
        dims: Any = (),
        dtype: Any = tp.float32,
    ) -> None:
        super().__init__(name, dims, dtype)
        self.epsilon = epsilon
        self.weight = self.parameter("weight", (width,), initialisers.ones)
        self.bias = self.parameter("bias", (width,), initialisers.zeros) if bias else None

    def __call__(self, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        y = tp.layer_norm(x, axis=-1, epsilon=self.epsilon) * self.weight
        return y if self.bias is None else y + self.bias


class RMSNorm(Module):
    """Root mean square 1 over the last axis, then `* weight`. Source: Zhang and Sennrich 2019, equation 4."""

    def __init__(
        self, width: int, *, name: str, epsilon: float = 1e-6, dims: Any = (), dtype: Any = tp.float32
    ) -> None:
        super().__init__(name, dims, dtype)
        self.epsilon = epsilon
        self.weight = self.parameter("weight", (width,), initialisers.ones)

    def __call__(self, x: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return tp.rms_norm(x, axis=-1, epsilon=self.epsilon) * self.weight


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
