"""The conformance suite as a pytest plugin: any backend and scheduler against the meaning of programs.

    pytest -p tempo.conformance.plugin --pyargs tempo.conformance --tempo-backend=jax --tempo-device=cuda

It is opt-in: nothing of it is loaded unless it is named. One backend is tested per process. Expected values come from
the reference evaluator or from closed forms. What a backend's capabilities declare as unsupported must raise
`tp.UnsupportedError`; what its package lists in `known_failures.toml` must fail.
"""

from __future__ import annotations

import faulthandler
import os
import platform
import re
import subprocess
from collections.abc import Generator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

import tempo as tp
from tempo.conformance.known_failures import KnownFailure, declared_by, unmatched
from tempo.conformance.parameters import each_value
from tempo.conformance.target import Configuration, Target
from tempo.errors import TempoError
from tempo.plugins.manager import default_manager

SUITE = Path(__file__).parent
PROCESS_VARIABLE = "TEMPO_MESH_PROCESS"
"""Set in the processes that are the devices of a mesh."""
_OF_WORKERS = ("-n", "--numprocesses", "--dist")
TIMEOUT = 120.0
"""Seconds of a test on such."""
_STDERR = os.dup(2)  # before pytest captures it


@dataclass(frozen=True)
class Chosen:
    """What the command line asks for. `passes` is one of `PASSES`."""

    backend: str
    scheduler: str
    device: str | None
    passes: str
    is_there: bool = True
    mesh: int | None = None
    brief: bool = False

    @cached_property
    def target(self) -> Target:
        backend = default_manager().create("backend", self.backend)
        if self.device is not None:
            backend = self._on_device(backend)
        if self.mesh is not None:
            backend = self._on_mesh(backend)
        return Target(backend, self.scheduler, mesh=self.mesh, thorough=self.passes == "each", validates=not self.brief)

    def _on_mesh(self, backend: object) -> object:
        """Where it can, the host poses as so many devices; else these must be there."""
        if not backend.info.capabilities.meshes:  # type: ignore[attr-defined]
            raise tp.UnsupportedError(f"the backend {self.backend!r} runs on one device")
        return backend.with_host_devices(self.mesh) if hasattr(backend, "with_host_devices") else backend

    def _on_device(self, backend: object) -> object:
        devices = backend.info.capabilities.devices  # type: ignore[attr-defined]
        if self.device not in devices:
            raise tp.UnsupportedError(f"the backend {self.backend!r} has the devices {', '.join(devices)}")
        if self.is_there:
            return backend.with_device(self.device)  # type: ignore[attr-defined]
        if not hasattr(backend, "without_device"):
            raise tp.UnsupportedError(f"the backend {self.backend!r} is tested on devices that are there")
        return backend.without_device(self.device)

    @cached_property
    def known_failures(self) -> tuple[KnownFailure, ...]:
        manager = default_manager()
        descriptors = manager.descriptor("backend", self.backend), manager.descriptor("scheduler", self.scheduler)
        return tuple(entry for each in descriptors for entry in declared_by(each, self.device))

    def configurations(self, marks: Set[str]) -> tuple[Configuration, ...]:
        """Those of a test with these marks: at most the ones asked for, and one where nothing is compiled."""
        if self.target.interprets or self.passes == "all":
            return (Configuration("all"),)
        if "one_configuration" in marks:
            return () if self.passes == "none" else (Configuration("all"),)
        if self.passes == "none":
            return Configuration.few()[1:]
        few = self.passes == "few" or "few_configurations" in marks
        return Configuration.few() if few else Configuration.every()


CHOSEN = pytest.StashKey[Chosen]()
PASSES = ("each", "few", "all", "none")
"""All passes, none, and each alone; all and none; all; none. Passes are the core's: its own backend has each alone."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tempo", "the conformance suite of Tempo")
    group.addoption("--tempo-backend", metavar="NAME", help="the backend to test (TEMPO_BACKEND, else numpy)")
    group.addoption("--tempo-scheduler", metavar="NAME", help="the scheduler (TEMPO_SCHEDULER, else greedy)")
    group.addoption("--tempo-device", metavar="NAME", help="one of the backend's devices, such as cuda")
    group.addoption(
        "--tempo-without-device",
        "--tempo-lower-only",
        "--tempo-fake",
        action="store_true",
        help="the device need not be there: what it would refuse, and what would wait for it, fails",
    )
    group.addoption(
        "--tempo-passes",
        choices=PASSES,
        default="few",
        help="each: all, none, each alone; few: all, none (the default); all; none",
    )
    group.addoption(
        "--tempo-mesh",
        metavar="N",
        type=int,
        help="on N devices, which the host poses as: a dim that may be is cut, or an axis of an input",
    )
    group.addoption(
        "--tempo-brief",
        action="store_true",
        help="what another backend's run leaves open: each value of each parameter, not each combination of them; "
        "what passes make is not validated",
    )
    group.addoption("--tempo-random-programs", metavar="N", type=int, default=100, help="how many (100)")
    group.addoption(
        "--tempo-edges", metavar="FIRST:END", type=_numbers, default=range(25), help="which of test_edges (0:25)"
    )


def _numbers(text: str) -> range:
    first, end = map(int, text.split(":"))
    return range(first, end)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Where the devices of a mesh are processes, the whole session runs in each of them, test by test."""
    count, backend = config.getoption("--tempo-mesh"), config.getoption("--tempo-backend")
    if count is None or PROCESS_VARIABLE in os.environ:
        return None
    made = default_manager().create("backend", backend or os.environ.get("TEMPO_BACKEND") or "numpy")
    if not hasattr(made, "launched"):
        return None
    given, given_on = list(config.invocation_params.args), ["-p", "no:xdist", "-p", "no:cacheprovider"]
    workers = [at for at, each in enumerate(given) if each in _OF_WORKERS]
    apart = [each for at, each in enumerate(given) if not {at, at - 1} & set(workers)]
    left = [each for each in apart if not re.match(r"-n\d|-n=|-nauto|--numprocesses=|--dist=", each)]
    command = made.launched(count, ["-m", "pytest", *given_on, *left])
    return subprocess.run(command, env={**os.environ, PROCESS_VARIABLE: "1"}, check=False).returncode


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test in which a process waits for one that has failed ends them all."""
    if PROCESS_VARIABLE in os.environ:
        faulthandler.dump_traceback_later(TIMEOUT, exit=True, file=_STDERR)
    try:
        return (yield)
    finally:
        if PROCESS_VARIABLE in os.environ:
            faulthandler.cancel_dump_traceback_later()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "planned: needs a backend that plans (memory, streams, executables)")
    config.addinivalue_line("markers", "one_device: is about a plan for one device; left out with --tempo-mesh")
    config.addinivalue_line(
        "markers",
        "one_process: one process of a mesh alone may meet an error, and the others would wait for it, or has a folder "
        "of its own",
    )
    config.addinivalue_line("markers", "slow: takes long to compile; leave it out with `-m 'not slow'`")
    config.addinivalue_line("markers", "one_configuration: runs with all passes only")
    config.addinivalue_line(
        "markers", "few_configurations: runs with all passes and with none, nowhere with each alone"
    )
    chosen = Chosen(
        config.getoption("--tempo-backend") or os.environ.get("TEMPO_BACKEND") or "numpy",
        config.getoption("--tempo-scheduler") or os.environ.get("TEMPO_SCHEDULER") or "greedy",
        config.getoption("--tempo-device"),
        config.getoption("--tempo-passes"),
        not config.getoption("--tempo-without-device"),
        config.getoption("--tempo-mesh"),
        config.getoption("--tempo-brief"),
    )
    if chosen.mesh is not None:
        config.addinivalue_line("filterwarnings", "ignore::tempo.errors.GatherWarning")
    try:
        _ = chosen.target, chosen.known_failures
    except (TempoError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[CHOSEN] = chosen
    if chosen.brief:
        config.pluginmanager.register(Brief(), "tempo-brief")


def pytest_report_header(config: pytest.Config) -> list[str]:
    chosen = config.stash[CHOSEN]
    info = chosen.target.info
    unsupported = [f"{name}: {reason}" for name, reason in info.capabilities.unsupported.items()]
    return [
        f"tempo {tp.__version__}, numpy {np.__version__}, python {platform.python_version()}, {platform.machine()}",
        f"backend {chosen.backend} ({_origin(chosen)}), device {chosen.device or 'of its choice'}"
        + (f", a mesh of {chosen.mesh}" if chosen.mesh else ""),
        f"scheduler {chosen.scheduler}",
        f"dtypes: {', '.join(info.dtypes)}; devices: {', '.join(info.capabilities.devices)}",
        f"unsupported: {'; '.join(unsupported) or 'nothing'}; known failures: {len(chosen.known_failures)}",
    ]


def _origin(chosen: Chosen) -> str:
    listing = next(each for each in default_manager().listings("backend") if each.name == chosen.backend)
    return f"{listing.distribution}, {listing.descriptor.summary}" if listing.descriptor else listing.distribution


# -- which tests run ---------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        marks = {mark.name for mark in metafunc.definition.iter_markers()}
        configurations = metafunc.config.stash[CHOSEN].configurations(marks)
        metafunc.parametrize("configuration", configurations, ids=str, indirect=True)
    if "edge" in metafunc.fixturenames:
        metafunc.parametrize("edge", metafunc.config.getoption("--tempo-edges"))


@pytest.hookimpl(tryfirst=True)  # before -k and -m leave tests out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.stash[CHOSEN]
    ours = {item: name for item in items if (name := _suite_name(item))}
    for item, name in ours.items():
        for failure in chosen.known_failures:
            if failure.matches(name):
                item.add_marker(pytest.mark.xfail(reason=failure.reason, strict=True))
        if item.get_closest_marker("planned") and chosen.target.interprets:
            item.add_marker(pytest.mark.skip(reason=f"{chosen.backend} evaluates the graph itself and plans nothing"))
        if item.get_closest_marker("one_device") and chosen.mesh is not None:
            item.add_marker(pytest.mark.skip(reason="it is about a plan for one device"))
        if item.get_closest_marker("one_process") and PROCESS_VARIABLE in os.environ:
            item.add_marker(pytest.mark.skip(reason="one process alone would meet an error, or have its own folder"))
    whole = (
        () if any("::" in argument for argument in config.args) else {name.partition("::")[0] for name in ours.values()}
    )
    _refuse(unmatched(chosen.known_failures, ours.values(), whole))


class Brief:
    """Leaves out combinations of values. It is registered by itself: -k and -m come first, and may leave out others."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = each_value(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that needs what the descriptor excludes is left out: the core refused it, for that reason and no other."""
    try:
        return (yield)
    except tp.UnsupportedError as error:
        if error.feature is None or _suite_name(pyfuncitem) is None:
            raise
        return pytest.skip(f"declared unsupported: {error.message}")


def _suite_name(item: pytest.Item) -> str | None:
    """`file::function[parameters]`, for tests of the suite."""
    if item.path.parent != SUITE or not isinstance(item, pytest.Function):
        return None
    return f"{item.path.name}::{item.name}"


def _refuse(entries: Sequence[KnownFailure]) -> None:
    if entries:
        told = "\n".join(f"{each.source}: no test is called {each.test!r}" for each in entries)
        raise pytest.UsageError(told)


# -- what tests use ----------------------------------------------------------------------------------------------------


@pytest.fixture
def configuration(request: pytest.FixtureRequest) -> Configuration:
    """The passes that run."""
    chosen: Configuration = request.param
    return chosen


@pytest.fixture
def target(request: pytest.FixtureRequest, configuration: Configuration) -> Target:
    """The backend under test with one configuration of passes; a test that uses it runs once for each."""
    return replace(request.config.stash[CHOSEN].target, configuration=configuration)


@pytest.fixture
def many(target: Target) -> Target:
    """The target, where it has a mesh."""
    if target.mesh is None:
        pytest.skip("needs --tempo-mesh=N")
    return target


@pytest.fixture
def random_programs(request: pytest.FixtureRequest) -> int:
    """How many random programs to run."""
    count: int = request.config.getoption("--tempo-random-programs")
    return count
