"""The backend's own tests: what the conformance suite cannot know. They run against the installed packages."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tempo_plain.operators import TABLE

import tempo as tp
from tempo.plugins import API_VERSION, list_backends


def test_the_backend_is_found_and_described() -> None:
    (listing,) = [each for each in list_backends() if each.name == "plain"]
    assert listing.descriptor is not None
    assert listing.descriptor.api_version == API_VERSION
    assert listing.distribution.startswith("tempo-example-plain ")


def test_listing_imports_no_backend() -> None:
    code = "import sys, tempo.plugins as p; p.list_backends(); assert 'tempo_plain.backend' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_program_means_the_same_as_on_the_reference() -> None:
    with tp.Program() as program:
        t = tp.dim("t", 9)
        w = tp.input("w", shape=(4, 4))
        h = tp.recurrent("h", shape=(4,), dims=(t,))
        h[0] = tp.ones((4,))
        h[t + 1] = tp.tanh(h @ w)
        tp.output("scaled", h * tp.rsqrt((h[tp.max(t - 2, 0) : t + 1] ** 2).sum(axis=(0, 1)) + 1))
    w_value = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    found = tp.compile(program, backend="plain")(w=w_value)["scaled"]
    np.testing.assert_allclose(found, tp.compile(program, backend="reference")(w=w_value)["scaled"], rtol=1e-5)


def test_what_is_not_supported_is_not_in_the_table_and_is_refused() -> None:
    assert "conv" not in TABLE
    with tp.Program() as program:
        x, w = tp.input("x", shape=(1, 1, 5)), tp.input("w", shape=(1, 1, 3))
        tp.output("y", tp.conv(x, w))
    with pytest.raises(tp.UnsupportedError, match="cannot run 'conv' for float32: no convolution is written yet"):
        tp.compile(program, backend="plain")(x=np.ones((1, 1, 5)), w=np.ones((1, 1, 3)))


def test_bfloat16_is_refused() -> None:
    with tp.Program() as program:
        tp.output("y", tp.input("x", shape=(3,)).astype("bfloat16").astype("float32"))
    with pytest.raises(tp.UnsupportedError, match="it has no bfloat16"):
        tp.compile(program, backend="plain")(x=np.ones(3))
