"""JAX's profiler, with its events mapped to the user's tensors: an event for each operator of XLA's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData

from tempo.backends import CompiledSegment
from tempo.backends.tracing import Origin, TracedEvent
from tempo.errors import UnsupportedError
from tempo_jax.jitted import JittedSegment

_END = "end: "  # an event of its own when an operator has ended elsewhere
_PACE = 1e-9


class JaxTracer:
    """Of Python it sees nothing: that is what samples are for, and it would take longer than the rest."""

    name = "JAX"

    def __init__(self) -> None:
        """A first look, at nothing: a session says only where it ends that there was another one."""
        self._session: Any = None
        self.start()
        self.stop(())

    def wait(self, arrays: Sequence[Any]) -> None:
        jax.block_until_ready([each for each in jax.tree.leaves(list(arrays)) if _is_there(each)])

    def start(self) -> None:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level, options.host_tracer_level = 0, 1
        options.enable_hlo_proto = False  # modules are read as text, and writing them takes as long as events do
        with _alone():
            self._session = _session_type()(options)

    def stop(self, segments: Sequence[CompiledSegment]) -> Iterator[TracedEvent]:
        assert self._session is not None, "it was started"
        session, self._session = self._session, None
        with _alone():
            return _told(session.stop(), segments)


@contextmanager
def _alone() -> Iterator[None]:
    """Raises `UnsupportedError` where somebody else looks."""
    try:
        yield
    except RuntimeError as error:
        raise UnsupportedError(f"JAX's profiler is in use: {error}", hint="stop the other trace first") from error


def _session_type() -> Callable[[Any], Any]:
    """JAX's own, which its public functions use; these write a page for TensorBoard as well, which takes twice as long
    as all else. Where it is not to be had they do."""
    try:
        from jax._src.lib import _profiler
    except ImportError:
        return _PublicSession
    found = getattr(_profiler, "ProfilerSession", None)
    return found if hasattr(found, "stop") else _PublicSession


class _PublicSession:
    """By `jax.profiler.start_trace` and `stop_trace`."""

    def __init__(self, options: Any) -> None:
        self._folder = tempfile.mkdtemp(prefix="tempo-profile-")
        try:
            jax.profiler.start_trace(self._folder, profiler_options=options)
        except RuntimeError:
            shutil.rmtree(self._folder)
            raise

    def stop(self) -> bytes:
        try:
            jax.profiler.stop_trace()
            (file,) = Path(self._folder).rglob("*.xplane.pb")
            return file.read_bytes()
        finally:
            shutil.rmtree(self._folder)


def _told(space: bytes, segments: Sequence[CompiledSegment]) -> Iterator[TracedEvent]:
    origins = _Origins(segments)
    for name, thread, start, seconds, operator in _events(ProfileData.from_serialized_xspace(space)):
        origin = operator and origins(*operator)
        yield TracedEvent(name, thread, start * _PACE, seconds * _PACE, operator is not None, origin)


_Raw = tuple[str, str, float, float, tuple[str, str] | None]


def _events(data: ProfileData) -> Iterator[_Raw]:
    """Name, thread, start and length in nanoseconds; of an operator the module and the instruction."""
    for plane in data.planes:
        if plane.name.startswith("/host:metadata"):
            continue
        for number, line in enumerate(plane.lines):
            thread = f"{plane.name} {line.name or number}"
            for event in line.events:
                if event.name.startswith(_END):
                    continue
                stats = {key: value for key, value in event.stats if key in ("hlo_module", "hlo_op")}
                operator = (str(stats["hlo_module"]), str(stats["hlo_op"])) if len(stats) == 2 else None
                yield event.name, thread, event.start_ns, event.duration_ns, operator


class _Origins:
    """Of instructions, by the name of their module; a module is looked at when it is first asked for."""

    def __init__(self, segments: Sequence[CompiledSegment]) -> None:
        made = [each.function for each in segments if isinstance(each.function, JittedSegment)]
        self._modules: dict[str, Callable[[], Mapping[str, Origin]]] = {}
        for segment in made:
            self._modules.update(segment.modules())
        self._known: dict[str, Mapping[str, Origin]] = {}

    def __call__(self, module: str, instruction: str) -> Origin | None:
        if module not in self._known:
            self._known[module] = self._modules.get(module, dict)()
        return self._known[module].get(instruction)


def _is_there(array: Any) -> bool:
    return isinstance(array, jax.Array) and not array.is_deleted()
