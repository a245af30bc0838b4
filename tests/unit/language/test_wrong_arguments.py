"""Whatever is passed where something else is wanted ends in an error of Tempo's."""

import inspect

import numpy as np
import pytest

import tempo as tp

WRONG = {
    "None": lambda t, x: None,
    "string": lambda t, x: "text",
    "float": lambda t, x: 1.5,
    "nan": lambda t, x: float("nan"),
    "int": lambda t, x: 3,
    "negative": lambda t, x: -1,
    "huge": lambda t, x: 10**20,
    "bool": lambda t, x: True,
    "empty list": lambda t, x: [],
    "list": lambda t, x: [1, 2],
    "tuple": lambda t, x: (1, 2),
    "dict": lambda t, x: {},
    "object": lambda t, x: object(),
    "complex": lambda t, x: 1j,
    "bytes": lambda t, x: b"x",
    "array": lambda t, x: np.ones(2),
    "array of ()": lambda t, x: np.array(1),
    "mask": lambda t, x: np.array([True, False]),
    "slice": lambda t, x: slice(0, 2),
    "ellipsis": lambda t, x: ...,
    "function": lambda t, x: lambda: 0,
    "dim": lambda t, x: t,
    "condition": lambda t, x: t > 0,
    "tensor": lambda t, x: x,
}


def uses(t, x, h, value):
    """Everything that a user may do with a value, under a name."""
    for name in tp.__all__:
        function = getattr(tp, name)
        if inspect.isfunction(function) and not name.startswith("register") and name != "compile":
            yield f"tp.{name}(value)", lambda f=function: f(value)
            yield f"tp.{name}(x, value)", lambda f=function: f(x, value)
            yield f"tp.{name}('name', value)", lambda f=function: f("name", value)
            yield f"tp.{name}(x, x, value)", lambda f=function: f(x, x, value)
    for name in ("uniform", "normal", "bernoulli", "categorical", "permutation", "bits"):
        draw = getattr(tp.random, name)
        yield f"random.{name}(value)", lambda f=draw: f(value)
        yield f"random.{name}(dims=value)", lambda f=draw: f((2,), dims=value)
    yield "x[value]", lambda: x[value]
    yield "x[value:]", lambda: x[value:]
    yield "x[:value]", lambda: x[:value]
    yield "x.at", lambda: x.at(t=value)
    yield "x.spatial[value]", lambda: x.spatial[value]
    yield "x.spatial[value:]", lambda: x.spatial[value:]
    yield "x.gather(t, value)", lambda: x.gather(t, value)
    yield "x.gather(value, 0)", lambda: x.gather(value, 0)
    yield "x.gather(t, 0, value)", lambda: x.gather(t, 0, value)
    yield "h[value] = 0", lambda: h.__setitem__(value, 0.0)
    yield "h[t] = value", lambda: h.__setitem__(t, value)
    for name in ("add", "radd", "sub", "mul", "rmul", "truediv", "floordiv", "mod", "pow", "lt", "eq"):
        for left, label in ((x, "x"), (t, "t")):
            yield f"{label}.__{name}__(value)", lambda a=left, n=name: getattr(a, f"__{n}__")(value)
    yield "(t > 0) & value", lambda: (t > 0).__and__(value)
    for name in ("sum", "reshape", "astype", "transpose", "argmax", "squeeze", "clip"):
        yield f"x.{name}(value)", lambda n=name: getattr(x, n)(value)
    yield "cases value", lambda: tp.cases((t > 0, value), 0.0)
    yield "cases condition", lambda: tp.cases((value, x), 0.0)
    yield "out=", lambda: tp.host_call(abs, x, out=value)
    yield "ordered_by=", lambda: tp.host_call(abs, x, out=[((), "float32")], ordered_by=value)


def foreign(call):
    """The error that the call ends with; None if it succeeds, or fails with one of Tempo's at the user's line."""
    try:
        call()
    except tp.InternalError as error:
        return error
    except tp.TempoError as error:
        at_user = error.location is not None and error.location.path == __file__
        return None if at_user else error
    except TypeError as error:
        # Python's own, of a call that fits no signature, is told at the user's line already.
        own = error.__traceback__ and error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next is None
        return None if own else error
    except Exception as error:  # noqa: BLE001 - what the test looks for
        return error
    return None


@pytest.mark.parametrize("kind", WRONG)
def test_no_input_ends_in_a_foreign_error(kind, tmp_path, monkeypatch):
    """No input ends in an assertion or a backend's own error without Tempo's frame around it."""
    monkeypatch.chdir(tmp_path)  # tp.save writes a file where it is given a name
    with tp.Program():
        t = tp.dim("t")
        x = tp.input("x", shape=(2, 3), dims=(t,))
        h = tp.recurrent("h", (2, 3), (t,))
        found = [(use, repr(foreign(call))) for use, call in uses(t, x, h, WRONG[kind](t, x))]
    problems = [f"{use}: {problem}" for use, problem in found if problem != "None"]
    assert not problems, "\n".join(problems)
