import numpy as np
import pytest

import tempo as tp


@pytest.mark.parametrize("name", ["solve", "inv", "cholesky", "det"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_what_is_not_square_is_told(name: str, shape: tuple[int, ...]) -> None:
    with tp.Program():
        x = tp.input("x", shape)
        given = (x, tp.ones(3)) if name == "solve" else (x,)
        with pytest.raises(tp.ShapeError, match=f"{name} of a tensor of shape") as caught:
            getattr(tp.linalg, name)(*given)
    assert caught.value.location is not None and caught.value.location.path == __file__


def test_sides_that_do_not_fit() -> None:
    with tp.Program():
        a = tp.input("a", (2, 3, 3))
        with pytest.raises(tp.ShapeError, match="solve"):
            tp.linalg.solve(a, tp.ones((4, 1)))
        with pytest.raises(tp.ShapeError, match="do not broadcast"):
            tp.linalg.solve(a, tp.ones((5, 3, 1)))
        with pytest.raises(tp.ShapeError, match="no axes"):
            tp.linalg.solve(a, 1.0)


def test_integers_become_floats_and_batches_broadcast() -> None:
    a = np.array([[[2, 1], [0, 1]], [[1, 0], [3, 4]]], np.int32)
    with tp.Program() as program:
        x = tp.input("a", a.shape, dtype="int32")
        tp.output("x", tp.linalg.solve(x, tp.ones((2, 3))))
        tp.output("d", tp.linalg.det(x))
    out = tp.compile(program, "numpy")(a=a)
    np.testing.assert_allclose(out["x"], np.linalg.solve(a, np.ones((2, 2, 3))), rtol=1e-6)
    assert out["d"].dtype == np.float32
    np.testing.assert_allclose(out["d"], np.linalg.det(a), rtol=1e-6)
