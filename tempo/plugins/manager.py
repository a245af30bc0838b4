"""Finds plugins by name, loads only the one asked for, and makes what its descriptor names.

Nothing is read at `import tempo`: entry points are listed when a name is first looked up. Loading goes through
`pluggy`; what its `load_setuptools_entrypoints` would do (import every plugin of a group, let any exception through)
is done here for one entry point, so that a broken plugin harms nobody who does not ask for it.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

import pluggy

from tempo.caches import installed
from tempo.errors import BrokenPluginError, TempoError
from tempo.plugins import hookspecs, messages
from tempo.plugins.descriptors import API_VERSION, EMBEDDED_BACKENDS, BackendPlugin, SchedulerPlugin

Descriptor = BackendPlugin | SchedulerPlugin

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
        self._embedded: dict[tuple[str, str], Descriptor] = {(d.kind, d.name): d for d in embedded}
        self._registered: dict[tuple[str, str], Descriptor] = {}
        self._installed: dict[str, tuple[EntryPoint, ...]] = {}
        self._loaded: dict[str, tuple[str, str, str]] = {}  # by pluggy's name: group, name, distribution
        self._lock = threading.RLock()  # of what is registered and loaded; a module may register more while it loads

    def register(self, descriptor: Descriptor) -> None:
        """Add a plugin in process; `BrokenPluginError` when the name is taken or the API version is another."""
        kind, name = descriptor.kind, descriptor.name
        self._check_version(kind, name, "this process", descriptor)
        with self._lock:
            claims = self._claims(kind, name)
            if claims:
                raise messages.duplicate(kind, name, [*claims, "the one to be registered"])
            self._registered[kind, name] = descriptor

    def unregister(self, kind: str, name: str) -> None:
        """Remove a plugin that was registered in process."""
        del self._registered[kind, name]

    def names(self, kind: str) -> list[str]:
        """Names that can be asked for: in process and installed, without those switched off."""
        return [name for name in self._all_names(kind) if not _is_disabled(GROUPS[kind], name)]

    def descriptor(self, kind: str, name: str) -> Descriptor:
        """The descriptor of one plugin; imports its light module at most."""
        if _is_disabled(GROUPS[kind], name):
            raise messages.disabled(kind, name, DISABLED_VARIABLE)
        claims = self._claims(kind, name)
        if not claims:
            raise messages.unknown(kind, name, self.names(kind))
        if len(claims) > 1:
            raise messages.duplicate(kind, name, claims)
        owned = self._embedded.get((kind, name)) or self._registered.get((kind, name))
        return owned or self._load_descriptor(kind, self._points_named(kind, name)[0])

    def create(self, kind: str, name: str) -> Any:
        """A new backend or scheduler."""
        descriptor = self.descriptor(kind, name)
        try:
            made = _resolve(descriptor)()
        except (Exception, SystemExit) as error:
            raise messages.broken(kind, name, self._origin(kind, name), error) from error
        _debug(f"made {kind} {name!r} of {self._origin(kind, name)}")
        return made

    def listings(self, kind: str) -> list[Listing]:
        """Every plugin of a kind, usable or not; imports no more than their light modules."""
        if kind == "hook":
            return [self._hook_listing(point) for point in self._entry_points("hook")]
        return [self._listing(kind, name) for name in self._all_names(kind)]

    def hooks(self) -> Hooks:
        """The hooks that many may answer, with every plugin of the group `tempo.plugins` loaded."""
        for point in self._entry_points("hook"):
            if not _is_disabled(GROUPS["hook"], point.name):
                self._load_module("hook", point)
        return Hooks(self)

    def call(self, hook: str, arguments: Mapping[str, Any]) -> None:
        """Call every plugin that answers `hook`, also those after one that fails.

        Raises `BrokenPluginError` for the first that raised, or that would have ended the process.
        """
        answers = [each.plugin for each in reversed(getattr(self._pluggy.hook, hook).get_hookimpls())]
        failures: list[tuple[BrokenPluginError, BaseException]] = []
        for plugin in answers:
            group, name, distribution = self._loaded[str(self._pluggy.get_name(plugin))]
            if _is_disabled(group, name):
                continue
            alone = self._pluggy.subset_hook_caller(hook, [each for each in answers if each is not plugin])
            try:
                alone(**arguments)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - raised below, when all were called
                failures.append((messages.failed(hook, name, distribution, error), error))
        for failure, cause in failures[:1]:
            for other, _ in failures[1:]:
                failure.add_note(str(other))
            raise failure from cause

    def _all_names(self, kind: str) -> list[str]:
        in_process = {name for of_kind, name in (*self._embedded, *self._registered) if of_kind == kind}
        return sorted(in_process | {point.name for point in self._entry_points(kind)})

    def _claims(self, kind: str, name: str) -> list[str]:
        """Who provides the name: more than one is an error, none means that it is unknown."""
        embedded = [_core()] if (kind, name) in self._embedded else []
        registered = ["this process"] if (kind, name) in self._registered else []
        return embedded + registered + [_distribution(point) for point in self._points_named(kind, name)]

    def _listing(self, kind: str, name: str) -> Listing:
        origin = self._origin(kind, name)
        try:
            return Listing(kind, name, origin, "ok", self.descriptor(kind, name))
        except TempoError as error:
            state: State = "switched off" if _is_disabled(GROUPS[kind], name) else "broken"
            return Listing(kind, name, origin, state, error=error)

    def _hook_listing(self, point: EntryPoint) -> Listing:
        listing = Listing("hook", point.name, _distribution(point), "ok")
        if _is_disabled(GROUPS["hook"], point.name):
            return replace(listing, state="switched off")
        try:
            self._load_module("hook", point)
        except BrokenPluginError as error:
            return replace(listing, state="broken", error=error)
        return listing

    def _entry_points(self, kind: str) -> tuple[EntryPoint, ...]:
        """Reading them costs milliseconds, so it happens once, and only when a name is first looked up."""
        if kind not in self._installed:
            self._installed[kind] = tuple(entry_points(group=GROUPS[kind]))
        return self._installed[kind]

    def _points_named(self, kind: str, name: str) -> list[EntryPoint]:
        return [point for point in self._entry_points(kind) if point.name == name]

    def _origin(self, kind: str, name: str) -> str:
        return " and ".join(self._claims(kind, name))

    def _load_descriptor(self, kind: str, point: EntryPoint) -> Descriptor:
        distribution = _distribution(point)
        module = self._load_module(kind, point)
        hook = self._pluggy.hook.tempo_backend if kind == "backend" else self._pluggy.hook.tempo_scheduler
        described = [made.function for made in hook.get_hookimpls() if made.plugin is module]
        if not described:
            raise messages.malformed(kind, point.name, distribution, f"it does not implement tempo_{kind}()")
        try:
            descriptor = described[0]()
        except (Exception, SystemExit) as error:
            raise messages.broken(kind, point.name, distribution, error) from error
        self._check_version(kind, point.name, distribution, descriptor)
        if not isinstance(descriptor, BackendPlugin if kind == "backend" else SchedulerPlugin):
            raise messages.malformed(
                kind, point.name, distribution, f"tempo_{kind}() returned a {type(descriptor).__name__}"
            )
        return descriptor

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
        self._loaded[key] = GROUPS[kind], point.name, _distribution(point)
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

    @staticmethod
    def _check_version(kind: str, name: str, distribution: str, descriptor: object) -> None:
        theirs = getattr(descriptor, "api_version", None)
        if theirs is None:
            what = f"tempo_{kind}() returned a {type(descriptor).__name__}"
            raise messages.malformed(kind, name, distribution, what)
        if theirs != API_VERSION:
            raise messages.version_skew(kind, name, distribution, theirs, _core(), API_VERSION)


@dataclass(frozen=True)
class Hooks:
    """Each hook as a function of its arguments, which calls every plugin that answers it."""

    manager: PluginManager

    def __getattr__(self, hook: str) -> Callable[..., None]:
        return lambda **arguments: self.manager.call(hook, arguments)


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"


def _core() -> str:
    return f"{CORE_DISTRIBUTION} {installed(CORE_DISTRIBUTION) or ''}".rstrip()


def _is_disabled(group: str, name: str) -> bool:
    disabled = {part.strip() for part in os.environ.get(DISABLED_VARIABLE, "").split(",")} - {""}
    return name in disabled or f"{group}:{name}" in disabled


def _resolve(descriptor: Descriptor) -> Any:
    if not isinstance(descriptor.factory, str):
        return descriptor.factory
    module, _, attribute = descriptor.factory.partition(":")
    return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))


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
