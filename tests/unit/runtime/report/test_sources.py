"""The user's lines."""

from __future__ import annotations

from pathlib import Path

from tempo.errors import Location
from tempo.runtime.report.contents import NOWHERE
from tempo.runtime.report.sources import Sources


def test_a_line_comes_with_those_around_it(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("".join(f"line {number}\n" for number in range(1, 11)))
    sources = Sources()
    assert sources.place(Location(str(path), 2)) == sources.place(Location(str(path), 2)) == 0
    assert sources.place(Location(str(path), 9)) == 1
    assert sources.place(None) == NOWHERE
    assert sources.places == ((0, 2), (0, 9))
    (file,) = sources.files()
    assert list(file.lines) == [1, 2, 3, 4, 7, 8, 9, 10]
    assert file.lines[9] == "line 9"


def test_files_of_one_name_are_told_apart() -> None:
    sources = Sources()
    for path in ("/x/one/model.py", "/x/two/model.py", "/x/other.py"):
        sources.place(Location(path, 1))
    assert [each.short for each in sources.files()] == ["one/model.py", "two/model.py", "other.py"]
    assert [each.lines for each in sources.files()] == [{}, {}, {}]  # they are not there
