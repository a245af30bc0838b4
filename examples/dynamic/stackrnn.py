"""A StackRNN parses: it reads a formula, word by word, and shifts or reduces by what it sees, with a network for each.

    left = h[below[t - 1]]        right = h[t - 1]        next = embedding[word[shifts[t - 1]]]
    scores = tanh([left, right, next] @ V) @ out
    h[t] = next (shift)           or tanh([left, right] @ W) (reduce)
    below[t] = t - 1 (shift)      or below[below[t - 1]] (reduce)

The stack is a thin one: what transition `t` makes is on top after it, and `below[t]` is the transition that made what
lies beneath. So nothing is copied or popped. Transition 0 makes the bottom, which lies on itself. While it learns,
transitions are given (2 n of a formula of n words: `t` is a ragged dim); then it chooses its own by what it has read,
while it runs. `--check` compares both with PyTorch, formula by formula: values, choices and gradients.

    python examples/dynamic/stackrnn.py --backend jax --check

Source: Bowman et al. 2016 (SPINN), section 3: with plain cells, and the thin stack of its appendix.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tempo as tp

sys.path.append(str(Path(__file__).resolve().parents[1]))
import on_mesh

RATE = 0.005
WORDS = ["x", "y", "z", "+", "*", "end"]
PLUS, TIMES, END = 3, 4, 5
REDUCE, SHIFT = 0, 1
Weights = Mapping[str, tp.RecurrentTensor]
Arrays = dict[str, np.ndarray]


def stackrnn(w: Weights, given: bool, dims: tuple[tp.Dim, ...]) -> tuple[tp.RecurrentTensor, ...]:
    """The logits of reducing and shifting, and what is done at each point, over `dims`, formulas and transitions."""
    b, k = tp.dims("b k")  # the words of all formulas are one dim
    t = tp.dim("t", lengths=tp.input("points", (), (b,), tp.int32))
    word, first = tp.input("word", (), (k,), tp.int32), tp.input("first", (), (b,), tp.int32)
    rows = (b,) if given else (*dims, b)  # given transitions are the same in each step of training
    shifts, below = (tp.recurrent(name, (), (*rows, t), tp.int32) for name in ("shifts", "below"))
    h = tp.recurrent("h", (w["W"].shape[1],), (*dims, b, t))
    at = below[..., t - 1]
    right, left = h[..., t - 1], h.gather(t, at, within=slice(0, t))
    following = w["embedding"].spatial[word.gather(k, first + shifts[..., t - 1])]
    logits = tp.tanh(tp.concatenate([left, right, following]) @ w["V"]) @ w["out"]
    if given:
        action = tp.input("action", (), (b, t), tp.int32)
    else:  # two are needed to reduce, and one to shift
        some, words_left = 2 * shifts[..., t - 1] - t + 1 >= 2, 2 * shifts[..., t - 1] < tp.as_tensor(t.last + 1)
        action = ((tp.argmax(logits, axis=0) == SHIFT) & words_left | ~some).astype(tp.int32)
    shift = action == SHIFT
    shifts[..., 0], below[..., 0], h[..., 0] = 0, 0, tp.zeros(h.shape)
    shifts[..., t] = shifts[..., t - 1] + shift.astype(tp.int32)
    below[..., t] = tp.where(shift, tp.as_tensor(t - 1), below.gather(t, at, within=slice(0, t)))
    h[..., t] = tp.where(shift, following, tp.tanh(tp.concatenate([left, right]) @ w["W"]))
    return logits, action


def learning(w: Weights, dims: tuple[tp.Dim, ...]) -> tuple[tp.RecurrentTensor, tp.RecurrentTensor]:
    """The logits of given transitions, and their mean cross entropy."""
    logits, action = stackrnn(w, True, dims)
    b, t = action.domain
    return logits, tp.cross_entropy(logits, action)[..., 0 : b.size, 1 : t.size].mean()


def training(initial: Arrays) -> tp.Program:
    """One step: each batch is a run, which begins with the state of the one before."""
    with tp.Program("stackrnn") as program:
        i = tp.dim("i", 2)  # before the step, and after it
        w = {name: tp.parameter(name, array.shape, init=array, dims=(i,)) for name, array in initial.items()}
        _, loss = learning(w, (i,))
        tp.optim.Adam(RATE).minimize(loss, w)
        tp.output("loss", loss[0])
    return program


def asking(initial: Arrays, learns: bool = True) -> tp.Program:
    """The loss of given transitions and, where it learns, its gradients."""
    with tp.Program("ask") as program:
        w = {name: tp.parameter(name, array.shape, init=array) for name, array in initial.items()}
        _, loss = learning(w, ())
        for name, value in {"loss": loss, **(tp.grad(loss, w) if learns else {})}.items():
            tp.output(name, value)
    return program


def parsing(initial: Arrays) -> tp.Program:
    """The transitions that it chooses, and the logits that it had."""
    with tp.Program("parse") as program:
        w = {name: tp.parameter(name, array.shape, init=array) for name, array in initial.items()}
        logits, action = stackrnn(w, False, ())
        *_, t = action.domain
        for name, value in {"logits": logits, "action": action}.items():
            tp.output(name, tp.cases((t >= 1, value), 0))
    return program


def weights(width: int, draw: np.random.Generator) -> Arrays:
    shapes = {
        "embedding": (len(WORDS), width),
        "V": (3 * width, 2 * width),
        "out": (2 * width, 2),
        "W": (2 * width, width),
    }
    return {name: draw.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}


# -- formulas ----------------------------------------------------------------------------------------------------------


def transitions(words: list[int]) -> list[int]:
    """The rule to be learned: what binds stronger is reduced first, as (x +) ((y *) z). `words` end with END."""
    binds = {PLUS: 1, TIMES: 2, END: 0}
    stack: list[tuple[str, int]] = []
    actions: list[int] = []
    at = 0
    while words[at] != END or len(stack) > 1:
        top, strength = stack[-1] if stack else ("bottom", 0)
        waits = len(stack) > 1 and top == "value" and binds[words[at]] <= stack[-2][1]
        actions.append(REDUCE if top == "operator" or waits else SHIFT)
        if actions[-1] == SHIFT:
            stack.append(("operator", binds[words[at]]) if words[at] in binds else ("value", 0))
            at += 1
        else:
            stack[-2:] = [("applied", strength) if top == "operator" else ("value", 0)]
    return actions


def bracketed(words: list[int], actions: list[int]) -> str:
    stack: list[str] = []
    following = iter(words)
    for action in actions:
        if action == SHIFT:
            stack.append(WORDS[next(following)])
        else:
            stack[-2:] = [f"({stack[-2]} {stack[-1]})"]
    return stack[-1]


def formulas(rows: int, operators: int, draw: np.random.Generator) -> list[list[int]]:
    found = []
    for count in draw.integers(0, operators, rows, endpoint=True):
        words = draw.integers(0, PLUS, 2 * count + 2)
        words[1::2] = draw.integers(PLUS, END, count + 1)
        found.append([*words[:-1].tolist(), END])
    return found


def batch(found: list[list[int]]) -> Arrays:
    """Formulas as inputs. Nobody reads what stands at the bottom, or behind a formula's last transition: -1."""
    lengths = np.array([len(words) for words in found])
    points = 2 * lengths - 2
    action = np.full((len(found), points.max()), -1)
    for row, words in zip(action, found):
        done = transitions(words)
        row[1 : len(done) + 1] = done
    arrays = {"word": np.concatenate(found), "first": np.cumsum(lengths) - lengths, "points": points, "action": action}
    return {name: np.asarray(array, np.int32) for name, array in arrays.items()}


def torch_values(w: Mapping[str, Any], found: list[list[int]], given: bool) -> dict[str, Any]:
    """The peer: a stack as a list, a formula after another. The loss of given transitions, or its choices."""
    import torch

    w = {name: torch.as_tensor(array) for name, array in w.items()}
    zero = torch.zeros(w["W"].shape[1])
    logits, actions = [], []
    for words in found:
        x = w["embedding"][torch.tensor(words)]
        wanted, done, stack, at = transitions(words), [], [zero, zero], 0
        for step in range(len(wanted)):
            seen = torch.cat([stack[-2], stack[-1], x[at]])
            logits.append(torch.tanh(seen @ w["V"]) @ w["out"])
            chosen = int(logits[-1].argmax()) if at < len(words) - 1 else REDUCE
            done.append(wanted[step] if given else chosen if len(stack) >= 4 else SHIFT)
            if done[-1] == SHIFT:
                stack.append(x[at])
                at += 1
            else:
                stack[-2:] = [torch.tanh(torch.cat(stack[-2:]) @ w["W"])]
        actions.append(done)
    if not given:
        return {"action": actions, "logits": torch.stack(logits)}
    return {"loss": torch.nn.functional.cross_entropy(torch.stack(logits), torch.tensor(np.concatenate(actions)))}


def torch_loop(weights: Arrays, found: list[list[int]]) -> Arrays:
    """The loss of given transitions, and its gradients."""
    import torch

    w = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    values = torch_values(w, found, given=True)
    values |= zip(w, torch.autograd.grad(values["loss"], list(w.values())))
    return {name: each.detach().numpy() for name, each in values.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="numpy")
    on_mesh.add_argument(parser)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=64, help="formulas of a batch")
    parser.add_argument("--operators", type=int, default=6, help="the most of a formula")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="compare to PyTorch, formula by formula")
    options = parser.parse_args(arguments)

    draw = np.random.default_rng(options.seed)
    initial = weights(options.width, draw)
    buckets = tp.Options(buckets={"k": "pow2", "t": "pow2"})
    lies = on_mesh.arguments(options, shard={"b": "data"})
    run = tp.compile(training(initial), options.backend, options=buckets, **lies)
    state: Any = None
    losses: list[float] = []
    start = time.perf_counter()
    for _ in range(options.steps):
        outputs = run(**batch(formulas(options.rows, options.operators, draw)), state=state)
        state = outputs.state
        losses.append(float(outputs["loss"]))
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    on_mesh.tell(options, run)

    test = formulas(options.rows, options.operators, draw)
    given = batch(test)
    parse = tp.compile(parsing(initial), options.backend, options=buckets, **lies)
    sizes = {"t": given.pop("action").shape[1]}
    parsed = {name: np.asarray(each) for name, each in parse(**given, sizes=sizes, state=state).items()}
    chosen = [row[1:points].tolist() for row, points in zip(parsed["action"], given["points"])]
    right = sum(done == transitions(words) for words, done in zip(test, chosen))
    print(f"{right} of {len(test)} formulas are parsed as they should be, by its own transitions; one of them:")
    longest = max(range(len(test)), key=lambda row: len(test[row]))
    print(f"  {bracketed(test[longest], chosen[longest])}")
    if options.check:
        learned = {name: np.asarray(state[name]) for name in initial}
        ask = tp.compile(asking(initial), options.backend, options=buckets, **lies)
        found = {name: np.asarray(array) for name, array in ask(**batch(test), state=state).items()}
        free = torch_values(learned, test, given=False)
        assert free["action"] == chosen
        found["logits"] = np.concatenate([row[1:points] for row, points in zip(parsed["logits"], given["points"])])
        wanted = {"logits": free["logits"].numpy(), **torch_loop(learned, test)}
        differences = {name: np.abs(found[name] - each).max() / np.abs(each).max() for name, each in wanted.items()}
        name = max(differences, key=lambda name: differences[name])
        assert differences[name] < 1e-4, differences
        print("equal to PyTorch: transitions, values and gradients; ", end="")
        print(f"the greatest difference is {differences[name]:.1e}, of {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
