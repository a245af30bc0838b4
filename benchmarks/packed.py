"""An LSTM over rows of different lengths, forward and with gradients: masked, packed, and PyTorch's packed sequences.

Lengths are drawn log-uniform from an eighth of the longest to that; `fill` is how much of the padded array they are.
Tempo's is the cost model's choice; beside it runs what can be forced: all rows at every step, masked, and tiles of
points of several widths. PyTorch's is `nn.LSTM` on `pack_padded_sequence`, which sorts and packs in that time, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session, close
from benchmarks.measure import ratios

PACKED = "PyTorch, packed"
WITHIN = 1.1
"""What Tempo may take, of PyTorch's packed sequences."""
Arrays = Mapping[str, np.ndarray]


def program(width: int, gradients: bool) -> tp.Program:
    with tp.Program("lstm") as made:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x, bias = tp.input("x", (width,), (b, t)), tp.input("bias", (4 * width,))
        of_input, of_state = tp.input("of_input", (4 * width, width)), tp.input("of_state", (4 * width, width))
        h, c = (tp.recurrent(name, (width,), (b, t)) for name in "hc")
        projected = of_input @ x + bias
        c[b, 0], h[b, 0] = cell(projected, 0, width)
        c[b, t], h[b, t] = cell(of_state @ h[b, t - 1] + projected, c[b, t - 1], width)
        if not gradients:
            tp.output("h", h)
            return made
        wanted = {"of_input": of_input, "of_state": of_state, "bias": bias}
        for name, gradient in tp.grad((h * h)[:, :].sum(), wanted).items():
            tp.output(name, gradient)
    return made


def cell(gates: tp.RecurrentTensor, before: Any, width: int) -> tuple[tp.RecurrentTensor, tp.RecurrentTensor]:
    """The cell and the state that follow: Hochreiter and Schmidhuber's, in PyTorch's order of gates."""
    i, f, g, o = (gates.spatial[at * width : (at + 1) * width] for at in range(4))
    made = tp.sigmoid(f) * before + tp.sigmoid(i) * tp.tanh(g)
    return made, tp.sigmoid(o) * tp.tanh(made)


def arrays_of(width: int, rows: int, length: int) -> Arrays:
    draw = np.random.default_rng(0)
    n = np.exp(draw.uniform(np.log(length / 8), np.log(length), rows)).astype(np.int32)
    n[0] = length
    shapes = {"x": (rows, length, width), "of_input": (4 * width, width), "of_state": (4 * width, width)}
    arrays = {name: draw.normal(0, 1 if name == "x" else width**-0.5, shape) for name, shape in shapes.items()}
    arrays["bias"] = draw.normal(0, 0.1, 4 * width)
    return {"n": n, **{name: array.astype(np.float32) for name, array in arrays.items()}}


def torch_packed(arrays: Arrays, gradients: bool) -> Callable[[], dict[str, Any]]:
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    width = arrays["x"].shape[2]
    lstm = torch.nn.LSTM(width, width, batch_first=True)
    weights = {"of_input": lstm.weight_ih_l0, "of_state": lstm.weight_hh_l0, "bias": lstm.bias_ih_l0}
    with torch.no_grad():
        lstm.bias_hh_l0.zero_()
        for name, weight in weights.items():
            weight.copy_(torch.from_numpy(arrays[name]))
    x, n = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["n"]).long()

    def run() -> dict[str, Any]:
        packed, _ = lstm(pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False))
        if not gradients:
            return {"h": pad_packed_sequence(packed, batch_first=True)[0]}
        lstm.zero_grad()
        (packed.data * packed.data).sum().backward()
        return {name: weight.grad for name, weight in weights.items()}

    def forward_only() -> dict[str, Any]:
        with torch.no_grad():
            return run()

    return run if gradients else forward_only


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--widths", type=int, nargs="+", help="default: 256 512; quick: 16")
    parser.add_argument("--rows", type=int, nargs="+", help="default: 8 64; quick: 8")
    parser.add_argument("--length", type=int, help="of the longest row; default: 128; quick: 16")
    parser.add_argument("--tiles", type=int, nargs="*", default=(16, 32), help="widths of tiles; default: 16 32")


def measure(session: Session) -> None:
    quick = session.quick
    length = session.options.length or (16 if quick else 128)
    for width in session.options.widths or ([16] if quick else [256, 512]):
        for rows in session.options.rows or ([8] if quick else [8, 64]):
            arrays = arrays_of(width, rows, length)
            for gradients in (False, True):
                measure_case(session, arrays, gradients)


def measure_case(session: Session, arrays: Arrays, gradients: bool) -> None:
    rows, length, width = arrays["x"].shape
    case = f"{rows} rows of {width}, {'with gradients' if gradients else 'forward'}"
    ways: dict[str, Any] = {"tempo": None, "tempo, masked": {"t": "sequential"}}
    ways |= {f"tempo, tiles of {tile}": {"t": tile} for tile in session.options.tiles}
    runs = {name: run_of(session, arrays, gradients, way) for name, way in ways.items()}
    runs[PACKED] = torch_packed(arrays, gradients)
    peers = {name: run for name, run in runs.items() if name != "tempo"}
    timings = session.compare(case, runs["tempo"], peers, agree, goals={PACKED: WITHIN})
    session.add(case, "fill", "of the padded array", arrays["n"].sum() / (rows * length))
    if not session.options.no_peers:
        best = min((name for name in ways if name != "tempo"), key=lambda name: timings[name].median)
        session.add(case, f"tempo / best of what is forced: {best}", "x", *ratios(timings, "tempo", best))


def agree(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Relative to the greatest element of each: gradients are sums of many."""
    for name, array in wanted.items():
        given = np.asarray(array.detach() if hasattr(array, "detach") else array)
        close(0, 1e-4 * np.abs(given).max())(found[name], given)


def run_of(session: Session, arrays: Arrays, gradients: bool, mapping: Any) -> Callable[[], Any]:
    made = program(arrays["x"].shape[2], gradients)
    chosen = tp.Options(mapping=mapping) if mapping is not None else tp.Options()
    run = tp.compile(made, session.backend, device=session.device, options=chosen)
    placed = {name: array if name == "n" else session.resident(array) for name, array in arrays.items()}
    return lambda: session.ready(run(**placed))


BENCHMARK = Benchmark(
    measure,
    title="Rows of different lengths",
    repeats=7,
    quick_repeats=1,
    backends=("jax", "torch"),
    add_options=options,
)
