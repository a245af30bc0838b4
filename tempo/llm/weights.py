"""Weights as a family names them: where the checkpoint keeps each, the program's inputs, and the arrays given to it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from string import Formatter
from typing import Any, TypeAlias

import numpy as np

import tempo as tp
from tempo.llm.checkpoint import FLOATS, Checkpoint
from tempo.llm.errors import CheckpointError

Arrays: TypeAlias = "np.ndarray | list[Arrays]"
"""One array, or a list with one for each point of the outermost dim."""


@dataclass(frozen=True)
class Weight:
    """A program's input, kept in the checkpoint under `name`, in which `{l}` stands for the point along the dim `l`.

    `outputs`: of a matrix that vectors are multiplied by, the axis of what comes out.
    """

    name: str
    shape: tuple[int, ...]
    outputs: int | None = None

    @cached_property
    def dims(self) -> tuple[str, ...]:
        return tuple(field for _, field, _, _ in Formatter().parse(self.name) if field)

    def at(self, **point: int) -> str:
        return self.name.format(**point)


QUANTIZED = ("int8",)
SCALE = "_scale"
"""What the name of the input ends with that says what a quantized matrix's numbers are multiples of."""


def declare(
    weights: Mapping[str, Weight], sizes: Mapping[str, int], dtype: str, *dims: tp.Dim, quantize: str | None = None
) -> dict[str, Any]:
    """The open program's inputs for `weights`, by name. Of the dims they vary along those not given are declared.

    `quantize`: the dtype of matrices (`Weight.outputs`), each with a second input, the scale of each of its outputs.
    """
    varying = along(weights, sizes, *dims)
    found = {}
    for name, weight in weights.items():
        if quantize is None or weight.outputs is None:
            found[name] = tp.input(name, weight.shape, varying[name], dtype)
            continue
        found[name] = tp.input(name, weight.shape, varying[name], quantize)
        found[name + SCALE] = tp.input(name + SCALE, (weight.shape[weight.outputs],), varying[name])
    return found


def along(weights: Mapping[str, Weight], sizes: Mapping[str, int], *dims: tp.Dim) -> dict[str, tuple[tp.Dim, ...]]:
    """The dims that each varies along; those not given are declared."""
    known = {dim.name: dim for dim in dims}
    for name in dict.fromkeys(name for weight in weights.values() for name in weight.dims if name not in known):
        known[name] = tp.dim(name, sizes[name])
    return {name: tuple(known[dim] for dim in weight.dims) for name, weight in weights.items()}


@dataclass(frozen=True)
class Stored:
    """A checkpoint's tensors as a family names them. All that it needs are there, of the right shape, and no others.

    `sizes`: how many points each dim has. `prefix`: what the names of a model saved without its head do not start with.
    `spare`: the ends of names that a checkpoint may have beside the weights (buffers, a second copy of a tied head).
    """

    checkpoint: Checkpoint
    weights: Mapping[str, Weight]
    sizes: Mapping[str, int]
    prefix: str = ""
    spare: Sequence[str] = ()

    def __post_init__(self) -> None:
        held = self.checkpoint.tensors
        count = sum(math.prod(self.sizes[dim] for dim in weight.dims) for weight in self.weights.values())
        if count > len(held) + 1000:  # the missing ones would be too many to name
            raise self._error(f"by config.json the model has {count} tensors, but there are {len(held)}")
        wanted = {self._named(name): weight.shape for weight in self.weights.values() for name in self._names(weight)}
        missing = [name for name in wanted if name not in held]
        if missing:
            raise self._error(f"{_listed(missing)} missing")
        extra = [name for name in held if name not in wanted and not name.endswith(tuple(self.spare))]
        if extra:
            raise self._error(f"{_listed(extra)} no part of the model that config.json tells of")
        for name, shape in wanted.items():
            self._check(name, held[name], shape)

    def _check(self, name: str, tensor: np.ndarray, shape: tuple[int, ...]) -> None:
        if tensor.shape != shape:
            raise self._error(f"the tensor {name!r} has the shape {tensor.shape}; by config.json it is {shape}")
        if tensor.dtype.name not in FLOATS:
            raise self._error(f"the tensor {name!r} is of dtype {tensor.dtype.name}, not one of {', '.join(FLOATS)}")

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.checkpoint.folder}: {what}")

    def _names(self, weight: Weight) -> Iterator[str]:
        for point in itertools.product(*(range(self.sizes[dim]) for dim in weight.dims)):
            yield weight.at(**dict(zip(weight.dims, point)))

    def _named(self, name: str) -> str:
        """As the checkpoint has it: with the prefix, or without where the model was saved without its head."""
        bare = name.removeprefix(self.prefix)
        return bare if name not in self.checkpoint.tensors and bare in self.checkpoint.tensors else name

    def arrays(self, dtype: str | None = None, quantize: str | None = None) -> dict[str, Arrays]:
        """By input, one array for each point. They lie in the files, but where `dtype` is not what is stored, or where
        they are matrices and `quantize` is given."""
        chosen = np.dtype(dtype or self.checkpoint.dtype)
        found: dict[str, Arrays] = {}
        for name, weight in self.weights.items():
            outputs = weight.outputs
            if quantize is None or outputs is None:
                found[name] = self._each(weight, lambda array: array.astype(chosen, copy=False))
                continue
            pairs = self._each(weight, partial(quantized, outputs=outputs))
            found[name], found[name + SCALE] = (_part(pairs, at, len(weight.dims)) for at in (0, 1))
        return found

    def _each(self, weight: Weight, made: Callable[[np.ndarray], Any], *point: int) -> Any:
        """What is made of the tensor at each point; those of the outermost dim are a list."""
        if len(point) == len(weight.dims):
            return made(self.checkpoint.tensors[self._named(weight.at(**dict(zip(weight.dims, point))))])
        return [self._each(weight, made, *point, at) for at in range(self.sizes[weight.dims[len(point)]])]


def quantized(matrix: np.ndarray, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Its numbers as multiples, -127 to 127, of a scale for each output (float32), its largest over 127.

    Source: Dettmers et al. 2022, "LLM.int8()", section 2 (absmax); Jacob et al. 2018, section 2.
    """
    wide = matrix.astype(np.float32)
    largest = np.abs(wide).max(axis=1 - outputs, keepdims=True)
    scale = np.where(largest > 0, largest / np.float32(127), np.float32(1))
    return np.rint(wide / scale).astype(np.int8), scale.reshape(-1)


def _part(pairs: Any, at: int, depth: int) -> Arrays:
    """Of lists within lists of pairs, those of the first or of the second."""
    return [_part(each, at, depth - 1) for each in pairs] if depth else pairs[at]


def _listed(names: Sequence[str]) -> str:
    """A few of the names, how many more there are, and the verb."""
    shown = ", ".join(map(repr, names[:4])) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"the tensors {shown} are" if len(names) > 1 else f"the tensor {shown} is"
