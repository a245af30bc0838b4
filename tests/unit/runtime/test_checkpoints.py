"""`run(checkpoint=...)`: what is refused, and what is left of a folder in which something is wrong."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import tempo as tp
from tempo.runtime.checkpoints.folder import Folder
from tempo.runtime.checkpoints.outside import Encoded, decoded

SIZE = 6


def program(factor: float = 0.5) -> tp.Program:
    with tp.Program("sum") as made:
        i, b = tp.dims("i b")
        x, w = tp.input("x", (2,), (b,)), tp.parameter("w", (2,), init=np.ones(2, np.float32), dims=(i,))
        w[i + 1] = factor * w + x[:].sum(axis=0) + tp.random.normal((2,), dims=(i,))
        tp.output("w", w)
    return made


X = np.float32([[1, 2], [3, 4], [5, 6]])


def run(folder: Path, resume: bool = True, made: tp.Program | None = None, **given: Any) -> Any:
    keep, every = given.pop("keep", 3), given.pop("every", 2)
    options = given.pop("options", None)
    compiled = tp.compile(made or program(), options=options)
    arguments = {"x": X, "sizes": {"i": SIZE}, **given}
    return compiled(checkpoint=tp.Checkpoints(folder, along="i", every=every, keep=keep), resume=resume, **arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a run that has ended."""
    run(tmp_path / "ckpt", resume=False, seed=1)
    return tmp_path / "ckpt"


def names(folder: Path, kind: str = "checkpoint") -> list[str]:
    return sorted(each.name for each in folder.glob(f"{kind}-*"))


def test_a_run_without_a_folder_begins(tmp_path: Path) -> None:
    found = run(tmp_path / "some" / "where")
    np.testing.assert_array_equal(found["w"], tp.compile(program())(x=X, sizes={"i": SIZE})["w"])
    assert names(tmp_path / "some" / "where") == [f"checkpoint-{at:08d}.safetensors" for at in range(3)]


def test_the_last_ones_stay(tmp_path: Path) -> None:
    run(tmp_path, every=1, keep=2)
    assert len(names(tmp_path)) == 3  # and the one before the end, for a run with more points
    assert len(names(tmp_path, "points")) == SIZE


def test_a_run_that_has_ended_returns_what_it_gave(folder: Path) -> None:
    wanted = tp.compile(program())(x=X, sizes={"i": SIZE}, seed=1)
    before = {each.name: each.stat().st_mtime_ns for each in folder.iterdir()}
    found = run(folder, sizes=None)
    assert found["w"].tobytes() == wanted["w"].tobytes()
    assert found.state["w"].tobytes() == wanted.state["w"].tobytes()
    assert {each.name: each.stat().st_mtime_ns for each in folder.iterdir()} == before


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "seed": ({"seed": 2}, tp.CheckpointError, "is of a run with seed=1, and seed=2"),
    "fewer points": ({"sizes": {"i": 4}}, tp.SizeError, "is of a run with i=6, and here i=4"),
    "another size": ({"x": X[:2]}, tp.TempoError, "b"),
    "another input": ({"x": X + 1}, tp.CheckpointError, "the input 'x' is not what the run was given"),
    "another state": ({"state": {"w": X[0]}}, tp.CheckpointError, "what 'w' begins with is not what the run was given"),
    "another program": ({"made": program(0.25)}, tp.CheckpointError, "is of another program"),
    "other options": ({"options": tp.Options(lift=False)}, tp.CheckpointError, "is of a run with other options"),
    "no folder to begin in": ({"resume": False}, tp.CheckpointError, "holds checkpoints already"),
}


@pytest.mark.parametrize("case", WRONG)
def test_another_run_is_refused_and_nothing_is_lost(folder: Path, case: str) -> None:
    given, kind, message = WRONG[case]
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    with pytest.raises(kind, match=re.escape(message)) as raised:
        run(folder, **given)
    assert raised.value.location is not None
    assert raised.value.location.path == __file__
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "resume alone": ({"resume": True}, "resume=True without checkpoint="),
    "new alone": ({"outputs": "new"}, 'outputs="new" without checkpoint='),
    "no folder": ({"checkpoint": "ckpt"}, "checkpoint='ckpt' is a str"),
    "resume of another type": ({"resume": 1}, "resume=1 is a int"),
    "outputs": ({"outputs": "old"}, "outputs='old' says nothing"),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_that_say_nothing(case: str) -> None:
    given, message = CALLS[case]
    with pytest.raises(tp.InputError, match=re.escape(message)):
        tp.compile(program())(x=X, sizes={"i": SIZE}, **given)


@pytest.mark.parametrize(
    "given", [{"folder": 3}, {"along": None}, {"every": 0}, {"every": True}, {"keep": 0}, {"keep": 1.5}]
)
def test_checkpoints_that_say_nothing(given: dict[str, Any]) -> None:
    with pytest.raises(tp.InputError, match=next(iter(given))):
        tp.Checkpoints(**{"folder": "ckpt", "along": "i", **given})


def test_dims_that_no_loop_is_over(tmp_path: Path) -> None:
    compiled = tp.compile(program())
    for along, message in (("j", "names no dim of the program"), ("b", "no loop over it stands outside of all others")):
        with pytest.raises(tp.TempoError, match=message):
            compiled(x=X, sizes={"i": SIZE}, checkpoint=tp.Checkpoints(tmp_path / "a", along=along))
    assert not (tmp_path / "a").exists()


def test_the_reference_evaluator_keeps_none(tmp_path: Path) -> None:
    compiled, checkpoint = tp.compile(program(), backend="reference"), tp.Checkpoints(tmp_path, along="i")
    with pytest.raises(tp.UnsupportedError, match="keeps no checkpoints"):
        compiled(x=X, sizes={"i": SIZE}, checkpoint=checkpoint)


# -- files -------------------------------------------------------------------------------------------------------------


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def said_otherwise(path: Path) -> None:
    data = path.read_bytes()
    assert b'"point": 6' in data
    path.write_bytes(data.replace(b'"point": 6', b'"point": 5'))


@pytest.mark.parametrize("harm", [torn, flipped, said_otherwise])
def test_a_damaged_file_is_passed_over(
    folder: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    wanted = run(folder)
    harm(folder / names(folder)[-1])
    with caplog.at_level(logging.WARNING, logger="tempo"):
        found = run(folder)
    assert names(folder)[-1] in caplog.text or "checkpoint-00000002" in caplog.text
    assert found["w"].tobytes() == wanted["w"].tobytes()


def test_what_was_added_is_missed_where_it_is_not_there(folder: Path) -> None:
    (folder / "points-00000000.safetensors").unlink()
    with pytest.raises(tp.CheckpointError, match="no checkpoint in .* is whole"):
        run(folder)


def test_files_of_another_run_are_told_apart(folder: Path, tmp_path: Path) -> None:
    run(tmp_path / "other", resume=False, seed=1)
    (folder / "points-00000000.safetensors").write_bytes((tmp_path / "other/points-00000000.safetensors").read_bytes())
    with pytest.raises(tp.CheckpointError, match="is whole"):
        run(folder)


def test_foreign_files_are_an_error(folder: Path) -> None:
    save_file({"w": X}, folder / "checkpoint-00000099.safetensors")
    with pytest.raises(tp.InputError, match="was not written by a run with checkpoint="):
        run(folder)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(tp.CheckpointError, match="no checkpoint can be kept in"):
        run(tmp_path / "file")
    with pytest.raises(OSError, match="no checkpoint can be kept in"):
        run(tmp_path / "file" / "in it")


FULL = """
import resource, sys
import numpy as np
import tempo as tp

with tp.Program() as program:
    i = tp.dim("i")
    w = tp.parameter("w", (4000,), init=np.ones(4000, np.float32), dims=(i,))
    w[i + 1] = 0.5 * w
    tp.output("w", w)
run = tp.compile(program)

def go(size):
    return run(sizes={"i": size}, checkpoint=tp.Checkpoints(sys.argv[1], along="i", every=1, keep=None), resume=True)

go(3)
resource.setrlimit(resource.RLIMIT_FSIZE, (8000, resource.RLIM_INFINITY))
try:
    go(6)
except tp.CheckpointError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
wanted = run(sizes={"i": 6})["w"]
assert go(6)["w"].tobytes() == wanted.tobytes()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_a_full_disk_leaves_what_was_whole(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no checkpoint can be kept in" in done.stdout
    assert 'File "<string>"' in done.stdout or "<string>:" in done.stdout  # the line of the call
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == [".lock"]  # no half of a file


def test_what_was_made_before_a_loop_is_missed_where_it_is_not_there(tmp_path: Path) -> None:
    """The loop before needs no such file."""
    with tp.Program() as made:
        t = tp.dim("t")
        x, h = tp.input("x", (), (t,)), tp.recurrent("h", (), (t,))
        h[0] = x
        h[t + 1] = tp.tanh(h + x[t + 1])
        tp.output("h", h)
        tp.output("slope", tp.grad((h * h)[:].sum(), x))
    compiled, checkpoints = tp.compile(made), tp.Checkpoints(tmp_path, along="t", every=2, keep=None)
    given = {"x": np.ones(6, np.float32)}
    wanted = compiled(checkpoint=checkpoints, **given)
    for name in names(tmp_path, "given")[-1:]:
        (tmp_path / name).unlink()
    found = compiled(checkpoint=checkpoints, resume=True, **given)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_damaged_files_stay_and_do_not_count(tmp_path: Path) -> None:
    run(tmp_path, every=1, keep=2)
    for name in names(tmp_path)[1:]:
        torn(tmp_path / name)
    damaged = names(tmp_path)[1:]
    run(tmp_path, every=1, keep=2)
    assert set(damaged) < set(names(tmp_path))
    assert len(names(tmp_path)) == len(damaged) + 3  # two, and the one before the end


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    with Folder(tmp_path).held(), pytest.raises(tp.CheckpointError, match="another run is writing checkpoints to"):
        run(tmp_path)
    run(tmp_path)


def test_programs_that_differ_in_a_large_constant_differ(tmp_path: Path) -> None:
    def of(value: float) -> tp.Program:
        constant = np.zeros(3000, np.float32)
        constant[1500] = value
        with tp.Program() as made:
            i = tp.dim("i")
            w = tp.parameter("w", (), init=1.0, dims=(i,))
            w[i + 1] = 0.5 * w + tp.as_tensor(constant).sum()
            tp.output("w", w)
        return made

    checkpoints = tp.Checkpoints(tmp_path, along="i")
    tp.compile(of(1.0))(sizes={"i": 3}, checkpoint=checkpoints)
    with pytest.raises(tp.CheckpointError, match="is of another program"):
        tp.compile(of(2.0))(sizes={"i": 3}, checkpoint=checkpoints, resume=True)


def test_integers_of_numpy(tmp_path: Path) -> None:
    run(tmp_path, every=np.int64(2), keep=np.int64(1))
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize(
    "given", [{"sizes": {"i": None}}, {"sizes": 5}, {"sizes": "x"}, {"seed": "x"}, {"seed": 0.5}, {"seed": [1]}]
)
def test_wrong_calls_are_told_where_there_are_checkpoints_too(folder: Path, given: dict[str, Any]) -> None:
    with pytest.raises(tp.TempoError) as raised:
        run(folder, **given)
    assert raised.value.location is not None


# -- what lies outside -------------------------------------------------------------------------------------------------


class Resource:
    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def calling(**given: Any) -> tp.Program:
    with tp.Program() as made:
        i = tp.dim("i")
        h = tp.recurrent("h", (), (i,))
        h[0] = 1.0
        (result,) = tp.host_call(lambda x: x, h, out=[((), tp.float32)], **{"ordered_by": i, **given})
        h[i + 1] = result
        tp.output("h", h)
    return made


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "an order alone": ({}, tp.UnsupportedError, "nothing says where it has come to"),
    "a name": ({"resource": "log"}, tp.UnsupportedError, "the name 'log' has no state_dict"),
    "an object": ({"resource": object()}, tp.UnsupportedError, "a object has no state_dict"),
    "what nobody can write down": (
        {"resource": Resource({"f": open})}, tp.UnsupportedError, "what state_dict of a Resource says cannot be kept",
    ),
    "one that fails": ({"resource": Resource(ValueError("no"))}, tp.HostCallError, "failed: ValueError: no"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_resources_are_looked_at_before_the_first_step(tmp_path: Path, case: str) -> None:
    given, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message) as raised:
        tp.compile(calling(**given))(sizes={"i": 3}, checkpoint=tp.Checkpoints(tmp_path / "a", along="i"))
    assert "tp.host_call(" in str(raised.value)
    assert not (tmp_path / "a").exists()


STATES: tuple[Any, ...] = (
    None, True, 3, 2**100, 1.5, "text", b"bytes", [1, [2]], (1, ("a",)), {"a": {1: None}, ("b", 2): [()]},
    np.float32(2), np.arange(6, dtype=">i4").reshape(2, 3), np.ones(2, ml_dtypes.bfloat16), np.zeros((0, 2)),
    np.array(["a", "bcd"]), np.array([b"x"]), np.array([1 + 2j]), np.random.default_rng(3).bit_generator.state,
)  # fmt: skip


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_states_come_back_as_they_were(state: Any) -> None:
    encoded = Encoded()
    said = json.loads(json.dumps(encoded.of(state)))
    found = decoded(said, dict(enumerate(encoded.arrays)))
    assert type(found) is type(state)
    np.testing.assert_equal(found, state)
    assert getattr(found, "dtype", None) == getattr(state, "dtype", None)


class Pair(NamedTuple):
    first: int
    second: int


@pytest.mark.parametrize(
    "state",
    [Pair(1, 2), np.zeros(2, [("a", "i4")]), {1, 2}, np.array([None]), object()],
    ids=lambda state: type(state).__name__,
)
def test_states_that_would_be_something_else_are_refused(state: Any) -> None:
    with pytest.raises(TypeError):
        Encoded().of(state)


def test_large_states(tmp_path: Path) -> None:
    """They are in no header, whose length is limited."""
    resource = Resource({"blob": b"x" * 101_000_000})
    checkpoints = tp.Checkpoints(tmp_path, along="i", every=2, keep=1)
    tp.compile(calling(resource=resource))(sizes={"i": 3}, checkpoint=checkpoints)
    resource.state = None
    tp.compile(calling(resource=resource))(checkpoint=checkpoints, resume=True)


def test_calls_without_an_order_keep_nothing(tmp_path: Path) -> None:
    tp.compile(calling(ordered_by=()))(sizes={"i": 3}, checkpoint=tp.Checkpoints(tmp_path, along="i"))


class Loader:
    """A stream that says where it is."""

    def __init__(self, begun: int = 0) -> None:
        self.at, self.given = begun, 0

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> np.ndarray:
        self.at, self.given = self.at + 1, self.given + 1
        return np.float32(self.at)

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_streams_that_say_where_they_are_are_put_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tp.Program() as made:
        i = tp.dim("i")
        x, total = tp.stream_input("x", (), (i,)), tp.recurrent("total", (), (i,))
        total[0] = x
        total[i + 1] = total + x[i + 1]
        tp.output("total", total)
    compiled, checkpoints = tp.compile(made), tp.Checkpoints(tmp_path, along="i", every=4, keep=None)
    whole = compiled(x=Loader(), sizes={"i": 10}, checkpoint=checkpoints)
    for name in names(tmp_path)[1:]:
        (tmp_path / name).unlink()
    loader = Loader(77)
    found = compiled(x=loader, checkpoint=checkpoints, resume=True)
    np.testing.assert_array_equal(found["total"], whole["total"])
    assert loader.given == 6
    for name in names(tmp_path)[1:]:
        (tmp_path / name).unlink()
    with caplog.at_level(logging.INFO, logger="tempo"):
        found = compiled(x=iter(np.arange(1, 11, dtype=np.float32)), checkpoint=checkpoints, resume=True)
    np.testing.assert_array_equal(found["total"], whole["total"])
    assert "4 of its arrays are skipped" in caplog.text


def test_more_points_where_the_size_is_read(tmp_path: Path) -> None:
    with tp.Program() as made:
        i = tp.dim("i")
        w = tp.parameter("w", (), init=np.float32(1), dims=(i,))
        w[i + 1] = w / tp.as_tensor(i.size)
        tp.output("w", w)
    compiled, checkpoints = tp.compile(made), tp.Checkpoints(tmp_path, along="i")
    compiled(sizes={"i": 3}, checkpoint=checkpoints)
    with pytest.raises(tp.UnsupportedError, match=r"(?s)size.*as_tensor\(i.size\)"):
        compiled(sizes={"i": 5}, checkpoint=checkpoints, resume=True)


# -- what is there -----------------------------------------------------------------------------------------------------


def listing(folder: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "tempo", "checkpoints", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_listing_says_what_is_whole_and_how_large(folder: Path) -> None:
    status, printed = listing(folder)
    assert status == 0
    assert "i=6 (ended)" in printed
    assert "sum" in printed
    assert "(6, 2)" in printed  # all points of the output
    torn(folder / names(folder)[-1])
    status, printed = listing(folder)
    assert status == 1
    assert "damaged" in printed.replace("\n", "")
    status, printed = listing(folder / "none")
    assert status != 0
    assert "there is no folder" in printed
