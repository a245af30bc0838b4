"""Backends, schedulers and hooks that other distributions provide: how they describe themselves and are found."""

from tempo.plugins.descriptors import API_VERSION, BackendPlugin, Capabilities, Exclusion, SchedulerPlugin
from tempo.plugins.hookspecs import hookimpl
from tempo.plugins.manager import (
    Listing,
    PluginManager,
    default_manager,
    get_backend,
    get_scheduler,
    list_backends,
    list_hooks,
    list_schedulers,
    register_backend,
    register_scheduler,
)

__all__ = [
    "API_VERSION",
    "BackendPlugin",
    "Capabilities",
    "Exclusion",
    "Listing",
    "PluginManager",
    "SchedulerPlugin",
    "default_manager",
    "get_backend",
    "get_scheduler",
    "hookimpl",
    "list_backends",
    "list_hooks",
    "list_schedulers",
    "register_backend",
    "register_scheduler",
]
