"""`--mesh data=2` of the examples: run on a mesh of devices, as which a processor poses where there are no others.

on_mesh.add_argument(parser)
options = parser.parse_args()
run = tp.compile(program, options.backend, **on_mesh.arguments(options, shard={"b": "data"}))
outputs = run(...)
on_mesh.tell(options, run)
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tempo as tp

EXCHANGE = re.compile(r"(\S+) over (\w+), (\d+) B, (inside [\w, ]+|outside of loops): .*?(?:  (\S+:\d+))?")
"""Of `run.explain("all")`: what is done, the mesh's axis, bytes, loops, and the line that asks for it."""
PIPELINE = re.compile(r"^\w+: (pipeline of .*)$", re.MULTILINE)


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mesh", type=mesh, metavar="AXIS=COUNT", help="run on so many devices: data=2, or data=2,model=2"
    )


def mesh(text: str) -> tp.Mesh:
    """Of `data=2,model=2`."""
    pairs = [each.partition("=") for each in text.split(",")]
    counts = {name.strip(): count.strip() for name, _, count in pairs}
    with contextlib.suppress(ValueError, tp.TempoError):
        if len(counts) == len(pairs):
            return tp.Mesh({name: int(count) for name, count in counts.items()})
    raise argparse.ArgumentTypeError(f"{text!r} is no mesh: write data=2, or data=2,model=2")


def arguments(
    options: argparse.Namespace,
    shard: Mapping[str, str] | None = None,
    place: Mapping[str, tuple[str | None, ...]] | None = None,
    pipeline: tp.Pipeline | None = None,
) -> dict[str, Any]:
    """Of `tp.compile`: none without --mesh. Dims, axes and stages lie along those axes of the mesh that are given."""
    if options.mesh is None:
        return {}
    dims, axes = shard or {}, place or {}
    stages = () if pipeline is None else (pipeline.over,)
    placed = (over for spec in axes.values() for over in spec if over is not None)
    along = dict.fromkeys([*dims.values(), *placed, *stages])
    if not along.keys() & options.mesh.axes.keys():
        raise SystemExit(f"--mesh {options.mesh}: this example lies along {' and '.join(map(repr, along))}")
    if options.backend == "jax":
        pose(options.mesh.devices)

    def there(over: str | None) -> str | None:
        return over if over in options.mesh.axes else None

    return {
        "mesh": options.mesh,
        "shard": {name: over for name, over in dims.items() if there(over)},
        "place": {name: tuple(map(there, spec)) for name, spec in axes.items() if any(map(there, spec))},
        "pipeline": pipeline if pipeline is not None and there(pipeline.over) else None,
    }


def pose(devices: int) -> None:
    """Let the processor be so many devices to JAX. Where JAX has already been used, it has those that it has."""
    import jax

    if jax.config.jax_num_cpu_devices < devices:
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", devices)


def refuse(options: argparse.Namespace, why: str) -> None:
    """End an example that has nothing to lie along a mesh, where one is asked for."""
    if options.mesh is not None:
        raise SystemExit(f"--mesh {options.mesh}: {why}")


def tell(options: argparse.Namespace, run: tp.Executable) -> None:
    """Print how the last run lay on the mesh, and what the devices exchange: once for each point of the loops."""
    if options.mesh is None:
        return
    text = run.explain("all")
    _, *lines = text[text.index("\n# placement") + 1 : text.index("\n# memory")].strip().splitlines()
    found = [match for line in lines if (match := EXCHANGE.fullmatch(line))]
    cut = sum(bool(re.match(r"b\d+ ", line)) for line in lines)
    print(f"{lines[0]}: {cut} tensors lie in parts; each device holds {run.memory.peak_bytes} B at most")
    for pipeline in PIPELINE.findall(text):
        print(f"  {pipeline}")
    for loops, kind, over in dict.fromkeys(match.group(4, 1, 2) for match in found):
        these = [match for match in found if match.group(4, 1, 2) == (loops, kind, over)]
        where = ", ".join(dict.fromkeys(Path(match[5]).name for match in these if match[5]))
        print(f"  {loops}: {len(these)} x {kind} over {over}, {sum(int(match[3]) for match in these)} B: {where}")
    if not found:
        print("  the devices exchange nothing")
