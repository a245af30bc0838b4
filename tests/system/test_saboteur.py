"""The conformance suite notices what is wrong: a backend with a planted fault fails in the fault's family."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tempo" / "conformance"

# fault, file of the family that must notice it, a test there that must
FAULTS = [
    ("shifted-windows", "test_indexing.py", "test_triangles_and_windows"),
    ("swapped-branches", "test_definitions.py", "test_the_first_case_that_holds_gives_the_value"),
    ("truncated-division", "test_operators.py", "test_floor_division_and_remainder_have_the_signs_of_numpy"),
    ("short-loops", "test_returns.py", "test_ten_thousand_steps_are_finite_and_accurate"),
    ("visible-padding", "test_attention.py", "test_causal_and_windowed_attention"),
    ("lost-writes", "test_effects.py", "test_an_environment_keeps_its_state"),
    ("mirrored-wrap", "test_memory.py", "test_windows_wrap"),
    ("shifted-bits", "test_random.py", "test_the_same_numbers_as_the_reference"),
    ("shared-results", "test_life_cycle.py", "test_two_executables_at_once"),
    ("unchecked-indices", "test_errors.py", "test_indices_out_of_range_raise_where_they_are_checked"),
    ("wrong-maximum", "test_random_programs.py", "test_random_programs"),
]


def suite(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(cwd), str(ROOT)])}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def failed(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The names of the tests that failed."""
    return set(re.findall(r"^FAILED \S*?::(\w+)", done.stdout, re.MULTILINE))


def sabotaged(family: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    plugins = ("-p", "tests.system.saboteur.plugin", "-p", "tempo.conformance.plugin")
    return suite(*plugins, str(SUITE / family), *arguments)


@pytest.mark.parametrize(("fault", "family", "test"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_a_planted_fault_fails_in_its_family(fault: str, family: str, test: str) -> None:
    done = sabotaged(family, f"--tempo-backend={fault}", "-k", test)
    assert done.returncode == 1, done.stdout + done.stderr
    assert failed(done) == {test}


def test_a_scheduler_with_a_planted_fault_fails_in_its_family() -> None:
    done = sabotaged("test_effects.py", "--tempo-scheduler=reversed-host", "-k", "ordered")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_calls_are_ordered_and_made_without_holes" in failed(done)


@pytest.mark.parametrize("fault", ["short-loops", "shifted-bits", "unchecked-indices"])
def test_a_fault_leaves_other_families_alone(fault: str) -> None:
    done = sabotaged("test_definitions.py", f"--tempo-backend={fault}")
    assert done.returncode == 0, done.stdout + done.stderr


# -- what backends declare ---------------------------------------------------------------------------------------------

BACKEND = """
from tempo.backends.numpy.backend import NumpyBackend
from tempo.errors import UnsupportedError
from tempo.plugins.descriptors import BackendPlugin, Capabilities
import tempo as tp

CANNOT = Capabilities(unsupported={"sort": "no kernel"})


class Declared(NumpyBackend):
    def operator(self, call):
        if call.op == "sort":
            raise UnsupportedError("the backend 'declared' does not sort: it has no kernel")
        return super().operator(call)


PLUGIN = BackendPlugin("declared", "declared.backend:Declared", capabilities=CANNOT)
Declared.info = PLUGIN
tp.register_backend(PLUGIN)
"""


def declaring(folder: Path, failures: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The suite on a backend whose package holds these known failures."""
    package = folder / "declared"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "backend.py").write_text(BACKEND)
    (package / "known_failures.toml").write_text(failures)
    plugins = ("-p", "declared.backend", "-p", "tempo.conformance.plugin", "--tempo-backend=declared")
    return suite(*plugins, *arguments, cwd=folder)


def entry(test: str) -> str:
    return f'[[failure]]\ntest = "{test}"\nreason = "for this test"\n'


OPERATORS = str(SUITE / "test_operators.py")


def test_what_is_declared_and_refused_is_fine(tmp_path: Path) -> None:
    failing = entry("test_operators.py::test_sizes_of_nothing_of_one_and_of_primes")
    done = declaring(tmp_path, failing, OPERATORS, "-k", "declared or order or nothing", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "unsupported: sort: no kernel; known failures: 1" in done.stdout.partition("collected")[0]
    assert "xfailed" in done.stdout


def test_an_unexpected_pass_fails(tmp_path: Path) -> None:
    done = declaring(tmp_path, entry("test_operators.py::test_promotion"), OPERATORS, "-k", "promotion")
    assert done.returncode == 1
    assert "XPASS(strict)" in done.stdout


def test_an_entry_that_matches_no_test_is_an_error(tmp_path: Path) -> None:
    done = declaring(tmp_path, entry("test_operators.py::test_promotio"), OPERATORS, "-k", "promotion")
    assert done.returncode == 4
    assert "no test is called 'test_operators.py::test_promotio'" in done.stderr


def test_a_file_that_is_no_such_list_is_an_error(tmp_path: Path) -> None:
    done = declaring(tmp_path, '[[failure]]\ntest = "test_operators.py::test_promotion"', OPERATORS)
    assert done.returncode == 4
    assert "declared/known_failures.toml, entry 1: reason is missing" in done.stderr


def test_an_unknown_backend_is_told_as_ever() -> None:
    done = suite("-p", "tempo.conformance.plugin", str(SUITE), "--tempo-backend=numppy")
    assert done.returncode == 4
    assert "did you mean 'numpy'" in done.stderr


def test_without_the_plugin_nothing_of_the_suite_runs() -> None:
    done = suite(str(SUITE), "--collect-only")
    assert "test_errors" not in done.stdout
