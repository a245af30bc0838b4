"""Learning from what was seen before (Lin 1992), towards values that stand still (Mnih et al. 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import tempo as tp
from tempo.errors import user_location

Tensor = tp.RecurrentTensor
Network = TypeVar("Network", bound=tp.nn.Module)


def replay(
    transitions: Mapping[str, Tensor], dim: tp.Dim, capacity: int, batch: int, dims: Any = None
) -> dict[str, Tensor]:
    """At every point of `dim`, `batch` transitions at random out of the last `capacity`, those of the point included.

    Every tensor of `transitions` has the same number of environments as its leading axis: (environments, ...) becomes
    (batch, ...), and the same ones are drawn from all. What is kept is `capacity // environments` points. Drawn anew
    at every point of `dims` (of `dim` alone unless given), uniformly and with replacement. No gradient flows into what
    is drawn. Raises `ShapeError` where tensors do not agree, or `capacity` is less than a point.

    >>> import numpy as np
    >>> with tp.Program() as program:
    ...     t = tp.dim("t", 100)
    ...     value = tp.input("value", (2,), (t,))
    ...     tp.output("drawn", replay({"value": value}, t, capacity=20, batch=3)["value"])
    >>> drawn = tp.compile(program)(value=np.arange(200.0).reshape(100, 2))["drawn"]
    >>> drawn.shape, bool((drawn[50] >= 82).all()), bool((drawn[50] < 102).all())
    ((100, 3), True, True)
    """
    environments = _environments(transitions)
    points = capacity // environments
    if points < 1:
        message = f"a capacity of {capacity} is less than the {environments} transitions of one point"
        raise tp.ShapeError(message, location=user_location())
    first = tp.max(dim + 1 - points, 0)
    domain = (dim,) if dims is None else dims
    point = _below(tp.as_tensor(dim + 1 - first, dtype=tp.int32), batch, domain)
    environment = _below(environments, batch, domain)

    def drawn(tensor: Tensor) -> Tensor:
        if dim.name not in (each.name for each in tensor.domain):  # the same at all points
            return tp.stop_gradient(tensor.spatial[environment])
        past = tensor.at(**{dim.name: slice(first, dim + 1)})
        return tp.stop_gradient(past.spatial[point, environment])

    return {name: drawn(tensor) for name, tensor in transitions.items()}


def target(network: Network, dim: tp.Dim, *, every: int | None = None, rate: float | None = None) -> Network:
    """The network as it was at the last point of `dim` that `every` divides, or a running mean of its parameters.

    With `rate`, `mean[t + 1] = mean[t] + rate * (w[t + 1] - mean[t])`, from `w[0]`. It is no parameter: no state of a
    run, and nothing is learned through it. Raises ValueError unless one of the two is given.

    >>> with tp.Program() as program:
    ...     i = tp.dim("i", 5)
    ...     net = tp.nn.Linear(1, 1, name="net", bias=False, weight_init=tp.nn.init.zeros, dims=(i,))
    ...     net.weight[i + 1] = net.weight + 1
    ...     tp.output("w", target(net, i, every=2).weight.reshape())
    >>> tp.compile(program)()["w"].tolist()
    [0.0, 0.0, 2.0, 2.0, 4.0]
    """
    if (every is None) == (rate is None):
        raise ValueError(f"a target network needs one of every= and rate=, not every={every}, rate={rate}")

    def follower(parameter: Tensor) -> Tensor:
        now = tp.stop_gradient(parameter)
        name = f"{parameter.name}.target"
        followed = tp.recurrent(name, parameter.shape, parameter.domain, dtype=parameter.dtype)
        before = followed.at(**{dim.name: dim - 1})
        if every is not None:
            followed[dim % every == 0] = now
            followed[True] = before
        else:
            followed[dim == 0] = now
            followed[True] = before + rate * (now - before)
        return followed

    return network.mapped(follower)  # type: ignore[no-any-return]


def _environments(transitions: Mapping[str, Tensor]) -> int:
    counts = {tensor.shape[0] if tensor.shape else None for tensor in transitions.values()}
    count = counts.pop() if len(counts) == 1 else None
    if isinstance(count, int):
        return count
    found = ", ".join(f"{name} {tensor.shape}" for name, tensor in transitions.items()) or "none"
    message = f"transitions of the same number of environments are replayed together; there are {found}"
    raise tp.ShapeError(message, location=user_location())


def _below(count: Tensor | int, batch: int, dims: Any) -> Tensor:
    """Integers from 0 to `count - 1`, (batch,) int32; the minimum is for products that are rounded up."""
    unit = tp.random.uniform((batch,), dims=dims)
    return tp.minimum((unit * count).astype(tp.int32), count - 1)
