"""Family 11, interop and life cycle: a run that was interrupted goes on at any checkpoint, and gives the same bits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.target import Array, Target, assert_same, numbers
from tempo.runtime.results.outputs import Outputs

pytest.importorskip("safetensors", reason="checkpoints are files of safetensors: tempo-sdg[state]")
pytestmark = [pytest.mark.planned, pytest.mark.one_configuration, pytest.mark.one_process]

Given = dict[str, Any]
Made = tuple[tp.Program, str, dict[str, int], Callable[[], Given]]
"""A program, the dim that its checkpoints are along, sizes, and what a call is given."""


class Counter:
    """A resource: it says how often it was asked, and goes on counting."""

    def __init__(self) -> None:
        self.calls, self.random = 0, np.random.default_rng(0)

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls, "random": self.random.bit_generator.state, "text": ("a", b"b", None, [1.5])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert state["text"] == ("a", b"b", None, [1.5])
        self.calls = state["calls"]
        self.random.bit_generator.state = state["random"]

    def __call__(self, x: Array) -> Array:
        self.calls += 1
        return np.asarray(x * self.calls + self.random.uniform(), np.float32)


def training() -> Made:
    """Parameters, moments and draws, over an inner loop with a gradient through it."""
    with tp.Program() as program:
        i, t = tp.dims("i t")
        w = tp.parameter("w", (3, 3), init=numbers((3, 3)), dims=(i,))
        h = tp.recurrent("h", (3,), (i, t))
        h[i, 0] = tp.random.normal((3,), dims=(i,))
        h[i, t + 1] = tp.tanh(w @ h)
        loss = (h[i, -1] ** 2).sum()
        tp.optim.Adam(0.1).minimize(loss, {"w": w})
        tp.output("loss", loss)
        tp.output("last", w[i.size - 1])
    return program, "i", {"i": 7, "t": 4}, dict


def windows() -> Made:
    """The last three, all of them, and one at an index that is drawn."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, h = tp.input("x", (2,), (t,)), tp.recurrent("h", (2,), (t,))
        h[0] = x
        drawn = tp.floor(tp.random.uniform((), dims=(t,)) * t).astype(tp.int32)
        h[t] = 0.3 * h[tp.max(t - 3, 0) : t].sum(axis=0) + 0.1 * h.gather(t, drawn, within=slice(0, t)) + x
        tp.output("h", h)
        tp.output("mean", h[0 : t + 1].mean(axis=0))
        tp.output("total", h[:].sum(axis=0))
    return program, "t", {}, lambda: {"x": numbers((8, 2))}


def through_time() -> Made:
    """Two loops over one dim, one of which goes backwards."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, w = tp.input("x", (3,), (t,)), tp.input("w", (3, 3))
        h = tp.recurrent("h", (3,), (t,))
        h[0] = x
        h[t + 1] = tp.tanh(w @ h + x[t + 1])
        loss = (h * h)[:].sum()
        tp.output("h", h)
        tp.output("loss", loss)
        tp.output("gradient", tp.grad(loss, w))
        tp.output("of_x", tp.grad(loss, x))
    return program, "t", {}, lambda: {"x": numbers((7, 3)), "w": numbers((3, 3), seed=1)}


def late() -> Made:
    """An output that is complete some iterations after its point, and one that is read at earlier ones."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, s = tp.input("x", (), (t,)), tp.recurrent("s", (), (t,))
        s[0] = x
        s[t + 1] = 0.5 * s + x[t + 1]
        tp.output("ahead", s[t : tp.min(t + 3, t.size)].sum(axis=0))
        tp.output("s", s)
    return program, "t", {}, lambda: {"x": numbers((9,))}


def of_rows() -> Made:
    """A dim whose size only the caller says, along which parameters begin at random."""
    with tp.Program() as program:
        b, i = tp.dims("b i")
        w = tp.parameter("w", (2,), tp.nn.init.normal(1.0), (b, i))
        w[b, i + 1] = 0.5 * w + tp.random.normal((2,), dims=(b, i))
        tp.output("w", w)
    return program, "i", {"b": 3, "i": 5}, dict


def streamed() -> Made:
    with tp.Program() as program:
        i = tp.dim("i")
        x, total = tp.stream_input("x", (3,), (i,)), tp.recurrent("total", (3,), (i,))
        total[0] = x
        total[i + 1] = 0.5 * total + x[i + 1]
        tp.output("total", total)
        tp.output("pair", x[tp.max(i - 1, 0) : i + 1].sum(axis=0))
    return program, "i", {"i": 8}, lambda: {"x": iter(numbers((8, 3)))}


def called() -> Made:
    """The resource is another object when the run goes on, as it is in another process."""
    resources: list[Counter] = [Counter()]
    with tp.Program() as program:
        i = tp.dim("i")
        h = tp.recurrent("h", (), (i,))

        def call(x: Array) -> Array:
            return resources[0](x)

        class Standing:
            """What stands for the one that is there now."""

            def state_dict(self) -> dict[str, Any]:
                return resources[0].state_dict()

            def load_state_dict(self, state: Mapping[str, Any]) -> None:
                resources[0].load_state_dict(state)

        h[0] = 1.0
        (made,) = tp.host_call(call, h, out=[((), tp.float32)], ordered_by=i, resource=Standing())
        h[i + 1] = 0.25 * made
        tp.output("h", h)

    def given() -> Given:
        resources[0] = Counter()
        return {}

    return program, "i", {"i": 7}, given


def ended() -> Made:
    """The run ends early, at its fifth point."""
    with tp.Program() as program:
        t = tp.dim("t")
        x, s = tp.input("x", (), (t,)), tp.recurrent("s", (), (t,))
        s[0] = x
        s[t + 1] = s + x[t + 1]
        tp.stop_when(t, s > 4.5)
        tp.output("s", s)
        tp.output("double", 2 * s)
    return program, "t", {}, lambda: {"x": np.ones(9, np.float32)}


def rows() -> Made:
    """Rows that end each by itself."""
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x, s = tp.input("x", (), (b, t)), tp.recurrent("s", (), (b, t))
        s[b, 0] = x
        s[b, t + 1] = s + x[b, t + 1]
        tp.stop_when(t, s > 3.0, each=b)
        tp.output("s", s)
    return program, "t", {}, lambda: {"x": np.abs(numbers((4, 9)))}


def ragged() -> Made:
    with tp.Program() as program:
        i, b = tp.dims("i b")
        t = tp.dim("t", lengths=tp.input("n", (), (b,), "int32"))
        x, w = tp.input("x", (2,), (b, t)), tp.parameter("w", (2, 2), init=numbers((2, 2)), dims=(i,))
        h = tp.recurrent("h", (2,), (i, b, t))
        h[i, b, 0] = x
        h[i, b, t + 1] = tp.tanh(w @ h + x[b, t + 1])
        loss = (h * h)[i, :, :].sum()
        tp.optim.SGD(0.01).minimize(loss, {"w": w})
        tp.output("loss", loss)
        tp.output("state", h[i, :, 0].sum(axis=0))
    return program, "i", {"i": 5}, lambda: {"x": numbers((3, 6, 2)), "n": np.array([6, 1, 4], np.int32)}


def of_every_dtype() -> Made:
    with tp.Program() as program:
        i = tp.dim("i")
        for dtype in ("bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64"):
            s = tp.recurrent(f"s_{dtype}", (2,), (i,), dtype)
            s[0] = tp.ones((2,), dtype)
            s[i + 1] = ~s if dtype == "bool" else s + s[0]
            tp.output(dtype, s)
            tp.output(f"last {dtype}", s[i.size - 1])
    return program, "i", {"i": 6}, dict


CASES = (
    training, windows, of_rows, through_time, late, streamed, called, ended, rows, ragged, of_every_dtype,
)  # fmt: skip


def results(target: Target, outputs: Outputs) -> dict[str, Array]:
    state = {f"state of {name}": array for name, array in outputs.state.items()}
    return target.arrays({**dict(outputs.items()), **state})


def interrupted(folder: Path, into: Path) -> Iterator[Path]:
    """Copies of a folder as it was after each of its checkpoints."""
    for last in sorted(folder.glob("checkpoint-*")):
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(folder, into)
        for later in into.glob("checkpoint-*"):
            if later.name > last.name:
                later.unlink()
        yield into


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_goes_on_anywhere_with_the_same_bits(
    target: Target, case: Callable[[], Made], every: int, tmp_path: Path
) -> None:
    program, along, sizes, given = case()
    run = target.compile(program)

    def checkpoints(folder: Path) -> tp.Checkpoints:
        return tp.Checkpoints(folder, along=along, every=every, keep=None)

    plain = results(target, run(seed=5, sizes=sizes, **given()))
    whole = run(seed=5, sizes=sizes, checkpoint=checkpoints(tmp_path / "whole"), **given())
    wanted = results(target, whole)
    assert_same(wanted, plain)
    count = 0
    for folder in interrupted(tmp_path / "whole", tmp_path / "cut"):
        again = target.compile(case()[0]) if count == 0 and case is not called else run
        outputs = again(sizes=sizes if count else None, checkpoint=checkpoints(folder), resume=True, **given())
        found = results(target, outputs)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            assert found[name].shape == array.shape, name
            assert found[name].tobytes() == array.tobytes(), name
        assert outputs.sizes == whole.sizes
        for name, lengths in whole.lengths.items():
            np.testing.assert_array_equal(outputs.lengths[name], lengths)
        count += 1
    assert count >= 2


def test_points_in_a_host_pool_are_there_again(target: Target, tmp_path: Path) -> None:
    with tp.Program() as program:
        i, t = tp.dims("i t")
        x, w = tp.input("x", (8,), (t,)), tp.parameter("w", (8, 8), init=0.1 * numbers((8, 8)), dims=(i,))
        h = tp.recurrent("h", (8,), (i, t))
        h[i, 0] = x
        h[i, t + 1] = tp.tanh(w @ h + x[t + 1])
        tp.optim.SGD(0.1).minimize((h[i, -1] ** 2).sum(), {"w": w})
        tp.output("h", h[i, -1])
    run, x_data = target.compile(program, offload="host"), numbers((40, 8))
    checkpoints = tp.Checkpoints(tmp_path, along="i", every=1, keep=None)
    whole = results(target, run(x=x_data, sizes={"i": 3}, checkpoint=checkpoints))
    assert run.memory.pool_bytes > 0
    for path in sorted(tmp_path.glob("checkpoint-*"))[1:]:
        path.unlink()
    again = results(target, run(x=x_data, checkpoint=checkpoints, resume=True))
    for name, array in whole.items():
        assert again[name].tobytes() == array.tobytes(), name


def test_only_new_points_are_returned_where_that_is_asked(target: Target, tmp_path: Path) -> None:
    program, along, _, given = windows()
    run, checkpoints = target.compile(program), tp.Checkpoints(tmp_path / "a", along=along, every=3, keep=None)
    whole = target.arrays(run(checkpoint=checkpoints, **given()))
    for path in sorted((tmp_path / "a").glob("checkpoint-*"))[2:]:
        path.unlink()
    found = target.arrays(run(checkpoint=checkpoints, resume=True, outputs="new", **given()))
    np.testing.assert_array_equal(found["h"], whole["h"][6:])
    np.testing.assert_array_equal(found["mean"], whole["mean"][-len(found["mean"]) :])
    np.testing.assert_array_equal(found["total"], whole["total"])


def backwards() -> Made:
    """A parameter at every point, and an output of a loop that goes backwards."""
    with tp.Program() as program:
        i = tp.dim("i")
        x, v, z = tp.input("x", (), (i,)), tp.parameter("v", (), 1.0, (i,)), tp.recurrent("z", (), (i,))
        z[i.size - 1] = x
        z[i - 1] = 0.5 * z + x[i - 1] + v[i - 1]
        tp.output("z", 2 * z)
    return program, "i", {}, lambda: {"x": numbers((6,))}


@pytest.mark.parametrize("case", [*CASES, backwards], ids=lambda case: case.__name__)
def test_new_points_are_those_of_the_whole_run(target: Target, case: Callable[[], Made], tmp_path: Path) -> None:
    program, along, sizes, given = case()
    run = target.compile(program)
    checkpoints = tp.Checkpoints(tmp_path, along=along, every=2, keep=None)
    whole = results(target, run(sizes=sizes, checkpoint=checkpoints, **given()))
    for path in sorted(tmp_path.glob("checkpoint-*"))[1:]:
        path.unlink()
    found = results(target, run(sizes=sizes, checkpoint=checkpoints, resume=True, outputs="new", **given()))
    for name, array in whole.items():
        cut = array[tuple(slice(have - has, None) for have, has in zip(array.shape, found[name].shape, strict=True))]
        assert found[name].tobytes() == cut.tobytes(), name


def test_a_run_can_be_made_longer(target: Target, tmp_path: Path) -> None:
    def program() -> tp.Program:
        with tp.Program() as made:
            i = tp.dim("i")
            w = tp.parameter("w", (3,), init=numbers((3,)), dims=(i,))
            noise = tp.random.normal((3,), dims=(i,))
            w[i + 1] = 0.9 * w + noise
            tp.output("w", w)
        return made

    run = target.compile(program())

    def at(size: int, folder: str, **more: Any) -> dict[str, Array]:
        checkpoints = tp.Checkpoints(tmp_path / folder, along="i", every=2, keep=2)
        return results(target, run(sizes={"i": size}, checkpoint=checkpoints, **more))

    wanted = at(9, "whole")
    at(5, "short")
    found = at(9, "short", resume=True)
    for name, array in wanted.items():
        assert found[name].tobytes() == array.tobytes(), name
