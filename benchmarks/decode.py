"""The decoding example against `transformers` on a Llama of random weights: tokens per second, and what came before.

All decode greedily, in float32, from the same checkpoint, and must give the same tokens. Tempo's steady state has its
weights as arrays of the backend; `compile` is `tp.compile`, `first call` a run with what the backend compiles then.
`transformers` runs with a cache that grows by a token each step (dynamic) and with one of the final length (static), in
both cases step by step: on a CPU it runs no `torch.compile` of its own accord, for the static one neither.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Benchmark, Session
from examples.decode import Config, decoder, read_weights

SIZES = {"small": (4, 128), "medium": (8, 512)}  # layers, channels


def checkpoint(folder: Path, layers: int, hidden: int) -> None:
    """Llama in float32, untrained: random tokens take as long as good ones."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.2,  # far from ties between tokens
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def peers(folder: Path, prompt: list[int], count: int) -> dict[str, Callable[[], list[int]]]:
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    inputs = torch.tensor([prompt])
    choices = {"attention_mask": torch.ones_like(inputs), "do_sample": False, "pad_token_id": 0}

    def generate(cache: str | None) -> list[int]:
        kind: dict[str, Any] = {"cache_implementation": cache} if cache else {}
        found: list[int] = model.generate(inputs, max_new_tokens=count, **choices, **kind)[0].tolist()
        return found

    kinds = {"transformers, dynamic": None, "transformers, static": "static"}
    return {name: partial(generate, cache) for name, cache in kinds.items()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--tokens", type=int, help="how many are generated: default 256, quick 64")
    parser.add_argument("--prompt", type=int, default=8, help="how many are given")


def measure(session: Session) -> None:
    tokens = session.options.tokens or (64 if session.quick else 256)
    layers, hidden = SIZES[session.options.size]
    prompt = np.random.default_rng(0).integers(1, 2048, session.options.prompt).tolist()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint(Path(folder), layers, hidden)
        config = Config.read(Path(folder))
        weights = {name: session.resident(array) for name, array in read_weights(Path(folder), config).items()}
        transformers = peers(Path(folder), prompt, tokens)
    case = f"{tokens} tokens after {len(prompt)}, {layers} layers of {hidden} channels"
    start = time.perf_counter()
    run = session.compile(decoder(config), {"l": layers, "p": len(prompt), "t": len(prompt) + tokens})
    session.add(case, "compile", "s, compile", time.perf_counter() - start)

    def tempo() -> list[int]:
        found: list[int] = np.asarray(run(prompt=np.array(prompt), **weights)["token"]).tolist()
        return found

    timings = session.compare(case, tempo, transformers, np.testing.assert_array_equal)
    for name, timing in timings.items():
        session.add(case, name, "tokens/s", *(tokens / seconds for seconds in timing.seconds))


BENCHMARK = Benchmark(
    measure,
    "Decoding a Llama checkpoint",
    repeats=7,
    quick_repeats=3,
    backends=("numpy", "jax", "torch"),
    add_options=options,
)
