from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from tempo_torch.operators import widening


@pytest.fixture
def in_parts_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[list[torch.Tensor]]]:
    """Gives what is made wider, so many elements at once, in memory of its own."""

    @contextmanager
    def in_parts(elements: int) -> Iterator[list[torch.Tensor]]:
        found, memory = [], widening._memory

        def noted(like: torch.Tensor, *more: Any) -> torch.Tensor:
            found.append(like)
            return memory(like, *more)

        with monkeypatch.context() as patch:
            for name, value in {"_LARGE": elements, "_SMALL": 0, "_kept": threading.local(), "_memory": noted}.items():
                patch.setattr(widening, name, value)
            yield found

    return in_parts
