"""What is said when a plugin is unknown, absent, switched off, broken, too old, too new, or claimed twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tempo.errors import (
    BrokenPluginError,
    Location,
    TempoError,
    UnknownBackendError,
    UnknownSchedulerError,
    UnsupportedError,
    meant,
)
from tempo.plugins.descriptors import Exclusion

UNKNOWN: dict[str, type[TempoError]] = {"backend": UnknownBackendError, "scheduler": UnknownSchedulerError}

DISTRIBUTIONS = {
    "backend": {"jax": "tempo-sdg-jax", "torch": "tempo-sdg-torch"},
    "scheduler": {"greedy": "tempo-sdg-greedy", "polyhedral": "tempo-sdg-polyhedral"},
}
"""The project's own plugins: the name that users type, and the distribution that brings it."""


def unknown(kind: str, name: str, installed: Sequence[str]) -> TempoError:
    distribution = DISTRIBUTIONS[kind].get(name)
    if distribution:
        hint = f"install it with: python -m pip install {distribution}\n  {_installed(kind, installed)}"
        return UNKNOWN[kind](f"the {kind} {name!r} is not installed", hint=hint)
    nearest = meant(name, [*installed, *DISTRIBUTIONS[kind]])
    guess = f"did you mean {nearest!r}? " if nearest else ""
    return UNKNOWN[kind](f"there is no {kind} {name!r}", hint=f"{guess}{_installed(kind, installed)}")


def no_instance(kind: str, given: object, installed: Sequence[str]) -> TempoError:
    what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    return UNKNOWN[kind](
        f"{what} is no {kind}", hint=f"give a name or an instance of a {kind}; {_installed(kind, installed)}"
    )


def disabled(kind: str, name: str, variable: str) -> TempoError:
    return UNKNOWN[kind](
        f"the {kind} {name!r} is switched off by the environment variable {variable}",
        hint=f"remove {name!r} from {variable}",
    )


def broken(kind: str, name: str, distribution: str, cause: BaseException) -> BrokenPluginError:
    without = f"; TEMPO_DISABLED_PLUGINS={name} goes on without it" if kind == "hook" else ""
    return BrokenPluginError(
        f"the {kind} {name!r} of {distribution} cannot be loaded: {type(cause).__name__}: {cause}",
        hint=f"the cause is chained above; `python -m tempo doctor` shows it too{without}",
    )


def failed(hook: str, name: str, distribution: str, cause: BaseException) -> BrokenPluginError:
    return BrokenPluginError(
        f"the hook {name!r} of {distribution} failed in {hook}: {type(cause).__name__}: {cause}",
        hint=f"the cause is chained above; TEMPO_DISABLED_PLUGINS={name} goes on without it",
    )


def malformed(kind: str, name: str, distribution: str, what: str) -> BrokenPluginError:
    return BrokenPluginError(
        f"the {kind} {name!r} of {distribution} is no {kind} plugin: {what}",
        hint=f"its module must define tempo_{kind}(), marked with tempo.plugins.hookimpl, "
        f"returning a {kind.capitalize()}Plugin",
    )


def version_skew(kind: str, name: str, distribution: str, theirs: object, core: str, ours: int) -> BrokenPluginError:
    newer = isinstance(theirs, int) and theirs > ours
    upgrade = "tempo-sdg" if newer else distribution.split(" ")[0]
    return BrokenPluginError(
        f"the {kind} {name!r} of {distribution} is made for plugin API {theirs}, {core} has plugin API {ours}",
        hint=f"upgrade the older of the two: python -m pip install --upgrade {upgrade}",
    )


def duplicate(kind: str, name: str, distributions: Iterable[str]) -> BrokenPluginError:
    return BrokenPluginError(
        f"the {kind} name {name!r} is claimed by {' and '.join(sorted(distributions))}",
        hint="uninstall all but one of them",
    )


def unsupported_operator(
    backend: str, exclusion: Exclusion, able: Sequence[str], location: Location | None = None
) -> UnsupportedError:
    """An operator that a backend cannot lower; `able` are the installed backends that can."""
    return UnsupportedError(
        f"the backend {backend!r} cannot run {exclusion.operator!r} for {exclusion.dtype}: {exclusion.why}",
        location=location,
        hint=f"backends that can: {', '.join(able)}" if able else "no installed backend can",
        feature=exclusion.feature,
    )


def _installed(kind: str, installed: Sequence[str]) -> str:
    return f"{kind}s installed: {', '.join(sorted(installed)) or 'none'}"
