"""Runs with checkpoints: the loops over one dim in stretches, and what is live after each in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tempo.errors import CheckpointError, UnsupportedError, user_location
from tempo.logs import logger
from tempo.loop_ir.analysis.boundary import Boundary, boundary
from tempo.runtime.arguments.call import Arguments
from tempo.runtime.checkpoints.folder import FORMAT, Checkpoints, Folder, Saved, failed
from tempo.runtime.checkpoints.outside import Outside, places
from tempo.runtime.checkpoints.writer import Writer
from tempo.runtime.compiled import Item
from tempo.runtime.program_run import ProgramRun
from tempo.sdg.graph import Graph
from tempo.symbolic import Symbol

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
_LOGGER = logger("checkpoints")
_DIFFERS = {
    "program": "of another program",
    "backend": "of another backend",
    "options": "of a run with other options",
    "versions": "of other versions of the packages that compute",
    "plan": "of a run that was planned in another way",
}


@dataclass(frozen=True)
class Position:
    """Between two iterations of a loop, which have been run from `start` on up to `stop`, or down to it.

    `ended`: the loop has no more; `stopped`: the run has ended early.
    """

    start: int
    stop: int
    forward: bool
    ended: bool
    stopped: bool

    @property
    def next(self) -> int | None:
        """The iteration that comes next; None where none does."""
        if self.ended or self.stopped:
            return None
        return self.stop if self.forward else self.stop - 1


@dataclass
class CheckpointedRun:
    """One run with checkpoints, from where `saved` says or from its beginning.

    `identity`: what must be the same where a run goes on; `about`: what was given to it. `is_longer`: the dim has more
    points than in the run that wrote `saved`. `only_new`: outputs over the dim are wanted from there on alone.
    """

    given: Checkpoints
    folder: Folder
    saved: Saved | None
    arguments: Arguments
    graph: Graph
    identity: Mapping[str, Any]
    about: Mapping[str, Any]
    only_new: bool = False
    is_longer: bool = False

    def __post_init__(self) -> None:
        self._dim = Symbol(self.given.along, "dim")
        self.outside = Outside.of(self.graph, self.arguments.feeds)
        self._points: str | None = None if self.saved is None else self.saved.about["points"]
        self._fixed: str | None = None
        self._fixed_for: int | None = None
        self.new: dict[str, tuple[int, int]] = {}
        """By output that a forward loop makes with which the run goes on: the axis, and the first point that was not
        complete."""

    # -- running -----------------------------------------------------------------------------------------------------

    def items(self, run: ProgramRun, progress: Progress | None = None) -> None:
        """All of the driver's items, as far as no checkpoint says what they have made."""
        items = run.compiled.items
        loops = [at for at, item in enumerate(items) if item.loop is not None and item.loop.var == self._dim]
        first = self._checked(run, loops)
        bounds = {at: run.bounds(items[at]) for at in loops}
        total, before = sum(hi - lo for lo, hi in bounds.values()), 0
        backend = run.compiled.backend
        backend.meet()  # all of them have looked at what is there
        writes = backend.process == 0
        with self.folder.held() if writes else nullcontext(), Writer() as writer:
            for at, item in enumerate(items):
                is_made = self.saved is not None and at < first
                if at not in loops and (self.is_longer or not is_made):
                    run.whole(item)
                elif is_made:
                    run.skip()
                else:
                    for position in self._loop(run, at, writer, self.saved is not None and at == first):
                        lo, hi = bounds[at]
                        if progress is not None:
                            progress(before + (position.stop - lo if position.forward else hi - position.stop), total)
                if at in loops:
                    before += bounds[at][1] - bounds[at][0]
        backend.meet()  # all of them find what was written

    def _checked(self, run: ProgramRun, loops: list[int]) -> int:
        """The item with which it begins; nothing has been run yet."""
        if not loops:
            raise self._refused("no loop over it stands outside of all others")
        for buffer in run.ready.pooled:  # of which some points are on their way there
            if buffer.pooled is not None and not buffer.is_given and buffer.axes[buffer.pooled[0]].dim == self._dim:
                raise self._refused(f"points of {buffer.name} lie in the host pool of memory_limit= or offload=")
        self.identity = {**self.identity, "plan": run.compiled.digest}
        if self.saved is None:
            return 0
        for key, words in _DIFFERS.items():
            if self.saved.about["identity"].get(key) != self.identity[key]:
                here, there = self.identity[key], self.saved.about["identity"].get(key)
                if key == "plan" and self.is_longer:
                    words += ": what is done depends on how many points there are"
                said = f"it says {there}; here it is {here}. " if key in ("backend", "options", "versions") else ""
                raise CheckpointError(
                    f"{self.saved.path} is {words}, so this run cannot go on from it",
                    location=user_location(),
                    hint=f"{said}Another folder begins anew; state= and from_point= take parameters along",
                )
        item = int(self.saved.about["item"])
        if item not in loops:
            raise CheckpointError(f"{self.saved.path} is in no loop of this run", location=user_location())
        if self.is_longer and item != min(loops):
            raise self._refused("a loop over it has ended already, so there cannot be more points")
        return item

    def _refused(self, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"there are no checkpoints along {self.given.along!r}: {why}",
            location=user_location(),
            hint="take the outermost ordered dim as along= (print(run.explain()) shows the schedule)",
        )

    def _loop(self, run: ProgramRun, at: int, writer: Writer, goes_on: bool) -> Iterator[Position]:
        """A loop in stretches, with a checkpoint after each."""
        item = run.compiled.items[at]
        with run.around(item) as runs:
            live = boundary(run.compiled.program, at, run.sizes)
            start = self._restored(run, live, at) if goes_on else None
            for position in self._stretches(run, item, start) if runs or goes_on else ():
                write = self._copied(run, live, at, position)
                if run.compiled.backend.process == 0:
                    writer.give(write)
                yield position

    def _stretches(self, run: ProgramRun, item: Item, start: int | None) -> Iterator[Position]:
        """They end at whole numbers of `every` points from where the loop begins."""
        assert item.loop is not None
        (lo, hi), forward, every = run.bounds(item), item.loop.direction == "forward", int(self.given.every)
        first, last, step = (lo, hi, 1) if forward else (hi, lo, -1)
        at = first if start is None else start
        while at != last and not run.has_ended(item):
            stop = first + step * min(hi - lo, (abs(at - first) // every + 1) * every)
            run.part(item, *((at, stop) if forward else (stop, at)))
            stopped = run.has_ended(item)
            yield Position(at, stop, forward, stop == last, stopped)
            at = stop

    # -- writing -----------------------------------------------------------------------------------------------------

    def _copied(self, run: ProgramRun, live: Boundary, item: int, position: Position) -> Callable[[], None]:
        """Everything as it is now, for the thread that writes it."""
        named = {id: f"{id} {buffer.name}" for id, buffer in run.compiled.program.buffers.items()}
        there = {id for id, array in enumerate(run.buffers) if not run.is_gone(array)}
        fixed, points, where = dict[str, Array](), dict[str, Array](), dict[str, tuple[int, int]]()
        is_first, self._fixed_for = self._fixed_for != item, item
        if is_first:
            fixed = {named[id]: run.copied(id) for id in live.given if id in there}
        changing = {named[id]: run.copied(id) for id in live.live(position.next) if id in there}
        lo, hi = sorted((position.start, position.stop))
        for id, each in live.points.items():
            first, stop = max(0, lo + each.first), min(run.ready.shapes[id][each.axis], hi + each.last)
            if first < stop and id in there:
                points[named[id]] = run.copied(id, each.axis, first, stop)
                where[str(id)] = each.axis, first
        outside, held = self.outside.state()
        changing.update((f"outside {number}", array) for number, array in enumerate(held))
        about = {
            **self.about,
            "along": self.given.along,
            "item": item,
            "point": position.stop,
            "ended": position.ended and not position.stopped,
            "seed": self.arguments.seed,
            "outside": outside,
            "identity": dict(self.identity),
        }
        return partial(self._write, fixed if is_first else None, points, where, changing, about)

    def _write(
        self,
        fixed: Mapping[str, Array] | None,
        points: Mapping[str, Array],
        where: Mapping[str, tuple[int, int]],
        changing: Mapping[str, Array],
        about: Mapping[str, Any],
    ) -> None:
        """What a checkpoint names is there before it is."""
        folder = self.folder
        try:
            if fixed is not None:
                self._fixed = folder.write("given", fixed, {}) if fixed else None
            if points:
                said = {"previous": self._points, "places": where}
                self._points = folder.write("points", points, said)
            folder.write("checkpoint", changing, {**about, "points": self._points, "given": self._fixed})
            folder.finished(spared=int(about["ended"]))
        except OSError as error:
            raise failed(folder.path, error) from error
        except FORMAT.library().SafetensorError as error:
            raise CheckpointError(f"no checkpoint can be written to {folder.path}: {error}") from error

    # -- going on ----------------------------------------------------------------------------------------------------

    def _see_new(self, run: ProgramRun, live: Boundary, at: int) -> set[int]:
        """Which points of outputs are to come; the buffers that hold nothing else."""
        program, packed = run.compiled.program, {each.port for each in self.graph.outputs if each.packed}
        others = {id for port, id in program.outputs.items() if port.role != "output" or port in packed}
        found: dict[int, tuple[int, int]] = {}
        for id in live.points.keys() & set(program.outputs.values()) - others if live.is_forward else ():
            axis = program.buffers[id].layout.index(self._dim)
            found[id] = axis, max(0, at + live.points[id].last)
        self.new = {port.name: found[id] for port, id in program.outputs.items() if id in found}
        return set(found)

    def _restored(self, run: ProgramRun, live: Boundary, item: int) -> int:
        """With everything as it was; where the loop goes on."""
        saved = self.saved
        assert saved is not None
        arrays = saved.buffers()
        self._fixed = saved.about["given"]
        if not self.is_longer:  # else what comes before the loop has been made anew
            self._fixed_for = item
            arrays |= {} if self._fixed is None else self.folder.part(self._fixed).buffers()
        at = int(saved.about["point"])
        new = self._see_new(run, live, at)
        wanted = live.points.keys() - (live.shown & new if self.only_new else frozenset())
        for part in reversed(list(self.folder.points(self._points if wanted else None))):
            for id, array in part.buffers().items():
                if id in wanted:
                    axis, first = part.about["places"][str(id)]
                    into = arrays.setdefault(id, np.zeros(run.ready.whole_shape(id), array.dtype))
                    into[_corner(array.shape, axis, first)] = array
        for id, array in arrays.items():
            if self.is_longer and array.shape != (shape := run.ready.whole_shape(id)):
                longer = np.zeros(shape, array.dtype)
                longer[_corner(array.shape)] = array
                array = longer
            run.put(id, array)
        self.outside.restore(saved.about["outside"], dict(places(saved.arrays)))
        _LOGGER.info("going on at %s = %d, from %s", self.given.along, at, saved.path)
        return at


def _corner(shape: tuple[int, ...], axis: int = 0, first: int = 0) -> tuple[slice, ...]:
    """Where an array of that shape lies in a larger one, from position `first` of an axis on."""
    starts = (first if at == axis else 0 for at in range(len(shape)))
    return tuple(slice(start, start + size) for start, size in zip(starts, shape))
