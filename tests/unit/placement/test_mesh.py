"""Meshes of devices: what makes one, and how an array lies on it."""

from __future__ import annotations

from typing import Any

import pytest

import tempo as tp
from tempo.placement.mesh import Shards, local, permuted

ROWS, COLUMNS = Shards("data", 4), Shards("model", 2)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (None, "None is no mesh"),
        (4, "4 is no mesh"),
        ({}, "{} is no mesh"),
        ((("data", 4),), "(('data', 4),) is no mesh"),
        ({1: 4}, "1 is no name of an axis of a mesh"),
        ({"": 4}, "'' is no name of an axis of a mesh"),
        ({"two words": 4}, "'two words' is no name of an axis of a mesh"),
        ({"data": 0}, "0 is no number of devices, along the axis 'data'"),
        ({"data": -2}, "-2 is no number of devices, along the axis 'data'"),
        ({"data": 2.0}, "2.0 is no number of devices, along the axis 'data'"),
        ({"data": True}, "True is no number of devices, along the axis 'data'"),
        ({"data": 2, "model": "2"}, "'2' is no number of devices, along the axis 'model'"),
    ],
)
def test_what_is_no_mesh(shape: Any, message: str) -> None:
    with pytest.raises(tp.InputError) as caught:
        tp.Mesh(shape)
    assert caught.value.message == message
    assert caught.value.location is not None
    assert caught.value.location.path == __file__
    assert caught.value.location.text == "tp.Mesh(shape)"
    assert 'tp.Mesh({"data": 4})' in str(caught.value.hint)


def test_axes_and_devices() -> None:
    mesh = tp.Mesh({"data": 4, "model": 2})
    assert mesh.axes == {"data": 4, "model": 2}
    assert list(mesh.axes) == ["data", "model"]
    assert mesh.devices == 8
    assert tp.Mesh({"data": 1}).devices == 1
    assert str(mesh) == "data=4, model=2"
    assert mesh.shards("data") == ROWS
    assert mesh.shards("model") == COLUMNS


def test_one_shape_is_one_mesh() -> None:
    shape = {"data": 4, "model": 2}
    mesh, again = tp.Mesh(shape), tp.Mesh(dict(shape))
    assert mesh == again
    assert hash(mesh) == hash(again)
    assert mesh != tp.Mesh({"model": 2, "data": 4})  # the devices stand in another order
    assert mesh != tp.Mesh({"data": 4})
    shape["data"] = 1
    mesh.axes["data"] = 1
    assert mesh == again


@pytest.mark.parametrize(
    ("shape", "placement", "expected"),
    [
        ((8, 6), (), (8, 6)),
        ((8, 6), (None, None), (8, 6)),
        ((8, 6), (ROWS, None), (2, 6)),
        ((8, 6), (ROWS, COLUMNS), (2, 3)),
        ((7, 6), (ROWS, None), (2, 6)),
        ((), (), ()),
    ],
)
def test_what_one_device_has(shape: Any, placement: Any, expected: tuple[int, ...]) -> None:
    assert local(shape, placement) == expected


def test_a_placement_has_an_entry_for_each_axis() -> None:
    with pytest.raises(ValueError, match="zip"):
        local((8, 6), (ROWS,))


def test_axes_in_another_order() -> None:
    assert permuted((ROWS, None, COLUMNS), (2, 0, 1)) == (COLUMNS, ROWS, None)
    assert permuted((), (1, 0)) == ()
