"""The conformance suite notices what is wrong: a planted fault makes the fault's family fail, and nothing worse."""

from __future__ import annotations

import subprocess

import pytest

from tempo.conformance.target import typical
from tests.system.saboteur.runs import SUITE, failed, ran, sabotaged, suite

# the family, the fault (a backend's, or a scheduler's), a test there that must notice it
FAULTS = [
    ("test_indexing.py", "backend=shifted-windows", "test_points_and_windows_that_small_sizes_do_not_have"),
    ("test_definitions.py", "backend=swapped-branches", "test_the_first_case_that_holds_gives_the_value"),
    ("test_operators.py", "backend=truncated-division", "test_floor_division_and_remainder_have_the_signs_of_numpy"),
    ("test_gradients.py", "backend=lost-additions", "test_a_read_sends_along_its_preimage"),
    ("test_learning.py", "backend=coarse-roots", "test_steps"),
    ("test_returns.py", "backend=short-loops", "test_ten_thousand_steps_are_finite_and_accurate"),
    ("test_returns.py", "backend=forgetful-sums", "test_nothing_leaks_from_one_episode_into_another"),
    ("test_attention.py", "backend=visible-padding", "test_decoding_equals_the_full_masked_forward"),
    ("test_effects.py", "scheduler=dropped-order", "test_calls_are_ordered_and_made_without_holes"),
    ("test_effects.py", "backend=lost-writes", "test_an_environment_keeps_its_state"),
    ("test_streams.py", "backend=lost-writes", "test_arrays_come_in_order_and_are_the_runs_own"),
    ("test_backend_calls.py", "backend=stale-results", "test_several_results_carry_a_recurrence"),
    ("test_memory.py", "backend=mirrored-wrap", "test_windows_wrap"),
    ("test_random.py", "backend=shifted-bits", "test_the_same_numbers_as_the_reference"),
    ("test_life_cycle.py", "backend=shared-results", "test_two_executables_at_once"),
    ("test_errors.py", "backend=unchecked-indices", "test_indices_out_of_range_raise_where_they_are_checked"),
    ("test_errors.py", "backend=own-errors", "test_indices_out_of_range_raise_where_they_are_checked"),
    ("test_random_programs.py", "backend=steep-tanh", "test_random_programs"),
]
DEAR = {f"backend={each}" for each in ("shifted-windows", "lost-additions", "coarse-roots", "visible-padding",
                                       "mirrored-wrap", "steep-tanh")}  # fmt: skip
"""Faults of families that take a quarter of a minute."""
CASES = [pytest.param(*each, id=each[1], marks=[pytest.mark.sweep] if each[1] in DEAR else []) for each in FAULTS]
NOTICED_BY_ALL_TESTS = {"backend=steep-tanh", "backend=swapped-branches"}  # few tests; tests of cases


def is_orderly(done: subprocess.CompletedProcess[str]) -> bool:
    """Tests failed and passed; pytest itself met nothing unforeseen."""
    return done.returncode == 1 and ran(done, "error") == 0 and "INTERNALERROR" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("family", "fault", "test"), CASES)
def test_a_planted_fault_fails_in_its_family(family: str, fault: str, test: str) -> None:
    done = sabotaged(family, f"--tempo-{fault}")
    assert is_orderly(done), done.stdout + done.stderr
    assert test in failed(done)
    assert ran(done, "passed") > 0 or fault in NOTICED_BY_ALL_TESTS


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    typical(["short-loops", "shifted-bits", "unchecked-indices", "own-errors"], ["short-loops"], pytest.mark.sweep),
)
def test_a_fault_leaves_other_families_alone(fault: str) -> None:
    done = sabotaged("test_definitions.py", f"--tempo-backend={fault}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_an_unknown_backend_is_told_as_ever() -> None:
    done = suite("-p", "tempo.conformance.plugin", str(SUITE), "--tempo-backend=numppy")
    assert done.returncode == 4
    assert "did you mean 'numpy'" in done.stderr


@pytest.mark.slow
def test_without_the_plugin_nothing_of_the_suite_runs() -> None:
    done = suite(str(SUITE), "--collect-only")
    assert "test_errors" not in done.stdout
