"""Options of a compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Self

import numpy as np

from tempo.compiler.buckets import Bucket
from tempo.costs import Way
from tempo.errors import InputError, nearest, user_location
from tempo.loop_ir.transforms.dynamic_extent.versions import EXTENTS
from tempo.passes.manager import Forced
from tempo.passes.vectorize.search import KINDS
from tempo.symbolic import LARGEST_SIZE


@dataclass(frozen=True)
class Options:
    """How to compile; the meaning of the program does not depend on them.

    The reference evaluator, which plans nothing, looks at `checks` and `check_finite` alone. Raises `InputError` for
    what is no option or no value of one; `tp.compile` for names of dims and passes that are not there.

    checks   data-dependent indices out of range raise `tp.IndexOutOfRangeError` (True), or are clamped (False).
             None: the backend's default, which is True but on JAX; there they are clamped, and with True the error
             is raised when the compiled code has ended
    lift     dims that are parallel at every level become batch axes instead of loops
    mapping  forces what is otherwise searched for: "full" lifts along every dim whatever can be lifted, "sequential"
             nothing, and adds up step by step what is reduced over the dim, to keep few points; a number lifts that
             many points at once, block by block; a mapping from names of dims to these does so for those dims.
             None: by cost
    extent   how a read whose length varies (`k[0:t + 1]`) is run: "hull" always takes the greatest length, masked;
             "blocks" loops over as many blocks of it as the length needs, and adds up across them; "specialise" chooses
             at every point among copies for lengths that double. What cannot be added up across blocks (sorts, scans,
             positions of extremes) is specialised, what allows no other length (positions that are computed) takes the
             hull. None: by cost
    tile     the length of a block, and the least of those that double. None: by cost
    disable  names of passes to leave out, on the graph and on LoopIR; `explain()` lists them
    debug    check the program after every pass; None: the variable TEMPO_DEBUG
    poison   fill every new buffer with NaN (integers: their smallest value), so that a read of what was never written
             shows
    check_finite  a NaN or an infinity in a recurrent tensor, a parameter, the result of a call or an output raises
             `tp.NotFiniteError` at the end of the run, with the first such tensor, its line and the point. Infinities
             that can come from one that the program or its caller wrote (a mask of `-inf`) are no error
    buckets  by name of a dim, "pow2" or a list of sizes: what is compiled is for the next power of two, or the least of
             the list that is no less, and serves every size up to that. What means something is the size: inputs are
             padded, outputs cut, and nothing behind it counts. Only dims that have a size of their own have one
    recompute  by name of a dim, how many points a strip of it has: where a loop over it keeps what a later one reads (a
             recurrence and its gradient), only what enters each strip is kept, and the strip is computed again where
             the later loop comes to it. Near the root of the number of points memory is least. A tuple cuts the strips
             again. Sums over the dim are added up strip by strip. Calls are not repeated: such a dim is refused
    fold_blocks  into how many blocks to cut the axis between whose folds the most bytes lie, of those that only folds
             remove (the examples of a batch): a block at a time is made of what is read, and losses and gradients are
             added up. None: as a whole
    schedule_seconds  how long the scheduler may look for an order before it takes something simpler, for schedulers
             that have limits (polyhedral). None: the variable TEMPO_SCHEDULE_SECONDS, else what the scheduler sees fit
    """

    checks: bool | None = None
    lift: bool = True
    mapping: Forced = None
    extent: Way | None = None
    tile: int | None = None
    disable: tuple[str, ...] = ()
    debug: bool | None = None
    poison: bool = False
    check_finite: bool = False
    schedule_seconds: float | None = None
    buckets: Mapping[str, Bucket | Sequence[int]] | None = None
    recompute: Mapping[str, int | tuple[int, ...]] | None = None
    fold_blocks: int | None = None

    def __new__(cls, *values: Any, **given: Any) -> Self:
        """Raises `InputError` for a name that is no option's; the values are looked at when all are there."""
        del values
        names = [field.name for field in fields(cls)]
        for name in given:
            if name not in names:
                raise InputError(f"there is no option {name!r}", location=user_location(), hint=nearest(name, names))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, may_be_none in _BOOLS.items():
            self._keep(name, _bool(name, getattr(self, name), may_be_none))
        self._keep("disable", _names(self.disable))
        self._keep("tile", _tile(self.tile))
        seconds: Any = self.schedule_seconds
        if seconds is not None and not (_is_number(seconds) and seconds > 0):
            raise _refused(f"schedule_seconds={seconds!r} is no positive number")
        extent: Any = self.extent
        if extent is not None and not (isinstance(extent, str) and extent in EXTENTS):
            raise _refused(f"extent={extent!r} names no way to run a read", f"ways: {EXTENTS}")
        _check_mapping(self.mapping)
        self._keep("buckets", _buckets(self.buckets))
        _strips(self.recompute)
        if self.fold_blocks is not None and not (_is_count(self.fold_blocks) and self.fold_blocks >= 1):
            raise _refused(f"fold_blocks={self.fold_blocks!r} is no number of blocks")

    @property
    def strips(self) -> Mapping[str, tuple[int, ...]]:
        """By name of a dim, the lengths of its strips, and of those of each strip before."""
        return _strips(self.recompute)

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


_BOOLS = {"checks": True, "lift": False, "debug": True, "poison": False, "check_finite": False}
"""The options that are yes or no, and whether None leaves it to the backend or the environment."""


def _refused(message: str, hint: str | None = None) -> InputError:
    return InputError(message, location=user_location(), hint=hint)


def _bool(name: str, value: Any, may_be_none: bool) -> bool | None:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if value is None and may_be_none:
        return None
    wanted = "True, False or None" if may_be_none else "True or False"
    raise _refused(f"{name}={value!r} is a {type(value).__name__}", f"write {name}= with {wanted}")


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, tuple | list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise _refused(f"disable={value!r} is no tuple of names", 'write ("lift",)')


def _tile(value: Any) -> int | None:
    if value is None or (_is_count(value) and value >= 1):
        return value if value is None else int(value)
    raise _refused(f"tile={value!r} is no positive integer")


def _buckets(value: Any) -> Mapping[str, Bucket] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _refused(f"buckets={value!r} names no dims", 'write buckets={"t": "pow2"}')
    return {name: _bucket(name, each) for name, each in value.items()}


def _bucket(name: str, value: Any) -> Bucket:
    if isinstance(value, str) and value == "pow2":
        return "pow2"
    if isinstance(value, str) or not isinstance(value, Sequence) or not value or not all(map(_is_count, value)):
        raise _refused(f"the buckets of {name} are {value!r}", 'write "pow2", or a list of sizes: [128, 512]')
    found = tuple(sorted({int(size) for size in value}))
    if not 1 <= found[0] <= found[-1] <= LARGEST_SIZE:
        raise _refused(f"the buckets of {name} are {value!r}, and sizes lie between 1 and 2**30")
    return found


def _strips(value: Any) -> Mapping[str, tuple[int, ...]]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _refused(f"recompute={value!r} names no dims", 'write recompute={"t": 32}')
    found = {name: each if isinstance(each, tuple | list) else (each,) for name, each in value.items()}
    for name, sizes in found.items():
        if not sizes or not all(_is_count(size) and 2 <= size <= LARGEST_SIZE for size in sizes):
            raise _refused(f"the strips of {name} are {value[name]!r}", "a strip has two points or more: write 32")
        if any(later >= size for size, later in pairwise(sizes)):
            raise _refused(f"the strips of {name} are {value[name]!r}", "each must be shorter than the one before")
    return {name: tuple(map(int, sizes)) for name, sizes in found.items()}


def _check_mapping(mapping: Any) -> None:
    ways = mapping if isinstance(mapping, Mapping) else {} if mapping is None else {"t": mapping}
    for name, way in ways.items():
        if not isinstance(name, str):
            raise _refused(f"mapping= names {name!r}, which is no string", "write mapping={'t': 'full'}")
        if not (isinstance(way, str) and way in KINDS) and not (_is_count(way) and way > 0):
            hint = f"ways: {', '.join(KINDS)}, a number of points; for one dim write mapping={{'t': 'full'}}"
            raise _refused(f"mapping={mapping!r} names no way to run a dim", hint)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_count(value) or isinstance(value, float | np.floating)
