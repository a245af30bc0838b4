"""The tutorial and the README run as they stand: python blocks in order, and text blocks are what was printed."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_block(path: Path, source: str, line: int, names: dict[str, Any]) -> str:
    """Execute one block; errors point at the line of the page."""
    name = f"<{path.name}:{line}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, name, "exec"), names)
    return printed.getvalue()


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/training.md", "README.md"])
def test_page(page: str) -> None:
    run_page(page)


def test_page_of_other_frameworks() -> None:
    pytest.importorskip("tempo_jax.backend")
    pytest.importorskip("tempo_torch.backend")
    run_page("docs/inside_frameworks.md")


def test_page_with_devices_of_its_own() -> None:
    """In a process of its own, in which nobody has used JAX yet."""
    found = subprocess.run([sys.executable, __file__, "docs/devices.md"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def run_page(page: str) -> None:
    path = ROOT / page
    text = path.read_text()
    names: dict[str, Any] = {"__name__": "page"}
    printed: str | None = None
    count = 0
    for match in BLOCK.finditer(text):
        line = text[: match.start()].count("\n") + 1
        if match[1] == "python":
            printed = run_block(path, match[2], line, names)
            count += 1
        elif printed is not None:
            assert printed.strip() == match[2].strip(), f"{page}:{line}"
            printed = None
    assert count > 0


if __name__ == "__main__":
    run_page(sys.argv[1])
