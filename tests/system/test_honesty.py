"""The conformance suite holds backends to what they declare: left out, refused, known to fail, and nothing beside."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tempo.conformance.target import typical
from tests.system.saboteur.runs import SUITE, failed, ran, sabotaged, suite

OPERATORS = "test_operators.py"


def skipped(backend: str, family: str) -> set[str]:
    done = sabotaged(family, f"--tempo-backend={backend}", "-vv")
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"::(\S+) SKIPPED", done.stdout))


LEFT_OUT = {
    OPERATORS: {
        "test_sizes_of_nothing_of_one_and_of_primes",
        "test_sorts_keep_the_order_of_equals_in_both_directions",
    },
    "test_functions.py": {"test_reductions", "test_cross_entropy_at_no_class"},
    "test_indexing.py": {"test_reading_every_dtype"},
    "test_definitions.py": set(),
    "test_errors.py": {
        "test_an_index_out_of_range_is_told_as_it_was_written",
        "test_checks_where_a_run_ends_early",
        "test_pairs_of_indices_are_compared_as_they_are",
        "test_only_an_index_that_is_needed_raises",
    },
}
"""Tests that sort, or ask for checks, which hold no test of a single operator: that leaves out what is not there."""


@pytest.mark.slow
@pytest.mark.parametrize("family", typical(LEFT_OUT, [OPERATORS, "test_errors.py"], others=pytest.mark.sweep))
def test_what_is_declared_is_left_out_and_nothing_else(family: str) -> None:
    """Without sort, halves and checks: the tests that need one of them, beside those that NumPy leaves out."""
    beside = skipped("honest", family) - skipped("numpy", family)
    assert {name.partition("[")[0] for name in beside if "float16" not in name} == LEFT_OUT[family]


@pytest.mark.slow
def test_random_programs_hold_nothing_against_what_is_declared() -> None:
    done = sabotaged(
        "test_random_programs.py", "--tempo-backend=honest", "--tempo-random-programs=40", "--hypothesis-seed=1"
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("backend", "family", "tests"),
    [
        ("too-modest-operator", OPERATORS, {"test_what_is_declared_unsupported_is_not_made"}),
        ("too-modest-dtype", OPERATORS, {"test_what_is_declared_unsupported_is_not_made"}),
        ("too-modest-checks", "test_errors.py", {"test_indices_out_of_range_raise_where_they_are_checked"}),
        pytest.param(
            "unchecked-indices",
            "test_errors.py",
            {
                "test_indices_out_of_range_raise_where_they_are_checked",
                "test_an_index_out_of_range_is_told_as_it_was_written",
                "test_an_index_out_of_range_is_told_with_tensor_line_and_point",
            },
            marks=pytest.mark.slow,
        ),
        ("boastful", "test_functions.py", {"test_reductions"}),
    ],
)
def test_a_declaration_that_is_not_true_fails(backend: str, family: str, tests: set[str]) -> None:
    """What is declared unsupported and works all the same, and what is not declared and does not work."""
    done = sabotaged(family, f"--tempo-backend={backend}", "-k", "declared or range or reductions")
    assert done.returncode == 1, done.stdout + done.stderr
    assert failed(done) == tests


# -- known failures ----------------------------------------------------------------------------------------------------

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
        made = super().operator(call)
        return made if call.op != "argmin" else lambda x: made(x) + 1  # wrong, which its known failure says


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


def test_what_is_declared_and_what_is_known_to_fail_is_fine(tmp_path: Path) -> None:
    known = entry("test_operators.py::test_order_with_ties_and_nan")
    done = declaring(tmp_path, known, str(SUITE / OPERATORS), "-k", "declared or order", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "unsupported: sort: no kernel; known failures: 1" in done.stdout.partition("collected")[0]
    assert ran(done, "xfailed") > 5


@pytest.mark.slow
def test_what_fails_and_is_not_known_to_fails(tmp_path: Path) -> None:
    done = declaring(tmp_path, "", str(SUITE / OPERATORS), "-k", "order")
    assert failed(done) == {"test_order_with_ties_and_nan"}


@pytest.mark.slow
def test_an_unexpected_pass_fails(tmp_path: Path) -> None:
    done = declaring(tmp_path, entry("test_operators.py::test_promotion"), str(SUITE / OPERATORS), "-k", "promotion")
    assert done.returncode == 1
    assert "XPASS(strict)" in done.stdout


@pytest.mark.slow
def test_an_entry_that_matches_no_test_is_an_error(tmp_path: Path) -> None:
    done = declaring(tmp_path, entry("test_operators.py::test_promotio"), str(SUITE / OPERATORS), "-k", "promotion")
    assert done.returncode == 4
    assert "no test is called 'test_operators.py::test_promotio'" in done.stderr


def test_a_file_that_is_no_such_list_is_an_error(tmp_path: Path) -> None:
    done = declaring(tmp_path, '[[failure]]\ntest = "test_operators.py::test_promotion"', str(SUITE / OPERATORS))
    assert done.returncode == 4
    assert "declared/known_failures.toml, entry 1: reason is missing" in done.stderr
