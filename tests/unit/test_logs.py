"""Logs by name, on Python's standard logging."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tempo as tp
from tempo.logs import LOGS, configure

SCRIPT = """
import tempo as tp
with tp.Program("sum") as program:
    t = tp.dim("t", 5)
    s = tp.recurrent("s", (), (t,))
    s[0] = 0.0
    s[t + 1] = tp.tanh(s) + 1.0
    tp.output("s", s[t.size - 1])
run = tp.compile(program, "numpy", "greedy")
run()
"""


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    yield
    for name in LOGS:
        logging.getLogger(f"tempo.{name}").setLevel(logging.NOTSET)


def said(logs: str, folder: Path) -> tuple[int, str]:
    environment = {**os.environ, "TEMPO_LOGS": logs, "TEMPO_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_nothing_is_said_unasked(tmp_path: Path) -> None:
    assert said("", tmp_path) == (0, "")


def test_logs_are_shown_by_name(tmp_path: Path) -> None:
    status, text = said("schedule, code", tmp_path)
    assert status == 0
    assert "tempo.schedule: \n" in text and "for t in 0..4" in text
    assert "tempo.code: \ndef segment_0(" in text
    assert "tempo.passes" not in text and "tempo.memory" not in text


def test_they_say_as_much_of_a_plan_that_is_kept(tmp_path: Path) -> None:
    first, second = (said("passes,schedule", tmp_path)[1] for _ in range(2))
    assert "for t in 0..4" in first
    assert "for t in 0..4" in second and first.count("tempo.passes: ") == second.count("tempo.passes: ")


def test_all_logs_say_something(tmp_path: Path) -> None:
    status, text = said("all", tmp_path)
    assert status == 0
    assert all(f"tempo.{name}: " in text for name in LOGS if name != "checkpoints")
    assert "made; kept as" in text and "found" in said("plans", tmp_path)[1]


def test_a_log_that_there_is_not_is_an_error_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPO_LOGS", "shedule")
    with tp.Program("empty") as program:
        tp.output("x", tp.zeros(1))
    with pytest.raises(tp.InputError, match=r"TEMPO_LOGS names 'shedule'(.|\n)*'schedule'"):
        tp.compile(program)


def test_handlers_of_the_users_are_used(caplog: pytest.LogCaptureFixture) -> None:
    with tp.Program("other") as program:
        x = tp.input("x", (3,))
        tp.output("y", x * 2.5)
    with caplog.at_level(logging.DEBUG, "tempo.passes"):
        tp.compile(program)
    assert {record.name for record in caplog.records} == {"tempo.passes"}


def test_an_application_at_debug_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    with tp.Program("quiet") as program:
        tp.output("y", tp.input("x", (3,)) * 3.5)
    with caplog.at_level(logging.DEBUG):
        tp.compile(program)
    assert {record.name for record in caplog.records if record.name.startswith("tempo")} <= {"tempo.compile"}


def test_where_logging_is_set_up_no_handler_is_added() -> None:
    configure({"TEMPO_LOGS": "schedule"})  # pytest has set it up
    assert not logging.getLogger("tempo").handlers
    assert logging.getLogger("tempo.schedule").level == logging.DEBUG


def test_every_log_is_on_the_page_of_variables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()
    (row,) = [line for line in page.splitlines() if "TEMPO_LOGS" in line]
    assert all(f"`{name}`" in row for name in LOGS)
