"""What policies choose actions from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tempo as tp
from tempo import dtypes
from tempo.errors import user_location


@dataclass(frozen=True)
class Categorical:
    """One of n actions; `logits` (..., n), actions (...) int32."""

    logits: tp.RecurrentTensor

    def sample(self, dims: Any = None) -> tp.RecurrentTensor:
        """A draw at every point of `dims`, or of the logits' domain."""
        return tp.random.categorical(self.logits, dims=dims)

    def mode(self) -> tp.RecurrentTensor:
        """The likeliest action."""
        return self.logits.argmax(axis=-1)

    def log_prob(self, action: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """Log-probability of `action`, shape (...).

        Raises `DTypeError` where it is no integer, `ShapeError` where it has fewer axes than there are choices.
        """
        _check(action, self.logits, "Categorical", chooses=True)
        chosen = tp.one_hot(action, self.logits.shape[-1], dtype=self.logits.dtype)
        return (chosen * tp.log_softmax(self.logits, axis=-1)).sum(axis=-1)

    def entropy(self) -> tp.RecurrentTensor:
        """In nats, shape (...)."""
        log_p = tp.log_softmax(self.logits, axis=-1)
        return -(tp.exp(log_p) * log_p).sum(axis=-1)


@dataclass(frozen=True)
class EpsilonGreedy:
    """The action of the greatest value, and with probability `epsilon` any; `values` (..., n), actions (...) int32."""

    values: tp.RecurrentTensor
    epsilon: tp.RecurrentTensor | float

    def sample(self, dims: Any = None) -> tp.RecurrentTensor:
        """A draw at every point of `dims`, or of the values' domain."""
        domain = self.values.domain if dims is None else dims
        shape, count = self.values.shape[:-1], self.values.shape[-1]
        explores = tp.random.uniform(shape, dims=domain) < self.epsilon
        any_action = tp.random.categorical(tp.zeros((*shape, count)), dims=domain)
        return tp.where(explores, any_action, self.mode())

    def mode(self) -> tp.RecurrentTensor:
        """The action of the greatest value."""
        return self.values.argmax(axis=-1)


@dataclass(frozen=True)
class Normal:
    """Independent normals; `mean` (..., n), `log_std` broadcast against it, actions (..., n)."""

    mean: tp.RecurrentTensor
    log_std: tp.RecurrentTensor

    def sample(self, dims: Any = None) -> tp.RecurrentTensor:
        """A draw at every point of `dims`, or of the parameters' domain."""
        domain = (self.mean + self.log_std).domain if dims is None else dims
        noise = tp.random.normal(self.mean.shape, dims=domain, dtype=self.mean.dtype)
        return self.mean + tp.exp(self.log_std) * noise

    def mode(self) -> tp.RecurrentTensor:
        """The likeliest action."""
        return self.mean

    def log_prob(self, action: tp.RecurrentTensor) -> tp.RecurrentTensor:
        """Log-density of `action`, summed over the last axis; shape (...).

        Raises `DTypeError` where it is not floating, `ShapeError` where its last axis is not that of the mean.
        """
        _check(action, self.mean, "Normal", chooses=False)
        scaled = (action - self.mean) * tp.exp(-self.log_std)
        density = -0.5 * scaled * scaled - self.log_std - 0.5 * math.log(2 * math.pi)
        return density.sum(axis=-1)

    def entropy(self) -> tp.RecurrentTensor:
        """In nats, summed over the last axis; shape (...)."""
        each = self.log_std + 0.5 * (1 + math.log(2 * math.pi))
        return (each + 0 * self.mean).sum(axis=-1)


def _check(action: tp.RecurrentTensor, parameter: tp.RecurrentTensor, name: str, chooses: bool) -> None:
    """That the action is of the distribution's space: what broadcasts may still be something else."""
    if dtypes.is_float(action.dtype) == chooses:
        kind = "integers" if chooses else "floating"
        raise tp.DTypeError(f"an action of {action.dtype}; those of a {name} are {kind}", location=user_location())
    wanted = parameter.shape[:-1] if chooses else parameter.shape
    if len(action.shape) < len(wanted) or (not chooses and action.shape[-1] != wanted[-1]):
        message = f"an action of shape {action.shape}; those of this {name} have {wanted}"
        raise tp.ShapeError(message, location=user_location())
