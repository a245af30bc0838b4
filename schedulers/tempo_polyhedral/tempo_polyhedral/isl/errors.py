"""What isl says when it fails, as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl


class IslError(RuntimeError):
    """isl failed, or gave what has no meaning here."""


@contextmanager
def told() -> Iterator[None]:
    """isl's own errors inside become `IslError`s."""
    try:
        yield
    except isl.Error as error:
        raise IslError(str(error)) from error
