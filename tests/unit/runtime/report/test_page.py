"""The page as a file."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from threading import Thread

import pytest

import tempo as tp
from tests.unit.runtime.programs import running_sum

PATTERN = re.compile(r'<script type="application/json" id="contents">(.*?)</script>', re.DOTALL)


def test_a_page_is_one_file_that_needs_no_other(tmp_path: Path) -> None:
    run = tp.compile(running_sum(), "numpy", sizes={"t": 4})
    path = run.report(tmp_path / "page.html")
    assert path == tmp_path / "page.html"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    text = path.read_text()
    assert "{{" not in text.replace("${", "")
    assert re.findall(r'(?:src|href)="(?!data:|#)', text) == []
    assert "@import" not in text
    assert json.loads(PATTERN.findall(text)[0])["program"] == "running_sum"


def test_names_of_the_user_are_no_markup(tmp_path: Path) -> None:
    name = "</title></script><img src=x onerror=alert(1)>{{script}}"
    with tp.Program(name) as program:
        tp.output("<b>", tp.ones((2,)) + 1)
    text = tp.compile(program, "numpy").report(tmp_path / "page.html").read_text()
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert html.escape(name) in text
    assert json.loads(PATTERN.findall(text)[0])["program"] == name


def test_a_page_replaces_the_one_before_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    tp.compile(running_sum(), "numpy", sizes={"t": 4}).report(str(path))
    assert path.read_text().startswith("<!doctype html>")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    run = tp.compile(running_sum(), "numpy", sizes={"t": 4})
    with pytest.raises(tp.MissingFileError, match="there is no folder .*nowhere") as raised:
        run.report(tmp_path / "nowhere" / "page.html")
    assert raised.value.location is not None
    assert raised.value.location.path == __file__


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    run = tp.compile(running_sum(), "numpy", sizes={"t": 4})
    with pytest.raises(tp.InputError, match="is a folder") as raised:
        run.report(tmp_path)
    assert raised.value.location is not None
    assert raised.value.location.path == __file__


def test_a_link_stays_one_and_long_names_are_names(tmp_path: Path) -> None:
    run, name = tp.compile(running_sum(), "numpy", sizes={"t": 4}), "x" * 240 + ".html"
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / name)
    assert run.report(link) == link
    assert link.is_symlink()
    assert [each.name for each in tmp_path.iterdir() if each != link] == [name]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name")
def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """A device is not replaced by a file: /dev/null was, by whoever may."""
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    tp.compile(running_sum(), "numpy", sizes={"t": 4}).report(pipe)
    reader.join(timeout=60)
    assert pipe.is_fifo()
    assert read[0].startswith("<!doctype html>")


def test_sizes_that_are_not_known() -> None:
    with pytest.raises(tp.SizeError, match="no sizes are known yet"):
        tp.compile(running_sum(), "numpy").report("page.html")


def test_the_reference_backend_has_nothing_to_report() -> None:
    with pytest.raises(tp.UnsupportedError, match="plans nothing, so there is nothing to report"):
        tp.compile(running_sum(), "reference", sizes={"t": 4}).report("page.html")


@pytest.mark.parametrize("path", [3, b"page.html", "", "a\0b"])
def test_what_is_no_path(path: object) -> None:
    run = tp.compile(running_sum(), "numpy", sizes={"t": 4})
    with pytest.raises(tp.InputError, match="is no path"):
        run.report(path)  # type: ignore[arg-type]
