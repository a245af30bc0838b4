"""The file in which a backend's package lists what fails."""

from __future__ import annotations

import pytest

from tempo.conformance.known_failures import KnownFailure, declared_by, parse, unmatched
from tempo.plugins.descriptors import BackendPlugin

ENTRY = '[[failure]]\ntest = "test_memory.py::test_windows_wrap[all-1]"\nreason = "no windows"\n'


def test_an_entry_matches_one_test_or_all_parameters_of_it() -> None:
    (one,) = parse(ENTRY)
    assert one.matches("test_memory.py::test_windows_wrap[all-1]")
    assert not one.matches("test_memory.py::test_windows_wrap[all-2]")
    every = KnownFailure("test_memory.py::test_windows_wrap", "no windows")
    assert every.matches("test_memory.py::test_windows_wrap[all-2]")
    assert every.matches("test_memory.py::test_windows_wrap")
    assert not every.matches("test_memory.py::test_windows_wrap_twice")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[failure]]\nreason = 'x'", "entry 1: test is missing"),
        (ENTRY + "[[failure]]\ntest = 'a.py::b'", "entry 2: reason is missing"),
        ("[[failure]]\ntest = 'a.py'\nreason = 'x'", "file::function"),
        ("[[failure]]\ntest = 'a.py::b'\nreason = 'x'\nwhy = 'y'", "no field 'why'"),
        ("[[failures]]\ntest = 'a.py::b'", "only [[failure]]"),
        ("[[failure", "known_failures.toml: "),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert said in str(caught.value)


def test_an_empty_file_lists_nothing() -> None:
    assert parse("# all is well\n") == ()


def test_only_files_that_ran_whole_show_what_matches_nothing() -> None:
    entries = parse(ENTRY)
    assert unmatched(entries, ["test_memory.py::other"], ["test_memory.py"]) == list(entries)
    assert unmatched(entries, ["test_memory.py::other"], ["test_errors.py"]) == []
    assert unmatched(entries, ["test_memory.py::test_windows_wrap[all-1]"], ["test_memory.py"]) == []


def test_entries_of_other_devices_do_not_count(tmp_path, monkeypatch) -> None:
    package = tmp_path / "listing_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "known_failures.toml").write_text(ENTRY + "devices = ['cuda']\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugin = BackendPlugin("listing", "listing_plugin.backend:Backend")
    assert declared_by(plugin, None) == ()
    assert len(declared_by(plugin, "cuda")) == 1
    assert declared_by(BackendPlugin("none", "no_such_package.backend:Backend"), None) == ()
    assert declared_by(BackendPlugin("lone", "abc:ABC"), None) == ()  # a module in no package
