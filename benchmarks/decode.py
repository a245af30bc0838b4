"""The decoding example against `transformers` on a Llama of random weights: tokens per second, and what came before.

Both decode greedily, in float32, from the same checkpoint, and must give the same tokens. Tempo's steady state has its
weights as arrays of the backend; `compile` is `tp.compile`, `first run` is a run with what the backend compiles then.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.measure import in_turn, ratio, show
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


def peer(folder: Path, prompt: list[int], count: int) -> Callable[[], list[int]]:
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    inputs = torch.tensor([prompt])
    choices = {"attention_mask": torch.ones_like(inputs), "do_sample": False, "pad_token_id": 0}

    def generate() -> list[int]:
        found: list[int] = model.generate(inputs, max_new_tokens=count, **choices)[0].tolist()
        return found

    return generate


def native(backend: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if backend == "jax":
        import jax.numpy as jnp

        return {name: jnp.asarray(array) for name, array in arrays.items()}
    if backend == "torch":
        import torch

        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    return dict(arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("numpy", "jax", "torch"), default="jax")
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--tokens", type=int, default=256, help="how many are generated")
    parser.add_argument("--prompt", type=int, default=8, help="how many are given")
    parser.add_argument("--threads", type=int, help="of PyTorch; more than there are idle cores make it slow")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="3 repeats of 64 tokens")
    options = parser.parse_args()
    tokens = min(64, options.tokens) if options.quick else options.tokens
    repeats = min(3, options.repeats) if options.quick else options.repeats
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    layers, hidden = SIZES[options.size]
    prompt = np.random.default_rng(0).integers(1, 2048, options.prompt).tolist()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint(Path(folder), layers, hidden)
        config = Config.read(Path(folder))
        weights = native(options.backend, read_weights(Path(folder), config))
        transformers = peer(Path(folder), prompt, tokens)
    start = time.perf_counter()
    run = tp.compile(
        decoder(config), backend=options.backend, sizes={"l": layers, "p": len(prompt), "t": len(prompt) + tokens}
    )
    compiled = time.perf_counter()

    def tempo() -> list[int]:
        found: list[int] = np.asarray(run(prompt=np.array(prompt), **weights)["token"]).tolist()
        return found

    mine = tempo()
    first = time.perf_counter()
    if mine != transformers():
        raise SystemExit(f"the tokens differ: {mine}")
    timings = in_turn({"tempo": tempo, "transformers": transformers}, repeats)
    show(f"{options.backend}: {tokens} tokens after {len(prompt)}, {layers} layers of {hidden} channels", timings)
    for name, timing in timings.items():
        print(f"  {name}: {tokens / timing.median:.0f} tokens a second")
    print(f"  {ratio(timings, 'transformers', 'tempo')} times as fast as transformers")
    print(f"  compile {compiled - start:.2f} s, first run {first - compiled:.2f} s")


if __name__ == "__main__":
    main()
