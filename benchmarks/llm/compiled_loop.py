"""A Llama by hand, as gpt-fast has it: caches of a fixed length, and the step of one token compiled by PyTorch.

The prompt is one pass, uncompiled. Source: https://github.com/pytorch-labs/gpt-fast, `generate.py` and `model.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.llm.continuing import Rows, of_tokens

Tensors = dict[str, torch.Tensor]
LEAST = 64
"""Lengths of caches are powers of two from here on: each is compiled for."""


@dataclass
class CompiledLoop:
    options: dict[str, Any]
    weights: Tensors
    device: str
    _steps: dict[tuple[int, int], Any] = field(default_factory=dict)  # by rows and length

    @staticmethod
    def read(folder: Path, device: str) -> CompiledLoop:
        from safetensors.torch import load_file

        options = json.loads((folder / "config.json").read_text())
        return CompiledLoop(options, load_file(folder / "model.safetensors", device=device), device)

    @torch.inference_mode()
    def generate(self, rows: Rows, count: int) -> Rows:
        given = torch.tensor(rows, device=self.device)
        prompt = given.shape[1]
        length = max(LEAST, 1 << (prompt + count - 1).bit_length())
        caches = self._caches(len(rows), length)
        token = self._following(given, torch.arange(prompt, device=self.device), caches)
        made = [token]
        step = self._step(len(rows), length)
        for at in range(prompt, prompt + count - 1):
            token = step(token, torch.tensor([at], device=self.device), caches)
            made.append(token)
        found: Rows = torch.cat(made, 1).tolist()
        return found

    @torch.inference_mode()
    def logprobs(self, row: Sequence[int]) -> np.ndarray:
        at = torch.arange(len(row), device=self.device)
        given = torch.tensor([list(row)], device=self.device)
        return of_tokens(self._logits(self._hidden(given, at, self._caches(1, len(row))))[0], row)

    def _step(self, rows: int, length: int) -> Any:
        """The token after the one given."""
        if (rows, length) not in self._steps:
            self._steps[rows, length] = torch.compile(self._following, fullgraph=True, dynamic=False)
        return self._steps[rows, length]

    def _caches(self, rows: int, length: int) -> list[torch.Tensor]:
        """Of each layer keys and values: (2, rows, heads, length, width)."""
        heads = self.options["num_attention_heads"]
        shape = (2, rows, heads, length, self.options["hidden_size"] // heads)
        dtype = self.weights["model.norm.weight"].dtype
        return [torch.zeros(shape, dtype=dtype, device=self.device) for _ in range(self.options["num_hidden_layers"])]

    def _following(self, token: torch.Tensor, at: torch.Tensor, caches: list[torch.Tensor]) -> torch.Tensor:
        """The likeliest token after the last position: (rows, 1)."""
        return self._logits(self._hidden(token, at, caches)[:, -1:]).argmax(-1)

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.linear(hidden, self.weights["model.embed_tokens.weight"])

    def _hidden(self, token: torch.Tensor, at: torch.Tensor, caches: list[torch.Tensor]) -> torch.Tensor:
        """Of tokens (rows, positions) at the positions `at`, after those whose keys and values are there."""
        hidden, heads, epsilon = (self.options[name] for name in ("hidden_size", "num_attention_heads", "rms_norm_eps"))
        width = hidden // heads
        visible = torch.arange(caches[0].shape[3], device=self.device) <= at[:, None]
        exponents = torch.arange(0, width, 2, device=self.device) / width
        angle = torch.outer(at, self.options["rope_theta"] ** -exponents).repeat(1, 2)
        x = self.weights["model.embed_tokens.weight"][token]
        norm = partial(functional.rms_norm, normalized_shape=(hidden,), eps=epsilon)
        split = (*token.shape, heads, width)
        for layer, cache in enumerate(caches):

            def linear(x: torch.Tensor, name: str, layer: int = layer) -> torch.Tensor:
                return functional.linear(x, self.weights[f"model.layers.{layer}.{name}.weight"])

            normed = norm(x, weight=self.weights[f"model.layers.{layer}.input_layernorm.weight"])
            q, k, v = (linear(normed, f"self_attn.{name}_proj").view(split).transpose(1, 2) for name in "qkv")
            cache.index_copy_(3, at, torch.stack((_turned(k, angle), v)))
            keys, values = cache.unbind()
            seen = functional.scaled_dot_product_attention(_turned(q, angle), keys, values, visible)
            x = x + linear(seen.transpose(1, 2).reshape(*token.shape, hidden), "self_attn.o_proj")
            normed = norm(x, weight=self.weights[f"model.layers.{layer}.post_attention_layernorm.weight"])
            inner = functional.silu(linear(normed, "mlp.gate_proj")) * linear(normed, "mlp.up_proj")
            x = x + linear(inner, "mlp.down_proj")
        return norm(x, weight=self.weights["model.norm.weight"])


def _turned(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    turned = x * angle.cos() + torch.cat((-second, first), -1) * angle.sin()
    return turned.to(x.dtype)
