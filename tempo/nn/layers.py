"""Layers without memory: linear maps, embeddings, norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tempo as tp
from tempo.nn import init as initialisers
from tempo.nn.module import Init, Module

Activation = Callable[[tp.RecurrentTensor], tp.RecurrentTensor]


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
