"""Where errors point."""

from pathlib import Path

import pytest

import tempo as tp
from tempo.errors import user_location


def test_a_package_whose_name_begins_with_ours_is_the_users() -> None:
    ours = Path(tp.__file__).parent
    for path, expected in ((f"{ours}_models/net.py", True), (f"{ours}/language/net.py", False)):
        code = compile("found = where()", path, "exec")
        names = {"where": user_location}
        exec(code, names)
        assert (names["found"].path == path) is expected


def test_the_text_of_an_error_says_what_where_and_what_to_do() -> None:
    """`str(error)` says what is wrong in the user's words, where, as `path:line` and the source line, and what to do"""
    with tp.Program(), pytest.raises(tp.ShapeError) as caught:
        tp.zeros((2,)) + tp.zeros((3,))
    what, where, line, hint = str(caught.value).splitlines()
    assert "shapes (2,) and (3,) do not broadcast" in what
    assert where.strip().startswith(f"at {__file__}:")
    assert line.strip() == "tp.zeros((2,)) + tp.zeros((3,))"
    assert hint.strip() == "sizes must be equal, or one of them 1"
