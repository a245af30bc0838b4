"""Options of a compile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tempo.errors import InputError, user_location
from tempo.lowering.extent_costs import Way
from tempo.lowering.tiling import EXTENTS
from tempo.passes.mapping import KINDS


@dataclass(frozen=True)
class Options:
    """How to compile; the meaning of the program does not depend on them.

    checks   data-dependent indices out of range raise `tp.IndexOutOfRangeError` (True), or are clamped (False).
             None: the backend's default, which is True on NumPy and on the reference
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
    disable  names of passes to leave out
    debug    validate the graph after every pass; None: the variable TEMPO_DEBUG
    poison   fill every new buffer with NaN (integers: their smallest value), so that a read of what was never written
             shows
    check_finite  a NaN or an infinity in a recurrent tensor, a parameter, the result of a call or an output raises
             `tp.NotFiniteError` at the end of the run, with the first such tensor, its line and the point. Infinities
             that can come from one that the program or its caller wrote (a mask of `-inf`) are no error
    schedule_seconds  how long each attempt of the scheduler may take before it tries something simpler, for schedulers
             that have limits (polyhedral). None: the variable TEMPO_SCHEDULE_SECONDS, else what the scheduler sees fit
    """

    checks: bool | None = None
    lift: bool = True
    mapping: str | int | Mapping[str, str | int] | None = None
    extent: Way | None = None
    tile: int | None = None
    disable: tuple[str, ...] = ()
    debug: bool | None = None
    poison: bool = False
    check_finite: bool = False
    schedule_seconds: float | None = None

    def __post_init__(self) -> None:
        names: Any = self.disable
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
            raise InputError(
                f"disable={names!r} is no tuple of names", location=user_location(), hint='write ("lift",)'
            )
        seconds: Any = self.schedule_seconds
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise InputError(f"schedule_seconds={seconds!r} is no positive number", location=user_location())
        if self.extent not in (None, *EXTENTS):
            raise InputError(
                f"extent={self.extent!r} names no way to run a read", location=user_location(), hint=f"ways: {EXTENTS}"
            )
        tile: Any = self.tile
        if tile is not None and not (type(tile) is int and tile >= 1):
            raise InputError(f"tile={tile!r} is no positive integer", location=user_location())
        forced: Any = self.mapping
        kinds = forced.values() if isinstance(forced, Mapping) else () if forced is None else (forced,)
        if not all(kind in KINDS or (type(kind) is int and kind > 0) for kind in kinds):
            raise InputError(
                f"mapping={forced!r} names no way to run a dim",
                location=user_location(),
                hint=f"ways: {', '.join(KINDS)}, a number of points; for one dim write mapping={{'t': 'full'}}",
            )
