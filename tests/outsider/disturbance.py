"""Run by run.py beside the distributions of `neighbours`: each tells what is wrong with it, and nobody else suffers."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from neighbours import NEIGHBOURS, Neighbour

import tempo as tp
from tempo.errors import BrokenPluginError
from tempo.plugins import list_backends, list_schedulers

BAD_BACKENDS = {each.name for each in NEIGHBOURS if each.kind == "backend"}
FRAMEWORKS = ("jax", "torch")  # installed without the libraries that they need


def running_sum() -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(2,), dims=(t,))
        total = tp.recurrent("total", shape=(2,), dims=(t,))
        total[0] = x
        total[t + 1] = total + x[t + 1]
        tp.output("total", total)
    return program


@pytest.mark.parametrize("neighbour", NEIGHBOURS, ids=lambda each: each.name)
def test_each_says_what_is_wrong_with_it(neighbour: Neighbour) -> None:
    with pytest.raises(BrokenPluginError) as caught:
        tp.compile(running_sum(), **{neighbour.kind: neighbour.name})
    assert neighbour.expected in str(caught.value)
    assert f"{neighbour.distribution} 9.0" in str(caught.value)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_backend_without_its_library_says_so(name: str) -> None:
    with pytest.raises(BrokenPluginError, match=f"tempo-sdg-{name}.* ModuleNotFoundError: .*{name}"):
        tp.compile(running_sum(), backend=name)


@pytest.mark.parametrize("scheduler", ["greedy", "unfused"])
@pytest.mark.parametrize("backend", ["numpy", "reference"])
def test_the_others_work(backend: str, scheduler: str) -> None:
    run = tp.compile(running_sum(), backend=backend, scheduler=scheduler)
    np.testing.assert_array_equal(run(x=np.ones((3, 2)))["total"], [[1, 1], [2, 2], [3, 3]])


def test_listings_show_all_of_them() -> None:
    found = {each.name: each for each in list_backends()}
    assert {"numpy", "reference", *FRAMEWORKS, *BAD_BACKENDS} == found.keys()
    assert all(found[name].error is None for name in ("numpy", "reference", *FRAMEWORKS))
    # That a library is absent shows when the backend is made, which listing does not do.
    assert {name for name, each in found.items() if each.error} == BAD_BACKENDS - {"incomplete"}
    assert {each.name for each in list_schedulers() if each.error is None} == {"greedy", "unfused"}


def test_the_command_line_shows_all_of_them() -> None:
    listed = subprocess.run([sys.executable, "-m", "tempo", "backends", "--json"], capture_output=True, check=True)
    states = {each["name"]: each["state"] for each in json.loads(listed.stdout)}
    assert states["numpy"] == "ok"
    assert states["broken"] == "broken"
    doctor = subprocess.run([sys.executable, "-m", "tempo", "doctor"], capture_output=True, text=True, check=False)
    assert doctor.returncode == 1
    assert "the device is on fire" in doctor.stdout
