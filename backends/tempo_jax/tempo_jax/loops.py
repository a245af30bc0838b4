"""Loops as XLA has them, and what they hand on from iteration to iteration beside their buffers: what iterations
shortly before wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo.backends.loop_ir import Buffer, Loop, stop_in
from tempo.backends.loops import Place, earlier, recent
from tempo_jax import access

Array = Any
Buffers = Mapping[int, Array]
Carried = tuple[Array, ...]
Body = Callable[[Any, Carried], Carried]


def repeat(lo: Any, hi: Any, body: Body, start: Carried, stop: int | None, dtype: Any) -> Carried:
    """`body` from `lo` to `hi`, counted in `dtype`, left as soon as the carried scalar at `stop` is not 0."""
    if stop is None:
        return lax.fori_loop(_bound(lo, dtype), _bound(hi, dtype), body, start)  # type: ignore[no-any-return]

    def goes_on(carry: tuple[Any, Carried]) -> Any:
        step, arrays = carry
        return (step < hi) & (arrays[stop] == 0)

    def step(carry: tuple[Any, Carried]) -> tuple[Any, Carried]:
        return carry[0] + 1, body(*carry)

    _, arrays = lax.while_loop(goes_on, step, (jnp.asarray(lo, dtype), start))
    return arrays  # type: ignore[no-any-return]


def inside(step: Any, arrays: list[Array]) -> list[Array]:
    """The arrays within an iteration, so that nothing that is made of them alone is made before the loop and kept: of
    halves that would be float32, which is twice as much to hold and to read."""
    return lax.optimization_barrier((step, arrays))[1] if arrays else arrays


def _bound(value: Any, dtype: Any) -> Any:
    """A number stays one: between two of them XLA knows the trip count, and tests nothing per iteration."""
    return np.dtype(dtype).type(value) if isinstance(value, int) else value


class Handed:
    """The values at `places`, as an iteration indexes them, of a loop from `lo` to `hi`."""

    def __init__(
        self, loop: Loop, lo: Any, hi: Any, described: Mapping[int, Buffer], orders: Mapping[int, access.Order]
    ) -> None:
        self._described, self._orders = described, orders
        self._var, self._recents = loop.var, recent(loop)
        self.places: list[Place] = [
            earlier(each, loop, ago) for each in self._recents for ago in range(1, each.depth + 1)
        ]
        known = stop_in(loop) is None  # where it ends
        self.replaced = frozenset(each.buffer for each in self._recents if each.replaces and known)
        count = max(hi - lo, 0) if isinstance(hi - lo, int) else jnp.maximum(hi - lo, 0)
        forward = loop.direction == "forward"
        self._first, self._end = (lo, lo + count) if forward else (hi - 1, hi - 1 - count)

    def before(self, buffers: Buffers, values: access.Values) -> Iterator[Array]:
        """What the first iteration reads of what iterations before it would have written."""
        here = {**values, self._var: self._first}
        for buffer, index in self.places:
            dtype = self._described[buffer].dtype
            yield access.at(buffers[buffer], access.point(index, here), dtype, self._orders.get(buffer))

    def on(self, written: Buffers, handed: tuple[Array, ...]) -> Iterator[Array]:
        """For the next iteration: what this one wrote, then all but the oldest of what it was handed."""
        at = 0
        for each in self._recents:
            yield written[each.buffer]
            yield from handed[at : at + each.depth - 1]
            at += each.depth

    def after(self, buffers: Buffers, values: access.Values, handed: Iterable[Array]) -> dict[int, Array]:
        """The buffers that the loop has not written, with what it leaves in them."""
        here = {**values, self._var: self._end}
        found = {id: buffers[id] for id in self.replaced}
        for (buffer, index), value in zip(self.places, handed, strict=True):
            if buffer in found:
                place = access.point(index, here)
                found[buffer] = access.write(found[buffer], place, value, self._orders.get(buffer))
        return found
