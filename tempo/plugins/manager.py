"""Finds plugins by name, loads only the one asked for, and makes what its descriptor names.

Nothing is read at `import tempo`: entry points are listed when a name is first looked up. Loading goes through
`pluggy`; what its `load_setuptools_entrypoints` would do (import every plugin of a group, let any exception through)
is done here for one entry point, so that a broken plugin harms nobody who does not ask for it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

import pluggy

from tempo.caches import installed
from tempo.errors import BrokenPluginError, TempoError
from tempo.plugins import hookspecs, messages
from tempo.plugins.descriptors import API_VERSION, EMBEDDED_BACKENDS, BackendPlugin, SchedulerPlugin

Descriptor = BackendPlugin | SchedulerPlugin

DESCRIPTORS: dict[str, type] = {"backend": BackendPlugin, "scheduler": SchedulerPlugin}
GROUPS = {"backend": "tempo.backends", "scheduler": "tempo.schedulers", "hook": "tempo.plugins"}
CORE_DISTRIBUTION = "tempo-sdg"
State = Literal["ok", "switched off", "broken"]
DISABLED_VARIABLE = "TEMPO_DISABLED_PLUGINS"
DEBUG_VARIABLE = "TEMPO_PLUGIN_DEBUG"


@dataclass(frozen=True)
class Listing:
    """One plugin as `doctor` shows it: `descriptor` where a backend or scheduler can be used, `error` where not."""

    kind: str
    name: str
    distribution: str
    state: State
    descriptor: Descriptor | None = None
    error: TempoError | None = field(default=None, compare=False)


class PluginManager:
    """The plugins of this process. Names are unique per kind ("backend", "scheduler")."""

    def __init__(self, embedded: Iterable[Descriptor] = EMBEDDED_BACKENDS) -> None:
        self._pluggy = pluggy.PluginManager(hookspecs.PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        self._embedded = tuple(embedded)
        self._own = {(each.kind, each.name): each for each in self._embedded}  # and what this process registers
        self._installed: dict[str, tuple[EntryPoint, ...]] = {}
        self._loaded: dict[str, tuple[str, EntryPoint]] = {}  # by pluggy's name, with the kind
        self._lock = threading.RLock()  # of what is registered and loaded; a module may register more while it loads

    def register(self, descriptor: Descriptor) -> None:
        """Add a plugin in process; `BrokenPluginError` when the name is taken or the API version is another."""
        kind, name = descriptor.kind, descriptor.name
        _check(kind, name, "this process", descriptor)
        with self._lock:
            claims = [*map(self._owner, self._sources(kind, name)), "the one to be registered"]
            if len(claims) > 1:
                raise messages.duplicate(kind, name, claims)
            self._own[kind, name] = descriptor

    def unregister(self, kind: str, name: str) -> None:
        """Remove a plugin that was registered in process. Raises `KeyError` for any other."""
        if self._own[kind, name] in self._embedded:
            raise KeyError((kind, name))
        del self._own[kind, name]

    def names(self, kind: str) -> list[str]:
        """Names that can be asked for: in process and installed, without those switched off."""
        return [name for name in self._all_names(kind) if not _is_disabled(kind, name)]

    def descriptor(self, kind: str, name: str) -> Descriptor:
        """The descriptor of one plugin; imports its light module at most."""
        if _is_disabled(kind, name):
            raise messages.disabled(kind, name, DISABLED_VARIABLE)
        sources = self._sources(kind, name)
        if not sources:
            raise messages.unknown(kind, name, self.names(kind))
        if len(sources) > 1:
            raise messages.duplicate(kind, name, map(self._owner, sources))
        (source,) = sources
        return source if isinstance(source, Descriptor) else self._load_descriptor(kind, source)

    def create(self, kind: str, name: str) -> Any:
        """A new backend or scheduler."""
        factory, origin = self.descriptor(kind, name).factory, self._origin(kind, name)
        try:
            made = (EntryPoint(name, factory, GROUPS[kind]).load() if isinstance(factory, str) else factory)()
        except (Exception, SystemExit) as error:
            raise messages.broken(kind, name, origin, error) from error
        _debug(f"made {kind} {name!r} of {origin}")
        return made

    def listings(self, kind: str) -> list[Listing]:
        """Every plugin of a kind, usable or not; imports no more than their light modules."""
        if kind == "hook":
            points = self._entry_points(kind)
            return [_listing(kind, each.name, _distribution(each), partial(self._load_hook, each)) for each in points]
        found = ((name, self._origin(kind, name)) for name in self._all_names(kind))
        return [_listing(kind, name, origin, partial(self.descriptor, kind, name)) for name, origin in found]

    def call(self, hook: str, **arguments: Any) -> None:
        """Call every plugin that answers `hook`, also those after one that fails; those of `tempo.plugins` are loaded.

        Raises `BrokenPluginError` for the first that raised, or that would have ended the process.
        """
        for point in self._entry_points("hook"):
            self._load_hook(point)
        answers = [each.plugin for each in reversed(getattr(self._pluggy.hook, hook).get_hookimpls())]
        failures: list[BrokenPluginError] = []
        for plugin in answers:
            kind, point = self._loaded[str(self._pluggy.get_name(plugin))]
            if _is_disabled(kind, point.name):
                continue
            alone = self._pluggy.subset_hook_caller(hook, [each for each in answers if each is not plugin])
            try:
                alone(**arguments)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - raised below, when all were called
                failures.append(messages.failed(hook, point.name, _distribution(point), error))
                failures[-1].__cause__ = error
        for other in failures[1:]:
            failures[0].add_note(str(other))
        if failures:
            raise failures[0]

    def _all_names(self, kind: str) -> list[str]:
        in_process = {name for of_kind, name in self._own if of_kind == kind}
        return sorted(in_process | {point.name for point in self._entry_points(kind)})

    def _sources(self, kind: str, name: str) -> list[Descriptor | EntryPoint]:
        """What provides the name: more than one is an error, none means that it is unknown."""
        own = [self._own[kind, name]] if (kind, name) in self._own else []
        return [*own, *(point for point in self._entry_points(kind) if point.name == name)]

    def _owner(self, source: Descriptor | EntryPoint) -> str:
        if not isinstance(source, Descriptor):
            return _distribution(source)
        return _core() if source in self._embedded else "this process"

    def _origin(self, kind: str, name: str) -> str:
        return " and ".join(map(self._owner, self._sources(kind, name)))

    def _entry_points(self, kind: str) -> tuple[EntryPoint, ...]:
        """Reading them costs milliseconds, so it happens once, and only when a name is first looked up."""
        if kind not in self._installed:
            self._installed[kind] = tuple(entry_points(group=GROUPS[kind]))
        return self._installed[kind]

    def _load_descriptor(self, kind: str, point: EntryPoint) -> Descriptor:
        module, distribution = self._load_module(kind, point), _distribution(point)
        answers = getattr(self._pluggy.hook, f"tempo_{kind}").get_hookimpls()
        described = [made.function for made in answers if made.plugin is module]
        if not described:
            raise messages.malformed(kind, point.name, distribution, f"it does not implement tempo_{kind}()")
        try:
            descriptor: Descriptor = described[0]()
        except (Exception, SystemExit) as error:
            raise messages.broken(kind, point.name, distribution, error) from error
        _check(kind, point.name, distribution, descriptor)
        return descriptor

    def _load_hook(self, point: EntryPoint) -> None:
        if not _is_disabled("hook", point.name):
            self._load_module("hook", point)

    def _load_module(self, kind: str, point: EntryPoint) -> Any:
        with self._lock:
            return self._load_alone(kind, point)

    def _load_alone(self, kind: str, point: EntryPoint) -> Any:
        key = f"{GROUPS[kind]}:{point.name}"
        if kind == "hook":  # many may answer, so two distributions may use one name
            key = f"{key} of {_distribution(point)}"
        loaded = self._pluggy.get_plugin(key)
        if loaded is not None:
            return loaded
        self._loaded[key] = kind, point
        try:
            module = point.load()
            self._pluggy.register(module, name=key)
            self._pluggy.check_pending()  # finds a misspelt hook
        except (Exception, SystemExit) as error:
            if self._pluggy.has_plugin(key):
                self._pluggy.unregister(name=key)
            raise messages.broken(kind, point.name, _distribution(point), error) from error
        _debug(f"loaded {key} = {point.value} of {_distribution(point)}")
        return module


def _check(kind: str, name: str, distribution: str, descriptor: object) -> None:
    """Raises `BrokenPluginError`; of another version of the contract nothing else is touched."""
    theirs = getattr(descriptor, "api_version", None)
    if theirs not in (None, API_VERSION):
        raise messages.version_skew(kind, name, distribution, theirs, _core(), API_VERSION)
    if theirs is None or not isinstance(descriptor, DESCRIPTORS[kind]):
        what = f"tempo_{kind}() returned a {type(descriptor).__name__}"
        raise messages.malformed(kind, name, distribution, what)


def _listing(kind: str, name: str, origin: str, load: Callable[[], Descriptor | None]) -> Listing:
    state: State = "switched off" if _is_disabled(kind, name) else "ok"
    try:
        return Listing(kind, name, origin, state, load())
    except TempoError as error:
        return Listing(kind, name, origin, "broken" if state == "ok" else state, error=error)


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"


def _core() -> str:
    return f"{CORE_DISTRIBUTION} {installed(CORE_DISTRIBUTION) or ''}".rstrip()


def _is_disabled(kind: str, name: str) -> bool:
    disabled = {part.strip() for part in os.environ.get(DISABLED_VARIABLE, "").split(",")} - {""}
    return name in disabled or f"{GROUPS[kind]}:{name}" in disabled


def _debug(message: str) -> None:
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        sys.stderr.write(f"tempo plugins: {message}\n")


_DEFAULT = PluginManager()


def default_manager() -> PluginManager:
    """The one manager of the process."""
    return _DEFAULT


def get_backend(backend: Any) -> Any:
    """A backend from its name, or the instance that was given.

    Raises `UnknownBackendError` (unknown, not installed, switched off) and `BrokenPluginError`.
    """
    return _instance("backend", backend, hasattr(backend, "info"))


def get_scheduler(scheduler: Any) -> Any:
    """A scheduler from its name, or the instance that was given.

    Raises `UnknownSchedulerError` (unknown, not installed, switched off) and `BrokenPluginError`.
    """
    return _instance("scheduler", scheduler, callable(getattr(scheduler, "schedule", None)))


def _instance(kind: str, given: Any, fits: bool) -> Any:
    if isinstance(given, str):
        return default_manager().create(kind, given)
    if isinstance(given, type) or not fits:
        raise messages.no_instance(kind, given, default_manager().names(kind))
    return given


def list_backends() -> list[Listing]:
    """Every backend, usable or not. Imports no backend."""
    return default_manager().listings("backend")


def list_schedulers() -> list[Listing]:
    """Every scheduler, usable or not. Imports no scheduler."""
    return default_manager().listings("scheduler")


def list_hooks() -> list[Listing]:
    """Every distribution that answers hooks, usable or not. Imports their modules."""
    return default_manager().listings("hook")


def register_backend(plugin: BackendPlugin) -> None:
    """Add a backend to this process, under `plugin.name`."""
    default_manager().register(plugin)


def register_scheduler(plugin: SchedulerPlugin) -> None:
    """Add a scheduler to this process, under `plugin.name`."""
    default_manager().register(plugin)
