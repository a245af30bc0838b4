"""Rotary position embedding: where a token stands is how far its queries and keys are turned.

Source: Su et al. 2021, section 3.4; what is done to its frequencies for long texts is said at each function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import tempo as tp
from tempo.llm.config import Config


@dataclass(frozen=True)
class Rotary:
    """Channels j and j + width / 2 are a point in the plane, turned by `frequencies[j]` radians per position.

    `scale` multiplies the turned vectors (YaRN's temperature). `options` are those of the frequencies' `kind`.
    """

    width: int
    theta: float
    kind: str
    options: Config
    positions: int

    @staticmethod
    def read(config: Config, width: int, *, theta: float = 10_000.0) -> Rotary:
        """From `rope_parameters`, or from `rope_theta` and `rope_scaling`, as older files have it.

        `theta`: the base where the file says none.
        """
        options = config.part("rope_parameters")
        if options is None:
            options = config.part("rope_scaling") or Config({}, config.source)
            theta = config.number("rope_theta", theta)
        whole_heads(config)
        return Rotary.of(options, width, theta=theta, positions=config.integer("max_position_embeddings", 2048))

    @staticmethod
    def of(options: Config, width: int, *, theta: float, positions: int) -> Rotary:
        """From a table of options. `positions`: the longest text, which the model was extended to."""
        if width % 2:
            raise options.wrong("head_dim", f"and the {width} channels of a head make no pairs")
        kind = options.one_of("rope_type" if "rope_type" in options.options else "type", _FREQUENCIES, "default")
        whole_heads(options)
        return Rotary(width, options.number("rope_theta", theta), kind, options, positions)

    def frequencies(self) -> np.ndarray:
        """Radians per position: float32 of shape (width / 2,)."""
        plain = self.theta ** -(np.arange(0, self.width, 2) / self.width)
        return _FREQUENCIES[self.kind](self, plain).astype(np.float32)

    @property
    def scale(self) -> float:
        return _temperature(self.options) if self.kind == "yarn" else 1.0


def whole_heads(options: Config) -> None:
    """Refuse to turn a part of the channels."""
    if options.number("partial_rotary_factor", 1.0) != 1:
        raise options.wrong("partial_rotary_factor", "which is not implemented")


def rotate(x: tp.RecurrentTensor, angle: tp.RecurrentTensor, scale: float = 1.0) -> tp.RecurrentTensor:
    """Turn `x` (..., width) by `angle` (width / 2,) radians; the sines are taken in float32."""
    half = angle.shape[-1]
    first, second = x.spatial[..., :half], x.spatial[..., half:]
    cos, sin = ((f(angle) * scale).astype(x.dtype) for f in (tp.cos, tp.sin))
    return tp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _default(rotary: Rotary, plain: np.ndarray) -> np.ndarray:
    return plain


def _linear(rotary: Rotary, plain: np.ndarray) -> np.ndarray:
    """Positions divided by a factor. Source: Chen et al. 2023, section 2.3."""
    return plain / _factor(rotary)


def _llama3(rotary: Rotary, plain: np.ndarray) -> np.ndarray:
    """Channels that turn seldom within the context first trained on are slowed down. Source: Llama 3.1's model card."""
    low, high = (rotary.options.number(name) for name in ("low_freq_factor", "high_freq_factor"))
    turns = _trained(rotary) * plain / (2 * math.pi)
    smooth: np.ndarray = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (smooth + (1 - smooth) / _factor(rotary))


def _yarn(rotary: Rotary, plain: np.ndarray) -> np.ndarray:
    """As Llama 3's, with a ramp over channels in place of turns. Source: Peng et al. 2023, section 3.2."""
    options, trained = rotary.options, _trained(rotary)

    def channel(turns: float) -> float:
        """The one that turns so often within the context first trained on."""
        return rotary.width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(rotary.theta))

    low, high = channel(options.number("beta_fast", 32.0)), channel(options.number("beta_slow", 1.0))
    if options.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary.width - 1)
    ramp: np.ndarray = np.clip((np.arange(len(plain)) - low) / ((high - low) or 0.001), 0, 1)
    return plain * (1 - ramp + ramp / _factor(rotary))


def _temperature(options: Config) -> float:
    """What YaRN multiplies queries and keys by: `0.1 ln(factor) + 1` unless it is given. Source: its section 3.4."""
    if options.has("attention_factor"):
        return options.number("attention_factor")
    options.without("mscale", "mscale_all_dim")
    return 0.1 * math.log(max(options.number("factor"), 1.0)) + 1


def _factor(rotary: Rotary) -> float:
    factor = rotary.options.number("factor")
    if not factor:
        raise rotary.options.wrong("factor", "which leaves no positions")
    return factor


def _trained(rotary: Rotary) -> float:
    """How many positions the model was first trained on."""
    return rotary.options.integer("original_max_position_embeddings", rotary.positions)


_FREQUENCIES: dict[str, Callable[[Rotary, np.ndarray], np.ndarray]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
