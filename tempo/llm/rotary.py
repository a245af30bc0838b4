"""Rotary position embedding: where a token stands is how far its queries and keys are turned.

Source: Su et al. 2021, section 3.4; each way to slow the turns down for long texts says its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

import tempo as tp
from tempo.llm.config import Config


@dataclass(frozen=True)
class Rotary:
    """Channels j and j + width / 2 are a point in the plane, turned by theta^(-2 j / width) radians per position.

    `scale` multiplies the turned vectors.
    """

    width: int
    theta: float
    scale: float

    @classmethod
    def of(cls, options: Config, width: int, theta: float, positions: int) -> Self:
        """`positions`: the longest text, where the options do not say what the model was first trained on."""
        return cls(width, theta, 1.0)

    def frequencies(self) -> np.ndarray:
        """Radians per position: float32 of shape (width / 2,)."""
        plain = self.theta ** -(np.arange(0, self.width, 2) / self.width)
        return self.slowed(plain).astype(np.float32)

    def slowed(self, plain: np.ndarray) -> np.ndarray:
        return plain


@dataclass(frozen=True)
class LinearScaling(Rotary):
    """Positions divided by a factor. Source: Chen et al. 2023, section 2.3."""

    factor: float

    @classmethod
    def of(cls, options: Config, width: int, theta: float, positions: int) -> Self:
        return cls(width, theta, 1.0, factor(options))

    def slowed(self, plain: np.ndarray) -> np.ndarray:
        return plain / self.factor


@dataclass(frozen=True)
class Llama3(Rotary):
    """Channels that turn seldom within the context first trained on are slowed down. Source: Llama 3.1's model card."""

    factor: float
    low: float
    high: float
    trained: int

    @classmethod
    def of(cls, options: Config, width: int, theta: float, positions: int) -> Self:
        low, high = (options.number(name) for name in ("low_freq_factor", "high_freq_factor"))
        if low >= high:
            raise options.wrong("low_freq_factor", f"which is not below high_freq_factor, {high}")
        trained = options.integer("original_max_position_embeddings", positions)
        return cls(width, theta, 1.0, factor(options), low, high, trained)

    def slowed(self, plain: np.ndarray) -> np.ndarray:
        turns = self.trained * plain / (2 * math.pi)
        smooth: np.ndarray = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return plain * (smooth + (1 - smooth) / self.factor)


@dataclass(frozen=True)
class Yarn(Rotary):
    """As Llama 3's, with a ramp over channels in the place of turns, and a temperature. Source: Peng et al. 2023,
    sections 3.2 and 3.4.
    """

    factor: float
    first: float
    last: float
    """The channels between which the ramp rises."""

    @classmethod
    def of(cls, options: Config, width: int, theta: float, positions: int) -> Self:
        options.without("mscale", "mscale_all_dim")
        slower, trained = factor(options), options.integer("original_max_position_embeddings", positions)

        def channel(turns: float) -> float:
            """The one that turns so often within the context first trained on."""
            return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

        first, last = (
            channel(options.positive(name, usual)) for name, usual in (("beta_fast", 32.0), ("beta_slow", 1.0))
        )
        if options.flag("truncate", True):
            first, last = math.floor(first), math.ceil(last)
        scale = options.number("attention_factor", 0.1 * math.log(max(slower, 1.0)) + 1)
        return cls(width, theta, scale, slower, max(first, 0), min(last, width - 1))

    def slowed(self, plain: np.ndarray) -> np.ndarray:
        ramp: np.ndarray = np.clip((np.arange(len(plain)) - self.first) / ((self.last - self.first) or 0.001), 0, 1)
        return plain * (1 - ramp + ramp / self.factor)


KINDS: dict[str, type[Rotary]] = {"default": Rotary, "linear": LinearScaling, "llama3": Llama3, "yarn": Yarn}


def read_rotary(config: Config, width: int, *, theta: float = 10_000.0) -> Rotary:
    """From `rope_parameters`, or from `rope_theta` and `rope_scaling`, as older files have it.

    `width` is that of a head, `theta` the base where the file says none.
    """
    whole_heads(config)
    positions = config.integer("max_position_embeddings", 2048)
    options = config.part("rope_parameters")
    if options is not None:
        return rotary_of(options, width, theta, positions)
    scaling = config.part("rope_scaling") or Config({}, config.source)
    return rotary_of(scaling, width, config.positive("rope_theta", theta), positions)


def rotary_of(options: Config, width: int, theta: float, positions: int) -> Rotary:
    """From a table of options alone."""
    whole_heads(options)
    if width % 2:
        raise options.wrong("head_dim", f"and the {width} channels of a head make no pairs")
    theta = options.positive("rope_theta", theta)
    if theta <= 1:
        raise options.wrong("rope_theta", f"and no channel turns slower than another at a base of {theta}")
    kind = options.one_of("rope_type" if options.has("rope_type") else "type", KINDS, "default")
    return KINDS[kind].of(options, width, theta, positions)


def rotate(x: tp.RecurrentTensor, angle: tp.RecurrentTensor, scale: float = 1.0) -> tp.RecurrentTensor:
    """Turn `x` (..., width) by `angle` (width / 2,) radians; the sines are taken in float32."""
    half = angle.shape[-1]
    first, second = x.spatial[..., :half], x.spatial[..., half:]
    cos, sin = ((f(angle) * scale).astype(x.dtype) for f in (tp.cos, tp.sin))
    return tp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def factor(options: Config) -> float:
    """How much longer than first trained on the texts may be."""
    return options.positive("factor")


def whole_heads(options: Config) -> None:
    """Refuse to turn a part of the channels."""
    if options.number("partial_rotary_factor", 1.0) != 1:
        raise options.wrong("partial_rotary_factor", "which is not implemented")
