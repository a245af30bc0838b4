"""Every message of the plugin manager, word for word, over distributions made on the spot."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tempo_greedy.scheduler import GreedyScheduler

import tempo as tp
from tempo.backends.numpy.backend import NumpyBackend
from tempo.errors import BrokenPluginError, TempoError, UnknownBackendError, UnknownSchedulerError
from tempo.plugins import API_VERSION, BackendPlugin, Capabilities, Exclusion, PluginManager, SchedulerPlugin
from tempo.plugins import manager as manager_module
from tempo.plugins.messages import unsupported_operator

GOOD = """
from tempo.plugins import BackendPlugin, hookimpl

@hookimpl
def tempo_backend():
    return BackendPlugin({name!r}, "{module}_heavy:Backend", summary="a backend for tests")
"""


class Site:
    """A folder on the path where distributions can be put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, distribution: str, version: str, group: str, name: str, module: str, source: str) -> None:
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}\n")
        (self.folder / f"{module}.py").write_text(source)
        importlib.invalidate_caches()

    def add_backend(self, name: str, source: str = GOOD, version: str = "0.3.0") -> None:
        module = f"fake_{name}"
        source = source.replace("{name!r}", repr(name)).replace("{module}", module)
        self.add(f"tempo-{name}", version, "tempo.backends", name, module, source)
        (self.folder / f"{module}_heavy.py").write_text("class Backend:\n    name = 'made'\n")


def _without_the_projects_own(group: str) -> list[Any]:
    """Whichever of the project's plugins are installed, messages list the same names."""
    return [point for point in entry_points(group=group) if not point.dist.name.startswith("tempo-sdg")]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(manager_module, "installed", lambda name: "0.1.0")
    monkeypatch.setattr(manager_module, "entry_points", _without_the_projects_own)
    monkeypatch.delenv("TEMPO_DISABLED_PLUGINS", raising=False)
    monkeypatch.delenv("TEMPO_PLUGIN_DEBUG", raising=False)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        if name.startswith("fake_"):
            del sys.modules[name]


def message_of(expected: type[TempoError], kind: str, name: str, manager: PluginManager | None = None) -> str:
    with pytest.raises(expected) as caught:
        (manager or PluginManager()).create(kind, name)
    return str(caught.value)


def test_an_installed_backend_is_made_from_its_descriptor(site: Site) -> None:
    site.add_backend("fpga")
    assert PluginManager().create("backend", "fpga").name == "made"


def test_listing_imports_the_light_module_alone(site: Site) -> None:
    site.add_backend("fpga")
    listings = {listing.name: listing for listing in PluginManager().listings("backend")}
    assert listings["fpga"].distribution == "tempo-fpga 0.3.0"
    assert listings["fpga"].descriptor is not None
    assert listings["fpga"].descriptor.summary == "a backend for tests"
    assert {"numpy", "reference"} <= set(listings)
    assert "fake_fpga" in sys.modules
    assert "fake_fpga_heavy" not in sys.modules


def test_asking_for_one_backend_loads_no_other(site: Site) -> None:
    site.add_backend("fpga")
    site.add_backend("bad", "raise RuntimeError('must not be imported')")
    PluginManager().create("backend", "fpga")
    assert "fake_bad" not in sys.modules


def test_unknown(site: Site) -> None:
    site.add_backend("fpga")
    assert message_of(UnknownBackendError, "backend", "fgpa") == (
        "there is no backend 'fgpa'\n  did you mean 'fpga'? backends installed: fpga, numpy, reference"
    )
    assert message_of(UnknownBackendError, "backend", "zzz") == (
        "there is no backend 'zzz'\n  backends installed: fpga, numpy, reference"
    )


def test_unknown_scheduler(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "entry_points", lambda group: ())
    manager = PluginManager([SchedulerPlugin("eager", "nowhere:Eager")])
    assert message_of(UnknownSchedulerError, "scheduler", "eagre", manager) == (
        "there is no scheduler 'eagre'\n  did you mean 'eager'? schedulers installed: eager"
    )


def test_known_but_not_installed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "entry_points", lambda group: ())
    assert message_of(UnknownBackendError, "backend", "jax") == (
        "the backend 'jax' is not installed\n"
        "  install it with: python -m pip install tempo-sdg-jax\n"
        "  backends installed: numpy, reference"
    )
    assert message_of(UnknownSchedulerError, "scheduler", "greedy") == (
        "the scheduler 'greedy' is not installed\n"
        "  install it with: python -m pip install tempo-sdg-greedy\n"
        "  schedulers installed: none"
    )


def test_broken_names_the_distribution_and_chains_the_cause(site: Site) -> None:
    site.add_backend("bad", "import a_module_that_is_not_there")
    with pytest.raises(BrokenPluginError) as caught:
        PluginManager().create("backend", "bad")
    assert str(caught.value) == (
        "the backend 'bad' of tempo-bad 0.3.0 cannot be loaded: "
        "ModuleNotFoundError: No module named 'a_module_that_is_not_there'\n"
        "  the cause is chained above; `python -m tempo doctor` shows it too"
    )
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_broken_when_the_factory_fails_and_again_when_asked_again(site: Site) -> None:
    site.add_backend("bad")
    (site.folder / "fake_bad_heavy.py").write_text("def Backend():\n    raise OSError('no device')\n")
    manager = PluginManager()
    for _ in range(2):
        assert message_of(BrokenPluginError, "backend", "bad", manager).startswith(
            "the backend 'bad' of tempo-bad 0.3.0 cannot be loaded: OSError: no device\n"
        )


def test_misspelt_hook(site: Site) -> None:
    site.add_backend("bad", "from tempo.plugins import hookimpl\n@hookimpl\ndef tempo_bakend(): ...\n")
    manager = PluginManager()
    assert "unknown hook 'tempo_bakend'" in message_of(BrokenPluginError, "backend", "bad", manager)
    site_message = message_of(BrokenPluginError, "backend", "bad", manager)
    assert "unknown hook 'tempo_bakend'" in site_message  # a second look-up says the same


def test_no_hook_at_all(site: Site) -> None:
    site.add_backend("bad", "")
    assert message_of(BrokenPluginError, "backend", "bad") == (
        "the backend 'bad' of tempo-bad 0.3.0 is no backend plugin: it does not implement tempo_backend()\n"
        "  its module must define tempo_backend(), marked with tempo.plugins.hookimpl, returning a BackendPlugin"
    )


def test_a_hook_that_returns_something_else(site: Site) -> None:
    site.add_backend("bad", "from tempo.plugins import hookimpl\n@hookimpl\ndef tempo_backend(): return 3\n")
    assert message_of(BrokenPluginError, "backend", "bad") == (
        "the backend 'bad' of tempo-bad 0.3.0 is no backend plugin: tempo_backend() returned a int\n"
        "  its module must define tempo_backend(), marked with tempo.plugins.hookimpl, returning a BackendPlugin"
    )


@pytest.mark.parametrize(("theirs", "upgrade"), [(API_VERSION + 1, "tempo-sdg"), (API_VERSION - 1, "tempo-skewed")])
def test_version_skew(site: Site, theirs: int, upgrade: str) -> None:
    source = (
        "from tempo.plugins import hookimpl\n"
        f"class OfAnotherTime:\n    api_version = {theirs}\n"
        "    def __getattr__(self, name): raise AssertionError('touched before the version was checked')\n"
        "@hookimpl\ndef tempo_backend(): return OfAnotherTime()\n"
    )
    site.add_backend("skewed", source)
    assert message_of(BrokenPluginError, "backend", "skewed") == (
        f"the backend 'skewed' of tempo-skewed 0.3.0 is made for plugin API {theirs}, "
        f"tempo-sdg 0.1.0 has plugin API {API_VERSION}\n"
        f"  upgrade the older of the two: python -m pip install --upgrade {upgrade}"
    )


def test_two_distributions_claim_one_name(site: Site) -> None:
    site.add_backend("fpga")
    site.add("other", "2.0", "tempo.backends", "fpga", "fake_other", "")
    assert message_of(BrokenPluginError, "backend", "fpga") == (
        "the backend name 'fpga' is claimed by other 2.0 and tempo-fpga 0.3.0\n  uninstall all but one of them"
    )


def test_a_distribution_cannot_take_an_embedded_name(site: Site) -> None:
    site.add_backend("numpy")
    assert message_of(BrokenPluginError, "backend", "numpy") == (
        "the backend name 'numpy' is claimed by tempo-numpy 0.3.0 and tempo-sdg 0.1.0\n  uninstall all but one of them"
    )


@pytest.mark.parametrize("value", ["fpga", "jax, tempo.backends:fpga"])
def test_disabled(site: Site, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    site.add_backend("fpga")
    monkeypatch.setenv("TEMPO_DISABLED_PLUGINS", value)
    manager = PluginManager()
    assert message_of(UnknownBackendError, "backend", "fpga", manager) == (
        "the backend 'fpga' is switched off by the environment variable TEMPO_DISABLED_PLUGINS\n"
        "  remove 'fpga' from TEMPO_DISABLED_PLUGINS"
    )
    assert "fpga" not in manager.names("backend")
    assert "fake_fpga" not in sys.modules


def test_disabling_in_another_group_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add_backend("fpga")
    monkeypatch.setenv("TEMPO_DISABLED_PLUGINS", "tempo.schedulers:fpga")
    assert PluginManager().create("backend", "fpga").name == "made"


def test_debug_says_what_was_loaded(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add_backend("fpga")
    monkeypatch.setenv("TEMPO_PLUGIN_DEBUG", "1")
    PluginManager().create("backend", "fpga")
    assert capsys.readouterr().err == (
        "tempo plugins: loaded tempo.backends:fpga = fake_fpga of tempo-fpga 0.3.0\n"
        "tempo plugins: made backend 'fpga' of tempo-fpga 0.3.0\n"
    )


def test_a_broken_plugin_is_listed_with_its_error(site: Site) -> None:
    site.add_backend("bad", "raise RuntimeError('at import')")
    listing = next(listing for listing in PluginManager().listings("backend") if listing.name == "bad")
    assert listing.descriptor is None
    assert isinstance(listing.error, BrokenPluginError)
    assert (listing.state, listing.distribution) == ("broken", "tempo-bad 0.3.0")


def test_a_plugin_that_is_switched_off_is_listed_as_that(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add_backend("bad", "raise RuntimeError('at import')")
    monkeypatch.setenv("TEMPO_DISABLED_PLUGINS", "bad")
    states = {listing.name: listing.state for listing in PluginManager().listings("backend")}
    assert states["bad"] == "switched off"
    assert states["numpy"] == "ok"


def test_register_in_process(site: Site) -> None:
    manager = PluginManager()
    manager.register(BackendPlugin("mine", dict))
    assert manager.create("backend", "mine") == {}
    with pytest.raises(BrokenPluginError) as caught:
        manager.register(BackendPlugin("mine", list))
    assert str(caught.value) == (
        "the backend name 'mine' is claimed by the one to be registered and this process\n"
        "  uninstall all but one of them"
    )
    manager.unregister("backend", "mine")
    message_of(UnknownBackendError, "backend", "mine", manager)
    with pytest.raises(KeyError):
        manager.unregister("backend", "numpy")  # which the core has


def test_register_checks_the_api_version(site: Site) -> None:
    with pytest.raises(BrokenPluginError, match="made for plugin API 99, tempo-sdg"):
        PluginManager().register(BackendPlugin("mine", dict, api_version=99))


def test_instances_are_taken_as_they_are() -> None:
    instance = SimpleNamespace(info=None, schedule=lambda problem: None)
    assert manager_module.get_backend(instance) is instance
    assert manager_module.get_scheduler(instance) is instance


def test_hooks_of_the_plugin_group_are_called(site: Site) -> None:
    source = (
        "from tempo.plugins import hookimpl\nseen = []\n"
        "@hookimpl\ndef tempo_compile_started(program, backend): seen.append((program, backend))\n"
    )
    site.add("observer", "1.0", "tempo.plugins", "observer", "fake_observer", source)
    PluginManager().call("tempo_compile_started", program="p", backend="numpy", scheduler="greedy")
    assert sys.modules["fake_observer"].seen == [("p", "numpy")]


HOOK = """
from tempo.plugins import hookimpl
seen = []

@hookimpl
def tempo_compile_started(program, backend, scheduler): seen.append(("started", backend, scheduler))

@hookimpl
def tempo_compile_finished(program, executable): seen.append(("finished", executable))

@hookimpl
def tempo_register_passes(registry): seen.append([each.name for each in registry.passes])
"""


def test_compiling_calls_the_hooks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add("observer", "1.0", "tempo.plugins", "observer", "fake_observer", HOOK)
    manager = PluginManager()
    for module in ("runtime.compile", "compiler.driver"):
        monkeypatch.setattr(importlib.import_module(f"tempo.{module}"), "default_manager", lambda: manager)
    with tp.Program() as program:
        tp.output("one", tp.ones((2,)))
    run = tp.compile(program, NumpyBackend(), GreedyScheduler())
    run()
    seen = sys.modules["fake_observer"].seen
    assert ("started", "numpy", "GreedyScheduler") in seen
    assert ("finished", run) in seen
    assert [each[0] for each in seen if isinstance(each, list)] == ["decompose"]


def test_two_distributions_may_answer_hooks_under_one_name(site: Site) -> None:
    for number in (1, 2):
        site.add(f"observer{number}", "1.0", "tempo.plugins", "observer", f"fake_observer{number}", HOOK)
    PluginManager().call("tempo_compile_started", program="p", backend="numpy", scheduler="greedy")
    for number in (1, 2):
        assert sys.modules[f"fake_observer{number}"].seen == [("started", "numpy", "greedy")]


def test_a_broken_hook_says_how_to_go_on_without_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add("observer", "1.0", "tempo.plugins", "observer", "fake_observer", "1 / 0")
    with pytest.raises(BrokenPluginError) as caught:
        PluginManager().call("tempo_register_passes", registry=None)
    assert str(caught.value) == (
        "the hook 'observer' of observer 1.0 cannot be loaded: ZeroDivisionError: division by zero\n"
        "  the cause is chained above; `python -m tempo doctor` shows it too; "
        "TEMPO_DISABLED_PLUGINS=observer goes on without it"
    )
    assert [(each.name, each.state) for each in PluginManager().listings("hook")] == [("observer", "broken")]
    monkeypatch.setenv("TEMPO_DISABLED_PLUGINS", "observer")
    PluginManager().call("tempo_register_passes", registry=None)
    assert [(each.name, each.state) for each in PluginManager().listings("hook")] == [("observer", "switched off")]


def test_unsupported_operator_says_who_can() -> None:
    exclusion = Exclusion("sort", "bfloat16", "sort:bfloat16", "no kernel")
    error = unsupported_operator("fpga", exclusion, ["numpy", "reference"])
    assert error.feature == "sort:bfloat16"
    assert str(error) == (
        "the backend 'fpga' cannot run 'sort' for bfloat16: no kernel\n  backends that can: numpy, reference"
    )
    assert "no installed backend can" in str(unsupported_operator("fpga", exclusion, []))


def test_capabilities_by_operator_and_by_dtype() -> None:
    capabilities = Capabilities(unsupported={"conv": "no kernel", "sort:bool": "no order"})
    assert capabilities.why_not("conv", "float32") == "no kernel"
    assert capabilities.why_not("sort", "bool") == "no order"
    assert capabilities.why_not("sort", "int32") is None


def test_what_a_descriptor_excludes() -> None:
    plugin = BackendPlugin(
        "fpga", dict, capabilities=Capabilities(unsupported={"sort:bool": "no order"}), dtypes=("bool", "int32")
    )
    assert plugin.why_not("sort", "int32") is None
    assert plugin.why_not("sort", "int32", "bool") == Exclusion("sort", "bool", "sort:bool", "no order")
    assert plugin.why_not("neg", "float32") == Exclusion("neg", "float32", "float32", "it has no float32")


def test_import_and_listing_load_no_framework() -> None:
    script = (
        "import sys, tempo, tempo.plugins as p; p.list_backends(); p.list_schedulers();"
        "heavy = {'jax', 'torch', 'islpy', 'transformers', 'gymnasium'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


FAILING = """
from tempo.plugins import hookimpl

@hookimpl
def tempo_compile_started(program, backend, scheduler): {fails}
"""
FAILURES = {
    "raise RuntimeError('no network')": "RuntimeError: no network",
    "raise SystemExit(3)": "SystemExit: 3",
    "import sys; sys.exit('gone')": "SystemExit: gone",
}


@pytest.mark.parametrize("fails", FAILURES)
def test_a_hook_that_fails_is_named_and_disturbs_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    for number, source in enumerate((HOOK, FAILING.format(fails=fails), HOOK)):
        site.add(f"observer{number}", "1.0", "tempo.plugins", f"observer{number}", f"fake_observer{number}", source)
    manager = PluginManager()
    for module in ("runtime.compile", "compiler.driver"):
        monkeypatch.setattr(importlib.import_module(f"tempo.{module}"), "default_manager", lambda: manager)
    with tp.Program() as program:
        tp.output("one", tp.ones((2,)))
    with pytest.raises(BrokenPluginError) as caught:
        tp.compile(program, NumpyBackend(), GreedyScheduler())
    assert caught.value.message == (
        f"the hook 'observer1' of observer1 1.0 failed in tempo_compile_started: {FAILURES[fails]}"
    )
    assert "TEMPO_DISABLED_PLUGINS=observer1 goes on without it" in str(caught.value)
    assert caught.value.__cause__ is not None
    for number in (0, 2):
        assert sys.modules[f"fake_observer{number}"].seen == [("started", "numpy", "GreedyScheduler")]
    monkeypatch.setenv("TEMPO_DISABLED_PLUGINS", "observer1")
    tp.compile(program, NumpyBackend(), GreedyScheduler())


@pytest.mark.parametrize("source", ["raise SystemExit(3)", GOOD.replace("return BackendPlugin", "exit(2)")])
def test_a_plugin_that_exits_ends_no_process(site: Site, source: str) -> None:
    site.add_backend("leaving", source)
    with pytest.raises(BrokenPluginError, match="SystemExit|NameError"):
        PluginManager().create("backend", "leaving")
