"""Arrays on a mesh of devices: what a placement is to `jax.sharding`.

The devices may be those of several processes (`jax.distributed`), which all run the same calls with the same arrays of
NumPy's. An array has then shards that a process does not have: it is made of those that this one has, and only what is
whole on a device of its own can be looked at without an exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from tempo.backends import Mesh, Placement, permuted
from tempo.errors import InputError, UnsupportedError
from tempo_jax.pieces import Order, Pieces, order_within

Array = Any
_MORE = (
    "on a processor jax.config.update('jax_num_cpu_devices', {count}), before JAX is used, makes as many of it; "
    "or give a smaller mesh"
)
_ALL = "jax.devices() has {count}: give a mesh of all, or call tp.compile without mesh=, and each process runs its own"


@dataclass(frozen=True)
class DeviceMesh:
    """The first devices of the platform, of all processes, in a grid, as near to one another as JAX can arrange."""

    mesh: jax.sharding.Mesh

    @staticmethod
    def of(mesh: Mesh, platform: str) -> DeviceMesh:
        """Raises `UnsupportedError` where there are fewer devices, or a process has none of them."""
        there = jax.devices(platform)
        if len(there) < mesh.devices:
            raise UnsupportedError(
                f"the mesh {mesh} has {mesh.devices} devices, and JAX finds {len(there)} of {platform!r}",
                hint=_MORE.format(count=mesh.devices),
            )
        used = {device.process_index for device in there[: mesh.devices]}
        if without := sorted({device.process_index for device in there} - used):
            raise UnsupportedError(
                f"the mesh {mesh} has {mesh.devices} devices, the first of {len(there)}, and of these the processes "
                f"{', '.join(map(str, without))} have none",
                hint=_ALL.format(count=len(there)),
            )
        counts, names = tuple(mesh.axes.values()), tuple(mesh.axes)
        kinds = (AxisType.Auto,) * len(names)  # XLA's partitioner does what constraints do not say
        return DeviceMesh(jax.make_mesh(counts, names, kinds, devices=there[: mesh.devices]))

    @cached_property
    def is_shared(self) -> bool:
        """Whether other processes have some of its devices."""
        return bool(self.mesh.is_multi_process)

    def has(self, array: Any) -> bool:
        """Whether it lies on the devices of the mesh, in whatever way."""
        return isinstance(array, jax.Array) and array.devices() == set(self.mesh.devices.flat)

    def sharding(self, placement: Placement = ()) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*(None if cut is None else cut.over for cut in placement)))

    def constrained(self, array: Array, placement: Placement, order: Order | None = None) -> Array:
        """Inside a traced function: the array with its logical axes placed so; they lie in memory in `order`."""
        if isinstance(array, Pieces):
            inner = (*placement[: array.axis], *placement[array.axis + 1 :])
            within = order_within(order, array.axis)
            return array.mapped(lambda each: self.constrained(each, inner, within))
        lies = placement if order is None else permuted(placement, order)
        return lax.with_sharding_constraint(array, self.sharding(lies))

    def laid(self, array: np.ndarray[Any, Any] | Array, placement: Placement = ()) -> Array:
        """An array as it is to lie, copied where it is not so yet.

        Raises `InputError` for one in parts that lie in another way: that is for the caller to say.
        """
        wanted = self.sharding(placement)
        if not isinstance(array, jax.Array):
            return self._put(array, wanted)
        if array.sharding.is_equivalent_to(wanted, array.ndim):
            return array
        if not array.is_fully_replicated:
            raise InputError(
                f"an array of shape {array.shape} lies in parts, as {array.sharding}, and is to lie as {wanted.spec} "
                f"on the mesh {dict(self.mesh.shape)}",
                hint="say in shard= or place= that it lies so, or lay it out with jax.device_put, which moves it",
            )
        if self.is_shared and not self.has(array):
            return self._put(whole(array), wanted)
        return jax.device_put(array, wanted)

    def _put(self, array: np.ndarray[Any, Any], wanted: NamedSharding) -> Array:
        """A process makes the shards that it has; `jax.device_put` would compare the arrays of all processes."""
        if not self.is_shared:
            return jax.device_put(array, wanted)
        return jax.make_array_from_callback(array.shape, wanted, lambda index: array[index], dtype=array.dtype)


def whole(array: Array) -> np.ndarray[Any, Any]:
    """An array of JAX's as NumPy's. One that lies in parts on several processes they exchange, so all of them call it.

    Raises `InputError` for one of which this process has nothing.
    """
    if array.is_fully_addressable or (array.is_fully_replicated and array.addressable_shards):
        return np.asarray(array)
    if not array.addressable_shards:
        raise InputError(
            f"an array of shape {array.shape} lies on devices of other processes alone, as {array.sharding}",
            hint="lay it out on devices of all processes, or give all of them the same array of NumPy's",
        )
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def on_one_device(array: Array, device: Any) -> Array:
    """An array of JAX's on this device; one that lies in parts on several is never gathered without a word.

    Raises `InputError` for such.
    """
    if array.devices() == {device}:
        return array
    if len(array.devices()) > 1 and not array.is_fully_replicated:
        raise InputError(
            f"an array of shape {array.shape} lies in parts on {len(array.devices())} devices, as {array.sharding}, "
            f"and the program runs on one, {device}",
            hint="compile with mesh= and shard= or place=, so that it stays as it is, or gather it with jax.device_put",
        )
    here = next((shard.data for shard in array.addressable_shards if shard.device == device), None)
    if here is not None:
        return here  # whose type names no mesh
    return jax.device_put(array if array.is_fully_addressable else whole(array), device)
