"""No loop of an optimised executable copies a whole buffer: what is carried must be updated in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tempo_jax.backend import JaxBackend

import tempo as tp
from benchmarks.attention.program import Config, decoder, sizes
from benchmarks.models.workloads import bptt
from benchmarks.ppo.program import program as ppo
from benchmarks.ppo.settings import Settings, noise, weights
from tempo import dtypes
from tempo.backends.base import CompiledSegment, SegmentRequest

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (\(.*?\)|\S+) ([\w\-]+)\(")
_SHAPE = re.compile(r"\w+\[([\d,]*)\]")
_CALLED = re.compile(r"(body|condition|calls|to_apply|\w+_computations?)=\{?((?:%[\w.\-]+(?:, )?)+)")
_COPIES = ("copy", "copy-start")
_PASSES_ON = ("parameter", "get-tuple-element", "tuple", "while", "bitcast")


@dataclass(frozen=True)
class Instruction:
    """One line of a computation: `elements` is the size of its greatest array."""

    text: str
    opcode: str
    elements: int

    def called(self, *attributes: str) -> Iterator[str]:
        for attribute, names in _CALLED.findall(self.text):
            if not attributes or attribute in attributes:
                yield from re.findall(r"%([\w.\-]+)", names)


def computations(hlo: str) -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in hlo.splitlines():
        if header := _COMPUTATION.match(line):
            current = found.setdefault(header[1], [])
        elif match := _INSTRUCTION.match(line):
            sizes = [prod(int(size) for size in dims.split(",") if size) for dims in _SHAPE.findall(match[1])]
            current.append(Instruction(line.strip(), match[2], max(sizes, default=0)))
    return found


def in_loops(hlo: str, innermost: bool = False) -> list[Instruction]:
    """The instructions that run once per iteration of some loop, whatever calls them there."""
    parts = computations(hlo)
    bodies = [name for part in parts.values() for each in part for name in each.called("body", "condition")]
    found = [reached(parts, body) for body in bodies]
    names = {name for each in found if not (innermost and has_loop(parts, each)) for name in each}
    return [each for name in sorted(names) for each in parts[name]]


def reached(parts: dict[str, list[Instruction]], name: str) -> set[str]:
    """The computation and all that it calls."""
    open_ones, found = [name], set[str]()
    while open_ones:
        name = open_ones.pop()
        if name not in found:
            found.add(name)
            open_ones += [called for each in parts[name] for called in each.called()]
    return found


def has_loop(parts: dict[str, list[Instruction]], names: set[str]) -> bool:
    return any(each.opcode == "while" for name in names for each in parts[name])


def copies_in_loops(hlo: str, least: int, innermost: bool = False) -> list[str]:
    """Copies of arrays of `least` elements or more inside loops."""
    return [each.text for each in in_loops(hlo, innermost) if each.opcode in _COPIES and each.elements >= least]


def made_in_loops(hlo: str, least: int) -> list[str]:
    """What makes arrays of `least` elements or more inside loops, other than by an update in place.

    A gather of a whole window is a copy under another name; where it is fused with what reads it nothing is made.
    """
    parts = computations(hlo)
    bodies = {name for part in parts.values() for each in part for name in each.called("body")}
    moved = [each for name in sorted(bodies) for each in parts[name] if each.elements >= least]
    return [each.text for each in moved if each.opcode not in _PASSES_ON and not _updates(each, parts)]


def _updates(instruction: Instruction, parts: dict[str, list[Instruction]]) -> bool:
    inside = [instruction, *(each for name in instruction.called("calls") for each in parts[name])]
    return any(each.opcode == "dynamic-update-slice" for each in inside)


def optimised(function: Callable[..., Any], *arguments: Any) -> str:
    return str(jax.jit(function).lower(*arguments).compile().as_text())


class Recorder(JaxBackend):
    """Keeps the optimised HLO of every segment that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        made = super().compile_segment(request)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.texts.append(made.function.executable(*arguments[:2]).function.lower(*arguments).compile().as_text())  # type: ignore[attr-defined]
            return made.function(*arguments)

        return CompiledSegment(call, made.source)


def assert_in_place(
    program: tp.Program,
    sizes: dict[str, int],
    least: int,
    innermost: bool = False,
    mapping: dict[str, int] | None = None,
    **inputs: Any,
) -> Recorder:
    """Runs the program; some loop updates an array of `least` elements, and no loop copies one."""
    recorder = Recorder()
    tp.compile(program, backend=recorder, sizes=sizes, options=tp.Options(mapping=mapping))(**inputs)
    inside = [each for text in recorder.texts for each in in_loops(text)]
    assert any(each.elements >= least for each in inside if each.opcode == "dynamic-update-slice")
    assert [copy for text in recorder.texts for copy in copies_in_loops(text, least, innermost)] == []
    return recorder


# -- the counter -------------------------------------------------------------------------------------------------------


def _updated(step: Any, buffer: Any) -> Any:
    return lax.dynamic_update_slice(buffer, (buffer[step] + 1.0)[None], (step + 1,))


def test_an_update_in_place_counts_nothing():
    hlo = optimised(lambda x: lax.fori_loop(0, 999, _updated, x), np.zeros(1000, np.float32))
    assert any(each.opcode == "dynamic-update-slice" and each.elements == 1000 for each in in_loops(hlo))
    assert copies_in_loops(hlo, 1000) == []


def test_a_planted_copy_is_counted():
    """Both the buffer and what it was before the update leave the iteration, so XLA must copy it."""

    def body(step: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
        return _updated(step, carried[0]), carried[0]

    start = np.zeros(1000, np.float32)
    hlo = optimised(lambda x: lax.fori_loop(0, 999, body, (x, x)), start)
    assert copies_in_loops(hlo, 1000)
    assert copies_in_loops(hlo, 1001) == []


def test_a_copy_in_a_loop_within_a_branch_within_a_loop_is_counted():
    def inner(step: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
        return _updated(step, carried[0]), carried[0]

    def body(step: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
        return lax.cond(step % 3 == 0, lambda: lax.fori_loop(0, step, inner, carried), lambda: carried)

    start = np.zeros(1000, np.float32)
    assert copies_in_loops(optimised(lambda x: lax.fori_loop(0, 999, body, (x, x)), start), 1000)


def test_a_gather_of_everything_is_counted_where_it_is_made():
    """All of the buffer in another order has two readers of another kind, so it is no part of either."""

    def body(step: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
        turned = carried[0][(jnp.arange(1000) + step) % 1000]
        return _updated(step, carried[0]), carried[1] + jnp.sort(turned)[step] + turned[step]

    start = (np.zeros(1000, np.float32), np.float32(0))
    hlo = optimised(lambda x: lax.fori_loop(0, 999, body, x), start)
    assert made_in_loops(hlo, 1000)
    alone = optimised(lambda x: lax.fori_loop(0, 999, _updated, x), start[0])
    assert made_in_loops(alone, 1000) == []


def test_a_copy_outside_of_loops_is_not_counted():
    def twice(x: Any) -> tuple[Any, Any]:
        return lax.fori_loop(0, 999, _updated, x), jnp.flip(x)

    assert copies_in_loops(optimised(twice, np.zeros(1000, np.float32)), 1000) == []


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_recurrence_with_full_output(dtype: str):
    eye = np.eye(8).astype(dtypes.to_numpy(dtype))
    with tp.Program("recurrence") as program:
        (t,) = tp.dims("t")
        w = tp.input("w", shape=(8, 8), dims=(), dtype=dtype)
        h = tp.recurrent("h", shape=(8,), dims=(t,), dtype=dtype)
        h[0] = tp.constant(eye.sum(axis=0))
        h[t + 1] = tp.tanh(h[t] @ w)
        tp.output("h", h)
    recorder = assert_in_place(program, {"t": 500}, 500 * 8, w=eye)
    wide = [made for text in recorder.texts for made in re.findall(r"= f32\[500,8\].*", text)]
    assert not wide or dtype == "float32"


def test_halves_that_nobody_looks_at_stay_as_they_are_held(monkeypatch: pytest.MonkeyPatch):
    """From segment to segment, as arrays of integers; what is shown, and what a run is given, are numbers."""
    program = _scanned_twice()
    given = np.linspace(-1, 1, 40).astype(dtypes.to_numpy("bfloat16"))
    expected = tp.compile(program, "numpy", sizes={"t": 40})(x=given)["y"]
    for fuses in (True, False):
        monkeypatch.setattr(JaxBackend, "fuses_segments", fuses)
        backend = Arguments()
        run = tp.compile(program, backend, sizes={"t": 40})
        found = run(x=given)["y"]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
        if not fuses:
            assert {"uint16", "bfloat16"} <= backend.dtypes


def _scanned_twice() -> tp.Program:
    """Forward, then backward over what that has kept."""
    with tp.Program() as program:
        (t,) = tp.dims("t")
        x = tp.input("x", shape=(), dims=(t,), dtype="bfloat16")
        h, y = (tp.recurrent(name, shape=(), dims=(t,), dtype="bfloat16") for name in "hy")
        h[0], h[t + 1] = x[0], tp.maximum(h, 0.5) - x[t + 1]
        y[t.size - 1], y[t] = h[t.size - 1], h - tp.maximum(y[t + 1], 0.25)
        tp.output("y", y)
    return program


class Arguments(JaxBackend):
    """Remembers of what dtypes arrays are that segments are given, by buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[str] = set()
        self.seen: dict[tuple[int, int], set[str]] = {}

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        made, segment = super().compile_segment(request), request.segment

        def watched(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(start: int, stop: int, *arguments: Any) -> tuple[Any, ...]:
                given = dict(zip(segment.buffers, arguments[len(segment.arguments) :], strict=False))
                results = function(start, stop, *arguments)
                for id, each in (*given.items(), *zip(segment.results, results, strict=True)):
                    found = {str(array.dtype) for array in jax.tree.leaves(each) if hasattr(array, "dtype")}
                    self.seen.setdefault((segment.id, id), set()).update(found)
                    self.dtypes |= found
                return results

            return call

        chunks = made.in_chunks and replace(made.in_chunks, function=watched(made.in_chunks.function))
        return replace(made, function=watched(made.function), in_chunks=chunks)


@pytest.mark.parametrize("hosted", [False, True])
def test_halves_are_given_as_they_are_given_back(hosted: bool):
    """So that no executable is made twice: in loops of the host, and in chunks."""
    with tp.Program() as program:
        (t,) = tp.dims("t")
        h = tp.recurrent("h", shape=(64,), dims=(t,), dtype="bfloat16")
        kept = tp.recurrent("kept", shape=(64,), dims=(t,), dtype="bfloat16")
        h[0] = tp.input("start", (64,), (), dtype="bfloat16")
        kept[0] = tp.ones(64, dtype="bfloat16")
        (turned,) = tp.host_call(np.array, h, out=[((64,), "bfloat16")]) if hosted else (h,)
        h[t + 1] = tp.maximum(turned, 0.5) + kept[0 : t + 1].sum(axis=0).astype("bfloat16")
        kept[t + 1] = kept * 0.5
        tp.output("h", h)
    start, backend = np.linspace(-1, 1, 64).astype(dtypes.to_numpy("bfloat16")), Arguments()
    expected = np.asarray(tp.compile(program, "numpy", sizes={"t": 40})(start=start)["h"])
    run = tp.compile(program, backend, sizes={"t": 40})
    for found in (run(start=start)["h"], run(start=start, progress=lambda done, total: None)["h"]):
        np.testing.assert_allclose(np.asarray(found, float), expected.astype(float), rtol=0.02)
    if not hosted:
        parts = run.stream("t", chunk=8, start=start)
        found = np.concatenate([np.asarray(part["h"], float) for part in parts])
        np.testing.assert_allclose(found, expected.astype(float), rtol=0.02)
    assert all(len(found) <= 1 for found in backend.seen.values()), backend.seen


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_recurrence_that_two_read(steps: int, backward: bool):
    """XLA may move one of the reads behind the write, and then copies; so the state is handed on beside its buffer."""
    with tp.Program("read_twice") as program:
        (t,) = tp.dims("t")
        w = tp.input("w", shape=(8, 8), dims=())
        before, first = (t + steps, t >= t.size - steps) if backward else (t - steps, t < steps)
        h = tp.recurrent("h", shape=(8,), dims=(t,))
        total = tp.recurrent("total", shape=(), dims=(t,))
        h[first], total[first] = tp.constant(np.ones(8, np.float32)), 0
        h[t], total[t] = tp.tanh(h[before] @ w), h[before].sum()
        tp.output("h", h)
        tp.output("total", total)
    assert_in_place(program, {"t": 500}, 500 * 8, w=np.eye(8, dtype=np.float32))


def test_backpropagation_through_an_lstm():
    sizes = {"b": 4, "t": 64}
    draw = np.random.default_rng(0)
    shapes = {"x": (4, 64, 16), "target": (4, 64, 16), "wx": (16, 64), "wh": (16, 64), "bias": (64,)}
    inputs = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    assert_in_place(bptt(16, 16), sizes, 4 * 64 * 16, **inputs)


def test_small_constants_are_known_to_xla():
    with tp.Program("scaled") as program:
        x = tp.input("x", shape=(5,), dims=())
        tp.output("y", tp.tanh(x) * 3.25 + tp.constant(np.arange(5, dtype=np.float32)))
    recorder = Recorder()
    tp.compile(program, backend=recorder)(x=np.ones(5, np.float32))
    (text,) = recorder.texts
    assert "constant(3.25)" in text
    assert len(re.findall(r" parameter\(\d+\)", text.split("ENTRY")[1])) == 1


def test_slices_whose_starts_the_sizes_give_are_no_gathers():
    """They stand in the graph as `min(n.size, 2)`; where this is traced they are numbers."""
    with tp.Program("stencil") as program:
        t, n = tp.dims("t n")
        u = tp.recurrent("u", shape=(), dims=(t, n))
        u[(n == 0) | (n == n.size - 1)] = 0
        u[t == 0] = 1
        u[t, n] = (u[t - 1, n - 1] + u[t - 1, n + 1]) * 0.5
        tp.output("u", u[-1, :])
    recorder = Recorder()
    tp.compile(program, backend=recorder, sizes={"t": 50, "n": 30})()
    assert recorder.texts
    assert not any(each.opcode == "gather" for text in recorder.texts for each in in_loops(text))


@pytest.mark.parametrize("everything", [False, True], ids=["the window", "all values"])
def test_a_windowed_read(everything: bool):
    """The last 20 values: kept in a circular buffer, or read in the output where all of them are one."""
    with tp.Program("window") as program:
        (t,) = tp.dims("t")
        x = tp.recurrent("x", shape=(64,), dims=(t,))
        x[0] = tp.constant(np.ones(64, np.float32))
        window = x[tp.max(t - 19, 0) : t + 1]
        x[t + 1] = tp.tanh(window.mean(axis=0)) + 1.0
        tp.output("x", x if everything else x[t.size - 1])
    assert_in_place(program, {"t": 300}, (300 if everything else 20) * 64)


@pytest.mark.slow
def test_episodes_that_go_on_across_iterations():
    """Of the buffer that acting writes, one value has two readers, one of which XLA would move behind the write."""
    settings = Settings(environments=128, steps=60, iterations=2)
    given = {**noise(settings), "state": weights(settings)}
    assert_in_place(ppo(settings), {}, 128 * 60 * 48, innermost=True, **given)


@pytest.mark.slow
def test_an_iteration_lets_go_of_what_it_alone_reads():
    """Of nested loops, what the outer iteration keeps for itself makes room for what comes after the last read."""
    settings = Settings(environments=32, steps=250, iterations=3, layers=6)
    backend = JaxBackend()
    run = tp.compile(ppo(settings), backend=backend)
    given = {name: jnp.asarray(array) for name, array in noise(settings).items()}
    state = {name: jnp.asarray(array) for name, array in weights(settings).items()}
    activation = settings.environments * settings.steps * settings.width * 4
    assert backend.measured_peak(lambda: run(state=state, **given)) < (2 * settings.layers + 4) * activation


@pytest.mark.slow
def test_the_replay_buffer_of_the_dqn_example():
    """A window of 250 points of 8 environments, written at one of them and read at random ones in every step."""
    from examples.dqn import Settings as DqnSettings
    from examples.dqn import trainer

    settings = DqnSettings(environments=8, steps=600, capacity=2000, width=16)
    program = trainer(tp.rl.CartPole(), settings)
    recorder = assert_in_place(program, {}, settings.capacity)
    assert [made for text in recorder.texts for made in made_in_loops(text, settings.capacity)] == []
    buffers = tp.compile(program, "jax").memory.buffers
    (observations,) = [each for each in buffers if each.name == "environment.state"]
    assert observations.shape == (settings.capacity // 8, 8, 4)


def test_what_points_that_were_read_at_indices_get_is_added_up_in_place():
    """Rows of one array, and the row of the next point is taken before the array is written to."""
    size, width = 300, 8
    with tp.Program() as program:
        n = tp.dim("n")
        x, w = tp.input("x", (width,), (n,)), tp.input("w", (width, width))
        child = tp.input("child", (2,), (n,), "int32")
        h = tp.recurrent("h", (width,), (n,))
        h[0] = tp.tanh(x)
        h[n] = tp.tanh(x + h.gather(n, child, within=slice(0, n)).sum(axis=0) @ w)
        tp.output("gradient", tp.grad(h[0 : n.size].sum(), w))
    random = np.random.default_rng(0)
    before = np.array([random.integers(0, max(point, 1), 2) for point in range(size)], np.int32)
    inputs = {"x": random.normal(size=(size, width)), "w": np.eye(width), "child": before}
    assert_in_place(program, {}, size * width, **inputs)


def test_a_point_that_is_read_at_an_index_and_kept_is_taken_once():
    """The gradients look at what was read: XLA would take it for them apart, after the state was written."""
    size, width = 300, 8
    with tp.Program() as program:
        n = tp.dim("n")
        x, w = tp.input("x", (width,), (n,)), tp.input("w", (width, width))
        child = tp.input("child", (), (n,), "int32")
        h = tp.recurrent("h", (width,), (n,))
        h[0] = x
        h[n] = tp.tanh(h.gather(n, child, within=slice(0, n)) @ w + x)
        tp.output("gradient", tp.grad((h * h)[0 : n.size].sum(), w))
    random = np.random.default_rng(0)
    before = np.array([random.integers(0, max(point, 1)) for point in range(size)], np.int32)
    inputs = {"x": random.normal(size=(size, width)), "w": np.eye(width), "child": before}
    assert_in_place(program, {}, size * width, **inputs)


def test_what_is_written_on_a_condition_in_tiles_of_rows():
    """The last point of the longest row gives its cell to nobody."""
    rows, length, width, tile = 8, 40, 16, 16
    with tp.Program("lstm") as program:
        b = tp.dim("b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x, w = tp.input("x", (4 * width,), (b, t)), tp.input("w", (4 * width, width))
        h, c = (tp.recurrent(name, (width,), (b, t)) for name in "hc")

        def cell(gates: tp.RecurrentTensor, before: Any) -> tuple[tp.RecurrentTensor, tp.RecurrentTensor]:
            i, f, g, o = (gates.spatial[at * width : (at + 1) * width] for at in range(4))
            made = tp.sigmoid(f) * before + tp.sigmoid(i) * tp.tanh(g)
            return made, tp.sigmoid(o) * tp.tanh(made)

        c[b, 0], h[b, 0] = cell(x, 0)
        c[b, t], h[b, t] = cell(w @ h[b, t - 1] + x, c[b, t - 1])
        tp.output("h", h)
    random = np.random.default_rng(0)
    inputs = {"x": random.normal(size=(rows, length, 4 * width)), "w": random.normal(size=(4 * width, width))}
    lengths = np.array([40, 31, 25, 20, 12, 9, 8, 5], np.int32)
    assert_in_place(program, {}, 40 * tile * width, mapping={"t": tile}, n=lengths, **inputs)


def test_the_decode_example():
    pytest.importorskip("safetensors")
    pytest.importorskip("tokenizers")
    from examples.decode import Config, decoder, input_name, weight_shapes

    config = Config(40, 32, 48, 2, 4, 2, 8, 1e-5, True, {"rope_type": "default", "rope_theta": 1e4})
    random = np.random.default_rng(0)
    shapes = {input_name(name): (config.layers, *shape) for name, shape in weight_shapes(config).items()}
    shapes |= {"embedding": (40, 32), "norm": (32,), "head": (40, 32)}
    inputs = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    inputs["prompt"] = np.arange(5, dtype=np.int32)
    positions = 200
    cache = config.layers * positions * config.kv_heads * config.head_dim  # elements of the keys, and of the values
    assert_in_place(decoder(config), {"l": config.layers, "p": 5, "t": positions}, cache, **inputs)


def made_in_float32(hlo: str, least: int) -> list[str]:
    """What makes arrays of float32 of `least` elements or more, wherever it runs; not what is a step of a fusion."""
    parts = computations(hlo)
    fused = {name for part in parts.values() for each in part if each.opcode == "fusion" for name in each.called()}
    made = [(each, each.text.split(f" {each.opcode}(")[0]) for name in parts.keys() - fused for each in parts[name]]
    return [each.text for each, types in made if any(size >= least for size in _sizes(types, "f32"))]


def _sizes(types: str, dtype: str) -> list[int]:
    """The elements of each array of the dtype."""
    shapes = re.findall(rf"\b{dtype}\[([\d,]*)\]", types)
    return [prod(int(size) for size in shape.split(",") if size) for shape in shapes]


def test_a_planted_copy_in_float32_is_counted():
    x = np.ones((64, 64), np.float16)
    hlo = optimised(lambda x: lax.fori_loop(0, 99, lambda _, y: y @ x.astype(np.float32), x.astype(np.float32)), x)
    assert made_in_float32(hlo, 64 * 64)
    assert made_in_float32(hlo, 64 * 64 + 1) == []


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere libraries multiply vectors of halves")
@pytest.mark.parametrize("stops", [False, True], ids=["for", "while"])
@pytest.mark.parametrize(
    ("dtype", "by_rows"), [("bfloat16", True), ("float16", True), ("bfloat16", False), ("int8", True)]
)
def test_a_matrix_of_few_bits_is_read_as_it_lies(dtype: str, by_rows: bool, stops: bool):
    """By a vector, of float32 where the matrix is int8, within the loop and outside; `down` has rows of several
    parts."""
    width, inner = 64, 4100
    made, scale = ("float32", 64) if dtype == "int8" else (dtype, 1)
    shapes = {"up": (inner, width), "down": (width, inner)}
    draw = np.random.default_rng(0)
    matrices = {name: scale * draw.standard_normal(shape) * shape[1] ** -0.5 for name, shape in shapes.items()}
    given = {name: (each if by_rows else each.T).astype(dtypes.to_numpy(dtype)) for name, each in matrices.items()}
    with tp.Program("few bits") as program:
        (t,) = tp.dims("t")
        w = {name: tp.input(name, shape=each.shape, dims=(), dtype=dtype).astype(made) for name, each in given.items()}
        up, down = (each.T if by_rows else each for each in w.values())
        h = tp.recurrent("h", shape=(1, width), dims=(t,), dtype=made)
        h[0] = tp.constant(np.ones((1, width), dtypes.to_numpy(made)))
        h[t + 1] = tp.tanh(h[t] @ up @ down * scale**-2)
        if stops:
            tp.stop_when(t, (h[t] > 2).any())
        tp.output("h", h)
        tp.output("before", tp.exp(h[0]) @ up)
    recorder = Recorder()
    found, expected = (tp.compile(program, each, sizes={"t": 4})(**given) for each in (recorder, "numpy"))
    assert [made for text in recorder.texts for made in made_in_float32(text, inner * width)] == []
    for name, array in expected.items():
        np.testing.assert_allclose(np.asarray(found[name], float), np.asarray(array, float), atol=0.05)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere libraries multiply vectors of halves")
def test_a_vector_of_halves_that_heads_have_made_has_one_axis():
    """In the loops of the product, whose innermost one would take an index apart by the heads."""
    heads, size, width = 8, 32, 256
    draw = np.random.default_rng(0)
    given = {"w": draw.standard_normal((width, width)) / 16, "seen": draw.standard_normal((9, heads, 5, size))}
    given = {name: array.astype(dtypes.to_numpy("bfloat16")) for name, array in given.items()}
    with tp.Program("heads") as program:
        t = tp.dim("t")
        w = tp.input("w", (width, width), dtype="bfloat16")
        seen = tp.input("seen", (heads, 5, size), (t,), "bfloat16")
        h = tp.recurrent("h", (1, width), (t,), "bfloat16")
        h[0] = tp.constant(np.ones((1, width), dtypes.to_numpy("bfloat16")))
        weights = tp.softmax(tp.einsum("hd,hkd->hk", h[t].reshape((heads, size)), seen), axis=1)
        h[t + 1] = tp.tanh(tp.einsum("hk,hkd->hd", weights, seen).reshape((1, width)) @ w.T)
        tp.output("h", h)
    recorder = Recorder()
    tp.compile(program, recorder)(**given)
    products = [part for text in recorder.texts for part in computations(text).values() if reads(part, width * width)]
    assert products
    for each in products:
        vectors = [line.text for line in each if line.opcode == "parameter" and line.elements == width]
        assert all(max(map(int, _SHAPE.findall(text)[0].split(","))) == width for text in vectors)


def reads(part: list[Instruction], elements: int) -> bool:
    """Whether it is a product by a matrix of so many elements that it is given."""
    given = any(each.opcode == "parameter" and each.elements == elements for each in part)
    return given and any(each.opcode == "dot" for each in part)


@pytest.mark.parametrize("window", [None, 64], ids=["causal", "window"])
def test_a_decoder_reads_its_cache_and_its_weights_where_they_lie(window: int | None):
    """Neither a layer of them nor the valid part of the keys is copied for a contraction."""
    config = Config(layers=2, width=128, heads=4, kv_heads=4, batch=4, window=window)
    recorder = Recorder()
    run = tp.compile(decoder(config), recorder, sizes=sizes(config, 256), options=tp.Options(**_doubling(window)))
    run(start=config.start(), **config.weights())
    least = 64 * config.batch * config.kv_width  # the keys of a layer, at the least extent
    assert any(copy for text in recorder.texts for copy in made_of(text, least, "dynamic-update-slice"))
    assert [made for text in recorder.texts for made in made_in_loops(text, least // 2)] == []


def _doubling(window: int | None) -> dict[str, Any]:
    return {"extent": "hull"} if window else {"extent": "specialise", "tile": 64}


def made_of(hlo: str, least: int, opcode: str) -> list[str]:
    return [each.text for each in in_loops(hlo) if each.opcode == opcode and each.elements >= least]


# -- products in loops -------------------------------------------------------------------------------------------------


def first_sides(rows: int, width: int) -> set[str]:
    """The first sides of products of rows by a square matrix, one for each step of a loop."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        w, x = tp.input("w", (width, width)), tp.input("x", (width,), (b,))
        h = tp.recurrent("h", (width,), (b, t))
        h[b, 0] = x
        h[b, t + 1] = tp.tanh(w @ h)
        tp.output("h", h)
    draw, recorder = np.random.default_rng(0), Recorder()
    given = {"w": draw.normal(0, width**-0.5, (width, width)), "x": draw.normal(size=(rows, width))}
    given = {name: array.astype(np.float32) for name, array in given.items()}
    found = tp.compile(program, backend=recorder, sizes={"t": 5})(**given)["h"]
    np.testing.assert_allclose(found, tp.compile(program, "numpy", sizes={"t": 5})(**given)["h"], rtol=1e-5, atol=1e-6)
    products = [instruction for text in recorder.texts for instruction in dots(text)]
    return {first for first, _ in products}


def dots(hlo: str) -> list[tuple[str, str]]:
    """The shapes of both sides of all products."""
    shapes = dict(re.findall(r"(%[\w.-]+)[ :=]+(f32\[[\d,]*\])", hlo))
    return [(shapes[one], shapes[other]) for one, other in re.findall(r" dot\((%[\w.-]+), (%[\w.-]+)\)", hlo)]


def test_a_matrix_that_rows_are_multiplied_by_is_not_packed_for_each_product():
    """XLA's library packs the second side."""
    assert first_sides(rows=4, width=64) == {"f32[64,64]"}


@pytest.mark.parametrize("rows", [1, 8, 9])
def test_matrices_of_halves_stay_halves_for_rows_that_were_made_by_one(rows: int):
    width, recorder = 192, Recorder()
    with tp.Program() as program:
        b = tp.dim("b", rows)
        x = tp.input("x", (width,), (b,), "bfloat16")
        for name in ("up", "across", "down"):
            x = tp.tanh(tp.input(name, (width, width), dtype="bfloat16") @ x)
        tp.output("y", x)
    given = {name: jnp.ones((width, width), "bfloat16") for name in ("up", "across", "down")}
    tp.compile(program, recorder)(x=jnp.ones((rows, width), "bfloat16"), **given)
    assert [made for text in recorder.texts for made in made_in_float32(text, width * width)] == []


def test_rows_come_first_before_a_small_matrix():
    assert first_sides(rows=4, width=16) == {"f32[4,16]"}
