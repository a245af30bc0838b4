"""The documentation site: `make docs`. Pages are Markdown that reads well on a code host, too."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tempo import __version__

project = "Tempo"
author = "the Tempo contributors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Tempo {version}"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

# Docstrings are plain text in which `x` is code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

# Every reference that a page makes resolves. Types in signatures are also those of other libraries, and of inner parts.
nitpicky = True
nitpick_ignore_regex = [(r"py:(class|obj|data)", r".*")]

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
_LINK = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")
_COLUMN = re.compile(r"^(?P<name>[a-z_]+)  +(?P<text>\S.*)$")


def stands_for(page: Path) -> Path:
    """Pages in docs/repository/ are one line each on a code host, a link; here they are what it leads to."""
    found = _LINK.search(page.read_text()) if page.parent.name == "repository" else None
    return (page.parent / found["path"]).resolve() if found else page


PAGES = {stands_for(page): page for page in DOCS.rglob("*.md") if "_build" not in page.parts}


def linked(app: Any, name: str, source: list[str]) -> None:
    """The text of a page, whose links to what is a page here lead there, and those to folders nowhere."""
    page = Path(app.env.doc2path(name))
    stood_for = stands_for(page)

    def link(found: re.Match[str]) -> str:
        target = (stood_for.parent / found["path"]).resolve()
        if not target.exists():
            return found[0]  # told as what it is
        shown = PAGES.get(target, target)
        return f"]({os.path.relpath(shown, page.parent)}{found['anchor'] or ''})"

    source[0] = _LINK.sub(link, source[0] if stood_for == page else stood_for.read_text())


def columns(_: Any, kind: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A docstring's table of names, with what each means beside it, is a list of definitions."""
    made: list[str] = []
    entry = False
    for line in lines:
        found = _COLUMN.match(line)
        if found:
            made += ["", f"``{found['name']}``", f"    {found['text']}"]
        elif entry and line.startswith(" "):
            made.append(f"    {line.strip()}")
        else:
            made.append(line)
        entry = bool(found) or (entry and line.startswith(" "))
    lines[:] = made


def setup(app: Any) -> None:
    app.connect("source-read", linked)
    app.connect("autodoc-process-docstring", columns)
