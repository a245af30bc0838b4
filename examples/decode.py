"""Greedy decoding of a Llama checkpoint in Hugging Face's format.

The model is a set of equations over layers `l` and positions `t`: attention reads `k[l, 0:t + 1]`, a layer reads the
layer below, a token reads the last layer one position earlier. There is no loop, no cache and no padding here.
`--check` compares with `transformers`, token for token.

    python examples/decode.py --model DIR --prompt "You may" --tokens 32 --check
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parent))
import on_mesh


@dataclass(frozen=True)
class Config:
    """What of `config.json` the forward pass needs."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    tied: bool
    rope: Mapping[str, float | str]

    @staticmethod
    def read(folder: Path) -> Config:
        raw = json.loads((folder / "config.json").read_text())
        if raw["model_type"] != "llama" or raw.get("hidden_act", "silu") != "silu":
            raise SystemExit(f"{folder} holds no Llama model: model_type {raw['model_type']!r}")
        # Newer files keep everything in rope_parameters, older ones theta beside an optional rope_scaling.
        older = {"rope_theta": raw.get("rope_theta", 10000.0), **(raw.get("rope_scaling") or {})}
        return Config(
            vocabulary=raw["vocab_size"],
            hidden=raw["hidden_size"],
            intermediate=raw["intermediate_size"],
            layers=raw["num_hidden_layers"],
            heads=raw["num_attention_heads"],
            kv_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
            head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
            epsilon=raw["rms_norm_eps"],
            tied=raw.get("tie_word_embeddings", False),
            rope=raw.get("rope_parameters") or older,
        )


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """One layer's weights, by the names that the checkpoint gives them; matrices map input to output."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        "input_layernorm": (config.hidden,),
        "self_attn.q_proj": (config.hidden, queries),
        "self_attn.k_proj": (config.hidden, keys),
        "self_attn.v_proj": (config.hidden, keys),
        "self_attn.o_proj": (queries, config.hidden),
        "post_attention_layernorm": (config.hidden,),
        "mlp.gate_proj": (config.hidden, config.intermediate),
        "mlp.up_proj": (config.hidden, config.intermediate),
        "mlp.down_proj": (config.intermediate, config.hidden),
    }


def read_weights(folder: Path, config: Config) -> dict[str, np.ndarray]:
    """The program's inputs: each layer's weights stacked along `l`, and the embedding, final norm and head."""
    stored: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        stored.update(load_file(path))

    def get(name: str) -> np.ndarray:
        array = stored[f"{name}.weight"].astype(np.float32)
        return array.T if name.endswith("_proj") else array  # the checkpoint maps output to input

    weights = {
        input_name(name): np.stack([get(f"model.layers.{layer}.{name}") for layer in range(config.layers)])
        for name in weight_shapes(config)
    }
    weights["embedding"] = get("model.embed_tokens")
    weights["norm"] = get("model.norm")
    weights["head"] = weights["embedding"] if config.tied else get("lm_head")
    return weights


def input_name(name: str) -> str:
    return name.rpartition(".")[2]


def rotary_frequencies(config: Config) -> np.ndarray:
    """Radians per position for each pair of channels; long-context scaling as in Llama 3."""
    frequencies = float(config.rope["rope_theta"]) ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
    kind = config.rope.get("rope_type", config.rope.get("type", "default"))
    if kind == "default":
        return frequencies.astype(np.float32)
    if kind != "llama3":
        raise SystemExit(f"rotary embedding of type {kind!r} is not implemented")
    factor, low, high, trained = (
        float(config.rope[key])
        for key in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    turns = trained * frequencies / (2 * math.pi)  # within the context that the model was first trained on
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (frequencies * (smooth + (1 - smooth) / factor)).astype(np.float32)


def rms_norm(x: tp.RecurrentTensor, scale: tp.RecurrentTensor, epsilon: float) -> tp.RecurrentTensor:
    return x * tp.rsqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * scale


def rotate(x: tp.RecurrentTensor, angle: tp.RecurrentTensor) -> tp.RecurrentTensor:
    """Rotary embedding: channels j and j + D / 2 are a point in the plane, turned by `angle[j]`."""
    half = x.shape[-1] // 2
    first, second = x.spatial[..., :half], x.spatial[..., half:]
    cos, sin = tp.cos(angle), tp.sin(angle)
    return tp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


COLUMNS, ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), ("o_proj", "down_proj")
PLACE = {**dict.fromkeys(COLUMNS, (None, "model")), **dict.fromkeys(ROWS, ("model", None))}
"""How weights lie on a mesh: two all-reduces for each layer and token. Source: Shoeybi et al. 2019, section 3."""


def decoder(config: Config, end_of_text: int | None = None) -> tp.Program:
    """`end_of_text`: the token after which nothing is generated any more."""
    with tp.Program("decode") as program:
        l, t, p = tp.dims("l t p")  # layers, positions, positions of the prompt
        prompt = tp.input("prompt", shape=(), dims=(p,), dtype=tp.int32)
        embedding = tp.input("embedding", shape=(config.vocabulary, config.hidden), dims=())
        norm = tp.input("norm", shape=(config.hidden,), dims=())
        head = tp.input("head", shape=(config.vocabulary, config.hidden), dims=())
        w = {
            input_name(name): tp.input(input_name(name), shape=shape, dims=(l,))
            for name, shape in weight_shapes(config).items()
        }

        token = tp.recurrent("token", shape=(), dims=(t,), dtype=tp.int32)
        x = tp.recurrent("x", shape=(config.hidden,), dims=(l, t))  # what enters layer l at position t
        x[0, t] = embedding.spatial[token]

        # Attention: each key head serves a group of query heads.
        groups = config.heads // config.kv_heads
        angle = tp.constant(rotary_frequencies(config)) * t
        normed = rms_norm(x, w["input_layernorm"], config.epsilon)
        q = rotate((normed @ w["q_proj"]).reshape(config.kv_heads, groups, config.head_dim), angle)
        k = rotate((normed @ w["k_proj"]).reshape(config.kv_heads, config.head_dim), angle)
        v = (normed @ w["v_proj"]).reshape(config.kv_heads, config.head_dim)
        scores = tp.einsum("kgd,skd->kgs", q, k[l, 0 : t + 1]) / math.sqrt(config.head_dim)
        attended = tp.einsum("kgs,skd->kgd", tp.softmax(scores, axis=-1), v[l, 0 : t + 1])
        mixed = x + attended.reshape(config.heads * config.head_dim) @ w["o_proj"]

        # SwiGLU.
        normed = rms_norm(mixed, w["post_attention_layernorm"], config.epsilon)
        y = mixed + (tp.silu(normed @ w["gate_proj"]) * (normed @ w["up_proj"])) @ w["down_proj"]
        x[l + 1, t] = y

        logits = head @ rms_norm(y[l.size - 1, t], norm, config.epsilon)
        token[t < p.size] = prompt[t]
        token[t + 1] = logits.argmax(axis=-1)
        if end_of_text is not None:
            tp.stop_when(t, (token == end_of_text) & (t >= p.size))
        tp.output("token", token)
        tp.output("confidence", tp.softmax(logits, axis=-1).max(axis=-1))
    return program


def generate_with_transformers(
    folder: Path, prompt: list[int], count: int, end_of_text: int | None
) -> tuple[list[int], float]:
    """The peer: tokens of the prompt and those generated, and the seconds that it took."""
    import torch
    from transformers import LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = end_of_text
    inputs = torch.tensor([prompt])
    choices = {"attention_mask": torch.ones_like(inputs), "do_sample": False, "pad_token_id": 0}
    model.generate(inputs, max_new_tokens=1, **choices)  # its first call sets things up
    start = time.perf_counter()
    found = model.generate(inputs, max_new_tokens=count, **choices)
    return found[0].tolist(), time.perf_counter() - start


def plot(path: Path, pieces: list[str], confidence: np.ndarray, prompt_length: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(max(8, len(pieces) / 4), 4), layout="constrained")
    colors = ["tab:gray" if position < prompt_length else "tab:blue" for position in range(1, len(pieces))]
    axes.bar(range(1, len(pieces)), confidence[:-1], color=colors)
    axes.set_xticks(range(len(pieces)), [repr(piece)[1:-1] for piece in pieces], rotation=90, fontsize=7)
    axes.set(title="How sure the model is of its next token (gray: within the prompt)", ylabel="largest probability")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a folder with a checkpoint")
    parser.add_argument("--prompt", default="You may reproduce and distribute copies of the Work")
    parser.add_argument("--tokens", type=int, default=48, help="how many to generate")
    parser.add_argument("--end", help="the token that ends the text, as the tokenizer has it (</s>); none unless given")
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--check", action="store_true", help="compare to transformers, token for token")
    parser.add_argument("--plot", type=Path, help="write a picture of the probabilities")
    options = parser.parse_args(arguments)

    config = Config.read(options.model)
    weights = read_weights(options.model, config)
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    prompt = tokenizer.encode(options.prompt).ids
    end = None if options.end is None else tokenizer.token_to_id(options.end)

    sizes = {"l": config.layers, "p": len(prompt), "t": len(prompt) + options.tokens}
    start = time.perf_counter()
    lies = on_mesh.arguments(options, place=PLACE)
    run = tp.compile(decoder(config, end), backend=options.backend, sizes=sizes, **lies)
    compiled = time.perf_counter() - start
    start = time.perf_counter()
    outputs = run(prompt=np.array(prompt), **weights)
    seconds = time.perf_counter() - start
    tokens = np.asarray(outputs["token"]).tolist()

    print(tokenizer.decode(tokens))
    print(f"\n{len(tokens) - len(prompt)} tokens after {len(prompt)} in {seconds:.2f} s, compiled in {compiled:.2f} s")
    on_mesh.tell(options, run)
    if options.check:
        expected, peer_seconds = generate_with_transformers(options.model, prompt, options.tokens, end)
        print(f"transformers: {peer_seconds:.2f} s")
        if tokens != expected:
            print(f"DIFFERENT: {tokens}\nexpected:  {expected}")
            return 1
        print("equal to transformers, token for token")
    if options.plot:
        pieces = [tokenizer.decode([token]) for token in tokens]
        plot(options.plot, pieces, np.asarray(outputs["confidence"]), len(prompt))
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
