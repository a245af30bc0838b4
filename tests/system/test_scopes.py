"""Sources mean the same on every Python that is supported."""

from __future__ import annotations

import symtable
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPREHENSIONS = ("listcomp", "setcomp", "dictcomp")

pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="symtable counts what comprehensions bind among the function's own names there"
)


def comprehensions(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for each in table.get_children():
        if each.get_name() in COMPREHENSIONS:
            yield each
            yield from comprehensions(each)


def mistaken(table: symtable.SymbolTable) -> set[str]:
    """Names that one comprehension binds while another beside it means what is around the function: Python 3.12.0 to
    3.12.3 takes a global for the former (cpython#118513), every later one an enclosing function's variable (#156664).
    """
    inner = list(comprehensions(table))
    bound = {symbol.get_name() for each in inner for symbol in each.get_symbols() if symbol.is_local()}
    enclosing = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_free()}
    outer = {
        symbol.get_name()
        for each in inner
        for symbol in each.get_symbols()
        if symbol.is_global() or (symbol.is_free() and symbol.get_name() in enclosing)
    }
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_local()}
    found = {f"{table.get_name()}: {name}" for name in (bound & outer) - own}
    return found.union(*map(mistaken, table.get_children()))


@pytest.mark.parametrize("folder", ["tempo", "schedulers", "backends", "examples", "benchmarks", "tests"])
def test_no_comprehension_binds_what_another_finds_outside(folder):
    sources = [path for path in sorted((ROOT / folder).rglob("*.py")) if "build" not in path.parts]
    found = {
        str(path.relative_to(ROOT)): names
        for path in sources
        if (names := mistaken(symtable.symtable(path.read_text(encoding="utf-8"), str(path), "exec")))
    }
    assert not found


def test_such_a_comprehension_is_found():
    source = "def f(nodes):\n    keys = [id for id in nodes]\n    return {id(key): key for key in keys}\n"
    assert mistaken(symtable.symtable(source, "f.py", "exec")) == {"f: id"}
    assert not mistaken(symtable.symtable(source.replace("id for id", "each for each"), "f.py", "exec"))
