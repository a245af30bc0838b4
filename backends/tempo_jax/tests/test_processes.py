"""Several processes (`jax.distributed`): two of two devices each run this file, and a test looks at what both say."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec
from tempo_jax.backend import JaxBackend

import tempo as tp

PROCESSES, DEVICES = 2, 2
SECONDS = 180.0
ROWS, STEPS = 8, 5
MESH = tp.Mesh({"data": 4})
CUT = {"mesh": MESH, "shard": {"b": "data"}}

FOLDER = "TEMPO_TEST_FOLDER"
"""Names a folder that all processes see."""

Check = Callable[[], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """What every process does, all of them in the same order."""
    CHECKS[function.__name__] = function
    return function


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float32)


def to_host(array: Any) -> np.ndarray:
    return JaxBackend().to_host(array)


def assert_near(found: Mapping[str, Any], wanted: Mapping[str, Any], tolerance: float = 1e-5) -> None:
    assert sorted(found) == sorted(wanted)
    for name in wanted:
        np.testing.assert_allclose(to_host(found[name]), np.asarray(wanted[name]), tolerance, tolerance)


def laid(array: np.ndarray, *axes: str | None) -> jax.Array:
    """On all devices of all processes."""
    mesh = jax.make_mesh((len(jax.devices()),), ("data",), devices=jax.devices())
    lies = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.make_array_from_callback(array.shape, lies, lambda index: array[index])


def refused(kind: type[tp.TempoError], function: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        function()
    return str(caught.value)


# -- programs and checks -----------------------------------------------------------------------------------------------


def network() -> tp.Program:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x, w, u = tp.input("x", (3,), (b, t)), tp.input("w", (3, 4)), tp.input("u", (4, 4))
        h = tp.recurrent("h", (4,), (b, t))
        h[b, 0] = tp.tanh(x[b, 0] @ w)
        h[b, t + 1] = tp.tanh(x[b, t + 1] @ w + h @ u)
        error = (h[0 : b.size, t.size - 1] ** 2).mean()
        tp.output("h", h)
        tp.output("error", error)
        for name, gradient in tp.grad(error, {"x": x, "w": w, "u": u}).items():
            tp.output(f"of_{name}", gradient)
    return program


INPUTS = {"x": normal(ROWS, STEPS, 3), "w": normal(3, 4, seed=1), "u": normal(4, 4, seed=2)}


@check
def a_recurrent_network_and_its_gradients() -> None:
    found = tp.compile(network(), "jax", **CUT)(**INPUTS)
    wanted = tp.compile(network(), "reference")(**INPUTS)
    assert_near(found, wanted)
    for name in ("error", "of_w", "of_u"):  # each process has all of it
        np.testing.assert_allclose(np.asarray(found[name]), np.asarray(wanted[name]), 1e-5, 1e-5)
    for name in ("h", "of_x"):
        assert {each.data.shape[0] for each in found[name].addressable_shards} == {ROWS // 4}
        gathered = multihost_utils.process_allgather(found[name], tiled=True)
        np.testing.assert_allclose(gathered, np.asarray(wanted[name]), 1e-5, 1e-5)


@check
def arrays_that_lie_so_already() -> None:
    run, wanted = tp.compile(network(), "jax", **CUT), tp.compile(network(), "reference")(**INPUTS)
    x, w = laid(INPUTS["x"], "data"), laid(INPUTS["w"])
    put = run.device_put(x=x, w=w, u=INPUTS["u"])
    assert put["x"] is x
    assert put["w"] is w
    assert_near(run(**put), wanted)
    assert not x.is_deleted()
    assert_near(run(x=laid(INPUTS["x"]), w=jax.numpy.asarray(INPUTS["w"]), u=INPUTS["u"]), wanted)
    assert_near(run(**put, donate=True), wanted)
    assert x.is_deleted()


@check
def arrays_that_lie_otherwise_are_refused() -> None:
    x = normal(ROWS, 4, 3)
    run = tp.compile(network(), "jax", **CUT)
    assert "lies in parts" in refused(tp.InputError, lambda: run(**{**INPUTS, "x": laid(x, None, "data")}))
    one = tp.compile(network(), "jax")
    assert "the program runs on one" in refused(tp.InputError, lambda: one(**{**INPUTS, "x": laid(x, "data")}))


@check
def each_process_runs_its_own_program() -> None:
    """Without a mesh, and with what all of them have."""
    run, me = tp.compile(network(), "jax"), jax.process_index()
    x = normal(ROWS, STEPS + me, 3)  # not the same in all
    found = run(x=x, w=laid(INPUTS["w"]), u=INPUTS["u"])
    assert found["h"].devices() == {jax.local_devices()[0]}
    assert_near(found, tp.compile(network(), "reference")(x=x, w=INPUTS["w"], u=INPUTS["u"]))


@check
def a_process_without_devices_of_the_mesh_is_refused() -> None:
    few = {"mesh": tp.Mesh({"data": DEVICES}), "shard": {"b": "data"}}
    told = refused(tp.UnsupportedError, lambda: tp.compile(network(), "jax", **few))
    assert "of these the processes 1 have none" in told


@check
def draws_bit_for_bit() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        tp.output("bits", tp.random.bits((3,), dims=(b, t)))
        tp.output("uniform", tp.random.uniform((), dims=(b,)))
        tp.output("of all", tp.random.uniform((3,), dims=(t,)))
        tp.output("permutation", tp.random.permutation(6, dims=(b, t)))
    sizes = {"b": ROWS, "t": STEPS}
    run, wanted = tp.compile(program, "jax", **CUT), tp.compile(program, "reference")(sizes=sizes, seed=7)
    found = run(sizes=sizes, seed=7)
    assert len(found["bits"].devices()) == len(found["of all"].devices()) == PROCESSES * DEVICES
    for name in wanted:
        assert to_host(found[name]).tobytes() == np.asarray(wanted[name]).tobytes(), name


@check
def nothing_that_is_cut() -> None:
    """What names no axis of the mesh lies on it all the same, and is taken by what does."""
    with tp.Program() as program:
        tp.output("y", tp.random.uniform((8, 3), dims=()) * 2.0)
    found = tp.compile(program, "jax", mesh=MESH)(seed=3)["y"]
    assert len(found.devices()) == PROCESSES * DEVICES
    np.testing.assert_allclose(np.asarray(found), np.asarray(tp.compile(program, "reference")(seed=3)["y"]), 1e-6)


@check
def weights_along_a_second_axis() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x, up, down = tp.input("x", (6,), (b,)), tp.input("up", (6, 4)), tp.input("down", (4, 6))
        tp.output("y", x + tp.relu(x @ up) @ down)
    given = {"x": normal(ROWS, 6), "up": normal(6, 4, seed=1), "down": normal(4, 6, seed=2)}
    run = tp.compile(
        program,
        "jax",
        mesh=tp.Mesh({"data": 2, "model": 2}),
        shard={"b": "data"},
        place={"up": (None, "model"), "down": ("model", None)},
    )
    put = run.device_put(**given)
    assert {each.data.shape for each in put["up"].addressable_shards} == {(6, 2)}
    for inputs in (given, put):
        assert_near(run(**inputs), tp.compile(program, "reference")(**given))


@check
def tokens_until_all_rows_have_ended() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        first, table = tp.input("first", (), (b,), "int32"), tp.input("table", (6, 6))
        token = tp.recurrent("token", (), (b, t), "int32")
        token[b, 0] = first
        token[b, t + 1] = table.spatial[token].argmax(axis=0).astype("int32")
        tp.stop_when(t, token < 1, each=b)
        tp.output("token", token)
    following = np.zeros((6, 6), np.float32)
    following[np.arange(6), [0, 0, 1, 2, 3, 4]] = 1.0
    given = {"first": np.array([1, 2, 3, 1, 2, 4, 3, 1], np.int32), "table": following}
    found = tp.compile(program, "jax", **CUT)(**given, sizes={"t": 12})
    wanted = tp.compile(program, "reference")(**given, sizes={"t": 12})
    assert found.sizes == wanted.sizes
    assert found.sizes["t"] < 12
    assert_near(found.lengths, wanted.lengths)
    assert_near(found, wanted)


def accumulated() -> tp.Program:
    with tp.Program() as program:
        t, b = tp.dims("t b")
        x = tp.input("x", (2,), (t, b))
        h = tp.recurrent("h", (2,), (t, b))
        h[0, b] = x
        h[t + 1, b] = 0.5 * h + x[t + 1, b]
        tp.output("h", h)
        tp.output("total", h[t, 0 : b.size].sum(axis=0))
    return program


@check
def a_stream_over_time() -> None:
    x = normal(STEPS, ROWS, 2)
    wanted = tp.compile(accumulated(), "reference")(x=x)
    for chunk, join in ((None, np.stack), (2, np.concatenate)):
        ways = {} if chunk is None else {"chunk": chunk}
        steps = list(tp.compile(accumulated(), "jax", **CUT).stream("t", **ways, x=x))
        assert_near({name: join([to_host(step[name]) for step in steps]) for name in wanted}, wanted)


@check
def a_streamed_input() -> None:
    with tp.Program() as program:
        i, b = tp.dims("i b")
        x = tp.stream_input("x", (2,), (i, b))
        w = tp.parameter("w", (2,), init=np.zeros(2, np.float32), dims=(i,))
        w[i + 1] = 0.5 * w + x[i, 0 : b.size].mean(axis=0)
        tp.output("w", w)
    data, sizes = normal(STEPS, ROWS, 2), {"b": ROWS, "i": STEPS}
    wanted = tp.compile(program, "reference")(x=data, sizes=sizes)
    run = tp.compile(program, "jax", **CUT)
    assert_near(run(x=iter(data), sizes=sizes), wanted)
    found = [np.asarray(step["w"]) for step in run.stream("i", x=iter(data), sizes=sizes)]
    assert_near({"w": np.stack(found)}, wanted)


def counting() -> tp.Program:
    """A parameter of every row, and one of all."""
    with tp.Program() as program:
        i, b = tp.dims("i b")
        x = tp.input("x", (2,), (b,))
        s = tp.parameter("s", (2,), init=np.zeros(2, np.float32), dims=(i, b))
        w = tp.parameter("w", (2,), init=np.zeros(2, np.float32), dims=(i,))
        s[i + 1, b] = 0.5 * s + x
        w[i + 1] = w + s[i, 0 : b.size].sum(axis=0)
        tp.output("s", s)
        tp.output("w", w)
    return program


@check
def state_is_given_to_another_run() -> None:
    x, sizes = normal(ROWS, 2), {"i": 3}
    run, meaning = tp.compile(counting(), "jax", **CUT), tp.compile(counting(), "reference")
    first, wanted = run(x=x, sizes=sizes), meaning(x=x, sizes=sizes)
    assert_near(first.state, wanted.state)
    second = meaning(x=x, sizes=sizes, state=wanted.state)
    for donate in (False, True):
        found = run(x=x, sizes=sizes, state=first.state, donate=donate)
        assert_near(found, second)
        assert_near(found.state, second.state)
    on_host = {name: to_host(array) for name, array in found.state.items()}
    assert_near(run(x=x, sizes=sizes, state=on_host), meaning(x=x, sizes=sizes, state=second.state))


@check
def a_run_that_is_interrupted_goes_on() -> None:
    """From files of whole arrays, which the first process writes, with the same bits."""

    def interrupt(done: int, total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    x, folder = normal(ROWS, 2), Path(os.environ[FOLDER])
    run, kept = tp.compile(counting(), "jax", **CUT), tp.Checkpoints(folder, along="i", every=2)
    whole = run(x=x, sizes={"i": 7})
    with pytest.raises(KeyboardInterrupt):
        run(x=x, sizes={"i": 7}, checkpoint=kept, progress=interrupt)
    multihost_utils.sync_global_devices("interrupted")
    assert list(folder.glob("checkpoint-*"))
    found = run(x=x, checkpoint=kept, resume=True)
    for name in whole:
        assert to_host(found[name]).tobytes() == to_host(whole[name]).tobytes(), name
    assert len(found["s"].devices()) == PROCESSES * DEVICES
    alone = tp.compile(counting(), "jax")(x=x, sizes={"i": 7})
    assert_near(found, alone)


@check
def calls_of_the_host() -> None:
    """Every process calls the function, with all rows."""
    seen = list[tuple[int, ...]]()

    def doubled(x: np.ndarray) -> tuple[np.ndarray]:
        seen.append(x.shape)
        return (2 * x + np.arange(len(x), dtype=np.float32)[:, None],)

    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (3,), (b, t))
        h = tp.recurrent("h", (3,), (b, t))
        (y,) = tp.host_call(doubled, h, out=[((3,), tp.float32)], ordered_by=(t,), batched=(b,))
        h[b, 0] = x
        h[b, t + 1] = 0.25 * y + x[b, t + 1]
        tp.output("h", h)
        tp.output("mean", h[0 : b.size, t].mean(axis=0))
    found = tp.compile(program, "jax", **CUT)(x=INPUTS["x"])
    assert len(seen) >= STEPS - 1
    assert set(seen) == {(ROWS, 3)}
    assert_near(found, tp.compile(program, "reference")(x=INPUTS["x"]))


@check
def indices_out_of_range_are_told_by_all() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x, n = tp.input("x", (2,), (b,)), tp.input("n", (), (b,), "int32")
        tp.output("row", x.gather(b, n) + 0.0)
    run = tp.compile(program, "jax", **CUT, options=tp.Options(checks=True))
    rows = np.arange(ROWS, dtype=np.int32)
    assert_near(run(x=normal(ROWS, 2), n=rows), {"row": normal(ROWS, 2)})
    rows[5] = ROWS
    assert "8" in refused(tp.IndexOutOfRangeError, lambda: run(x=normal(ROWS, 2), n=rows))


@check
def memory_and_explanations() -> None:
    sizes = {"b": ROWS, "t": STEPS}
    run, one = (tp.compile(network(), "jax", sizes=sizes, **given) for given in (CUT, {}))
    assert run.memory["h"].bytes * 4 == one.memory["h"].bytes
    assert run.memory["w"].bytes == one.memory["w"].bytes
    assert run.memory.peak_bytes < one.memory.peak_bytes
    assert "all-reduce over data" in run.explain("all")
    backend = JaxBackend().with_mesh(MESH)
    assert backend.measured_peak(lambda: backend.laid(INPUTS["x"], (MESH.shards("data"), None, None))) == 0


@check
def an_executable_is_pickled() -> None:
    run = pickle.loads(pickle.dumps(tp.compile(accumulated(), "jax", **CUT)))
    x = normal(STEPS, ROWS, 2)
    assert_near(run(x=x), tp.compile(accumulated(), "reference")(x=x))


# -- the processes -----------------------------------------------------------------------------------------------------


def work(port: str, number: str) -> None:
    """What a process does: a line for each check, which is empty where it holds."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.distributed.initialize(f"localhost:{port}", PROCESSES, int(number))
    for name, function in CHECKS.items():
        failure = ""
        try:
            function()
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - the test tells it
            failure = traceback.format_exc()
        sys.stdout.write("\n" + json.dumps({"check": name, "failure": failure}) + "\n")
        sys.stdout.flush()


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("localhost", 0))
        return int(held.getsockname()[1])


def all_that_they_say(folder: Path) -> list[str]:
    """They are killed when time is up: where one has failed, the other may wait for it for ever."""
    port, end = free_port(), time.monotonic() + SECONDS
    environment = {
        **os.environ,
        FOLDER: str(folder / "checkpoints"),
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "JAX_PLATFORMS": "cpu",
    }
    paths, started = [folder / f"{number}.txt" for number in range(PROCESSES)], list[subprocess.Popen[bytes]]()
    try:
        for number, path in enumerate(paths):
            command = [sys.executable, __file__, str(port), str(number)]
            with path.open("w") as file:
                started.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
        for process in started:
            process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass  # of some checks nothing was said
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [path.read_text() for path in paths]


@pytest.mark.slow
def test_two_processes_of_two_devices(tmp_path: Path) -> None:
    """One test, since to start them takes longest."""
    for number, text in enumerate(all_that_they_say(tmp_path)):
        lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"check"')]
        failed = [f"{line['check']}: {line['failure']}" for line in lines if line["failure"]]
        assert not failed, f"in process {number}:\n" + "\n".join(failed)
        assert [line["check"] for line in lines] == list(CHECKS), f"process {number} did not end:\n{text[-4000:]}"


if __name__ == "__main__":
    work(*sys.argv[1:])
