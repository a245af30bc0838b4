"""A long first call says what it waits for: to the logger, and to a bar."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import tempo as tp
from tempo.waiting import told, waiting
from tests.unit.runtime.programs import running_sum

X = np.ones((4, 3), np.float32)


def test_the_first_call_is_logged_and_the_second_is_not(caplog: pytest.LogCaptureFixture) -> None:
    run = tp.compile(running_sum())
    with caplog.at_level(logging.INFO, "tempo"):
        run(x=X)
        first = [record.getMessage() for record in caplog.records]
        run(x=X)
    assert any(message.startswith("making code for numpy") for message in first)
    assert any(message.endswith(" s") for message in first)
    assert len(caplog.records) == len(first)
    assert {record.name for record in caplog.records} == {"tempo.compile"}


def test_nothing_is_printed_unless_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    tp.compile(running_sum())(x=X)
    assert capfd.readouterr() == ("", "")


def test_a_bar_shows_what_is_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    tp.compile(running_sum())(x=X, progress=True)
    assert "making code for numpy" in capfd.readouterr().err


def test_listeners_hear_what_is_inside() -> None:
    heard: list[str] = []
    with told(heard.append), waiting("one"), told(lambda what: None), waiting("two"):
        pass
    with waiting("three"):
        pass
    assert heard == ["one"]
