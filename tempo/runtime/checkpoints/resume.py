"""What a call with `checkpoint=` means: where it begins, and whether it is the run that the checkpoints are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tempo.analysis.checks.stopping import endless
from tempo.errors import CheckpointError, InputError, SizeError, nearest
from tempo.runtime.arguments.binding import seed_array
from tempo.runtime.arguments.call import Arguments, CallChecker
from tempo.runtime.checkpoints.driver import CheckpointedRun
from tempo.runtime.checkpoints.folder import Checkpoints, Folder, Saved
from tempo.runtime.checkpoints.identity import digests
from tempo.runtime.results.outputs import Outputs
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol


def resumed(given: Any, resume: Any, outputs: Any, graph: Graph, name: str) -> Resumed | None:
    """Raises `InputError` for arguments that say nothing of the kind, `CheckpointError` where nothing can be read."""
    if not isinstance(resume, bool):
        raise InputError(f"resume={resume!r} is a {type(resume).__name__}", hint="write True or False")
    if not isinstance(outputs, str) or outputs not in ("all", "new"):
        raise InputError(f"outputs={outputs!r} says nothing", hint='write "all" or "new"')
    if given is None:
        if resume or outputs == "new":
            what = "resume=True" if resume else 'outputs="new"'
            raise InputError(f"{what} without checkpoint=", hint='give checkpoint=tp.Checkpoints("folder", along="i")')
        return None
    if not isinstance(given, Checkpoints):
        hint = 'write checkpoint=tp.Checkpoints("folder", along="i", every=100)'
        raise InputError(f"checkpoint={given!r} is a {type(given).__name__}", hint=hint)
    dims = {dim.symbol.name: dim.symbol for dim in graph.dims}
    if given.along not in dims:
        raise InputError(f"along={given.along!r} names no dim of the program", hint=nearest(given.along, dims, "dims"))
    folder = Folder(Path(given.folder), None if given.keep is None else int(given.keep))
    if not resume and (there := folder.checkpoints()):
        hint = "resume=True goes on from there; give another folder to begin anew, or delete this one"
        raise CheckpointError(f"{folder.path} holds checkpoints already, the last {there[0].name}", hint=hint)
    saved = folder.last() if resume else None
    if saved is not None and saved.about["along"] != given.along:
        there = saved.about["along"]
        raise CheckpointError(f"{saved.path} is along {there!r}, and along={given.along!r}", hint=f"write {there!r}")
    return Resumed(given, folder, saved, dims[given.along], graph, name, outputs == "new")


@dataclass
class Resumed:
    """A call with checkpoints. `saved`: the one that it goes on from."""

    given: Checkpoints
    folder: Folder
    saved: Saved | None
    dim: Symbol
    graph: Graph
    name: str
    only_new: bool
    is_longer: bool = False
    run: CheckpointedRun = field(init=False)

    def call(
        self, seed: Any, sizes: Mapping[str, Any] | None, calls: CallChecker
    ) -> tuple[Any, Mapping[str, Any] | None]:
        """Seed and sizes of the call: those of the checkpoint, where nothing else is said of them."""
        if self.saved is None:
            return 0 if seed is None else seed, sizes
        there = int(self.saved.about["seed"])
        if seed is not None and int(seed_array(seed)) != there:
            raise CheckpointError(f"{self.saved.path} is of a run with seed={there}, and seed={seed!r}")
        table = calls.table()
        table.claim_named(sizes, "sizes=")
        said = {**calls.compile_sizes, **(sizes or {})}
        if self.dim.name in said and int(said[self.dim.name]) > (size := self._size_there(self.saved)):
            self._make_longer(size)
        # An array says how long it is; a stream need not.
        inputs = (node for node in self.graph.nodes.values() if node.is_input and node.port.role == "input")
        given = {each.name for node in inputs for each in node.domain}
        known = given | said.keys()
        return there, {**{name: size for name, size in self._sizes_there() if name not in known}, **(sizes or {})}

    def _sizes_there(self) -> list[tuple[str, int]]:
        assert self.saved is not None
        return list(self.saved.about["sizes"].items())

    def _size_there(self, saved: Saved) -> int:
        return int(saved.about["sizes"][self.dim.name])

    def _make_longer(self, size: int) -> None:
        """What is kept past the last point is not what a point behind it reads: it goes on from the one before."""
        endless(self.graph, self.dim)
        self.is_longer = True
        self.saved = self.folder.last(lambda saved: not saved.about["ended"] and self._size_there(saved) == size)
        if self.saved is None:
            raise CheckpointError(
                f"the run in {self.folder.path} has ended at its {size} points of {self.dim.name}, and there is no "
                "checkpoint from before its end",
                hint="every= of fewer points leaves one",
            )

    def begin(self, arguments: Arguments, sizes: Mapping[Symbol, int], engine: Any, from_point: Any) -> None:
        """Make `run`. `sizes` are the caller's, whatever point the run begins at.

        Raises `CheckpointError` where the checkpoint is of a run that was given something else.
        """
        about = {
            "program": self.name,
            "sizes": self.graph.named_sizes(sizes),
            "inputs": digests(arguments, engine.on_host),
            "from_point": None if from_point is None else {name: int(at) for name, at in from_point.items()},
        }
        if self.saved is not None:
            self._check(about)
        made = self.given, self.folder, self.saved, arguments, self.graph, engine.identity, about
        self.run = CheckpointedRun(*made, only_new=self.only_new, is_longer=self.is_longer)

    def shown(self, outputs: Outputs) -> Outputs:
        """The outputs, without the points that the caller does not want."""
        if not self.only_new:
            return outputs
        arrays = dict(outputs.items())
        for name, (axis, first) in self.run.new.items():
            arrays[name] = arrays[name][(slice(None),) * axis + (slice(first, None),)]
        return Outputs(arrays, outputs.state, outputs.sizes, outputs.lengths)

    def _check(self, here: Mapping[str, Any]) -> None:
        assert self.saved is not None
        if here["from_point"] != (there := self.saved.about.get("from_point")):
            raise CheckpointError(f"{self.saved.path} is of a run with from_point={there}")
        for name, size in self._sizes_there():
            if here["sizes"].get(name, size) != size and not (self.is_longer and name == self.dim.name):
                raise SizeError(
                    f"{self.saved.path} is of a run with {name}={size}, and here {name}={here['sizes'][name]}",
                    hint="sizes are those of the checkpoint, but for more points of along=",
                )
        there = self.saved.about["inputs"]
        for name in here["inputs"].keys() | there.keys():
            if here["inputs"].get(name) != there.get(name):
                role, what = name.split(" ", 1)
                what = f"the input {what!r}" if role == "input" else f"what {what!r} begins with"
                raise CheckpointError(
                    f"{what} is not what the run was given that {self.saved.path} is of",
                    hint="a run that goes on is given what it was given before",
                )
