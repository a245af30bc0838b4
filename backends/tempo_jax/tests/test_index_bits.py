"""Indices are computed in 32 bits wherever the sizes of a run allow that, and in 64 where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tempo_jax.backend import JaxBackend

import tempo as tp
from benchmarks.attention.program import Config, decoder, sizes
from benchmarks.models.workloads import bptt
from tempo.backends.base import CompiledSegment, SegmentRequest

FAR = 1_500_000_000


class Recorder(JaxBackend):
    """Keeps in how many bits each segment computes its indices, and the code that XLA is given."""

    def __init__(self) -> None:
        super().__init__()
        self.bits: list[int] = []
        self.texts: list[str] = []

    def compile_segment(self, request: SegmentRequest) -> CompiledSegment:
        self.bits.append(request.index_bits)
        made = super().compile_segment(request)

        def call(*arguments: Any) -> tuple[Any, ...]:
            if request.index_bits == 32:
                lowered = made.function.executable(*arguments[:2]).function.lower(*arguments)  # type: ignore[attr-defined]
                self.texts.append(lowered.as_text())
            return made.function(*arguments)

        return CompiledSegment(call, made.source)


def reads(factor: int) -> tp.Program:
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", (), (t,))
        h = tp.recurrent("h", (), (t,))
        h[0] = x
        h[t] = 0.5 * h[t - 1] + x[tp.min(factor * t, t.size - 1)]
        tp.output("h", h)
    return program


def test_what_stays_within_32_bits_holds_no_wide_integer():
    recorder = Recorder()
    tp.compile(reads(1000), backend=recorder)(x=np.ones(50, np.float32))
    assert recorder.bits == [32]
    assert "xi64>" not in recorder.texts[0].replace("dense", "")


def test_what_may_not_is_computed_in_64():
    recorder = Recorder()
    run = tp.compile(reads(FAR), backend=recorder)
    run(x=np.ones(2, np.float32))
    run(x=np.ones(5, np.float32))
    assert recorder.bits == [32, 64]


def test_programs_of_real_sizes_stay_in_32():
    config = Config(layers=2, width=64, heads=2, kv_heads=2)
    for program, known in ((decoder(config), sizes(config, 8192)), (bptt(3, 5), {"b": 64, "t": 2**20})):
        recorder = Recorder()
        tp.compile(program, backend=recorder, sizes=known)
        assert set(recorder.bits) == {32}


@pytest.mark.parametrize("backward", [False, True])
def test_a_size_that_no_shape_is_made_of_chooses_too(backward: bool):
    recorder = Recorder()
    with tp.Program() as program:
        t, n = tp.dims("t n")
        x, h = tp.input("x", (), (t,)), tp.recurrent("h", (), (n,))
        if backward:
            h[-1] = x[0]
            h[n] = h[n + 1] + x[tp.min(n * FAR, t.size - 1)]
        else:
            h[0] = x[0]
            h[n] = h[n - 1] + x[tp.min(n * FAR, t.size - 1)]
        tp.output("last", h[0 if backward else n.size - 1])
    run = tp.compile(program, backend=recorder)
    x_data = np.arange(5, dtype=np.float32)
    found = [float(run(sizes={"n": size}, x=x_data)["last"]) for size in (2, 4, 2, 3)]
    reads = [sum(min(n * FAR, 4) for n in (range(size - 1) if backward else range(1, size))) for size in (2, 4, 2, 3)]
    assert found == reads
    assert recorder.bits == [32, 64]
    assert run.executables == 2
