"""Writes what a page knows into one file that needs no other, and no network."""

from __future__ import annotations

import html
import os
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

from tempo.errors import InputError, MissingFileError, user_location
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


def check_path(path: Path) -> None:
    """Before a page is made: raises `MissingFileError` where the folder that it is to be in is not there, and
    `InputError` where it would be a folder itself."""
    if not path.parent.is_dir():
        what = f"there is no folder {str(path.parent)!r} for the report"
        raise MissingFileError(what, location=user_location(), hint="make it first")
    if path.is_dir():
        hint = f"name a file in it, such as {str(path / 'report.html')!r}"
        raise InputError(f"{str(path)!r} is a folder, and a report is a file", location=user_location(), hint=hint)


def write_page(contents: Contents, path: Path) -> None:
    """A file is whole, or as it was; what is no file, such as a pipe or /dev/stdout, is written to."""
    text, place = page_of(contents).encode("utf-8", errors="replace"), path.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(text)
        return
    part = place.with_name(f".{uuid4().hex}.part")
    try:
        part.write_bytes(text)
        os.replace(part, place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
