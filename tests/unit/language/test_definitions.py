"""Rules of the page "The language": Definitions by cases, and Meaning."""

import numpy as np
import pytest

import tempo as tp
from tempo.errors import CycleError, DefinitionError, DTypeError, IndexExpressionError, ShapeError


def test_the_example_of_the_page(run_program):
    """h[t] = tanh(h[t - 1] @ W + x[t - 1])"""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(4, 4)).astype(np.float32)
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", shape=(4,), dims=(b, t))
        w = tp.constant(weights)
        h = tp.recurrent("h", shape=(4,), dims=(b, t), dtype=tp.float32)
        h[b, 0] = tp.zeros((4,))  # the case t == 0
        h[b, t + 1] = tp.tanh(h @ w + x)  # the case t >= 1, shifted
        tp.output("h", h)
    xs = rng.normal(size=(2, 5, 4)).astype(np.float32)
    expected = np.zeros((2, 5, 4), np.float32)
    for step in range(1, 5):
        expected[:, step] = np.tanh(expected[:, step - 1] @ weights + xs[:, step - 1])
    np.testing.assert_allclose(run_program(program, x=xs)["h"], expected, rtol=1e-5)


def test_a_number(run_program):
    """The left side per position: a number or size expression,"""
    with tp.Program() as program:
        t = tp.dim("t", 5)
        h = tp.recurrent("h", (), (t,))
        h[2] = 20.0
        h[-1] = 40.0
        h[t.size - 2] = 30.0
        h[t] = t
        tp.output("h", h)
    np.testing.assert_array_equal(run_program(program)["h"], [0, 1, 20, 30, 40])


def test_the_dim_itself_or_shifted(run_program):
    """the dim itself, or the dim plus or minus a constant;"""
    with tp.Program() as program:
        i, t = tp.dim("i", 2), tp.dim("t", 4)
        back = tp.recurrent("back", (), (i, t))
        back[i, -1] = 1.0
        back[i, t - 1] = back * 2 + i
        tp.output("back", back)
        both = tp.recurrent("both", (), (i, t), tp.int32)
        both[i + 1, t - 1] = 10 * i + t
        both[i, t] = -1
        tp.output("both", both)
    out = run_program(program)
    np.testing.assert_array_equal(out["back"], [[8, 4, 2, 1], [15, 7, 3, 1]])
    np.testing.assert_array_equal(out["both"], [[-1, -1, -1, -1], [1, 2, 3, -1]])


def test_a_condition_or_true(run_program):
    """or one condition over dims (`tok[t < 4] = ...`), or `True`."""
    with tp.Program() as program:
        t = tp.dim("t", 6)
        prompt = tp.input("prompt", shape=(4,), dtype=tp.int32)
        tok = tp.recurrent("tok", (), (t,), tp.int32)
        tok[t < 4] = prompt.spatial[tp.min(t, 3)]
        tok[True] = tok[t - 1] + tok[t - 2]
        tp.output("tok", tok)
    np.testing.assert_array_equal(run_program(program, prompt=np.array([1, 2, 3, 4]))["tok"], [1, 2, 3, 4, 7, 11])


def test_a_domain_without_dims(run_program):
    with tp.Program() as program:
        c = tp.recurrent("c", (2,), ())
        c[...] = 3.0
        tp.output("c", c)
    np.testing.assert_array_equal(run_program(program)["c"], [3, 3])


def test_a_shift_substitutes_into_the_whole_right_side(run_program):
    """A shift substitutes into the **whole** right side,"""
    with tp.Program() as program:
        t = tp.dim("t")
        x = tp.input("x", dims=(t,))
        h = tp.recurrent("h", (), (t,))
        h[0] = 0.0
        h[t + 1] = x[0 : t + 1].sum(axis=0) + x[t + 1] * 100 + t
        tp.output("h", h)
    xs = np.arange(1, 5, dtype=np.float32)
    expected = [0] + [xs[:t].sum() + xs[t] * 100 + t - 1 for t in range(1, 4)]
    np.testing.assert_array_equal(run_program(program, x=xs)["h"], expected)


def test_points_shifted_outside_are_not_evaluated(run_program):
    """and points shifted outside the domain are not evaluated (`w[i + 1] = ...` is evaluated I - 1 times)."""
    seen = []

    def step(w):
        seen.append(int(w))
        return w + 1

    with tp.Program() as program:
        i = tp.dim("i", 4)
        w = tp.recurrent("w", (), (i,), tp.int32)
        w[0] = 0
        (following,) = tp.host_call(step, w, out=[((), tp.int32)], ordered_by=(i,))
        w[i + 1] = following
        tp.output("w", w)
    np.testing.assert_array_equal(run_program(program)["w"], [0, 1, 2, 3])
    assert seen == [0, 1, 2]


def test_a_number_is_substituted_too(run_program):
    """A number is substituted too: `acc[0] = g` takes g at 0."""
    with tp.Program() as program:
        t = tp.dim("t")
        g = tp.input("g", dims=(t,))
        acc = tp.recurrent("acc", (), (t,))
        acc[0] = g
        acc[t + 1] = acc + g[t + 1]
        tp.output("acc", acc)
        last = tp.recurrent("last", (), (t,))
        last[t.size - 1] = g
        last[True] = 0.0
        tp.output("last", last)
    out = run_program(program, g=np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(out["acc"], [1, 3, 6])
    np.testing.assert_array_equal(out["last"], [0, 0, 3])


def test_the_first_case_that_holds(run_program):
    """Cases are tried in the order written; the first that holds gives the value."""
    with tp.Program() as program:
        t = tp.dim("t", 5)
        h = tp.recurrent("h", (), (t,), tp.int32)
        h[t >= 3] = 3
        h[t >= 1] = 1
        h[True] = 0
        tp.output("h", h)
    np.testing.assert_array_equal(run_program(program)["h"], [0, 1, 1, 3, 3])


@pytest.mark.parametrize("left", ["earlier cases", "outside", "never"])
def test_a_case_that_no_point_reaches(left):
    """A case that no point can reach **at any sizes** is a `DefinitionError`, raised by `compile`"""
    with tp.Program() as program:
        t = tp.dim("t")
        h = tp.recurrent("h", (), (t,))
        if left == "earlier cases":
            h[t >= 0] = 1.0
            h[t + 1] = h
        elif left == "outside":
            h[t.size] = 2.0
            h[t] = 0.0
        else:
            h[t < 0] = 1.0
            h[True] = 0.0
        tp.output("h", h)
    with pytest.raises(DefinitionError, match="h") as caught:
        tp.compile(program)
    assert caught.value.location.path == __file__


def test_a_case_that_is_empty_only_at_the_sizes_given(run_program):
    """(one that is empty only at the sizes given is fine: a sequence of length 1 never takes its second step);"""
    with tp.Program() as program:
        t = tp.dim("t")
        h = tp.recurrent("h", (), (t,))
        h[0] = 1.0
        h[t + 1] = h * 2
        tp.output("h", h)
    np.testing.assert_array_equal(run_program(program, sizes={"t": 1})["h"], [1])
    np.testing.assert_array_equal(run_program(program, sizes={"t": 3})["h"], [1, 2, 4])


def test_a_demanded_point_that_no_case_covers(run_program):
    """so is a demanded point that no case covers."""

    def program_reading(index):
        with tp.Program() as program:
            t = tp.dim("t", 4)
            h = tp.recurrent("h", (), (t,))
            h[2] = 1.0
            h[t + 2] = h
            tp.output("y", index(h, t))
        return program

    # h[2] is the first case; at 3 the second reads h[1], which nothing covers.
    assert run_program(program_reading(lambda h, t: h[2]))["y"] == 1
    with pytest.raises(DefinitionError, match="h") as caught:
        run_program(program_reading(lambda h, t: h[3]))
    assert "1" in str(caught.value)
    with pytest.raises(DefinitionError, match="h"):
        run_program(program_reading(lambda h, t: h))


def test_no_case_at_all(run_program):
    with tp.Program() as program:
        t = tp.dim("t", 2)
        h = tp.recurrent("h", (), (t,))
        tp.output("h", h)
    with pytest.raises(DefinitionError, match="h"):
        run_program(program)


def test_broadcast_and_cast_as_in_assignment(run_program):
    """The value is anything that converts to a tensor; it is broadcast and cast (same kind) as in NumPy assignment;"""
    with tp.Program() as program:
        t = tp.dim("t", 5)
        h = tp.recurrent("h", (2, 3), (t,), tp.float32)
        h[0] = 1
        h[1] = np.array([1.0, 2.0, 3.0])
        h[2] = tp.constant(np.ones((1, 2, 1), np.float64), dtype=tp.float64)
        h[3] = t
        h[True] = t > 2
        tp.output("h", h)
        small = tp.recurrent("small", (), (), tp.uint8)
        small[...] = tp.constant(7)[...].astype(tp.int8).astype(tp.uint32)
        tp.output("small", small)
    out = run_program(program)
    expected = np.empty((5, 2, 3), np.float32)
    expected[0], expected[1], expected[2], expected[3], expected[4] = 1, [1, 2, 3], 1, 3, 1
    np.testing.assert_array_equal(out["h"], expected)
    assert (out["small"], out["small"].dtype) == (7, np.uint8)


def test_values_that_do_not_fit():
    with tp.Program():
        t = tp.dim("t")
        h = tp.recurrent("h", (2,), (t,), tp.int32)
        mask = tp.recurrent("mask", (), (t,), tp.bool)
        byte = tp.recurrent("byte", (), (t,), tp.uint8)
        with pytest.raises(DTypeError, match="another kind"):
            h[0] = 0.5
        with pytest.raises(DTypeError, match="another kind"):
            h[0] = tp.zeros((2,))
        with pytest.raises(DTypeError, match="another kind"):
            mask[0] = 1
        with pytest.raises(DTypeError, match="256"):
            byte[0] = 256
        byte[0] = 255
        byte[1] = t
        with pytest.raises(ShapeError, match="does not fit"):
            h[0] = tp.zeros((3,), tp.int32)
        with pytest.raises(ShapeError, match="does not fit"):
            h[0] = tp.zeros((2, 2), tp.int32)


def test_the_domain_of_the_value():
    """its domain must lie within the tensor's."""
    with tp.Program():
        b, t = tp.dims("b t")
        x = tp.input("x", dims=(b, t))
        h = tp.recurrent("h", (), (t,))
        with pytest.raises(DefinitionError, match="varies with b"):
            h[t + 1] = x
        h[t + 1] = x[0]
        with pytest.raises(DefinitionError, match="uses b"):
            h[b > 0] = 1.0


def test_left_sides_that_are_none():
    with tp.Program():
        s, t = tp.dims("s t")
        x = tp.input("x", dims=(t,))
        h = tp.recurrent("h", (), (t,))
        for key in (s, 2 * t, t + s, t + t.size, slice(0, 3), t // 2, tp.constant(1), None):
            with pytest.raises(DefinitionError, match="left"):
                h[key] = 1.0
        with pytest.raises(IndexExpressionError):
            h[0.5] = 1.0
        with pytest.raises(tp.DomainError, match="2 dims"):
            h[0, 0] = 1.0
        for computed in (x, h[t - 1], h + 1, x.spatial):
            with pytest.raises((DefinitionError, TypeError)):
                computed[0] = 1.0


def test_shapes_that_vary(run_program):
    with tp.Program() as program:
        t = tp.dim("t", 4)
        grown = tp.recurrent("grown", (t + 1,), (t,), tp.int32)
        grown[0] = 1
        grown[t + 1] = tp.concatenate([grown, tp.arange(1)])
        tp.output("sum", (grown + 1).sum())
    np.testing.assert_array_equal(run_program(program)["sum"], [2, 3, 4, 5])


def test_cases(run_program):
    """`tp.cases((cond, value), ..., default)` is the same as an expression (its domain includes the conditions' dims).
    Only the case chosen at a point is demanded there."""
    with tp.Program() as program:
        b, t = tp.dim("b", 2), tp.dim("t", 5)
        x = tp.input("x", dims=(b,))
        y = tp.cases((t < 2, x), (t == 2, 7), x[tp.max(3 - t, 0)] * 2)
        assert (y.domain, y.dtype) == ((b, t), "float32")
        tp.output("y", y)
        tp.output("guarded", tp.cases((t < 2, x[t]), 0.0))
        whole = tp.cases((True, 1))
        tp.output("whole", whole)
    out = run_program(program, x=np.array([1.0, 3.0]))
    np.testing.assert_array_equal(out["y"], [[1, 1, 7, 2, 2], [3, 3, 7, 2, 2]])
    np.testing.assert_array_equal(out["guarded"], [1, 3, 0, 0, 0])
    assert out["whole"] == 1


def test_cases_without_default_are_checked(run_program):
    with tp.Program() as program:
        t = tp.dim("t", 3)
        tp.output("y", tp.cases((t < 2, 1.0)))
    with pytest.raises(DefinitionError):
        run_program(program)


def test_cases_misuse():
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", shape=(2,), dims=(t,))
        with pytest.raises(IndexExpressionError, match="tp.where"):
            tp.cases((x > 0, x), 0.0)
        with pytest.raises(IndexExpressionError, match="index expression t"):
            tp.cases((t, x), 0.0)
        with pytest.raises(DefinitionError, match="without a branch"):
            tp.cases()
        with pytest.raises(DefinitionError, match="no pair"):
            tp.cases(x, 0.0)
        with pytest.raises(ShapeError, match="broadcast"):
            tp.cases((t > 0, x), tp.zeros((3,)))


def test_where_selects_by_data_and_guards_nothing(run_program):
    """`tp.where(mask, a, b)` selects by data and guards nothing."""
    with tp.Program() as program:
        t = tp.dim("t", 3)
        x = tp.input("x", dims=(t,))
        tp.output("y", tp.where(t > 0, x[t - 1], 0.0))
    with pytest.raises(tp.DomainError):
        run_program(program, x=np.ones(3, np.float32))


def test_cycles(run_program):
    """A program in which a demanded point needs its own value has no meaning: `CycleError`, with the cycle."""
    with tp.Program() as program:
        t = tp.dim("t", 4)
        up = tp.recurrent("up", (), (t,))
        down = tp.recurrent("down", (), (t,))
        up[t < 2] = 0.0
        up[True] = down[t] + 1
        down[t < 2] = 0.0
        down[True] = up[t] * 2
        tp.output("fine", up[1])
    assert run_program(program)["fine"] == 0
    with program:
        tp.output("up", up)
    with pytest.raises(CycleError, match="up") as caught:
        run_program(program)
    assert "down" in str(caught.value)


def test_only_what_is_demanded_has_to_exist(run_program):
    """Only what outputs and effects need has to exist (*demand*)."""
    with tp.Program() as program:
        t = tp.dim("t", 4)
        x = tp.input("x", dims=(t,))
        undefined = tp.recurrent("undefined", (), (t,))
        wrong = x[t + 100] + undefined
        tp.output("y", x * 2)
    assert wrong.shape == ()
    np.testing.assert_array_equal(run_program(program, x=np.ones(4, np.float32))["y"], [2, 2, 2, 2])


def test_meaning_does_not_depend_on_the_order_of_equations(run_program):
    """A program is a set of equations; its meaning does not depend on any order of execution."""
    with tp.Program() as program:
        t = tp.dim("t", 4)
        a = tp.recurrent("a", (), (t,))
        b = tp.recurrent("b", (), (t,))
        tp.output("a", a)
        a[t] = b * 10 + t
        b[t - 1] = b + 1
        b[-1] = 5.0
    np.testing.assert_array_equal(run_program(program)["a"], [80, 71, 62, 53])
