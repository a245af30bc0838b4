"""Programs of rows with lengths of their own, `tp.dim("t", lengths=n)`, for several test modules.

What such a program means is what it means for each row alone, as a dense program of the row's length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tempo as tp
from tempo.conformance.target import Array, Target, numbers

SIZE, WIDTH = 5, 3


LENGTHS = {
    "some": [3, 1, 4, 2],
    "one": [1, 1, 1, 1],
    "an empty row": [2, 0, 5, 1],
    "all": [5, 5, 5, 5],
    "none": [0, 0, 0, 0],
}


class Row:
    """A row, in a program with lengths, which may be `computed`, or in one of the row's size: what statements are
    written with."""

    def __init__(self, ragged: bool, computed: bool = False) -> None:
        self.b, self.ragged = tp.dim("b"), ragged
        n = tp.input("n", (), (self.b,), "int32") if ragged else None
        self.t = tp.dim("t") if n is None else tp.dim("t", lengths=n * 1 if computed else n)
        self.x = tp.input("x", (WIDTH,), (self.b, self.t))
        self.w = tp.input("w", (WIDTH, WIDTH))
        self.made = [self.x, self.x * self.w[...].sum(axis=0)]

    def points(self, start: Any = 0, stop: Any = None) -> slice:
        """What is behind the end of the arrays is cut off a slice by itself, where rows have lengths."""
        end = self.t.size if stop is None else stop
        return slice(start, end if self.ragged else tp.min(end, self.t.size))

    def recurrent(self, name: str) -> tp.RecurrentTensor:
        return tp.recurrent(name, (WIDTH,), (self.b, self.t))


Statement = Callable[[Row, tp.RecurrentTensor, str], tp.RecurrentTensor]


def forwards(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    b, t, h = row.b, row.t, row.recurrent(name)
    h[b, 0] = x
    h[b, t + 1] = tp.tanh(row.w @ h + x[b, t + 1])
    return h


def backwards(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    b, t, h = row.b, row.t, row.recurrent(name)
    h[b, t.last] = x
    h[b, t] = tp.tanh(row.w @ h[b, t + 1] + x)
    return h


def shifted_left(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    b, t, h = row.b, row.t, row.recurrent(name)
    h[b, t - 1] = x * 2
    h[b, t] = x - 1
    return h


def from_the_end(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    return tp.cases((row.t >= row.t.last - 1, x * 3), x[row.b, row.t + 2])


def ahead(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    return tp.cases((row.t < row.t.last, tp.sin(x[row.b, row.t + 1])), 0.5)


def reversed_(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    return x[row.b, row.t.last - row.t] * tp.as_tensor(row.t.last - 2 * row.t)


def window(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    return x[row.b, row.points(tp.max(row.t - 1, 0), row.t + 2)].sum(axis=0)


def so_far(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    return x[row.b, 0 : row.t + 1].max(axis=0) + x[row.b, row.t :].sum(axis=0)


def attention(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    keys = x[row.b, row.points()]
    return tp.softmax(keys @ (row.w @ x)) @ keys


def mean(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    return x - x[row.b, row.points()].mean(axis=0)


def normed(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """Smooth: after it elements are almost equal, and rounding would say which of them is the greatest."""
    seen = x[row.b, row.points()]
    return x / (1 + seen.var(axis=0)) + tp.logsumexp(seen, axis=(0, 1))


def pooled(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    every = tp.cumsum(x[row.b, row.points()], axis=0)
    return x * tp.cases((row.t.last >= 0, x[row.b, row.t.last]), 0.0) + every.sum(axis=0)


def biased(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """What is no row's meets rows, and is added up over them."""
    seen = x[row.b, row.points()] @ row.w + row.w.sum(axis=0)
    return x + tp.sin(row.w.sum(axis=1)) + (seen * seen).sum(axis=0) + seen.mean(axis=0)


def crossed(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """Rows meet rows along other axes."""
    seen = x[row.b, row.points()].sum(axis=1)
    both = tp.sin(seen).reshape(-1, 1) + seen.reshape(1, -1) * row.w.sum()
    return x * both.sum()


def twice_asked(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    b, t = row.b, row.t
    inner = tp.cases((t < t.last - 1, x[b, t + 2]), x[b, t + 1] * 2)
    return tp.cases((t < t.last, inner), 0.5)


def mirrored(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    b, t, h = row.b, row.t, row.recurrent(name)
    h[b, t.last] = x
    h[b, t - 1] = h * 0.5 + x
    return h


def in_zones(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    b, t, h = row.b, row.t, row.recurrent(name)
    h[t == t.last - 1] = x * 3
    h[t + 1 < t.size] = x + 1
    h[b, t] = x - 1
    return h


def in_turn(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """A case is read where none before it holds."""
    b, t, h = row.b, row.t, row.recurrent(name)
    h[b, t.last] = x
    h[b, t.last - 1] = x * 2
    h[b, t] = h[b, t + 2] * 0.5 + x
    return h


def squares(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """Slices whose gradients meet points in other ways than sums do."""
    b, t = row.b, row.t
    every, around = x[b, row.points()], x[b, row.points(tp.max(t - 1, 0), t + 2)]
    scanned = tp.cumsum(every, axis=0)
    return (around * around).sum(axis=0) + tp.logsumexp(x[b, t:], axis=0) + (scanned * scanned).sum(axis=0)


def normalized(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """Composites that fold a row inside."""
    seen = x[row.b, row.points()] + row.w.sum(axis=0)
    scaled = tp.layer_norm(seen, axis=0) * seen
    return x + scaled.sum(axis=0) + tp.log_softmax(seen, axis=0).sum(axis=0) + tp.logsumexp(seen, axis=(0, 1))


def looked_up(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """Indices of a whole row, which behind it are anything."""
    ids = tp.clip(x[row.b, row.points()].sum(axis=1), -1e9, 1e9).astype("int32") % WIDTH
    return x * tp.take(row.w, ids, axis=0).sum(axis=0) + tp.ones_like(x[row.b, row.points()]).sum(axis=0)


def positions(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    return x * tp.as_tensor(row.t == row.t.last) + tp.as_tensor(row.t.last // 2 + row.t % 2)


def picked(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """At indices that the run makes: one, some, and one for each point of the row."""
    b, t, count = row.b, row.t, tp.maximum(tp.as_tensor(row.t.last) + 1, 1)
    at = (tp.as_tensor(t) * 2 + 1) % count
    some = x.gather(t, tp.stack([at, count - 1 - at, at * 0]))
    every = x.gather(t, at[b, row.points()] if row.ragged else at[row.points()])
    return x.gather(t, at, within=row.points()) * 0.5 + (some * some).sum(axis=0) + tp.sin(every).sum(axis=0)


def picked_behind(row: Row, x: tp.RecurrentTensor, name: str) -> tp.RecurrentTensor:
    """Half way to the end of the row, in a recurrence and for it."""
    b, t, h = row.b, row.t, row.recurrent(name)
    seen = x.gather(t, tp.as_tensor(t) + tp.as_tensor(t.last - t + 1) // 2, within=row.points(t))
    h[b, 0] = seen
    h[b, t + 1] = tp.tanh(h + seen[b, t + 1])
    return h


STATEMENTS: Sequence[Statement] = (
    forwards, backwards, in_turn, shifted_left, from_the_end, ahead, reversed_, window, so_far, attention, mean, normed,
    pooled, biased, crossed, twice_asked, mirrored, squares, normalized, looked_up, positions, picked, picked_behind,
)  # fmt: skip


def program_of(statements: Sequence[tuple[Statement, int]], ragged: bool, computed: bool = False) -> tp.Program:
    """Each statement reads what is so many before it. Gradients are those of a loss over all rows."""
    with tp.Program("ragged" if ragged else "dense") as program:
        row = Row(ragged, computed)
        for number, (statement, before) in enumerate(statements):
            row.made.append(statement(row, row.made[-1 - before % len(row.made)], f"h{number}"))
            tp.output(f"y{number}", row.made[-1])
        last = row.made[-1]
        losses = (last * last * 0.1)[row.b, row.points()].sum()
        loss = losses[0 : row.b.size].sum()
        dx, dw = tp.grad(loss, [row.x, row.w])
        shown = {"losses": losses, "loss": loss} if len(statements) % 2 else {}  # gradients alone ask for the others
        for name, value in {**shown, "dx": dx, "dw": dw}.items():
            tp.output(name, value)
    return program


def by_row(dense: tp.Program, lengths: Sequence[int], x: Array, w: Array) -> dict[str, Array]:
    """The dense program for each row, put together."""
    run = tp.compile(dense, backend="reference")
    outputs = {row: run(x=x[row : row + 1, :count], w=w) for row, count in enumerate(lengths) if count}
    names = [name for name in dense.builder.outputs if name.role == "output"]
    found: dict[str, Array] = {}
    for name in (port.name for port in names):
        parts = {row: np.asarray(each[name]) for row, each in outputs.items()}
        if name in ("loss", "dw"):
            found[name] = sum(parts.values(), np.zeros((WIDTH, WIDTH) if name == "dw" else (), np.float32))
            continue
        found[name] = np.zeros(x.shape[:1] if name == "losses" else x.shape, np.float32)
        for row, part in parts.items():
            found[name][row : row + 1][tuple(map(slice, part.shape))] = part
    return found


def check(
    target: Target,
    statements: Sequence[tuple[Statement, int]],
    lengths: Sequence[int],
    options: Mapping[str, Any] | None = None,
    computed: bool = False,
) -> None:
    n = np.array(lengths, np.int32)
    x, w = numbers((len(n), SIZE, WIDTH)), numbers((WIDTH, WIDTH)) * 0.5
    inside = np.arange(SIZE)[None, :, None] < n[:, None, None]
    expected = by_row(program_of(statements, ragged=False), lengths, x, w)
    given = np.where(inside, x, np.nan).astype(np.float32)  # nobody sees what lies behind a row
    program = program_of(statements, True, computed)
    outputs = target.compile(program, **(options or {}))(n=n, x=given, w=w)
    np.testing.assert_array_equal(outputs.lengths["t"], n)
    meant = tp.compile(program, backend="reference")(n=n, x=given, w=w)
    for name, array in target.arrays(outputs).items():
        for wanted in (expected[name], meant[name]):  # relative to the greatest: gradients cancel out, some to nothing
            close = max(1e-4 * np.abs(wanted).max(initial=0), 1e-6)
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=close, err_msg=name)


PACKED = {"mapping": {"t": 2}}
"""Points of recurrences in tiles of two, whatever that costs."""


def rows_of() -> tuple[dict[str, Any], Array]:
    """Inputs, with NaN behind the end of a row, and which points there are."""
    n = np.array([3, 1, 0, 2], np.int32)
    inside = np.arange(4) < n[:, None]
    return {"n": n, "x": np.where(inside, numbers((4, 4)), np.nan).astype(np.float32)}, inside


def over_rows(make: Callable[[tp.Dim, tp.Dim, tp.RecurrentTensor], Any], name: str = "rows") -> tp.Program:
    with tp.Program(name) as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        tp.output("y", make(b, t, tp.input("x", (), (b, t))))
    return program
