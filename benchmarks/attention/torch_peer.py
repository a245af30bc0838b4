"""The decoder by hand in PyTorch: a cache that is allocated once, and torch's kernel on the part that counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from tempo_torch.memory import measured_peak
from torch.nn import functional

from benchmarks.attention.program import Config


def peers(
    config: Config, weights: Mapping[str, Any], length: int, prompt: np.ndarray | None = None
) -> dict[str, Callable[[], np.ndarray]]:
    return {"by hand": by_hand(config, weights, length, prompt)}


def peak_bytes(config: Config, weights: Mapping[str, Any], length: int) -> dict[str, int]:
    """What a run holds beside the weights."""
    return {"by hand": measured_peak(by_hand(config, weights, length), weights["wq"].device)}


def by_hand(
    config: Config, weights: Mapping[str, Any], length: int, prompt: np.ndarray | None = None
) -> Callable[[], np.ndarray]:
    """With a prompt: one pass over it first."""
    device = weights["wq"].device
    layers = [{name: weights[name][layer] for name in config.shapes()} for layer in range(config.layers)]
    embedding, group = weights["embedding"], config.heads // config.kv_heads
    shape = (config.layers, config.batch, config.kv_heads, length, config.head)
    start = torch.from_numpy(config.start()).to(device)
    folded = (config.batch, config.kv_heads, group, config.head)  # queries that share keys are rows

    def norm(x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], eps=1e-6)

    def visible(count: int) -> torch.Tensor | None:
        """Which tokens of a prompt each sees; None where it is all before it."""
        if config.window is None:
            return None
        at = torch.arange(count, device=device)
        return (at <= at[:, None]) & (at > at[:, None] - config.window)

    def prefill(prompt: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        count, mask = prompt.shape[1], visible(prompt.shape[1])
        x = embedding[prompt]
        for layer, w in enumerate(layers):
            normed = norm(x)
            q, k, v = (
                (normed @ w[name]).view(config.batch, count, -1, config.head).transpose(1, 2)
                for name in ("wq", "wk", "wv")
            )
            keys[layer, :, :, :count], values[layer, :, :, :count] = k, v
            seen = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=group > 1
            )
            x = x + seen.transpose(1, 2).reshape(config.batch, count, config.width) @ w["wo"]
            x = x + functional.silu(norm(x) @ w["up"]) @ w["down"]
        return (norm(x[:, -1]) @ embedding.T).argmax(-1).to(torch.int32)

    given = None if prompt is None else torch.from_numpy(prompt).to(device)

    @torch.inference_mode()
    def run() -> np.ndarray:
        keys, values = (torch.empty(shape, dtype=embedding.dtype, device=device) for _ in range(2))
        tokens = torch.empty((config.batch, length), dtype=torch.int32, device=device)
        token, said = start, 0
        if given is not None:
            said = given.shape[1]
            tokens[:, :said], token = given, prefill(given, keys, values)
        for t in range(said, length):
            tokens[:, t] = token
            if t == length - 1:
                break
            first = 0 if config.window is None else max(0, t + 1 - config.window)
            x = embedding[token]
            for layer, w in enumerate(layers):
                normed = norm(x)
                keys[layer, :, :, t] = (normed @ w["wk"]).view(config.batch, config.kv_heads, config.head)
                values[layer, :, :, t] = (normed @ w["wv"]).view(config.batch, config.kv_heads, config.head)
                seen = functional.scaled_dot_product_attention(
                    (normed @ w["wq"]).view(folded),
                    keys[layer, :, :, first : t + 1],
                    values[layer, :, :, first : t + 1],
                )
                x = x + seen.reshape(config.batch, config.width) @ w["wo"]
                x = x + functional.silu(norm(x) @ w["up"]) @ w["down"]
            token = (norm(x) @ embedding.T).argmax(-1).to(torch.int32)
        return tokens.cpu().numpy()

    return run
