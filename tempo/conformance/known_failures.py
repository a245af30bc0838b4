"""The failures that a backend or scheduler declares: `known_failures.toml` beside the module that its descriptor names.

    [[failure]]
    test = "test_operators.py::test_unary[float16]"     # without brackets: every parameter
    reason = "why, and where it is reported"
    devices = ["cuda"]                                  # optional: only there

They are strict: a test that passes although it is listed fails, and an entry that matches no test is an error.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

NAME = "known_failures.toml"


@dataclass(frozen=True)
class KnownFailure:
    """One entry. `test` is `file::function` or `file::function[parameters]`."""

    test: str
    reason: str
    devices: tuple[str, ...] = ()
    source: str = NAME

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]

    def matches(self, test: str) -> bool:
        return self.test in (test, test.partition("[")[0])


def parse(text: str, source: str = NAME) -> tuple[KnownFailure, ...]:
    """The entries of a file. Raises ValueError with the place of what is wrong.

    >>> parse('[[failure]]\\ntest = "test_memory.py::test_poison"\\nreason = "no NaN"')[0].file
    'test_memory.py'
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source}: {error}") from error
    unknown = sorted(content.keys() - {"failure"})
    if unknown:
        raise ValueError(f"{source}: there is only [[failure]], not {unknown[0]!r}")
    return tuple(
        _entry(item, f"{source}, entry {number}", source) for number, item in enumerate(content.get("failure", ()), 1)
    )


def _entry(item: dict[str, Any], where: str, source: str) -> KnownFailure:
    unknown = sorted(item.keys() - {"test", "reason", "devices"})
    if unknown:
        raise ValueError(f"{where}: there is no field {unknown[0]!r}")
    for name in ("test", "reason"):
        if not isinstance(item.get(name), str) or not item[name].strip():
            raise ValueError(f"{where}: {name} is missing")
    if "::" not in item["test"]:
        raise ValueError(f"{where}: test is file::function, not {item['test']!r}")
    return KnownFailure(item["test"], item["reason"], tuple(item.get("devices", ())), source)


def declared_by(descriptor: Any, device: str | None) -> tuple[KnownFailure, ...]:
    """What the package of a descriptor's factory declares for the device."""
    factory = descriptor.factory
    module = factory.partition(":")[0] if isinstance(factory, str) else factory.__module__
    package = module.rpartition(".")[0] or module
    try:
        file = files(package) / NAME
    except (ModuleNotFoundError, TypeError):  # the factory is a script's, or of a module that is in no package
        return ()
    if not file.is_file():
        return ()
    entries = parse(file.read_text(encoding="utf-8"), f"{package}/{NAME}")
    return tuple(each for each in entries if not each.devices or (device or "cpu") in each.devices)


def unmatched(failures: Iterable[KnownFailure], tests: Iterable[str], complete: Iterable[str]) -> list[KnownFailure]:
    """The entries of the files in `complete` (all of whose tests are in `tests`) that match none."""
    names, whole = tuple(tests), frozenset(complete)
    return [each for each in failures if each.file in whole and not any(each.matches(name) for name in names)]
