"""The models over time in `examples/` at a small size on every backend that is installed, against their peers."""

from __future__ import annotations

from importlib import import_module, util
from itertools import product
from pathlib import Path

import pytest

from tempo.conformance.target import typical

BACKENDS = ["numpy", "reference", *(name for name in ("jax", "torch") if util.find_spec(f"tempo_{name}"))]
SMALL = {
    "rnn": "--iterations 20 --batch 3 --steps 7 --hidden 4",
    "lstm": "--iterations 20 --batch 3 --steps 6 --hidden 4",
    "linear_recurrence": "--batch 2 --steps 20 --channels 3 --states 2",
    "wave": "--size 7 --steps 6",
    "value_iteration": "--size 4 --sweeps 12",
    "edit_distance": "--batch 3 --length 7",
    "kalman": "--objects 3 --steps 60",
    "dynamic.treelstm": "--steps 3 --trees 2 --depth 2 --width 4",
    "dynamic.mvrnn": "--sentences 2 --batches 1 --width 3",
}
TO_PYTORCH = ("rnn", "lstm", "dynamic.treelstm", "dynamic.mvrnn")
WITHOUT_PICTURE = ("dynamic.mvrnn",)


LONG_TO_COMPILE = {(name, "jax") for name in ("lstm", "dynamic.treelstm", "dynamic.mvrnn")}
OFTEN = set(product(SMALL, ("numpy", "jax"))) - LONG_TO_COMPILE


@pytest.mark.parametrize("pair", typical(product(SMALL, BACKENDS), OFTEN), ids="-".join)
def test_model_equals_its_peer(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    name, backend = pair
    if name in TO_PYTORCH:
        pytest.importorskip("torch")
    main = import_module(f"examples.{name}").main
    assert main([*SMALL[name].split(), "--backend", backend, "--check"]) == 0
    assert "equal to" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in SMALL if name not in WITHOUT_PICTURE])
def test_picture(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "pictures" / f"{name}.png"
    assert import_module(f"examples.{name}").main([*SMALL[name].split(), "--plot", str(picture)]) == 0
    assert picture.stat().st_size > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_value_iteration_ends_when_the_values_do_not_move(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--size", "3", "--sweeps", "500", "--tolerance", "0.5", "--backend", backend, "--check"]
    assert import_module("examples.value_iteration").main(arguments) == 0
    printed = capsys.readouterr().out
    assert "equal to" in printed
    assert int(printed.split()[0]) < 100
