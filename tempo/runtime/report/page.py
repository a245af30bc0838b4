"""Writes what a page knows into one file that needs no other, and no network."""

from __future__ import annotations

import html
import os
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

from tempo.runtime.report.contents import Contents


def page_of(contents: Contents) -> str:
    """The page: its template with style, script and contents in their places."""
    folder = files("tempo.runtime.report")
    parts = {
        "title": html.escape(f"{contents.program}: a report of Tempo"),
        "style": (folder / "page.css").read_text(encoding="utf-8"),
        "contents": contents.as_json(),
        "script": (folder / "page.js").read_text(encoding="utf-8"),
    }
    first, *rest = (folder / "page.html").read_text(encoding="utf-8").split("{{")
    made = [first]
    for each in rest:  # in one go: what is put in is not looked through
        name, _, after = each.partition("}}")
        made += [parts[name], after]
    return "".join(made)


def write_page(contents: Contents, path: Path) -> None:
    """A file is whole, or as it was; what is no file, such as a pipe or /dev/stdout, is written to."""
    text = page_of(contents).encode("utf-8", errors="replace")
    if path.exists() and not path.is_file():
        path.write_bytes(text)
        return
    part = path.with_name(f".{uuid4().hex}.part")
    try:
        part.write_bytes(text)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
