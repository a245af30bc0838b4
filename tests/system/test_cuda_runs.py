"""`.ci/cuda.py`: parts that failed or were cut off are run again, those that passed are not."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[2] / ".ci" / "cuda.py"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FILE.parent)
    spec = importlib.util.spec_from_file_location("cuda_runs", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cuda_runs", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "environment", dict)
    return module


def asked(out: Path, *parts: str) -> argparse.Namespace:
    return argparse.Namespace(parts=list(parts), device="cpu", jobs="1", out=out, limit=3.0, seconds=60.0, quick=True)


@pytest.mark.slow
def test_what_has_passed_is_not_run_again(cuda: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = "import time; print('begun', flush=True); time.sleep(60)"
    sources = {"passes": "print('well')", "fails": "raise SystemExit(3)", "hangs": waiting}
    parts = [cuda.Part(name, ("-c", source)) for name, source in sources.items()]
    monkeypatch.setattr(cuda, "parts", lambda *given: parts)
    assert cuda.run_all(asked(tmp_path)) == 2
    told = json.loads((tmp_path / "cpu" / "parts.json").read_text())
    assert {name: status for name, (status, _) in told.items()} == {"passes": 0, "fails": 3, "hangs": 124}
    assert "begun" in (tmp_path / "cpu" / "logs" / "hangs.log").read_text()
    parts[:] = [cuda.Part(name, ("-c", f"print('{name} again')")) for name in sources]
    assert cuda.run_all(asked(tmp_path)) == 0
    assert "again" not in (tmp_path / "cpu" / "logs" / "passes.log").read_text()
    assert "again" in (tmp_path / "cpu" / "logs" / "fails.log").read_text()
    assert cuda.run_all(asked(tmp_path, "passes")) == 0
    assert "again" in (tmp_path / "cpu" / "logs" / "passes.log").read_text()


def test_a_name_that_no_part_has(cuda: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nonsense; there are suite-torch, suite-jax, device_loop-torch"):
        cuda.run_all(asked(tmp_path, "nonsense"))


def test_every_benchmark_of_a_part_knows_the_device(cuda: ModuleType) -> None:
    from benchmarks.harness import Benchmark

    for name in cuda.BENCHMARKS:
        try:
            module = importlib.import_module(f"benchmarks.{name}.benchmark")
        except ModuleNotFoundError:
            module = importlib.import_module(f"benchmarks.{name}")
        assert isinstance(module.BENCHMARK, Benchmark)
        assert "cuda" in module.BENCHMARK.devices
