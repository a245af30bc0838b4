"""A translator: a GRU reads a sentence, another one writes its translation, each word from the true one before it and
from what attention finds in the sentence. Small, so that what is not arithmetic shows."""

from __future__ import annotations

import numpy as np

import tempo as tp

BATCH, LENGTH = 32, 12
WORDS, WIDTH, HIDDEN = 40, 32, 64
RATE = 1e-3


def translator(iterations: int, learns: bool) -> tp.Program:
    """The loss of each iteration's batch; with `learns` by weights that Adam changes from one to the next."""
    with tp.Program("translator") as program:
        i, b, s, t = tp.dim("i", iterations), tp.dim("b", BATCH), tp.dim("s", LENGTH), tp.dim("t", LENGTH)
        source = tp.input("source", (), (i, b, s), dtype=tp.int32)
        target = tp.input("target", (), (i, b, t), dtype=tp.int32)
        dims = (i,) if learns else ()
        read, written = (tp.nn.Embedding(WORDS, WIDTH, name=name, dims=dims) for name in ("read", "written"))
        encoder, decoder = (tp.nn.GRU(WIDTH, HIDDEN, name=name, dims=dims) for name in ("encoder", "decoder"))
        said = tp.nn.Linear(2 * HIDDEN, WORDS, name="said", dims=dims)

        states = encoder(read(source), s)
        before = tp.cases((t == 0, 0), target[i, b, t - 1])
        h = decoder(written(before), t, h0=states[i, b, -1])
        sentence = states[i, b, :]
        found = tp.softmax(sentence @ h) @ sentence
        loss = tp.cross_entropy(said(tp.concatenate([h, found])), target)[i, :, :].mean()
        tp.output("loss", loss)
        if learns:
            layers = (read, written, encoder, decoder, said)
            tp.optim.Adam(RATE).minimize(loss, {name: w for each in layers for name, w in each.parameters().items()})
    return program


def weights() -> dict[str, np.ndarray]:
    """By the names that `tempo.nn` gives them."""
    draw = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"read.weight": (WORDS, WIDTH), "written.weight": (WORDS, WIDTH)}
    for name in ("encoder", "decoder"):
        for part, given in (("input", WIDTH), ("hidden", HIDDEN)):
            shapes |= {f"{name}.{part}.weight": (given, 3 * HIDDEN), f"{name}.{part}.bias": (3 * HIDDEN,)}
    shapes |= {"said.weight": (2 * HIDDEN, WORDS), "said.bias": (WORDS,)}
    return {name: draw.normal(0, HIDDEN**-0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def sentences(iterations: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    shape = (iterations, BATCH, LENGTH)
    return {name: draw.integers(0, WORDS, shape).astype(np.int32) for name in ("source", "target")}
