"""`import tempo` is light: it declares programs; what runs them is imported when it is first used."""

import subprocess
import sys

import pytest

import tempo as tp


def modules_after(statement):
    script = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_no_framework_and_no_runtime():
    """`import tempo` ... no jax, torch, islpy loaded"""
    loaded = modules_after("import tempo")
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & {"jax", "jaxlib", "torch", "islpy", "pluggy", "rich", "tqdm", "safetensors", "transformers"}
    parts = {name.split(".")[1] for name in loaded if name.startswith("tempo.")}
    assert not parts & {"runtime", "lowering", "backends", "schedule", "passes", "analysis", "reference", "plugins"}


def test_the_public_names():
    for name in tp.__all__:
        assert getattr(tp, name, tp) is not tp
    assert set(dir(tp)) == {*tp.__all__, "__version__"}


@pytest.mark.slow
def test_type_checkers_know_what_functions_give(tmp_path):
    api = pytest.importorskip("mypy.api")
    source = tmp_path / "program.py"
    source.write_text("import tempo as tp\nreveal_type(tp.where(True, 1, 2))\nreveal_type(tp.exp(1) + 2)\n")
    told, _, _ = api.run(["--cache-dir", str(tmp_path / "cache"), str(source)])
    assert told.count('Revealed type is "tempo.language.tensor.RecurrentTensor"') == 2, told
