"""Several threads on one executable, one program, one manager: each has its own sizes, and nothing is made twice."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tempo.compiler.once import Once
from tempo.plugins import BackendPlugin, PluginManager
from tempo.plugins import manager as managers
from tempo.runtime import executable as executable_module
from tempo.runtime.program_run import ProgramRun
from tempo.symbolic import Context, dim, parse_condition
from tempo.symbolic.proofs.linear import Variables
from tests.unit.runtime.programs import counter, running_sum

THREADS = 8


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """What the works give, each begun in a thread of its own when all threads are there."""
    barrier = threading.Barrier(len(works))

    def begun(work: Callable[[], Any]) -> Any:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(begun, works))


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def prefix_sums() -> tp.Program:
    """What operators see grows with the size: an executable for each."""
    with tp.Program("prefix_sums") as program:
        t = tp.dim("t")
        x = tp.input("x", shape=(), dims=(t,))
        tp.output("sums", x[0 : t + 1].sum())
    return program


@pytest.mark.parametrize("look", [1, 2, 3])
def test_sizes_remembered_from_a_call_are_those_of_its_arrays(look: int) -> None:
    """Another call comes in front of one of the looks at what is remembered: certain, for the look makes it."""
    run = tp.compile(running_sum())
    long, short = np.ones((7, 3), np.float32), np.ones((3, 3), np.float32)
    calls: Any = run._calls

    class Switching(type(calls)):  # type: ignore[misc]
        looks = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "_last":
                type(self).looks += 1
                if type(self).looks == look:
                    run(x=long)
            return super().__getattribute__(name)

    run(x=short)
    calls.__class__ = Switching
    np.testing.assert_array_equal(run(x=short)["s"], short.cumsum(0))


def test_many_threads_with_many_sizes(hasty: None) -> None:
    run, sums = tp.compile(running_sum()), tp.compile(prefix_sums())

    def work(number: int) -> Callable[[], None]:
        def calls() -> None:
            for turn in range(40):
                x = np.full((1 + (number + turn) % 5, 3), number, np.float32)
                out = run(x=x)
                np.testing.assert_array_equal(out["s"], x.cumsum(0))
                assert out.sizes == {"t": len(x)}
                np.testing.assert_array_equal(sums(x=x[:, 0])["sums"], x[:, 0].cumsum())

        return calls

    at_once([work(number) for number in range(THREADS)])
    assert sums.executables == 5


class SlowBackend(NumpyBackend):
    """Takes as long to compile as it needs for the other threads to ask for the same."""

    def __init__(self) -> None:
        self.compiles = 0

    def compile_segment(self, request: Any) -> Any:
        self.compiles += 1
        threading.Event().wait(0.05)
        return super().compile_segment(request)


def test_the_same_sizes_are_compiled_once() -> None:
    backend = SlowBackend()
    run = tp.compile(prefix_sums(), backend=backend)
    x = np.ones(4, np.float32)
    found = at_once([lambda: run(x=x)["sums"]] * THREADS)
    assert all(np.array_equal(each, x.cumsum()) for each in found)
    assert backend.compiles == 1


def test_sizes_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[Any] = []
    inner = executable_module.check_index_values

    def slow(graph: Any, sizes: Any) -> None:
        checks.append(sizes)
        threading.Event().wait(0.05)
        inner(graph, sizes)

    monkeypatch.setattr(executable_module, "check_index_values", slow)
    run = tp.compile(running_sum())
    at_once([lambda: run(x=np.ones((4, 3), np.float32))] * THREADS)
    assert len(checks) == 1


def test_what_could_not_be_made_is_made_by_the_next() -> None:
    once: Once[str, int] = Once()

    def fails() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        once.get("a", fails)
    assert once.get("a", lambda: 1) == once.get("a", fails) == 1
    assert list(once) == ["a"]


def test_an_error_names_the_memory_of_its_own_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one call runs out of memory another ends, with other sizes."""
    run = tp.compile(running_sum())
    inner = ProgramRun.whole

    def fails(self: Any, item: Any) -> None:
        monkeypatch.setattr(ProgramRun, "whole", inner)
        run(x=np.ones((2, 3), np.float32))
        raise MemoryError("no more")

    monkeypatch.setattr(ProgramRun, "whole", fails)
    with pytest.raises(tp.MemoryLimitError, match=r"s: float32\[9, 3\]"):
        run(x=np.ones((9, 3), np.float32))


@pytest.mark.slow
def test_threads_compile_one_program(hasty: None) -> None:
    """The program is opened for it, in each."""
    for _ in range(20):
        program = counter()
        found = at_once([lambda program=program: tp.compile(program, sizes={"i": 3})()["w"]] * THREADS)  # type: ignore[misc]
        assert all(np.array_equal(each, [[1, 2], [2, 3], [3, 4]]) for each in found)


def test_a_program_may_be_open_in_two_threads() -> None:
    """And left in the order in which it was entered: each thread has its own."""
    with tp.Program("shared") as shared:
        tp.dim("t", 2)
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with shared:
            entered.set()
            leave.wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other)
        entered.wait()
        with shared:
            leave.set()
            waiting.result()
        with pytest.raises(tp.ProgramError, match="no program is open"):
            tp.dim("s")


def test_atoms_get_numbers_of_their_own(hasty: None) -> None:
    """A number for two atoms would make a wrong proof."""
    atoms = [next(iter(dim(f"d{number}").symbols())) for number in range(40)]
    for _ in range(50):
        variables = Variables(lambda symbol: parse_condition("True"))
        at_once([lambda variables=variables: list(map(variables.number, atoms))] * THREADS)  # type: ignore[misc]
        assert [variables.number(atom) for atom in atoms] == [variables.atoms.index(atom) for atom in atoms]
        assert len(variables.atoms) == len(atoms)


def test_a_context_answers_several_threads(hasty: None) -> None:
    questions = [dim("t").ge(number) & dim("t").lt(number + 3) for number in range(30)]
    alone = [Context.of(()).excludes(question) for question in questions]
    for _ in range(10):
        context = Context.of(())
        found = at_once([lambda context=context: [context.excludes(each) for each in questions]] * 4)  # type: ignore[misc]
        assert all(each == alone for each in found)


def test_a_plugin_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []

    class Point:
        name, value, group = "slow", "slow", "tempo.backends"
        dist = SimpleNamespace(name="slow", version="1")

        def load(self) -> Any:
            loads.append(self.name)
            threading.Event().wait(0.05)
            return SimpleNamespace(tempo_backend=managers.hookspecs.hookimpl(_descriptor))

    def _descriptor() -> BackendPlugin:
        return BackendPlugin("slow", "none:none")

    monkeypatch.setattr(managers, "entry_points", lambda group: (Point(),) if group == "tempo.backends" else ())
    manager = PluginManager(())
    found = at_once([lambda: manager.descriptor("backend", "slow").name] * THREADS)
    assert found == ["slow"] * THREADS
    assert loads == ["slow"]


def test_a_name_is_registered_by_one_thread() -> None:
    def claim(manager: PluginManager) -> bool:
        with contextlib.suppress(tp.BrokenPluginError):
            manager.register(BackendPlugin("mine", "none:none"))
            return True
        return False

    for _ in range(50):
        manager = PluginManager(())
        assert sum(at_once([lambda manager=manager: claim(manager)] * THREADS)) == 1  # type: ignore[misc]


def test_streams_of_one_executable_run_beside_each_other(hasty: None) -> None:
    run = tp.compile(running_sum())

    def work(number: int) -> Callable[[], None]:
        def streams() -> None:
            x = np.full((2 + number, 3), number, np.float32)
            steps: list[Mapping[str, Any]] = list(run.stream("t", x=x))
            np.testing.assert_array_equal([step["s"] for step in steps], x.cumsum(0))

        return streams

    at_once([work(number) for number in range(THREADS)])
