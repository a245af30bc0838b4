"""Names that are not there say what is meant by them here."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.language.unknown_names import _OTHERWISE, _RENAMED

HINTS = {
    "topk": "write tp.top_k",
    "cat": "write tp.concatenate",
    "unsqueeze": "write tp.expand_dims",
    "softmx": "did you mean tp.softmax?",
    "scan": "recurrent tensor",
    "complex64": "two tensors",
}
ON_TENSORS = {
    "topk": "write tp.top_k",
    "argsrt": "did you mean x.argsort?",
    "view": "write tp.reshape",
    "add_": "does not change in place",
    "backward": "tp.grad",
}


@pytest.mark.parametrize("name", HINTS)
def test_names_of_the_module(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'tempo' has no attribute '{name}'") as caught:
        getattr(tp, name)
    assert HINTS[name] in str(caught.value)


@pytest.mark.parametrize("name", ON_TENSORS)
def test_names_of_tensors(name: str) -> None:
    with tp.Program():
        x = tp.input("x", (2,))
    assert not hasattr(x, name) and not hasattr(x, "__dlpack__")
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as caught:
        getattr(x, name)
    assert ON_TENSORS[name] in str(caught.value)


def test_hints_name_what_is_there() -> None:
    texts = " ".join([*_RENAMED.values(), *_OTHERWISE.values()])
    assert all(hasattr(tp, name) for name in re.findall(r"tp\.(\w+)", texts))
    assert all(hasattr(tp.RecurrentTensor, name) for name in re.findall(r"\bx\.(\w+)", texts))
    assert not {*_RENAMED, *_OTHERWISE} & set(tp.__all__) - {"grad"}


@pytest.mark.parametrize("value", [1j, np.ones(2, np.complex64)])
def test_complex_numbers(value: Any) -> None:
    with tp.Program(), pytest.raises(tp.DTypeError, match="two tensors"):
        tp.input("x", (2,)) * value
    with tp.Program(), pytest.raises(tp.DTypeError, match="two tensors"):
        tp.input("x", (2,), dtype="complex64")


def test_dims_of_size_0() -> None:
    with tp.Program() as program:
        tp.output("y", tp.input("x", (2,), (tp.dim("t"),)))
        with pytest.raises(tp.SizeError, match="an axis of a shape may have size 0"):
            tp.dim("s", 0)
    run = tp.compile(program)
    for given in ({"x": np.zeros((0, 2))}, {"x": np.zeros((1, 2)), "sizes": {"t": 0}}):
        with pytest.raises(tp.SizeError, match="leave the run out"):
            run(**given)
