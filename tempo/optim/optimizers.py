"""Optimizers: what a parameter is at the next iteration, given its gradient at this one.

An optimizer's own state (moments, the count of updates) is in parameters named after the parameter that they serve, so
it is part of `.state` of a run, and a run that starts from it goes on where the other ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import tempo as tp
from tempo.optim.schedules import Schedule

LearningRate = float | tp.RecurrentTensor | Schedule
Gradients = TypeVar("Gradients")  # a tensor, or a list or dict of tensors
Iterations = tp.Dim | Sequence[tp.Dim] | None


def define_next(tensor: tp.RecurrentTensor, dims: Sequence[tp.Dim], value: tp.RecurrentTensor) -> None:
    """Define `tensor` at every point of `dims` but the first as `value` at the point before, in lexicographic order.

    For dims (i, e): `tensor[i, e + 1] = value` and `tensor[i + 1, 0] = value.at(e=e.size - 1)`.
    """
    varying = {dim.name for dim in value.domain}
    for position in reversed(range(len(dims))):
        later = dims[position + 1 :]
        moved = {dims[position].name: dims[position] + 1, **{dim.name: 0 for dim in later}}
        place = tuple(moved.get(dim.name, dim) for dim in tensor.domain)
        tensor[place] = value.at(**{dim.name: dim.size - 1 for dim in later if dim.name in varying})


class Optimizer:
    """`learning_rate` is a number, a tensor, or a schedule (see `tempo.optim.schedules`).

    `dim` is the dim of iterations, or several, the outermost first (iterations, epochs, minibatches); it may be left
    out where parameters have a single dim.
    """

    def __init__(self, learning_rate: LearningRate, *, dim: Iterations = None, name: str = "") -> None:
        self.learning_rate, self.dim = learning_rate, dim
        self.name = name or type(self).__name__.lower()
        self._count: tp.RecurrentTensor | None = None

    def update(self, parameter: tp.RecurrentTensor, gradient: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """The parameter after one step against `gradient`, of its shape: `w[i + 1] = optimizer.update(w, gradient)`."""
        raise NotImplementedError

    def minimize(self, loss: tp.RecurrentTensor, parameters: Any) -> None:
        """Define every parameter's next value by a step against the gradient of `loss`.

        `parameters`: a module, or a dict or list of parameters.
        """
        self.apply(parameters, tp.grad(loss, as_dict(parameters)))

    def apply(self, parameters: Any, gradients: Mapping[str, tp.RecurrentTensor]) -> None:
        """Define every parameter's next value, given the gradients by name (clipped, say)."""
        for name, parameter in as_dict(parameters).items():
            define_next(parameter, self.dims_of(parameter), self.update(parameter, gradients[name]))

    # What the rules share.

    def rate(self, parameter: tp.RecurrentTensor) -> tp.RecurrentTensor | float:
        """The learning rate at this update."""
        if callable(self.learning_rate):
            return self.learning_rate(self.count(parameter).astype(_precision(parameter)))
        return self.learning_rate

    def count(self, parameter: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """How many updates were made before this one, int32 of shape (); one count for all parameters."""
        if self._count is None:
            dims = self.dims_of(parameter)
            self._count = tp.parameter(f"{self.name}.count", (), init=0, dims=dims, dtype=tp.int32)
            define_next(self._count, dims, self._count + 1)
        return self._count

    def memory(self, parameter: tp.RecurrentTensor, part: str) -> tp.RecurrentTensor:
        """A parameter of the shape and dims of `parameter`, 0 at the start."""
        if not parameter.name:
            raise tp.DefinitionError(f"{parameter!r} is not declared with tp.parameter")
        name = f"{parameter.name}.{self.name}.{part}"
        return tp.parameter(name, parameter.shape, init=0, dims=parameter.domain, dtype=parameter.dtype)

    def remember(self, memory: tp.RecurrentTensor, value: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """`value`, which `memory` holds at the next iteration."""
        define_next(memory, self.dims_of(memory), value)
        return value

    def dims_of(self, parameter: tp.RecurrentTensor) -> tuple[tp.Dim, ...]:
        """The dims of iterations, the outermost first."""
        if self.dim is not None:
            return (self.dim,) if isinstance(self.dim, tp.Dim) else tuple(self.dim)
        if len(parameter.domain) != 1:
            names = ", ".join(dim.name for dim in parameter.domain) or "none"
            raise tp.DefinitionError(
                f"{parameter.label} has the dims {names}: which one counts iterations is not clear",
                hint=f"say it: tp.optim.{type(self).__name__}(..., dim=i)",
            )
        return parameter.domain


class SGD(Optimizer):
    """`w - rate * g`, with `momentum` as PyTorch has it: `v = momentum * v + g; w - rate * v`.

    Source: Sutskever et al. 2013; `nesterov` takes `g + momentum * v` for `v`.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        dim: Iterations = None,
        name: str = "",
    ) -> None:
        super().__init__(learning_rate, dim=dim, name=name)
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    def update(self, parameter: tp.RecurrentTensor, gradient: tp.RecurrentTensor) -> tp.RecurrentTensor:
        step = gradient + self.weight_decay * parameter if self.weight_decay else gradient
        if self.momentum:
            memory = self.memory(parameter, "momentum")
            velocity = self.remember(memory, self.momentum * memory + step)
            step = step + self.momentum * velocity if self.nesterov else velocity
        return parameter - self.rate(parameter) * step


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square. Source: Kingma and Ba 2015, algorithm 1."""

    def __init__(
        self,
        learning_rate: LearningRate = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        dim: Iterations = None,
        name: str = "",
    ) -> None:
        super().__init__(learning_rate, dim=dim, name=name)
        self.betas, self.epsilon = betas, epsilon

    def update(self, parameter: tp.RecurrentTensor, gradient: tp.RecurrentTensor) -> tp.RecurrentTensor:
        return parameter - self.rate(parameter) * self.direction(parameter, gradient)

    def direction(self, parameter: tp.RecurrentTensor, gradient: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """The mean over the root of the mean square, both corrected for their start at 0."""
        beta1, beta2 = self.betas
        first, second = self.memory(parameter, "mean"), self.memory(parameter, "square")
        mean = self.remember(first, beta1 * first + (1 - beta1) * gradient)
        square = self.remember(second, beta2 * second + (1 - beta2) * gradient * gradient)
        count = (self.count(parameter) + 1).astype(_precision(parameter))
        scale = tp.sqrt(square / (1 - beta2**count))
        return (mean / (1 - beta1**count)) / (scale + self.epsilon)


class AdamW(Adam):
    """Adam with weight decay apart from the gradient. Source: Loshchilov and Hutter 2019, algorithm 2."""

    def __init__(
        self,
        learning_rate: LearningRate = 1e-3,
        *,
        weight_decay: float = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        dim: Iterations = None,
        name: str = "",
    ) -> None:
        super().__init__(learning_rate, betas=betas, epsilon=epsilon, dim=dim, name=name)
        self.weight_decay = weight_decay

    def update(self, parameter: tp.RecurrentTensor, gradient: tp.RecurrentTensor) -> tp.RecurrentTensor:
        decayed = self.direction(parameter, gradient) + self.weight_decay * parameter
        return parameter - self.rate(parameter) * decayed


def _precision(parameter: tp.RecurrentTensor) -> str:
    """Of what is computed from the count of updates: halves do not hold a large count."""
    return tp.float64 if parameter.dtype == tp.float64 else tp.float32


def as_dict(parameters: Any) -> dict[str, tp.RecurrentTensor]:
    """Parameters by name: of a module, or of a dict, a list or a single parameter."""
    if hasattr(parameters, "parameters"):
        return dict(parameters.parameters())
    if isinstance(parameters, Mapping):
        return dict(parameters)
    return {each.name: each for each in _tensors(parameters)}


# Gradients before an optimizer takes them: norms and clipping, over a tensor, or a list or dict of tensors.


def global_norm(gradients: Any, *, dim: Iterations = None) -> tp.RecurrentTensor:
    """The square root of the sum of all squares; shape ().

    `dim`: the dims of iterations. Along others (the layers of a stack, one parameter for each) is summed; unless it is
    given, every point has a norm of its own.
    """
    squares = [_summed_but(each * each, dim) for each in _tensors(gradients)]
    return tp.sqrt(sum(squares[1:], squares[0]))


def clip_by_global_norm(gradients: Gradients, max_norm: float, *, dim: Iterations = None) -> Gradients:
    """All of them scaled by one factor, so that their global norm is at most `max_norm`; `dim` as `global_norm` has it.

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
    """
    factor = max_norm / tp.maximum(global_norm(gradients, dim=dim), max_norm)
    return _mapped(gradients, lambda each: each * factor)  # type: ignore[no-any-return]


def clip_by_value(gradients: Gradients, limit: float) -> Gradients:
    """Every element within `-limit, limit`."""
    return _mapped(gradients, lambda each: tp.clip(each, -limit, limit))  # type: ignore[no-any-return]


def _summed_but(x: tp.RecurrentTensor, dim: Iterations) -> tp.RecurrentTensor:
    """The sum of all elements, and of all points along other dims than `dim`."""
    if dim is None:
        return x.sum()
    kept = {each.name for each in ((dim,) if isinstance(dim, tp.Dim) else dim)}
    return x.at(**{each.name: slice(0, None) for each in x.domain if each.name not in kept}).sum()


def _tensors(gradients: Any) -> list[tp.RecurrentTensor]:
    if isinstance(gradients, tp.RecurrentTensor):
        return [gradients]
    return list(gradients.values() if isinstance(gradients, Mapping) else gradients)


def _mapped(gradients: Any, change: Callable[[tp.RecurrentTensor], tp.RecurrentTensor]) -> Any:
    if isinstance(gradients, tp.RecurrentTensor):
        return change(gradients)
    if isinstance(gradients, Mapping):
        return {name: change(each) for name, each in gradients.items()}
    return [change(each) for each in gradients]
