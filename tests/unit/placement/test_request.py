"""What `tp.compile` refuses of `mesh=`, `shard=`, `place=` and `pipeline=`: the words, and the line they point at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.placement.mesh import Shards
from tempo.placement.request import PlacementRequest
from tests.unit.placement.meshed import Meshed

MESH = tp.Mesh({"data": 2, "model": 4})
STAGES = tp.Pipeline("l", over="model", microbatches="m")
DATA, MODEL = Shards("data", 2), Shards("model", 4)


def a_map() -> tp.Program:
    """Rows of a batch, times a matrix; its columns are four, or eight."""
    with tp.Program("map") as program:
        b = tp.dim("b")
        x, w = tp.input("x", (3,), (b,)), tp.input("w", (3, 8))
        tp.output("y", tp.tanh(x @ w))
    return program


def a_recurrence() -> tp.Program:
    with tp.Program("recurrence") as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (), (b, t))
        h = tp.recurrent("h", (), (b, t))
        h[b, 0] = x
        h[b, t + 1] = h * 0.5 + x[b, t + 1]
        tp.output("h", h)
    return program


def layers() -> tp.Program:
    """Rows of a microbatch, through layers."""
    with tp.Program("layers") as program:
        b, m, l = tp.dims("b m l")
        x, w = tp.input("x", (3,), (b, m)), tp.input("w", (3, 3), (l,))
        h = tp.recurrent("h", (3,), (b, m, l))
        h[b, m, 0] = x
        h[b, m, l] = tp.tanh(h[b, m, l - 1] @ w)
        tp.output("y", h[b, m, l.size - 1])
    return program


def compiled(program: tp.Program, **given: Any) -> Any:
    return tp.compile(program, Meshed(), mesh=MESH, **given)


@contextmanager
def refused(kind: type[tp.TempoError], message: str, line: str, hint: str = "") -> Iterator[None]:
    """The error with this message, at the line of this file that has `line` in it."""
    with pytest.raises(kind) as caught:
        yield
    error = caught.value
    assert error.message == message
    assert hint in (error.hint or "")
    assert error.location is not None
    assert error.location.path == __file__
    assert line in error.location.text


# -- names -------------------------------------------------------------------------------------------------------------

HERE = "return tp.compile(program, Meshed(), mesh=MESH, **given)"
"""The line of the call, which is the user's where no line of the program is meant."""


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"shard": {"batch": "data"}}, "shard= names 'batch', which is no dim of the program", "there are: b"),
        (
            {"shard": {"b": "dat"}},
            "shard= of 'b' names 'dat', which is no axis of the mesh",
            "did you mean 'data'? there are: data, model",
        ),
        (
            {"place": {"w": (None, "modle")}},
            "place= of 'w' names 'modle', which is no axis of the mesh",
            "did you mean 'model'?",
        ),
        ({"place": {"weights": (None, "model")}}, "place= names 'weights', which is no tensor of the program", "w, x"),
        ({"place": {"w": "model"}}, "place= of 'w' is 'model'", "an entry for each spatial axis"),
        ({"shard": ["b"]}, "shard= is a list", 'write shard={"name": ...}'),
        ({"place": "w"}, "place= is a str", 'write place={"name": ...}'),
        pytest.param(
            {"shard": {"b": ["data"]}},
            "shard= of 'b' names ['data'], which is no axis of the mesh",
            "there are",
        ),
    ],
)
def test_names_that_are_not_there(given: dict[str, Any], message: str, hint: str) -> None:
    with refused(tp.InputError, message, HERE, hint):
        compiled(a_map(), **given)


@pytest.mark.parametrize("spec", [("model",), (None, None, "model"), ()])
def test_an_entry_for_each_axis_of_a_tensor(spec: tuple[str | None, ...]) -> None:
    message = f"place= says of {len(spec)} axes of w where they lie; it has 2"
    with refused(tp.InputError, message, 'tp.input("w", (3, 8))', "an entry for each spatial axis"):
        compiled(a_map(), place={"w": spec})


def test_one_axis_of_the_mesh_for_one_axis_of_a_tensor() -> None:
    hint = "serves one dim or axis of each tensor"
    with refused(tp.InputError, "two axes of w would lie along 'model'", 'tp.input("w", (3, 8))', hint):
        compiled(a_map(), place={"w": ("model", "model")})
    with refused(tp.InputError, "two axes of x would lie along 'data'", 'x, w = tp.input("x"', hint):
        compiled(a_map(), shard={"b": "data"}, place={"x": ("data",)})


def test_two_dims_of_a_tensor_on_one_axis_of_the_mesh() -> None:
    with tp.Program() as program:
        b, c = tp.dims("b c")
        x = tp.input("x", (), (b, c))
        tp.output("y", x + 1)
    with refused(tp.InputError, "two axes of x would lie along 'data'", 'x = tp.input("x", (), (b, c))'):
        compiled(program, shard={"b": "data", "c": "data"})
    compiled(program, shard={"b": "data", "c": "model"})


# -- dims --------------------------------------------------------------------------------------------------------------


def test_a_dim_along_which_something_is_carried() -> None:
    message = "h is carried along t: each point waits for another one, so the points cannot lie on several devices"
    with refused(tp.UnsupportedError, message, "h", "shard another dim, such as that of a batch"):
        compiled(a_recurrence(), shard={"t": "data"})
    compiled(a_recurrence(), shard={"b": "data"})


def test_what_no_pass_takes_apart_is_carried() -> None:
    with tp.Program() as program:
        i, j = tp.dims("i j")
        x = tp.input("x", (), (i, j))
        d = tp.recurrent("d", (), (i, j))
        d[0, 0] = x
        d[0, j + 1] = d + x[0, j + 1]
        d[i + 1, 0] = d + x[i + 1, 0]
        d[i + 1, j + 1] = tp.logaddexp(d[i, j + 1], d[i + 1, j])
        tp.output("d", d)
    for name in "ij":
        with pytest.raises(tp.UnsupportedError, match=f"is carried along {name}: ") as caught:
            compiled(program, shard={name: "data"})
        assert caught.value.location is not None
        assert caught.value.location.path == __file__


def test_a_call_of_the_host_for_each_point() -> None:
    def program(batched: bool) -> tp.Program:
        with tp.Program() as program:
            b, t = tp.dims("b t")
            x = tp.input("x", (), (b, t))
            way = {"batched": (b,)} if batched else {}
            (y,) = tp.host_call(np.negative, x, out=[((), tp.float32)], ordered_by=(t,), **way)
            tp.output("y", y)
        return program

    called = "negative is called for one point of b after the other"
    message = f"{called}, and shard= gives the points to several devices"
    with refused(
        tp.UnsupportedError, message, "tp.host_call(np.negative", "let one call take all points: batched=(b,)"
    ):
        compiled(program(batched=False), shard={"b": "data"})
    compiled(program(batched=True), shard={"b": "data"})


def test_a_dim_whose_points_come_in_order() -> None:
    graph = a_map().graph()
    (b,) = graph.dims
    in_order = replace(graph, dims=(replace(b, sequential=True),))
    with pytest.raises(tp.UnsupportedError, match="b is declared sequential, so no device can have a part") as caught:
        PlacementRequest.of(in_order, MESH, {"b": "data"}, None)
    assert caught.value.hint == "shard another dim, such as that of a batch"


def test_a_dim_that_may_end_early() -> None:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        tp.stop_when(t, x > 2.0)
        tp.output("y", x)
    message = "the run may end early along t: its points come in order"
    with refused(tp.UnsupportedError, message, "tp.stop_when(t, x > 2.0)", "shard another dim"):
        compiled(program, shard={"t": "data"})


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_sizes_that_devices_do_not_divide_at_compile() -> None:
    message, hint = "b has 3 points, which 2 devices along 'data' do not divide", "give b a multiple of 2"
    with refused(tp.SizeError, message, HERE, hint):
        compiled(a_map(), shard={"b": "data"}, sizes={"b": 3})
    compiled(a_map(), shard={"b": "data"}, sizes={"b": 4})


def test_sizes_that_devices_do_not_divide_at_the_call() -> None:
    run = compiled(a_map(), shard={"b": "data"})
    x, w = np.zeros((3, 3), np.float32), np.zeros((3, 8), np.float32)
    with refused(tp.SizeError, "b has 3 points, which 2 devices along 'data' do not divide", "run(x=x, w=w)"):
        run(x=x, w=w)


def test_an_axis_that_devices_do_not_divide() -> None:
    message = "w has 3 elements along axis 0, which 4 devices along 'model' do not divide"
    with refused(tp.SizeError, message, 'tp.input("w", (3, 8))'):
        compiled(a_map(), place={"w": ("model", None)}, sizes={"b": 4})


# -- pipelines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"pipeline": "l"}, "pipeline= is a str", 'write pipeline=tp.Pipeline("l", over="stage", microbatches="m")'),
        ({"pipeline": {"l": "model"}}, "pipeline= is a dict", "write pipeline=tp.Pipeline("),
        (
            {"pipeline": tp.Pipeline("layer", over="model", microbatches="m")},
            "pipeline= is along 'layer', which is no dim of the program",
            "there are: b, l, m",
        ),
        (
            {"pipeline": tp.Pipeline("l", over="model", microbatches="n")},
            "pipeline= has microbatches= 'n', which is no dim of the program",
            "there are: b, l, m",
        ),
        (
            {"pipeline": tp.Pipeline("l", over="modle", microbatches="m")},
            "over= of pipeline= names 'modle', which is no axis of the mesh",
            "did you mean 'model'? there are: data, model",
        ),
        (
            {"pipeline": tp.Pipeline("l", over=["model"], microbatches="m")},  # type: ignore[arg-type]
            "over= of pipeline= names ['model'], which is no axis of the mesh",
            "there are",
        ),
        (
            {"pipeline": tp.Pipeline(["l"], over="model", microbatches="m")},  # type: ignore[arg-type]
            "pipeline= is along a list",
            "by their names",
        ),
        (
            {"pipeline": STAGES, "shard": {"l": "model"}},
            "l is in pipeline= and in another place, too",
            "a dim is in one of them",
        ),
        ({"pipeline": STAGES, "shard": {"m": "data"}}, "m is in pipeline= and in another place, too", "in one of them"),
        (
            {"pipeline": tp.Pipeline("l", over="model", microbatches="l")},
            "l is in pipeline= and in another place, too",
            "a dim is in one of them",
        ),
    ],
)
def test_pipelines_that_are_none(given: dict[str, Any], message: str, hint: str) -> None:
    with refused(tp.InputError, message, HERE, hint):
        compiled(layers(), **given)


def test_stages_and_rows_on_one_axis_of_the_mesh() -> None:
    hint = "serves one dim or axis of each tensor"
    with refused(tp.InputError, "two axes of h would lie along 'model'", 'h = tp.recurrent("h"', hint):
        compiled(layers(), pipeline=STAGES, shard={"b": "model"})
    compiled(layers(), pipeline=STAGES, shard={"b": "data"})


def test_layers_that_stages_do_not_divide() -> None:
    message, hint = "l has 6 points, which 4 devices along 'model' do not divide", "give l a multiple of 4"
    with refused(tp.SizeError, message, HERE, hint):
        compiled(layers(), pipeline=STAGES, sizes={"b": 2, "l": 6, "m": 3})
    compiled(layers(), pipeline=STAGES, sizes={"b": 2, "l": 8, "m": 3})
    run = compiled(layers(), pipeline=STAGES)
    x, w = np.zeros((2, 3, 3), np.float32), np.zeros((6, 3, 3), np.float32)
    with refused(tp.SizeError, message, "run(x=x, w=w)", hint):
        run(x=x, w=w)


def test_layers_that_are_cut_without_a_pipeline() -> None:
    message = "h is carried along l: each point waits for another one, so the points cannot lie on several devices"
    hint = 'pipeline=tp.Pipeline("l", over="stage", microbatches="m")'
    with refused(tp.UnsupportedError, message, 'h = tp.recurrent("h"', hint):
        compiled(layers(), shard={"l": "model"})


def test_another_dim_that_is_carried_beside_a_pipeline() -> None:
    with tp.Program() as program:
        t, m, l = tp.dims("t m l")
        x = tp.input("x", (), (t, m))
        h = tp.recurrent("h", (), (t, m, l))
        before = tp.cases((t == 0, 0.0), h[t - 1, m, l])
        h[t, m, 0] = x + before
        h[t, m, l] = tp.tanh(h[t, m, l - 1] + before)
        tp.output("y", h)
    with pytest.raises(tp.UnsupportedError, match="is carried along t: each point waits") as caught:
        compiled(program, pipeline=STAGES, shard={"t": "data"})
    assert caught.value.location is not None
    assert caught.value.location.path == __file__


@pytest.mark.parametrize("mapping", ["sequential", {"l": "sequential"}])
def test_a_loop_of_the_layers_of_stages(mapping: Any) -> None:
    message = "pipeline= cuts l into parts for many devices, and mapping= makes a loop of it"
    with refused(tp.InputError, message, HERE, "leave l out of mapping="):
        compiled(layers(), pipeline=STAGES, options=tp.Options(mapping=mapping))


def test_buckets_of_microbatches() -> None:
    with refused(
        tp.InputError,
        "m is in pipeline= and in buckets=: a pipeline is planned for each number of them",
        HERE,
        "leave m out of buckets=",
    ):
        compiled(layers(), pipeline=STAGES, options=tp.Options(buckets={"m": [4, 8]}))
    with refused(tp.InputError, "l is in pipeline= and in buckets=", HERE, "leave l out of one of them"):
        compiled(layers(), pipeline=STAGES, options=tp.Options(buckets={"l": [4, 8]}))


# -- beside other options ----------------------------------------------------------------------------------------------


def test_one_device_and_many() -> None:
    with refused(tp.InputError, "device= is one device, mesh= many", HERE, "leave device= out"):
        compiled(a_map(), device="cpu")


@pytest.mark.parametrize(
    "given", [{"shard": {"b": "data"}}, {"place": {"w": (None, "model")}}, {"pipeline": STAGES}], ids=str
)
def test_where_things_lie_on_no_mesh(given: dict[str, Any]) -> None:
    (what,) = given
    over = {"shard": "data", "place": "model", "pipeline": "stage"}[what]
    message, hint = f"{what}= says where things lie, on no mesh", f'give mesh=tp.Mesh({{"{over}": 4}})'
    with refused(tp.InputError, message, "tp.compile(a_map(), **given)", hint):
        tp.compile(a_map(), **given)


def test_what_is_no_mesh() -> None:
    with refused(tp.InputError, "mesh= is a dict", 'mesh={"data": 2}', "tp.Mesh"):
        tp.compile(a_map(), mesh={"data": 2})  # type: ignore[arg-type]


@pytest.mark.parametrize("mapping", ["sequential", {"b": "sequential"}])
def test_a_loop_of_a_dim_that_is_cut(mapping: Any) -> None:
    message = "shard= cuts b into parts for many devices, and mapping= makes a loop of it"
    with refused(tp.InputError, message, HERE, "leave b out of mapping="):
        compiled(a_map(), shard={"b": "data"}, options=tp.Options(mapping=mapping))
    compiled(a_map(), shard={"b": "data"}, options=tp.Options(mapping={"b": "full"}))


def test_buckets_of_a_dim_that_is_cut() -> None:
    message, hint = "b is in shard= and in buckets=", "leave b out of one of them"
    with refused(tp.InputError, message, HERE, hint):
        compiled(a_map(), shard={"b": "data"}, options=tp.Options(buckets={"b": [4, 8]}))


def test_a_pool_on_the_host() -> None:
    with refused(tp.UnsupportedError, "a pool on the host (offload=) is that of one device, and mesh= has many", HERE):
        compiled(a_map(), offload="host")


@pytest.mark.parametrize("backend", ["numpy", "reference"])
def test_a_backend_of_one_device(backend: str) -> None:
    with pytest.raises(tp.UnsupportedError, match=f"the backend '{backend}' runs on one device") as caught:
        tp.compile(a_map(), backend, mesh=MESH)
    assert "on a mesh run:" in str(caught.value.hint)
    assert caught.value.location is not None
    assert caught.value.location.path == __file__


# -- what is meant -----------------------------------------------------------------------------------------------------


def test_inputs_lie_as_dims_and_names_say() -> None:
    graph = a_map().graph()
    request = PlacementRequest.of(graph, MESH, {"b": "data"}, {"w": [None, "model"]})
    assert request is not None
    assert {port.name: placed for port, placed in request.inputs.items()} == {"x": (DATA, None), "w": (None, MODEL)}
    assert PlacementRequest.of(graph, None, None, None) is None
    assert PlacementRequest.of(graph, None, {}, {}) is None


def test_a_pipeline_has_its_layers_along_the_mesh() -> None:
    request = PlacementRequest.of(layers().graph(), MESH, {"b": "data"}, None, STAGES)
    assert request is not None
    lies = {port.name: placed for port, placed in request.inputs.items()}
    assert lies == {"x": (DATA, None, None), "w": (MODEL, None, None)}
    assert request.stages is not None
    assert request.stages.count == 4
    assert {symbol.name: over for symbol, over in request.dims.items()} == {
        "b": "data",
        "l": "model",
        "l_stage": "model",
    }


def test_a_mesh_alone_has_all_everywhere() -> None:
    request = PlacementRequest.of(a_map().graph(), MESH, None, None)
    assert request is not None
    assert set(request.inputs.values()) == {(None, None)}
