"""Make a small Llama checkpoint in Hugging Face's format: config.json, model.safetensors, tokenizer.json.

The tokenizer and the model are trained for a few seconds on the text of the project's licence.

    python examples/make_tiny_llama.py out/tiny-llama
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

TEXT = Path(__file__).resolve().parent.parent / "LICENSE"
END = "<|end|>"


def train_tokenizer(text: str, vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def configuration(tokenizer: Tokenizer, layers: int, hidden: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,  # two query heads share a key head
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(END),
        pad_token_id=tokenizer.token_to_id(END),
    )


def train(model: LlamaForCausalLM, tokens: torch.Tensor, steps: int) -> float:
    """Next-token prediction on random pieces of the text; returns the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.zeros(())
    for _ in range(steps):
        starts = torch.randint(0, len(tokens) - 65, (8,))
        batch = torch.stack([tokens[start : start + 64] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def make(folder: Path, *, layers: int = 4, hidden: int = 64, vocabulary: int = 512, steps: int = 300) -> None:
    """Write the checkpoint into `folder`. The same arguments give the same checkpoint on the same machine."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the matrices are too small to share
    text = " ".join(TEXT.read_text().split())
    tokenizer = train_tokenizer(text, vocabulary)
    model = LlamaForCausalLM(configuration(tokenizer, layers, hidden))
    loss = train(model, torch.tensor(tokenizer.encode(text).ids), steps) if steps else float("nan")
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{folder}: {layers} layers, {count} parameters, loss {loss:.2f} after {steps} steps")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=64, help="width of the residual stream")
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--steps", type=int, default=300, help="training steps; 0 leaves the weights random")
    options = vars(parser.parse_args(arguments))
    make(options.pop("folder"), **options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
