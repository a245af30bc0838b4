"""Loops of scalars and tiny arrays on NumPy and PyTorch, against the same loops written by hand.

What is measured is the cost of a step: an operator on a scalar takes longer to call than to compute. By hand each is
what a careful person writes: names for what does not change, scalars as the library's own, slots of an array for what
is an output.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tempo as tp
from benchmarks.harness import Benchmark, Session, close

STEP = np.float32(0.02)
Loop = Callable[[Any, Mapping[str, Any]], dict[str, Any]]


# -- a pendulum: two states, a force -------------------------------------------------------------------------------


def pendulum() -> tp.Program:
    with tp.Program("pendulum") as program:
        t = tp.dim("t")
        force = tp.input("force", shape=(), dims=(t,))
        angle, speed = (tp.recurrent(name, shape=(), dims=(t,)) for name in ("angle", "speed"))
        angle[0], speed[0] = 1.0, 0.0
        following = speed + STEP * (force - tp.sin(angle) - 0.1 * speed)
        speed[t + 1] = following
        angle[t + 1] = angle + STEP * following
        tp.output("angle", angle)
    return program


def pendulum_by_hand(lib: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    force, steps, sin, step, drag = given["force"], len(given["force"]), lib.sin, lib.number(0.02), lib.number(0.1)
    angle, speed, angles = lib.number(1.0), lib.number(0.0), lib.empty(steps)
    for t in range(steps):
        angles[t] = angle
        speed = speed + step * (force[t] - sin(angle) - drag * speed)
        angle = angle + step * speed
    return {"angle": angles}


# -- a controller: its integral does not wind up, what it puts out has limits --------------------------------------


def controller() -> tp.Program:
    with tp.Program("controller") as program:
        t = tp.dim("t")
        wanted = tp.input("wanted", shape=(), dims=(t,))
        level, integral, before = (tp.recurrent(name, shape=(), dims=(t,)) for name in ("level", "integral", "before"))
        error = wanted - level
        summed = tp.clip(integral + STEP * error, -2.0, 2.0)
        put = tp.clip(2.0 * error + 0.5 * summed + 0.1 * (error - before), -1.0, 1.0)
        level[0], integral[0], before[0] = 0.0, 0.0, 0.0
        level[t + 1] = level + STEP * (put - 0.5 * level)
        integral[t + 1] = summed
        before[t + 1] = error
        tp.output("level", level)
        tp.output("put", put)
    return program


def controller_by_hand(lib: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    wanted, steps, minimum, maximum = given["wanted"], len(given["wanted"]), lib.minimum, lib.maximum
    step, one, two, half, tenth = (lib.number(value) for value in (0.02, 1.0, 2.0, 0.5, 0.1))
    level, integral, before = lib.number(0.0), lib.number(0.0), lib.number(0.0)
    levels, puts = lib.empty(steps), lib.empty(steps)
    for t in range(steps):
        levels[t] = level
        error = wanted[t] - level
        integral = minimum(maximum(integral + step * error, -two), two)
        put = minimum(maximum(two * error + half * integral + tenth * (error - before), -one), one)
        puts[t] = put
        level = level + step * (put - half * level)
        before = error
    return {"level": levels, "put": puts}


# -- a Kalman filter: position and speed, from positions -----------------------------------------------------------

MOTION = np.array([[1.0, 0.1], [0.0, 1.0]], np.float32)
DRIFT = np.array([[0.0025, 0.05], [0.05, 1.0]], np.float32) / 50
SEEN = np.array([1.0, 0.0], np.float32)
NOISE = 0.25


def kalman() -> tp.Program:
    with tp.Program("kalman") as program:
        t = tp.dim("t")
        z = tp.input("z", shape=(), dims=(t,))
        motion, drift, seen = (tp.constant(array) for array in (MOTION, DRIFT, SEEN))
        mean = tp.recurrent("mean", shape=(2,), dims=(t,))
        covariance = tp.recurrent("covariance", shape=(2, 2), dims=(t,))
        across = covariance @ seen
        gain = across / (seen @ across + NOISE)
        filtered = mean + gain * (z - seen @ mean)
        remaining = covariance - gain.reshape((2, 1)) * across
        mean[0] = tp.zeros((2,))
        covariance[0] = tp.constant(np.eye(2, dtype=np.float32))
        mean[t + 1] = motion @ filtered
        covariance[t + 1] = motion @ remaining @ motion.T + drift
        tp.output("filtered", filtered)
    return program


def kalman_by_hand(lib: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    z, steps, found = given["z"], len(given["z"]), lib.empty((len(given["z"]), 2))
    motion, drift, seen, turned = (lib.array(array) for array in (MOTION, DRIFT, SEEN, MOTION.T.copy()))
    noise, mean, covariance = lib.number(NOISE), lib.array(np.zeros(2, np.float32)), lib.array(np.eye(2, dtype="f"))
    for t in range(steps):
        across = covariance @ seen
        gain = across / (seen @ across + noise)
        filtered = mean + gain * (z[t] - seen @ mean)
        found[t] = filtered
        mean = motion @ filtered
        covariance = motion @ (covariance - gain.reshape(2, 1) * across) @ turned + drift
    return {"filtered": found}


# -- values of states, swept until they stay ------------------------------------------------------------------------

PLACES, ACTIONS, DISCOUNT = 8, 3, 0.9


def sweeps() -> tp.Program:
    with tp.Program("sweeps") as program:
        t = tp.dim("t")
        p = tp.input("p", shape=(PLACES, ACTIONS, PLACES), dims=())
        reward = tp.input("reward", shape=(PLACES, ACTIONS), dims=())
        v = tp.recurrent("v", shape=(PLACES,), dims=(t,))
        better = (reward + DISCOUNT * (p @ v)).max(axis=1)
        v[0] = tp.zeros((PLACES,))
        v[t + 1] = better
        tp.output("moved", tp.abs(better - v).max())
        tp.output("v", better[-1])
    return program


def sweeps_by_hand(lib: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    p, reward, steps, discount = given["p"], given["reward"], lib.steps, lib.number(DISCOUNT)
    v, moved = lib.array(np.zeros(PLACES, np.float32)), lib.empty(lib.steps)
    for t in range(steps):
        before, v = v, lib.greatest(reward + discount * (p @ v))
        moved[t] = abs(v - before).max()
    return {"moved": moved, "v": v}


def decisions(draw: np.random.Generator, steps: int) -> dict[str, np.ndarray]:
    p = draw.random((PLACES, ACTIONS, PLACES)).astype(np.float32)
    reward = draw.normal(0, 1, (PLACES, ACTIONS)).astype(np.float32)
    return {"p": p / p.sum(axis=-1, keepdims=True), "reward": reward}


# -- values of states, learnt along a walk -------------------------------------------------------------------------

STATES, RATE = 16, 0.1


def learning() -> tp.Program:
    with tp.Program("learning") as program:
        t = tp.dim("t")
        place, following = (tp.input(name, shape=(), dims=(t,), dtype=tp.int32) for name in ("place", "following"))
        reward = tp.input("reward", shape=(), dims=(t,))
        value = tp.recurrent("value", shape=(STATES,), dims=(t,))
        error = reward + DISCOUNT * value.spatial[following] - value.spatial[place]
        value[0] = tp.zeros((STATES,))
        value[t + 1] = value + RATE * error * tp.one_hot(place, STATES)
        tp.output("error", error)
        tp.output("value", value[-1])
    return program


def learning_by_hand(lib: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    place, following, reward = (given[name] for name in ("place", "following", "reward"))
    rate, discount, value = lib.number(RATE), lib.number(DISCOUNT), lib.array(np.zeros(STATES, np.float32))
    steps, errors = len(place), lib.empty(len(place))
    for t in range(steps - 1):
        at = place[t]
        errors[t] = error = reward[t] + discount * value[following[t]] - value[at]
        value[at] += rate * error
    errors[-1] = reward[-1] + discount * value[following[-1]] - value[place[-1]]
    return {"error": errors, "value": value}


# -- how far two words are apart -----------------------------------------------------------------------------------


def distance() -> tp.Program:
    with tp.Program("distance") as program:
        i, j = tp.dims("i j")
        first = tp.input("first", shape=(), dims=(i,), dtype=tp.int32)
        second = tp.input("second", shape=(), dims=(j,), dtype=tp.int32)
        d = tp.recurrent("d", shape=(), dims=(i, j), dtype=tp.int32)
        d[0, j] = j
        d[i, 0] = i
        d[i + 1, j + 1] = tp.minimum(tp.minimum(d[i, j + 1], d[i + 1, j]) + 1, d + (first != second))
        tp.output("distance", d[-1, -1])
    return program


def distance_by_hand(lib: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    first, second, minimum, one = given["first"], given["second"], lib.minimum, lib.integer(1)
    row = [lib.integer(j) for j in range(len(second))]
    for i in range(1, len(first)):
        above, row, letter = row, [lib.integer(i)], first[i - 1]
        for j in range(1, len(second)):
            row.append(minimum(minimum(above[j], row[j - 1]) + one, above[j - 1] + (letter != second[j - 1])))
    return {"distance": row[-1]}


# -- the libraries -------------------------------------------------------------------------------------------------


def numpy_library() -> Any:
    class Library:
        sin, minimum, maximum = np.sin, min, max  # of scalars in a fifth of the time that NumPy takes
        number, integer, array = np.float32, np.int32, staticmethod(np.array)
        greatest = staticmethod(lambda array: array.max(axis=1))

        @staticmethod
        def empty(shape: Any) -> np.ndarray:
            return np.empty(shape, np.float32)

    return Library, lambda run: run


def torch_library() -> Any:
    import torch

    torch.set_num_threads(1)  # the arithmetic is far too little for two

    class Library:
        sin, minimum, maximum = torch.sin, torch.minimum, torch.maximum
        array, empty = staticmethod(lambda array: torch.from_numpy(array.copy())), torch.empty
        number = staticmethod(torch.tensor)
        greatest = staticmethod(lambda array: array.amax(dim=1))
        integer = staticmethod(lambda value: torch.tensor(value, dtype=torch.int32))

    return Library, torch.inference_mode()


LIBRARIES = {"numpy": numpy_library, "torch": torch_library}


@dataclass(frozen=True)
class Case:
    """`given(draw, steps)` makes the inputs; `sizes` are of the dims at so many steps."""

    program: Callable[[], tp.Program]
    by_hand: Loop
    given: Callable[[np.random.Generator, int], dict[str, np.ndarray]]
    sizes: Callable[[int], dict[str, int]] = lambda steps: {"t": steps}


def walk(draw: np.random.Generator, steps: int) -> dict[str, np.ndarray]:
    states = draw.integers(0, STATES, steps + 1).astype(np.int32)
    reward = draw.normal(0, 1, steps).astype(np.float32)
    return {"place": states[:-1].copy(), "following": states[1:].copy(), "reward": reward}


def words(draw: np.random.Generator, steps: int) -> dict[str, np.ndarray]:
    side = round(steps**0.5)
    return {name: draw.integers(0, 4, side).astype(np.int32) for name in ("first", "second")}


CASES = {
    "pendulum": Case(pendulum, pendulum_by_hand, lambda draw, n: {"force": draw.normal(0, 1, n).astype("f")}),
    "controller": Case(controller, controller_by_hand, lambda draw, n: {"wanted": draw.normal(0, 1, n).astype("f")}),
    "kalman": Case(kalman, kalman_by_hand, lambda draw, n: {"z": draw.normal(0, 1, n).astype("f")}),
    "sweeps": Case(sweeps, sweeps_by_hand, decisions),
    "learning": Case(learning, learning_by_hand, walk),
    "distance": Case(distance, distance_by_hand, words, lambda n: dict.fromkeys("ij", round(n**0.5))),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, help="default: 20,000; quick 4,000")
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))


def measure(session: Session) -> None:
    steps = session.options.steps or (4_000 if session.quick else 20_000)
    library, mode = LIBRARIES[session.backend]()
    library.steps = steps
    for name in session.options.case:
        case = CASES[name]
        given = {key: session.resident(array) for key, array in case.given(np.random.default_rng(0), steps).items()}
        run = session.compile(case.program(), case.sizes(steps))
        by_hand = mode(case.by_hand)
        session.compare(
            f"{name}, {steps} steps",
            lambda run=run, given=given: dict(run(**given)),  # type: ignore[misc]
            {"by hand": lambda by_hand=by_hand, given=given: by_hand(library, given)},  # type: ignore[misc]
            close(1e-3, 1e-4),
            goals={"by hand": 1.2},
        )


BENCHMARK = Benchmark(
    measure, "Loops of scalars", repeats=11, quick_repeats=5, backends=("numpy", "torch"), add_options=options
)
