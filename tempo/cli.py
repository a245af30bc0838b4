"""The command line: `python -m tempo doctor | backends | explain | report | checkpoints | generate | chat | ...`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from tempo.caches import installed
from tempo.cli_chat import add_chat
from tempo.cli_generate import add_generate
from tempo.errors import MissingFileError, ProgramError, SizeError, TempoError, package
from tempo.plugins import API_VERSION, BackendPlugin, Listing, list_backends, list_hooks, list_schedulers
from tempo.plugins.support import exclusions, markdown

if TYPE_CHECKING:
    from tempo.runtime.executable import Executable

COMMAND = "tempo-sdg"
REQUIRED = ("tempo-sdg", "tempo-sdg-greedy", "numpy", "ml_dtypes", "pluggy")
OPTIONAL = ("rich", "tqdm", "safetensors", "tokenizers", "gymnasium", "matplotlib")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the status is 0, 1 (something that is installed is broken) or 2 (an error of the user's)."""
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
    except TempoError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    return status


def _parser(name: str = "python -m tempo") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, description="Tools around the Tempo compiler.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    doctor = commands.add_parser("doctor", help="versions, plugins, and what is wrong with them")
    doctor.set_defaults(run=_doctor)

    backends = commands.add_parser("backends", help="the backends that are installed")
    form = backends.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print what each supports, as docs/backends.md has it")
    backends.set_defaults(run=_backends)

    explain = commands.add_parser("explain", help="passes, schedule, buffers and code of a program")
    _add_program(explain)
    explain.add_argument(
        "--section",
        metavar="NAME",
        action="append",
        default=[],
        help="a part of it, such as code or graph, or all; may be repeated; default: what fits a screen",
    )
    explain.set_defaults(run=_explain)

    report = commands.add_parser("report", help="the same as one page for a browser, with pictures, by your lines")
    _add_program(report)
    report.add_argument("-o", "--out", metavar="PATH", type=Path, default=Path("report.html"), help="report.html")
    report.set_defaults(run=_report)

    checkpoints = commands.add_parser("checkpoints", help="what a folder of checkpoints holds, and whether it is whole")
    checkpoints.add_argument("folder", metavar="DIR", type=Path, help="that of tp.Checkpoints(...)")
    checkpoints.set_defaults(run=_checkpoints)

    add_generate(commands)
    add_chat(commands)

    completion = commands.add_parser("completion", help="what lets a shell complete the commands of tempo-sdg")
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    completion.set_defaults(run=_completion)
    return parser


def _add_program(command: argparse.ArgumentParser) -> None:
    """What says which program, and how it is compiled."""
    command.add_argument(
        "program", metavar="FILE:PROGRAM", help="a file, and a tp.Program in it or a function that returns one"
    )
    command.add_argument("--backend", help="default: TEMPO_BACKEND, else numpy")
    command.add_argument("--scheduler", help="default: TEMPO_SCHEDULER, else greedy")
    command.add_argument(
        "--size", metavar="DIM=N", action="append", default=[], help="the size of a dim; may be repeated"
    )


def _doctor(_: argparse.Namespace) -> int:
    listings = [*list_backends(), *list_schedulers(), *list_hooks()]
    _table("Python", ("", ""), [("version", platform.python_version()), ("platform", platform.platform())])
    _table(
        "Distributions",
        ("name", "version"),
        [(name, installed(name) or "not installed") for name in (*REQUIRED, *OPTIONAL)],
    )
    _table(
        f"Plugins (API {API_VERSION})",
        ("kind", "name", "distribution", "state", "devices"),
        [(each.kind, each.name, each.distribution, each.state, _devices(each)) for each in listings],
    )
    if excluded := exclusions(_usable(listings)):
        _table("Not supported", ("backend", "feature", "reason"), excluded)
    variables = [(name, value) for name, value in sorted(os.environ.items()) if name.startswith("TEMPO_")]
    if variables:
        _table("Environment", ("variable", "value"), variables)
    absent = [name for name in REQUIRED if not installed(name)]
    for name in absent:
        print(f"\nmissing: {name}; install it with: python -m pip install {name}")
    broken = [each for each in listings if each.state == "broken"]
    for each in broken:
        print(f"\nbroken: {each.kind} {each.name!r} of {each.distribution}")
        print("".join(traceback.format_exception(each.error)).rstrip())
    return 1 if broken or absent else 0


def _backends(parsed: argparse.Namespace) -> int:
    listings = list_backends()
    if parsed.json:
        print(json.dumps([_as_json(each) for each in listings], indent=2))
    elif parsed.markdown:
        sys.stdout.write(markdown(_usable(listings)))
    else:
        rows = [(each.name, each.distribution, each.state, _devices(each), _summary(each)) for each in listings]
        _table("Backends", ("name", "distribution", "state", "devices", "summary"), rows)
    return 0


def _explain(parsed: argparse.Namespace) -> int:
    print(_compiled(parsed).explain(*parsed.section), end="")
    return 0


def _report(parsed: argparse.Namespace) -> int:
    run = _compiled(parsed)
    try:
        print(run.report(parsed.out))
    except SizeError as error:
        raise SizeError(error.message, hint="give each dim a size, such as --size t=10") from error
    return 0


def _compiled(parsed: argparse.Namespace) -> Executable:
    import tempo as tp

    program = _load_program(parsed.program)
    choices = {name: value for name in ("backend", "scheduler") if (value := getattr(parsed, name))}
    run: Executable = tp.compile(program, sizes=_sizes(parsed.size), **choices)
    return run


def _checkpoints(parsed: argparse.Namespace) -> int:
    from tempo.runtime.checkpoints.listing import listed

    if not parsed.folder.is_dir():
        raise MissingFileError(f"there is no folder {parsed.folder}")
    found = list(listed(parsed.folder))
    rows = [(each.name, each.program, each.point, f"{each.bytes:,}", each.wrong or "whole") for each in found]
    _table(f"Checkpoints in {parsed.folder}", ("file", "program", "point", "bytes", "state"), rows)
    if last := next((each for each in found if not each.wrong), None):
        tensors = [(name, dtype, shape, f"{bytes:,}") for name, dtype, shape, bytes in last.tensors]
        _table(f"Tensors of {last.name}", ("buffer", "dtype", "shape", "bytes"), tensors)
    return 1 if not found or any(each.wrong for each in found) else 0


def _completion(parsed: argparse.Namespace) -> int:
    shtab = package("shtab", "the completion of commands", "cli")
    parser = _parser(COMMAND)
    for each in _arguments(parser):
        kind = {"DIR": shtab.DIRECTORY, "FILE": shtab.FILE, "FILE:PROGRAM": shtab.FILE}.get(str(each.metavar))
        if kind is not None:
            each.complete = kind  # type: ignore[attr-defined]
    print(shtab.complete(parser, parsed.shell))
    return 0


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Those of all commands."""
    for each in parser._actions:
        yield each
        if isinstance(each, argparse._SubParsersAction):
            for command in each.choices.values():
                yield from _arguments(command)


def _as_json(listing: Listing) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": listing.name,
        "distribution": listing.distribution,
        "state": listing.state,
        "error": str(listing.error) if listing.error else None,
    }
    backend = listing.descriptor
    if not isinstance(backend, BackendPlugin):
        return found
    return found | {
        "api_version": backend.api_version,
        "summary": backend.summary,
        "devices": backend.capabilities.devices,
        "dtypes": backend.dtypes,
        "unsupported": dict(backend.capabilities.unsupported),
    }


def _usable(listings: Sequence[Listing]) -> list[BackendPlugin]:
    return [each.descriptor for each in listings if isinstance(each.descriptor, BackendPlugin)]


def _devices(listing: Listing) -> str:
    return ", ".join(listing.descriptor.capabilities.devices) if isinstance(listing.descriptor, BackendPlugin) else ""


def _summary(listing: Listing) -> str:
    return listing.descriptor.summary if listing.descriptor else listing.error.message if listing.error else ""


def _sizes(pairs: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for pair in pairs:
        name, _, number = pair.partition("=")
        if not name or not number.isdigit():
            raise SizeError(f"--size {pair} is not a size", hint="write the dim and a number, such as --size t=10")
        sizes[name] = int(number)
    return sizes


def _load_program(reference: str) -> Any:
    """The program that `FILE:PROGRAM` names."""
    from tempo import Program

    path, _, name = reference.rpartition(":")
    if not path or not name:
        raise ProgramError(f"{reference!r} names no program", hint="write FILE:PROGRAM, such as model.py:program")
    if not Path(path).is_file():
        raise ProgramError(f"there is no file {path!r}")
    module = _load_module(Path(path))
    found = getattr(module, name, None)
    if found is not None and not isinstance(found, Program) and callable(found):
        with _running(f"{name}() of {path}"):
            found = found()
    if isinstance(found, Program):
        return found
    programs = [key for key, value in vars(module).items() if isinstance(value, Program)]
    what = f"{name!r} is a {type(found).__name__}" if hasattr(module, name) else f"there is no {name!r}"
    raise ProgramError(
        f"{what} in {path}, where a tp.Program or a function that returns one is needed",
        hint=f"programs there: {', '.join(programs) or 'none'}",
    )


def _load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ProgramError(f"{str(path)!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # as when the file is run
    sys.modules[spec.name] = module
    with _running(str(path)):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _running(what: str) -> Iterator[None]:
    """An exception of the user's own code is an error of theirs, told with the lines that it went through."""
    try:
        yield
    except TempoError:
        raise
    except Exception as error:
        error.__traceback__ = _without_ours(error.__traceback__)
        told = "".join(traceback.format_exception(error)).rstrip()
        raise ProgramError(f"{what} failed: {type(error).__name__}: {error}", hint=told) from error


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    """From the first frame on that is neither ours nor of Python's import machinery."""
    ours = (__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
    while frames is not None and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    return frames


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with rich where it is installed, else in plain columns."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _plain_table(title, header, rows)
        return
    table = Table(title=title, title_justify="left", show_header=any(header))
    for column in header:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def _plain_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [header, *rows] if any(header) else [*rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    print(f"\n{title}")
    for line in lines:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
