"""Low-rank adaptation: teach a trained language model another text by two thin matrices beside each of its own.

A map `W` becomes `W + (alpha / rank) B A`. `W` is an input of the program, which nothing changes; `A` and `B` are
parameters, a few hundredths of its size. `B` begins at 0, and the model as it was. At the end the products are added to
the weights, and the model is kept as any other.

    python examples/train_llm.py --backend jax
    python examples/lora.py --model out/python-llama --text http --backend jax --plot out/lora.png

Source: Hu et al. 2021, section 4.1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from train_llm import batches, documents, encode, nats, split  # beside this file

import tempo as tp
from tempo import llm

sys.path.append(str(Path(__file__).resolve().parent))
import on_mesh

ADAPTED = ("query", "key", "value", "out", "gate", "up", "down")


def adapters(w: dict[str, Any], dims: tuple[tp.Dim, ...], rank: int) -> dict[str, Any]:
    """`A` (rank, inputs) and `B` (outputs, rank) of each map, over iterations and layers."""
    made = {}
    for name in ADAPTED:
        outputs, inputs = w[name].shape
        made[f"{name}.A"] = tp.parameter(f"{name}.A", (rank, inputs), tp.nn.init.normal(inputs**-0.5), dims)
        made[f"{name}.B"] = tp.parameter(f"{name}.B", (outputs, rank), 0.0, dims)
    return made


def adapted(w: Any, learned: Any, scale: float) -> dict[str, Any]:
    """`W + scale * B A`, of tensors or of arrays with layers in front."""
    return {**w, **{name: w[name] + scale * (learned[f"{name}.B"] @ learned[f"{name}.A"]) for name in ADAPTED}}


def tuner(family: llm.Family, rank: int, scale: float, rate: float) -> tp.Program:
    with tp.Program("lora") as program:
        i, b, l, t = tp.dims("i b l t")  # iterations, rows, layers, positions
        token = tp.stream_input("token", (), (i, b, t), tp.int32)
        w = llm.declare(family.weights(), family.sizes, "float32", l)
        learned = adapters(w, (i, l), rank)
        dims = llm.Dims(l, t, b, given=True, over=(i,))
        logprob = llm.logprobs(family, token, dims, adapted(w, learned, scale))
        loss = -logprob[i, 0 : b.size, 1 : t.size].mean()
        tp.optim.AdamW(tp.optim.warmup(tp.optim.constant(rate), 10), dim=i).minimize(loss, learned)
        tp.output("loss", loss)
    return program


def plot(path: Path, losses: np.ndarray, text: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(losses)
    axes.set(title=f"Adapters learn the sources of {text}", xlabel="step", ylabel="loss of a token (nats)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a folder that train_llm.py made")
    parser.add_argument("--text", default="http", help="topics, or a module of Python's library")
    parser.add_argument("--out", type=Path, help="folder of the adapted model; beside the other unless given")
    parser.add_argument("--backend", default="jax")
    on_mesh.add_argument(parser)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=16.0)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--plot", type=Path, help="write a picture of the loss")
    options = parser.parse_args(arguments)
    out = options.out or options.model.with_name(f"{options.model.name}-{options.text}")

    lies = on_mesh.arguments(options, shard={"b": "data"})
    base = llm.load(options.model, backend=options.backend)
    checkpoint, family, scale = base.stored.checkpoint, base.family, options.alpha / options.rank
    learned, held_out = (encode(base.tokenizer.library, part) for part in split(documents(options.text)))
    weights = {name: np.asarray(given) for name, given in base.stored.arrays("float32").items()}
    sizes = {**family.sizes, "i": options.steps, "b": options.rows, "t": family.positions}
    run = tp.compile(tuner(family, options.rank, scale, options.rate), options.backend, sizes=sizes, **lies)
    pieces = batches(learned, options.rows, family.positions, range(options.steps))
    made = run(token=pieces, **weights, progress=sys.stderr.isatty())
    arrays = {name: np.asarray(made.state[name]) for name in made.state if name.endswith((".A", ".B"))}

    llm.save(out, checkpoint.config.options, adapted(weights, arrays, scale), tokenizer=options.model,
             generation=checkpoint.generation)  # fmt: skip
    tuned = llm.load(out, backend=options.backend)
    share = sum(array.size for array in arrays.values()) / sum(array.size for array in weights.values())
    print(f"adapters of {100 * share:.1f} % of the weights; model: {out}")
    on_mesh.tell(options, run)
    print(f"loss on {options.text}, held out: {nats(base, held_out):.2f} before, {nats(tuned, held_out):.2f} after")
    if options.plot:
        plot(options.plot, np.asarray(made["loss"]), options.text)
        print(f"picture: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
