"""Indices that are looked up before anybody asks for them: a prompt is one pass, and only what is asked for raises."""

from __future__ import annotations

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import typical

VOCABULARY, WIDTH, PROMPT, LENGTH, WINDOW = 7, 4, 9, 12, 3


def decoder(log: list[int] | None = None) -> tp.Program:
    """Layers with a window over a prompt and what was said since. With `log`, the program calls the host."""
    random = np.random.default_rng(0)
    with tp.Program("decoder") as program:
        b, l, t, p = tp.dims("b l t p")
        embedding = tp.constant(random.normal(size=(VOCABULARY, WIDTH)).astype(np.float32))
        weight = tp.constant(random.normal(size=(WIDTH, WIDTH)).astype(np.float32))
        token = tp.recurrent("token", (), (b, t), dtype=tp.int32)
        x = tp.recurrent("x", (WIDTH,), (b, l, t))
        x[b, 0, t] = embedding.spatial[token]
        q, k, v = (each.reshape(1, WIDTH) for each in (x @ weight, x, x))
        y = x + tp.nn.attention(q, k, v, t, window=WINDOW).reshape(WIDTH)
        x[b, l + 1, t] = y
        token[t < p.size] = tp.input("prompt", (), (b, p), dtype=tp.int32)[b, t]
        token[b, t + 1] = (embedding @ y[b, l.size - 1, t]).argmax(axis=-1)
        tp.output("token", token)
        if log is not None:
            tp.sink(lambda said: log.append(len(said)), token, ordered_by=(t,), batched=(b,))
    return program


def prompt(**changed: int) -> np.ndarray:
    given = np.random.default_rng(1).integers(0, VOCABULARY, (2, PROMPT)).astype(np.int32)
    for place, value in changed.items():
        given[1, int(place[1:])] = value
    return given


def compiled(backend: str, program: tp.Program | None = None, **options: object) -> tp.Executable:
    given = tp.Options(**options)
    return tp.compile(program or decoder(), backend, sizes={"b": 2, "l": 2, "t": LENGTH, "p": PROMPT}, options=given)


def schedule(run: tp.Executable) -> str:
    return run.explain("all").split("# schedule")[1].split("# buffers")[0]


@pytest.mark.parametrize("backend", typical(["numpy", "torch"], ["numpy"]))
def test_a_prompt_behind_a_window_is_one_pass(backend: str) -> None:
    pytest.importorskip("tempo_torch")
    assert schedule(compiled(backend, mapping="full")) == schedule(compiled(backend, mapping="full", checks=False))
    run = compiled(backend)
    wanted = compiled("reference")(prompt=prompt())["token"]
    np.testing.assert_array_equal(np.asarray(run(prompt=prompt())["token"]), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("backend", typical(["numpy", "torch"], ["torch"]))
def test_only_a_token_that_a_window_shows_raises(backend: str) -> None:
    pytest.importorskip("tempo_torch")
    run, reference = compiled(backend, mapping="full"), compiled("reference")
    for bad in (-1, VOCABULARY):  # the second time it is known
        unseen = prompt(t0=bad)
        wanted = reference(prompt=unseen)["token"]
        np.testing.assert_array_equal(np.asarray(run(prompt=unseen)["token"]), wanted)
        with pytest.raises(tp.IndexOutOfRangeError, match=f"index {bad} is out of range for an axis of size 7"):
            run(prompt=prompt(**{f"t{PROMPT - 1}": bad}))


def test_what_calls_the_host_is_not_run_twice() -> None:
    log: list[int] = []
    run = compiled("numpy", decoder(log), mapping="full")
    run(prompt=prompt(t0=-1))
    assert len(log) == LENGTH


@pytest.mark.slow
def test_a_stream_does_not_take_back_what_it_gave() -> None:
    run = compiled("numpy", mapping="full")
    steps = [np.asarray(step["token"]) for step in run.stream("t", prompt=prompt(t0=-1))]
    wanted = compiled("reference")(prompt=prompt(t0=-1))["token"]
    np.testing.assert_array_equal(np.stack(steps, axis=1).reshape(wanted.shape), wanted)


def test_where_nothing_is_looked_up_ahead_an_error_is_told_at_once() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        table = tp.input("table", (4,), ())
        h = tp.recurrent("h", (), (t,))
        h[0] = 0.0
        h[t + 1] = h * 0.5 + table.spatial[(h * 0 + t).astype(tp.int32)]
        tp.output("h", h)
    seen: list[int] = []
    run = tp.compile(program, backend="numpy")
    with pytest.raises(tp.IndexOutOfRangeError):
        run(table=np.ones(4, np.float32), sizes={"t": 40}, progress=lambda done, total: seen.append(done))
    assert len(seen) == len(set(seen))
