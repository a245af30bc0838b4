"""Train a small Llama, tokenizer and all, on text that comes with Python, and keep it in Hugging Face's format.

The equations are those that `tempo.llm` runs any Llama with; here the weights are parameters, which AdamW changes from
one iteration `i` to the next. `python -m tempo generate` continues texts with what is made, `transformers` loads it,
and `--check` compares the two. A training that was stopped goes on with `--resume`.

    python examples/train_llm.py --backend jax --plot out/train_llm.png --check
    python -m tempo generate --model out/python-llama --backend jax --prompt "The \\"with\\" statement"
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm

import tempo as tp
from tempo import llm

sys.path.append(str(Path(__file__).resolve().parent))
import on_mesh

TEXTS = ("topics", "argparse", "contextlib", "dataclasses")
END = "<|end|>"  # between documents
STATE = "training.safetensors"


@dataclass(frozen=True)
class Settings:
    """A batch is `rows` pieces of `positions` tokens."""

    layers: int = 4
    hidden: int = 192
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 1024
    positions: int = 256
    rows: int = 4
    steps: int = 720
    rate: float = 6e-3
    warmup: int = 72
    decay: float = 0.1
    max_norm: float = 1.0


SIZES = {
    "steps": "updates",
    "layers": "layers",
    "hidden": "width of the residual stream",
    "vocabulary": "tokens that there are",
    "positions": "the longest text, in tokens",
    "rows": "texts in a batch",
}
"""The settings that the command line takes."""


# -- text --------------------------------------------------------------------------------------------------------------


def documents(name: str) -> list[str]:
    """The pages of `help("topics")`, or the source files of a module or package of the standard library."""
    if name == "topics":
        return [topics.topics[topic] for topic in sorted(topics.topics)]
    found = importlib.util.find_spec(name)
    if found is None or not (found.origin or "").endswith(".py"):
        raise SystemExit(f"no text {name!r}: there are topics and the modules of the standard library")
    path = Path(found.origin)
    files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
    return [file.read_text("utf-8") for file in files]


def split(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is learned from, and the last twentieth of each document, which is held out."""
    cuts = [len(text) - len(text) // 20 for text in texts]
    return [text[:cut] for text, cut in zip(texts, cuts)], [text[cut:] for text, cut in zip(texts, cuts)]


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Byte-level byte pair encoding. Source: Sennrich, Haddow and Birch 2016; Radford et al. 2019, section 2.2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """All documents behind each other, each with the token that ends it: int32."""
    end = tokenizer.token_to_id(END)
    return np.array([token for each in tokenizer.encode_batch(list(texts)) for token in (*each.ids, end)], np.int32)


def batches(tokens: np.ndarray, rows: int, positions: int, steps: range, seed: int = 0) -> Iterator[np.ndarray]:
    """Pieces that start anywhere, the same for the same step: arrays (rows, positions)."""
    for step in steps:
        starts = np.random.default_rng((seed, step)).integers(0, len(tokens) - positions, rows)
        yield tokens[starts[:, None] + np.arange(positions)]


# -- the program -------------------------------------------------------------------------------------------------------


def configuration(settings: Settings, tokenizer: Tokenizer) -> dict[str, Any]:
    """What config.json says."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": settings.hidden,
        "intermediate_size": settings.hidden * 8 // 3 // 16 * 16,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.kv_heads,
        "head_dim": settings.hidden // settings.heads,
        "max_position_embeddings": settings.positions,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(END),
        "pad_token_id": None,
        "dtype": "float32",
    }


def trainer(family: llm.Family, settings: Settings) -> tp.Program:
    with tp.Program("train") as program:
        i, b, l, t = tp.dims("i b l t")  # iterations, rows, layers, positions
        token = tp.stream_input("token", (), (i, b, t), tp.int32)
        w = llm.parameters(family, l, over=(i,), deviation=settings.hidden**-0.5)
        logprob = llm.logprobs(family, token, llm.Dims(l, t, b, given=True, over=(i,)), w)
        loss = -logprob[i, 0 : b.size, 1 : t.size].mean()

        rate = tp.optim.warmup(tp.optim.cosine_decay(settings.rate, settings.steps - settings.warmup), settings.warmup)
        gradients = tp.optim.clip_by_global_norm(tp.grad(loss, w), settings.max_norm, dim=i)
        tp.optim.AdamW(rate, weight_decay=settings.decay, betas=(0.9, 0.95), dim=i).apply(w, gradients)
        tp.output("loss", loss)
    return program


def train(
    run: Any, tokens: np.ndarray, settings: Settings, folder: Path, state: Any = None, every: int = 10
) -> tuple[Any, np.ndarray]:
    """The state at the end, and the loss of each step. Every so many steps what there is is kept in `folder`."""
    losses = np.zeros(0, np.float32) if state is None else state["losses"]
    with tqdm(total=settings.steps, initial=len(losses), unit="step", disable=None) as bar:
        while (start := len(losses)) < settings.steps:
            steps = range(start, min(start + every, settings.steps))
            made = run(
                token=batches(tokens, settings.rows, settings.positions, steps),
                sizes={"i": len(steps)},
                state=state,
            )
            state, losses = made.state, np.concatenate([losses, np.asarray(made["loss"])])
            tp.save(folder / STATE, {**state, "losses": losses})
            bar.set_postfix(loss=f"{losses[start:].mean():.2f}", refresh=False)
            bar.update(len(steps))
    return state, losses


# -- what was made -----------------------------------------------------------------------------------------------------


def nats(model: llm.Model, tokens: np.ndarray, rows: int = 16) -> float:
    """The mean loss of a token, over pieces of the text."""
    length = min(model.family.positions - 1, len(tokens))
    pieces = np.stack(
        [tokens[start : start + length] for start in np.linspace(0, len(tokens) - length, rows, dtype=int)]
    )
    return -float(np.mean([score.logprobs for score in model.score(pieces.tolist())]))


def check(folder: Path, model: llm.Model, prompt: str) -> str:
    """Compare with `transformers`: probabilities of a text, and its likeliest continuation, token for token."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    theirs, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(prompt, return_tensors="pt")
    new_tokens = min(40, model.family.positions - inputs["input_ids"].shape[1] - 1)
    found = theirs.generate(
        **inputs, do_sample=False, temperature=None, top_k=None, max_new_tokens=new_tokens, pad_token_id=0
    )
    (ours,) = model.generate(prompt, do_sample=False, max_new_tokens=new_tokens)
    tokens = found[0].tolist()
    np.testing.assert_equal([*model.tokenizer.encode(prompt), *ours.tokens], tokens)
    with torch.no_grad():
        logprobs = torch.log_softmax(theirs(found).logits[0], dim=-1)[range(len(tokens) - 1), tokens[1:]]
    np.testing.assert_allclose(model.score(tokens)[0].logprobs, logprobs.numpy(), atol=1e-3)
    return f"equal to transformers: {len(ours.tokens)} tokens, and probabilities to 1e-3"


def plot(path: Path, losses: np.ndarray, held_out: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(losses, label="training")
    axes.axhline(held_out, color="tab:orange", linestyle=":", label="text held out, at the end")
    axes.set(title="A Llama learns Python's documentation", xlabel="step", ylabel="loss of a token (nats)")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="jax")
    on_mesh.add_argument(parser)
    parser.add_argument("--out", type=Path, default=Path("out/python-llama"), help="folder of the model")
    parser.add_argument(
        "--text", nargs="+", default=TEXTS, metavar="NAME", help="topics, or modules of Python's library"
    )
    for name, meaning in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=getattr(Settings, name), help=meaning)
    parser.add_argument("--resume", action="store_true", help="go on where a training into the same folder was stopped")
    parser.add_argument("--prompt", default='The "with" statement', help="what the model continues at the end")
    parser.add_argument("--check", action="store_true", help="compare with transformers")
    parser.add_argument("--plot", type=Path, help="write a picture of the loss")
    options = parser.parse_args(arguments)
    chosen = {name: getattr(options, name) for name in SIZES}
    settings = Settings(**chosen, warmup=max(1, options.steps // 10))

    learned, held_out = split([text for name in options.text for text in documents(name)])
    tokenizer = train_tokenizer(learned, settings.vocabulary)
    tokens = encode(tokenizer, learned)
    config = configuration(settings, tokenizer)
    family = llm.read_family(llm.Config(config))
    options.out.mkdir(parents=True, exist_ok=True)

    start = time.perf_counter()
    sizes = {**family.sizes, "b": settings.rows, "t": settings.positions}
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(trainer(family, settings), options.backend, sizes=sizes, **lies)
    state, losses = train(run, tokens, settings, options.out, tp.load(options.out / STATE) if options.resume else None)
    seconds = time.perf_counter() - start
    generation = {
        "eos_token_id": config["eos_token_id"],
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 40,
        "max_new_tokens": 80,
    }
    llm.save(options.out, config, state, tokenizer=tokenizer, generation=generation)

    model = llm.load(options.out, backend=options.backend)
    count = sum(array.size for array in model.stored.checkpoint.tensors.values())
    unseen = nats(model, encode(tokenizer, held_out))
    print(f"{count / 1e6:.1f} million weights, {len(tokens)} tokens of text; {len(losses)} steps of "
          f"{settings.rows * settings.positions} tokens, with compiling {seconds:.0f} s")  # fmt: skip
    on_mesh.tell(options, run)
    print(f"model: {options.out}")
    (made,) = model.generate(options.prompt)
    print(f"\n{options.prompt}{made.text}\n")
    if options.check:
        print(check(options.out, model, options.prompt))
    print(f"loss {losses[:5].mean():.2f} at first, {losses[-20:].mean():.2f} at last, {unseen:.2f} on text held out")
    if options.plot:
        plot(options.plot, losses, unseen)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
