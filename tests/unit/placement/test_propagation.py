"""How buffers and values come to lie on a mesh, and which collectives that asks for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.language.tensor import apply
from tempo.loop_ir.ir import Compute, LoopProgram
from tempo.loop_ir.parse import parse
from tempo.loop_ir.text import placeholders
from tempo.loop_ir.verify import verify
from tempo.placement.collectives import Collective, collectives
from tempo.placement.mesh import Placement, Shards, permuted
from tests.unit.placement.meshed import specialised

DATA, MODEL = Shards("data", 2), Shards("model", 4)
SIZES = {"b": 8, "c": 8, "t": 5, "i": 3}
FLOAT = 4  # bytes

pytestmark = pytest.mark.filterwarnings("ignore::tempo.errors.GatherWarning")


@dataclass(frozen=True)
class Placed:
    """A program with placements, and what its devices exchange."""

    program: LoopProgram
    collectives: tuple[Collective, ...]

    def output(self, name: str) -> Placement:
        """With the user's axes."""
        buffer = next(self.program.buffers[id] for port, id in self.program.outputs.items() if port.name == name)
        lies = buffer.placement or (None,) * len(buffer.from_user)
        return permuted(lies, buffer.to_user)

    @property
    def state(self) -> Placement:
        return next(
            self.program.buffers[id].placement for port, id in self.program.outputs.items() if port.role == "state"
        )

    def values(self, op: str) -> list[Placement | None]:
        found = self.program.statements()
        return [each.placement for each in found if isinstance(each, Compute) and each.op == op]

    def told(self) -> list[tuple[str, str, int, bool]]:
        """Kind, axis of the mesh, bytes, and whether it warns."""
        return [(each.kind, each.over, each.bytes, each.warns) for each in self.collectives]


def placed(program: tp.Program, sizes: Mapping[str, int] | None = None, **given: Any) -> Placed:
    """It is read back from its text, and holds to what the verifier asks."""
    known = {**SIZES, **(sizes or {})}
    made = specialised(program, {"data": DATA.count, "model": MODEL.count}, known, **given)
    assert parse(str(made.loops), placeholders(made.loops)) == made.loops
    verify(made.loops, made.sizes)
    found = collectives(made.passes)
    assert all(each.location is not None and each.location.path == __file__ for each in found)
    return Placed(made.loops, found)


def of_rows(function: Callable[[Any], Any], shape: tuple[int, ...] = (), dtype: str = "float32") -> tp.Program:
    """The function of all points of `b` at once."""
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", shape, (b,), dtype)
        tp.output("y", function(x[0 : b.size]))
    return program


def of_array(function: Callable[[Any], Any], shape: tuple[int, ...]) -> tp.Program:
    with tp.Program() as program:
        tp.output("y", function(tp.input("x", shape)))
    return program


def shifted(distance: int) -> Callable[[Any], Any]:
    """Along the first axis; the operator is one of the compiler's own."""
    return lambda x: apply("shift", tp.tanh(x), attrs={"axis": 0, "distance": distance})


# -- what stays where it is --------------------------------------------------------------------------------------------


def test_elementwise() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x, w = tp.input("x", (4,), (b,)), tp.input("w", (4,))
        tp.output("y", tp.tanh(x * w) + 1.0)
    found = placed(program, shard={"b": "data"}, place={"w": ("model",)})
    assert found.collectives == ()
    assert found.output("y") == (DATA, MODEL)
    assert found.values("tanh") == [(DATA, MODEL)]


def test_nothing_is_cut_that_nobody_cuts() -> None:
    found = placed(of_rows(lambda x: tp.tanh(x).sum(axis=0), (4,)))
    assert found.collectives == ()
    assert found.output("y") == (None,)
    assert found.values("tanh") == [None]


def test_columns_of_a_matrix() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x, w = tp.input("x", (3,), (b,)), tp.input("w", (3, 4))
        tp.output("y", x @ w)
    found = placed(program, shard={"b": "data"}, place={"w": (None, "model")})
    assert found.collectives == ()
    assert found.output("y") == (DATA, MODEL)


def test_a_transpose() -> None:
    found = placed(of_array(lambda x: x.T, (4, 6)), place={"x": ("model", "data")})
    assert found.collectives == ()
    assert found.output("y") == (DATA, MODEL)


# -- folds -------------------------------------------------------------------------------------------------------------


def test_a_contraction_along_a_cut_axis_is_added_up() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x, w = tp.input("x", (8,), (b,)), tp.input("w", (8, 3))
        tp.output("y", x @ w)
    found = placed(program, shard={"b": "data"}, place={"w": ("model", None)})
    assert found.told() == [("all-reduce", "model", 8 // 2 * 3 * FLOAT, False)]
    assert found.collectives[0].loops == ()
    assert found.collectives[0].why == "dot adds up"
    assert found.output("y") == (DATA, None)


@pytest.mark.parametrize(("op", "function"), [("reduce_sum", lambda x: x.sum(axis=0)), ("mean", tp.mean)])
def test_a_sum(op: str, function: Callable[[Any], Any]) -> None:
    found = placed(of_rows(function), shard={"b": "data"})
    assert found.told() == [("all-reduce", "data", FLOAT, False)]
    assert found.output("y") == ()


@pytest.mark.parametrize("name", ["max", "min", "prod"])
def test_what_is_not_added_up_is_folded_in_two_stages(name: str) -> None:
    found = placed(of_rows(lambda x: getattr(x, name)(axis=0), (4,)), shard={"b": "data"}, place={"x": ("model",)})
    assert found.told() == [("all-gather", "data", 2 * FLOAT, False)]
    assert found.output("y") == (MODEL,)
    assert found.values(f"reduce_{name}") == [(DATA, MODEL), (MODEL,)]
    assert found.values("reshape") == [None, (None, MODEL)]


@pytest.mark.parametrize("name", ["any", "all"])
def test_a_fold_of_bools(name: str) -> None:
    found = placed(of_rows(lambda x: getattr(x, name)(axis=0), (), "bool"), shard={"b": "data"})
    assert found.told() == [("all-gather", "data", 2, False)]


def test_the_position_of_the_greatest() -> None:
    found = placed(of_rows(lambda x: x.argmax(axis=0)), shard={"b": "data"})
    assert found.told() == [("all-gather", "data", 8 * FLOAT, True)]
    assert found.output("y") == ()


def test_a_fold_along_an_axis_that_stays_whole() -> None:
    found = placed(of_rows(lambda x: (x.sum(axis=1), x.max(axis=1))[0], (6,)), shard={"b": "data"})
    assert found.collectives == ()
    assert found.output("y") == (DATA,)


@pytest.mark.parametrize(
    ("op", "function"),
    [("cumsum", lambda x: tp.cumsum(x, axis=0)), ("sort", lambda x: tp.sort(x, axis=0))],
)
def test_what_goes_through_positions_in_order_is_gathered(op: str, function: Callable[[Any], Any]) -> None:
    found = placed(of_rows(function, (4,)), shard={"b": "data"}, place={"x": ("model",)})
    assert found.told() == [("all-gather", "data", 8 * FLOAT, True)]
    assert found.collectives[0].why == f"{op} goes through positions in order"
    assert found.output("y") == (None, MODEL)
    along = placed(of_rows(lambda x: function(x.T).T, (4,)), shard={"b": "data"})
    assert along.collectives == ()
    assert along.output("y") == (DATA, None)


# -- what moves --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "lies", "to", "expected"),
    [
        ((4, 6), ("data", None), (24,), (DATA,)),
        ((24,), ("data",), (4, 6), (DATA, None)),
        ((2, 4, 6), (None, "model", "data"), (2, 24), (None, MODEL)),
        ((3, 8), (None, "model"), (3, 4, 2), (None, MODEL, None)),
        ((4, 1, 6), ("model", None, "data"), (4, 6), (MODEL, DATA)),
    ],
)
def test_a_reshape_keeps_the_first_of_what_it_joins_or_divides(
    shape: tuple[int, ...], lies: tuple[str | None, ...], to: tuple[int, ...], expected: Placement
) -> None:
    found = placed(of_array(lambda x: x.reshape(to), shape), place={"x": lies})
    assert found.output("y") == expected
    gathered = shape == (2, 4, 6)  # the second of the two that are joined
    assert [each.warns for each in found.collectives] == [True] * gathered


@pytest.mark.parametrize(
    ("shape", "lies", "to"),
    [((4, 6), (None, "data"), (24,)), ((6,), ("data",), (3, 2)), ((4, 3), ("model", None), (2, 6))],
)
def test_a_reshape_of_what_does_not_divide_gathers(
    shape: tuple[int, ...], lies: tuple[str | None, ...], to: tuple[int, ...]
) -> None:
    over = next(each for each in lies if each is not None)
    found = placed(of_array(lambda x: tp.tanh(x).reshape(to), shape), place={"x": lies})
    assert found.told() == [("all-gather", over, int(np.prod(shape)) * FLOAT, True)]
    assert found.collectives[0].why == "reshape moves positions"
    assert found.output("y") == (None,) * len(to)


def test_a_flip_moves_what_is_cut() -> None:
    found = placed(of_array(lambda x: tp.flip(x, (0,)), (8, 3)), place={"x": ("model", None)})
    assert found.told() == [("permute", "model", 8 // 4 * 3 * FLOAT, False)]
    assert found.output("y") == (MODEL, None)


def test_one_point_of_a_dim_that_is_cut() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", (4,), (b,))
        tp.output("y", x[3] * 2.0)
    found = placed(program, shard={"b": "data"}, place={"x": ("model",)})
    (found_one,) = found.collectives
    assert found_one.over == "data"
    assert found_one.kind in ("permute", "all-gather")
    assert found.output("y") == (MODEL,)


def one_point_in_every_iteration() -> Placed:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x = tp.input("x", (4,), (b, t))
        h = tp.recurrent("h", (4,), (t,))
        h[0] = tp.zeros((4,))
        h[t + 1] = tp.tanh(h[t] + x[1, t])
        tp.output("h", h)
    return placed(program, shard={"b": "data"})


def test_one_point_in_every_iteration() -> None:
    found = one_point_in_every_iteration()
    (gather,) = found.collectives
    assert (gather.kind, gather.over, gather.warns) == ("all-gather", "data", True)
    assert (gather.name, gather.why) == ("x", "read at b = 1")
    assert [symbol.name for symbol in gather.loops] == ["t"]
    assert found.output("h") == (None, None)


def test_bytes_are_those_of_one_iteration() -> None:
    assert [each.bytes for each in one_point_in_every_iteration().collectives] == [4 * FLOAT]


def test_neighbours_along_a_dim_that_is_cut() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", (), (b,))
        y = tp.recurrent("y", (), (b,))
        y[0] = x
        y[b + 1] = x[b + 1] - x
        tp.output("y", y)
    found = placed(program, shard={"b": "data"})
    assert {(each.kind, each.over, each.warns) for each in found.collectives} == {("permute", "data", False)}
    assert found.output("y") == (DATA,)


@pytest.mark.parametrize("distance", [1, -1, 2, -2, 3])
def test_what_is_handed_on_is_as_much_as_moves(distance: int) -> None:
    """Of eight positions along four devices, each has two: what goes farther is one of the compiler's to find."""
    found = placed(of_array(shifted(distance), (8, 3)), place={"x": ("model", None)})
    bytes = 2 * 3 * FLOAT if abs(distance) > 2 else abs(distance) * 3 * FLOAT
    assert found.told() == [("permute", "model", bytes, False)]
    assert found.output("y") == (MODEL, None)
    is_told = f"handed on to the next by {distance}"
    assert (found.collectives[0].why == is_told) == (abs(distance) <= 2)


def test_what_is_shifted_along_an_axis_that_stays_whole() -> None:
    found = placed(of_array(shifted(1), (6, 4)), place={"x": (None, "model")})
    assert found.collectives == ()
    assert found.output("y") == (None, MODEL)


# -- what is carried ---------------------------------------------------------------------------------------------------


def test_a_recurrence_of_rows() -> None:
    with tp.Program() as program:
        b, t = tp.dims("b t")
        x, u = tp.input("x", (4,), (b, t)), tp.input("u", (4, 4))
        h = tp.recurrent("h", (4,), (b, t))
        h[b, 0] = tp.zeros((4,))
        h[b, t + 1] = tp.tanh(h[b, t] @ u + x[b, t])
        tp.output("h", h)
        tp.output("last", h[b, t.size - 1])
    found = placed(program, shard={"b": "data"})
    assert found.collectives == ()
    assert found.output("h") == (DATA, None, None)
    assert found.output("last") == (DATA, None)
    assert set(found.values("tanh")) == {(DATA, None)}


def test_descent_adds_up_gradients_in_every_iteration() -> None:
    with tp.Program() as program:
        i, b = tp.dims("i b")
        x = tp.input("x", (4,), (b,))
        w = tp.parameter("w", (4,), init=np.zeros(4, np.float32), dims=(i,))
        loss = ((x @ w - 1.0) ** 2)[i, 0 : b.size].sum()
        w[i + 1] = w - 0.1 * tp.grad(loss, w)
        tp.output("loss", loss)
    found = placed(program, shard={"b": "data"})
    assert {(kind, over, warns) for kind, over, _, warns in found.told()} == {("all-reduce", "data", False)}
    assert sorted(each.bytes for each in found.collectives)[-1] == 4 * FLOAT
    inside = [each for each in found.collectives if each.loops]
    assert inside
    assert {tuple(symbol.name for symbol in each.loops) for each in inside} == {("i",)}
    assert not any(found.state)


def test_parameters_that_are_cut_stay_so() -> None:
    with tp.Program() as program:
        i, b = tp.dims("i b")
        x = tp.input("x", (4,), (b,))
        w = tp.parameter("w", (4, 8), init=np.zeros((4, 8), np.float32), dims=(i,))
        loss = ((x @ w - 1.0) ** 2)[i, 0 : b.size].sum()
        w[i + 1] = w - 0.1 * tp.grad(loss, w)
        tp.output("loss", loss)
    found = placed(program, shard={"b": "data"}, place={"w": (None, "model")})
    assert {each.kind for each in found.collectives} == {"all-reduce"}
    assert found.state == (None, MODEL)


# -- what meets --------------------------------------------------------------------------------------------------------


def test_operands_that_are_cut_along_different_axes_of_the_mesh() -> None:
    with tp.Program() as program:
        x, y = tp.input("x", (8, 3)), tp.input("y", (8, 3))
        tp.output("z", x * y)
    found = placed(program, place={"x": ("data", None), "y": ("model", None)})
    ((kind, over, bytes, warns),) = found.told()
    assert (kind, bytes, warns) == ("all-gather", 8 * 3 * FLOAT, True)
    (lies,) = {DATA, MODEL} - {Shards(over, DATA.count if over == "data" else MODEL.count)}
    assert found.output("z") == (lies, None)
    assert found.collectives[0].why == f"it meets what lies along {lies.over}"


def test_an_axis_of_the_mesh_is_given_once() -> None:
    with tp.Program() as program:
        x, y = tp.input("x", (8,)), tp.input("y", (8,))
        tp.output("z", x.reshape((8, 1)) * y)
    found = placed(program, place={"x": ("data",), "y": ("data",)})
    assert found.told() == [("all-gather", "data", 8 * FLOAT, True)]
    assert found.output("z").count(DATA) == 1


def test_what_is_whole_is_cut_for_nothing() -> None:
    with tp.Program() as program:
        x, y = tp.input("x", (8, 3)), tp.input("y", (8, 3))
        tp.output("z", x * y)
    found = placed(program, place={"x": ("data", None)})
    assert found.collectives == ()
    assert found.output("z") == (DATA, None)


# -- what is made of nothing -------------------------------------------------------------------------------------------


def test_a_draw_lies_as_its_reader_wants_it() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", (8,), (b,))
        tp.output("y", x + tp.random.uniform((8,), dims=(b,)))
        tp.output("z", x + tp.random.uniform((8,), dims=()))
    found = placed(program, shard={"b": "data"}, place={"x": ("model",)})
    assert found.collectives == ()
    assert found.values("random_bits") == [(DATA, MODEL), (MODEL,)]


def test_zeros_lie_as_their_reader_wants_them() -> None:
    with tp.Program() as program:
        b = tp.dim("b")
        x = tp.input("x", (8,), (b,))
        tp.output("y", tp.where(x > 0, tp.zeros((8,)), x))
    found = placed(program, shard={"b": "data"}, place={"x": ("model",)})
    assert found.collectives == ()
    assert found.output("y") == (DATA, MODEL)


# -- warnings and text -------------------------------------------------------------------------------------------------


def test_what_is_gathered_is_warned_of_at_the_line() -> None:
    found = placed(of_rows(lambda x: tp.cumsum(x, axis=0)), shard={"b": "data"})
    (gather,) = found.collectives
    with pytest.warns(tp.GatherWarning, match="all-gather over data, 32 B, outside of loops: cumsum") as caught:
        gather.warn()
    assert caught[0].filename == __file__
    assert gather.location is not None
    assert caught[0].lineno == gather.location.line
    assert "is copied to all devices there" in str(caught[0].message)


def test_what_was_asked_for_is_not_warned_of() -> None:
    found = placed(of_rows(lambda x: x.sum(axis=0)), shard={"b": "data"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in found.collectives:
            each.warn()


def test_the_text_says_how_things_lie() -> None:
    text = str(placed(of_rows(lambda x: tp.tanh(x), (4,)), shard={"b": "data"}).program)
    assert "placed (data/2, -)" in text


@pytest.mark.parametrize("sizes", [{"b": 2}, {"b": 16}])
def test_bytes_follow_sizes(sizes: dict[str, int]) -> None:
    found = placed(of_rows(lambda x: tp.sort(x, axis=0), (3,)), sizes, shard={"b": "data"})
    assert found.told() == [("all-gather", "data", sizes["b"] * 3 * FLOAT, True)]
