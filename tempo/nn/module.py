"""What layers share: named parameters, of their own and of the layers in them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import tempo as tp

Init = Callable[..., Any]


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
