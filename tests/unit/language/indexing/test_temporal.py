"""Rules of the page "The language": Indexing of temporal dims."""

import numpy as np
import pytest

import tempo as tp
from tempo.errors import DomainError, DTypeError, IndexOutOfRangeError, ShapeError

A, B, C, D = 6, 4, 2, 3
DATA = np.arange(A * B * C * D, dtype=np.float32).reshape(A, B, C, D)


@pytest.fixture
def tensor():
    """`x` of domain `(a, b)`, shape `(C, D)`, in an open program."""
    with tp.Program("indexing") as program:
        a, b = tp.dims("a b")
        s = tp.dim("s", 3)
        yield program, a, b, s, tp.input("x", shape=(C, D), dims=(a, b))


def windows():
    return np.array([[DATA[max(a - 3, 0) : a + 1, b].sum(0) for b in range(B)] for a in range(A)])


# index, domain, shape as printed, what a sum over the axes in front gives (or the value itself)
TABLE = {
    "x[a, b]": (lambda x, a, b, s: x[a, b], "a b", "(2, 3)", 0, lambda: DATA),
    "x[...]": (lambda x, a, b, s: x[...], "a b", "(2, 3)", 0, lambda: DATA),
    "x": (lambda x, a, b, s: x, "a b", "(2, 3)", 0, lambda: DATA),
    "x[0]": (lambda x, a, b, s: x[0], "b", "(2, 3)", 0, lambda: DATA[0]),
    "x[a.size - 1]": (lambda x, a, b, s: x[a.size - 1], "b", "(2, 3)", 0, lambda: DATA[-1]),
    "x[-1]": (lambda x, a, b, s: x[-1], "b", "(2, 3)", 0, lambda: DATA[-1]),
    "x[..., -2]": (lambda x, a, b, s: x[..., -2], "a", "(2, 3)", 0, lambda: DATA[:, -2]),
    "x[0:a.size, 1]": (lambda x, a, b, s: x[0 : a.size, 1], "", "(a.size, 2, 3)", 0, lambda: DATA[:, 1]),
    "x[:, 1]": (lambda x, a, b, s: x[:, 1], "", "(a.size, 2, 3)", 0, lambda: DATA[:, 1]),
    "x[:, :]": (lambda x, a, b, s: x[:, :], "", "(a.size, b.size, 2, 3)", 0, lambda: DATA),
    "x[:]": (lambda x, a, b, s: x[:], "b", "(a.size, 2, 3)", 0, lambda: DATA.transpose(1, 0, 2, 3)),
    "x[2:5]": (lambda x, a, b, s: x[2:5], "b", "(3, 2, 3)", 0, lambda: DATA[2:5].transpose(1, 0, 2, 3)),
    "x[-3:-1]": (lambda x, a, b, s: x[-3:-1], "b", "(2, 2, 3)", 0, lambda: DATA[-3:-1].transpose(1, 0, 2, 3)),
    "x[3:3]": (lambda x, a, b, s: x[3:3], "b", "(0, 2, 3)", 1, lambda: np.zeros((B, C, D))),
    "x[5:2]": (lambda x, a, b, s: x[5:2], "b", "(0, 2, 3)", 1, lambda: np.zeros((B, C, D))),
    "x[0:a + 1]": (lambda x, a, b, s: x[0 : a + 1], "a b", "(a + 1, 2, 3)", 1, lambda: DATA.cumsum(0)),
    "x[a:]": (lambda x, a, b, s: x[a:], "a b", "(a.size - a, 2, 3)", 1, lambda: DATA[::-1].cumsum(0)[::-1]),
    "x[tp.max(a - 3, 0):a + 1, b]": (
        lambda x, a, b, s: x[tp.max(a - 3, 0) : a + 1, b],
        "a b",
        "(min(a + 1, 4), 2, 3)",
        1,
        windows,
    ),
    "x[s]": (lambda x, a, b, s: x[s], "b s", "(2, 3)", 0, lambda: DATA[:3].transpose(1, 0, 2, 3)),
    "x[2 * s]": (lambda x, a, b, s: x[2 * s], "b s", "(2, 3)", 0, lambda: DATA[[0, 2, 4]].transpose(1, 0, 2, 3)),
    "x[a, s]": (lambda x, a, b, s: x[a, s], "a s", "(2, 3)", 0, lambda: DATA[:, :3]),
    "x[a.size - 1 - a]": (lambda x, a, b, s: x[a.size - 1 - a], "a b", "(2, 3)", 0, lambda: DATA[::-1]),
    "x.at(b=0)": (lambda x, a, b, s: x.at(b=0), "a", "(2, 3)", 0, lambda: DATA[:, 0]),
    "x.at(b=s, a=0)": (lambda x, a, b, s: x.at(b=s, a=0), "s", "(2, 3)", 0, lambda: DATA[0, :3]),
    "x.at(b=slice(0, 2))": (lambda x, a, b, s: x.at(b=slice(0, 2)), "a", "(2, 2, 3)", 0, lambda: DATA[:, :2]),
}


@pytest.mark.parametrize("index", TABLE)
def test_the_table(run_program, tensor, index):
    """With `x` of domain `(a, b)`, shape `(C, D)`: index, domain, shape"""
    program, a, b, s, x = tensor
    make, domain, shape, summed, expected = TABLE[index]
    found = make(x, a, b, s)
    assert " ".join(dim.name for dim in found.domain) == domain
    assert repr(found.shape) == shape
    tp.output("y", found.sum(axis=0) if summed else found)
    out = run_program(program, x=DATA, sizes={"a": A, "b": B})["y"]
    np.testing.assert_allclose(out, expected(), rtol=1e-6)


def test_index_shifted_under_a_guard(run_program, tensor):
    """`x[a + 1, b]`: (a, b), (C, D)"""
    program, a, b, s, x = tensor
    y = x[a + 1, b]
    assert (y.domain, y.shape) == ((a, b), (C, D))
    tp.output("y", tp.cases((a < a.size - 1, y), 0.0))
    expected = np.concatenate([DATA[1:], np.zeros_like(DATA[:1])])
    np.testing.assert_array_equal(run_program(program, x=DATA)["y"], expected)


def test_temporal_dims_only_in_domain_order_for_any_expression(run_program, tensor):
    """`x[...]` indexes **temporal** dims only, in domain order, for any tensor expression; dims not named are read at
    themselves."""
    program, a, b, s, x = tensor
    y = (x * 2 + a).sum(axis=0)
    tp.output("y", y[1])
    tp.output("z", y[a, 0])
    out = run_program(program, x=DATA, sizes={"a": A, "b": B})
    expected = (DATA * 2 + np.arange(A)[:, None, None, None]).sum(2)
    np.testing.assert_array_equal(out["y"], expected[1])
    np.testing.assert_array_equal(out["z"], expected[:, 0])
    with pytest.raises(DomainError, match=r"x\.spatial"):
        x[0, 0, 0]
    with pytest.raises(DomainError, match="no dims"):
        tp.constant([1.0])[0]
    with pytest.raises(DomainError, match="no dim 'c'"):
        x.at(c=1)


def test_a_slice_puts_its_axis_in_front_in_the_order_of_the_dims(run_program, tensor):
    """a slice whose bounds have no dims also removes it and puts a spatial axis in front, in the order of the dims."""
    program, a, b, s, x = tensor
    tp.output("one", x[1:4, 0:2])
    later = x[:, b][0:2]
    assert repr(later.shape) == "(2, a.size, 2, 3)"
    tp.output("later", later)
    swapped = x.at(a=b, b=a)
    assert swapped.domain == (a, b)
    with tp.Program() as square:
        a, b = tp.dim("a", 3), tp.dim("b", 3)
        z = tp.input("z", dims=(a, b))
        w = z.at(a=b, b=a)
        tp.output("w", w[0:2, 0:3])
        tp.output("diagonal", z[a, a][0:3])
    out = run_program(program, x=DATA)
    np.testing.assert_array_equal(out["one"], DATA[1:4, 0:2])
    np.testing.assert_array_equal(out["later"], DATA[:, 0:2].swapaxes(0, 1))
    zs = np.arange(9, dtype=np.float32).reshape(3, 3)
    out = run_program(square, z=zs)
    np.testing.assert_array_equal(out["w"], zs.T[0:2])
    np.testing.assert_array_equal(out["diagonal"], np.diagonal(zs))


def test_reads_of_reads(run_program, tensor):
    program, a, b, s, x = tensor
    shifted = x[a.size - 1 - a]
    tp.output("slice_of_reversed", shifted[1:3])
    tp.output("point_of_slice", x[0 : a + 1][2].sum(axis=0))
    tp.output("prefix_of_prefix", x[0 : a + 1].sum(axis=0)[0 : a + 1].sum(axis=0))
    out = run_program(program, x=DATA)
    np.testing.assert_array_equal(out["slice_of_reversed"], DATA[::-1][1:3].swapaxes(0, 1))
    np.testing.assert_array_equal(out["point_of_slice"], DATA[:3].sum(0))
    np.testing.assert_allclose(out["prefix_of_prefix"], DATA.cumsum(0).cumsum(0))


def test_a_read_is_a_view(tensor):
    program, a, b, s, x = tensor
    count = len(program.builder.nodes)
    assert x[a - 1, 0].edge.node == x.edge.node
    assert len(program.builder.nodes) == count
    assert x[a - 1][a - 1].node.op == "copy"  # which simplification looks through
    assert x[a - 1][a - 1].label == "the tensor 'x[a - 1, b]'"


@pytest.mark.parametrize(
    "read",
    [
        lambda x, a: x[a - 1 : a + 1],
        lambda x, a: x[a : a + 2],
        lambda x, a: x[5 : a - 1],
        lambda x, a: x[7:7],
        lambda x, a: x[0:9],
    ],
    ids=["before the start", "after the end", "empty before", "empty after", "too long"],
)
def test_a_slice_is_not_clipped(run_program, tensor, read):
    """it is **not** clipped: `0 <= start <= size` and `0 <= stop <= size` must hold, even where it is empty, else
    `DomainError`;"""
    program, a, b, s, x = tensor
    tp.output("y", read(x, a).sum(axis=0))
    with pytest.raises(DomainError, match=r"\bx\b"):
        run_program(program, x=DATA)


def test_length_of_a_slice(tensor):
    """its length is `max(0, stop - start)`;"""
    program, a, b, s, x = tensor
    assert str(x[2 : a + 1].shape[0]) == "max(a - 1, 0)"
    assert x[4:2].shape[0] == 0
    assert str(x[0 : a.size - 1].shape[0]) == "a.size - 1"


def test_empty_slices(run_program):
    """a sum over an empty slice is 0, a max or mean is an error where it can occur."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        tp.output("sum", x[0:t].sum(axis=0))
        tp.output("max", tp.cases((t > 0, x[0:t].max(axis=0)), -1.0))
    np.testing.assert_array_equal(run_program(program, x=[3.0, 1.0, 5.0])["sum"], [0, 3, 4])
    np.testing.assert_array_equal(run_program(program, x=[3.0, 1.0, 5.0])["max"], [-1, 3, 3])
    for reduce in ("max", "min", "mean", "argmax"):
        with tp.Program() as program:
            t = tp.dim("t")
            x = tp.input("x", dims=(t,))
            tp.output("y", getattr(x[0:t], reduce)(axis=0))
        with pytest.raises(ShapeError, match="empty"):
            run_program(program, x=[3.0, 1.0])


def test_statically_empty():
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        assert x[2:2].sum(axis=0).shape == ()
        for reduce in ("max", "min", "mean", "argmax", "argmin"):
            with pytest.raises(ShapeError, match="empty"):
                getattr(x[2:2], reduce)(axis=0)


def test_ragged_slice():
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        with pytest.raises(ShapeError, match="varies with t"):
            x[0 : t + 1][0:2]


def test_a_read_outside_the_domain_of_a_view(run_program):
    """`y = x[t + 1]` at `t - 1` is a read of y at -1 where t is 0, though x itself would be in range."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        y = x[t + 1]
        tp.output("z", y[t - 1])
    with pytest.raises(DomainError):
        run_program(program, x=[1.0, 2.0, 3.0])


def test_gather(run_program):
    """`x.gather(n, index, within=slice(lo, hi))` reads along `n` at the values of the integer recurrent tensor
    `index`; result: domain of `index` together with x's other dims, shape index.shape + x.shape."""
    with tp.Program() as program:
        b, n, t = tp.dims("b n t")
        x = tp.input("x", shape=(2,), dims=(b, n))
        index = tp.input("index", shape=(3,), dims=(t,), dtype=tp.int32)
        y = x.gather(n, index)
        assert (y.domain, y.shape) == ((b, t), (3, 2))
        tp.output("y", y)
        z = x.gather(n, index, within=slice(1, n.size))
        tp.output("z", z)
    xs = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    indices = np.array([[1, 3, 3], [2, 1, 2]], np.int32)
    out = run_program(program, x=xs, index=indices)
    np.testing.assert_array_equal(out["y"], xs[:, indices])
    np.testing.assert_array_equal(out["z"], xs[:, indices])


def test_gather_within_a_prefix_of_itself(run_program):
    """`within` is the promise that schedulers rely on."""
    with tp.Program() as program:
        t = tp.dim("t")
        parent = tp.input("parent", dims=(t,), dtype=tp.int32)
        depth = tp.recurrent("depth", (), (t,), tp.int32)
        depth[0] = 0
        depth[t] = depth.gather(t, parent, within=slice(0, t)) + 1
        tp.output("depth", depth)
    parents = np.array([0, 0, 1, 1, 3], np.int32)
    np.testing.assert_array_equal(run_program(program, parent=parents)["depth"], [0, 1, 2, 2, 3])


@pytest.mark.parametrize(("value", "within"), [(4, (0, 4)), (-1, (0, 4)), (0, (1, 4)), (3, (0, 3))])
def test_gather_outside_within(run_program, value, within):
    """An index outside `within` (and any out-of-range index in `.spatial`) raises `tp.IndexOutOfRangeError` in checked
    mode (`tp.Options(checks=True)`, the default on NumPy)"""
    with tp.Program() as program:
        n = tp.dim("n", 4)
        x = tp.input("x", dims=(n,))
        index = tp.input("index", dtype=tp.int32)
        tp.output("y", x.gather(n, index, within=slice(*within)))
    with pytest.raises(IndexOutOfRangeError):
        run_program(program, x=np.arange(4.0), index=value)


@pytest.mark.parametrize("backend", ["reference", "numpy"])
@pytest.mark.parametrize(("value", "expected"), [(9, 3.0), (-5, 1.0), (2, 2.0)])
def test_gather_clamps_without_checks(backend, value, expected):
    """and is clamped into range otherwise, the same on every backend."""
    with tp.Program() as program:
        n = tp.dim("n", 5)
        x = tp.input("x", dims=(n,))
        index = tp.input("index", dtype=tp.int32)
        tp.output("y", x.gather(n, index, within=slice(1, 4)))
        tp.output("z", x[1:4].spatial[index - 1])
    run = tp.compile(program, backend=backend, options=tp.Options(checks=False))
    out = run(x=np.arange(5.0), index=value)
    assert (out["y"], out["z"]) == (expected, expected)


def test_gather_misuse():
    with tp.Program():
        t, s = tp.dims("t s")
        x = tp.input("x", dims=(t,))
        with pytest.raises(DTypeError, match="integers"):
            x.gather(t, x)
        with pytest.raises(DomainError, match="none of its dims"):
            x.gather(s, tp.constant(1))
        small = tp.constant(np.array([1, 2], np.uint8))
        assert x.gather("t", small, within=slice(1, 3)).shape == (2,)


@pytest.mark.parametrize("size", [3, 7])
def test_range_is_exact_through_conditions(run_program, size):
    """A point counts only if it is demanded through the conditions on its way from an output."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        y = x[t - 2] + x[t + 1]
        inside = (t >= 2) & (t < t.size - 1)
        tp.output("y", tp.cases((inside, y), 0.0))
        never = tp.recurrent("never", (), (t,))
        never[True] = x[t + 100]
    xs = np.arange(size, dtype=np.float32)
    out = run_program(program, x=xs)["y"]
    np.testing.assert_array_equal(out, [xs[t - 2] + xs[t + 1] if 2 <= t < size - 1 else 0 for t in range(size)])


def test_the_message_of_a_domain_error(run_program):
    """The message names the tensor, the source line, one offending point."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("signal", dims=(t,))
        y = x[t - 1] * 2  # the offending line
        tp.output("y", y)
    with pytest.raises(DomainError) as caught:
        run_program(program, signal=np.ones(3, np.float32))
    text = str(caught.value)
    assert "signal" in text.splitlines()[0]
    assert "the offending line" in text
    assert f"{__file__}:" in text
    assert "t=0" in text or "t = 0" in text


def test_what_fails_for_every_size_fails_at_compile(run_program):
    """What fails for every size is raised by `compile`."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        tp.output("y", x[t.size])
    with pytest.raises(DomainError, match=r"\bx\b"):
        tp.compile(program)


@pytest.mark.parametrize("backend", ["reference", "numpy"])
def test_checked_as_soon_as_sizes_are_known(backend):
    """Otherwise the check is exact, with no false alarm, as soon as all sizes are known (in `compile` or in the first
    call with them)."""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        tp.output("y", x[3])
    with pytest.raises(DomainError):
        tp.compile(program, backend=backend, sizes={"t": 3})
    run = tp.compile(program, backend=backend)
    with pytest.raises(DomainError):
        run(x=np.arange(3.0))
    assert run(x=np.arange(4.0))["y"] == 3
