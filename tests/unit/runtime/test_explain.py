"""What `explain()` says: what fits a screen, and sections by name."""

import re
from pathlib import Path

import pytest

import tempo as tp
from tempo.runtime.explain import SECTIONS

SCREEN = 50


def program(layers: int = 1) -> tp.Program:
    with tp.Program("layers") as made:
        t, b = tp.dim("t"), tp.dim("b", 4)
        x = tp.input("x", (8,), (t, b))
        for layer in range(layers):
            h = tp.recurrent(f"h{layer}", (8,), (t, b))
            h[0, b] = tp.zeros(8)
            h[t + 1, b] = tp.tanh(h @ tp.input(f"w{layer}", (8, 8)) + x)
            x = h * 0.5
        tp.output("loss", (h[0 : t.size, b] ** 2).mean())
    return made


@pytest.mark.parametrize("layers", [1, 12])
@pytest.mark.parametrize("sizes", [{"t": 20}, None])
def test_the_short_form_fits_a_screen(layers: int, sizes: dict[str, int] | None) -> None:
    text = tp.compile(program(layers), sizes=sizes).explain()
    assert len(text.splitlines()) <= SCREEN
    assert "b: full" in text and "for t in 0..t.size" in text and "compiled in" in text
    assert ("peak" in text) == (sizes is not None)
    assert all(name in text.splitlines()[-1] for name in SECTIONS)


def test_the_short_form_says_why_the_largest_is_kept() -> None:
    text = tp.compile(program(), sizes={"t": 20}).explain()
    (line,) = [each for each in text.splitlines() if each.startswith("  h0 ")]
    assert "every point of t: h0[0:t.size] is read by" in line and Path(__file__).name in line


def test_sections_by_name_stand_in_the_order_in_which_they_are_asked_for() -> None:
    run = tp.compile(program(), sizes={"t": 20})
    titles = re.findall(r"^# (\w+)", run.explain("schedule", "code", "mapping"), re.MULTILINE)
    assert titles == ["backend", "schedule", "code", "mapping"]
    everything = run.explain("all")
    for name in SECTIONS:
        body = run.explain(name).partition("\n\n")[2]
        assert body in everything or name == "times"


def test_code_of_every_backend_is_shown_with_its_statements() -> None:
    for backend in ("numpy", "torch", "jax"):
        assert "tanh" in tp.compile(program(), backend=backend, sizes={"t": 20}).explain("code")


def test_a_section_that_there_is_not_is_an_error_with_the_nearest() -> None:
    run = tp.compile(program(), sizes={"t": 20})
    with pytest.raises(tp.InputError, match=r"no section 'cod'(.|\n)*code") as error:
        run.explain("cod")
    assert __file__ in str(error.value)


def test_a_size_in_a_bucket_is_told_once() -> None:
    run = tp.compile(program(), options=tp.Options(buckets={"t": "pow2"}), sizes={"t": 20})
    assert run.explain().splitlines()[0].endswith(", at t=20 in a bucket of 32")
    assert str(tp.stages(program(), options=tp.Options(buckets={"t": "pow2"}), sizes={"t": 20}).loops).startswith(
        "# loops at t=20 in a bucket of 32\n"
    )


def test_sections_that_need_sizes_are_left_out_without_them() -> None:
    text = tp.compile(program()).explain("memory", "graph")
    assert "# graph" in text and "# memory" not in text


def test_the_reference_knows_the_same_sections() -> None:
    run = tp.compile(program(), backend="reference", sizes={"t": 3})
    assert "over (t, b) = dot" in run.explain("graph")
    with pytest.raises(tp.InputError, match="no section 'cod'"):
        run.explain("cod")
