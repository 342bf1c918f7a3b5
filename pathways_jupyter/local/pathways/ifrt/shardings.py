"""Shardings of IFRT, and the JAX shardings that do the same here.

Clients send three kinds: a single device, XLA's own partitioning (``HloSharding``), and shards of one shape
(``ConcreteEvenSharding``, for which a partitioning is found that has such shards).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from pathways_jupyter.local.pathways.ifrt import messages, statuses
from pathways_jupyter.local.pathways.ifrt.devices import Devices

if TYPE_CHECKING:
    from jax.sharding import Sharding as JaxSharding

_SINGLE = "xla::ifrt::SingleDeviceSharding"
_HLO = "xla::ifrt::HloSharding"
_EVEN = "xla::ifrt::ConcreteEvenSharding"
_MESSAGES = {_SINGLE: messages.SingleDeviceSharding, _HLO: messages.HloSharding, _EVEN: messages.ConcreteEvenSharding}


class Sharding:
    """One sharding, decoded; equal encodings give the same object (see :class:`Shardings`)."""

    def __init__(self, type_name: str, message: Any, devices: Devices) -> None:
        self._type_name = type_name
        self._message = message
        self._devices = devices
        self.device_ids: tuple[int, ...] = (
            (message.device_id,) if type_name == _SINGLE else tuple(message.devices.device_ids)
        )
        self.proto = messages.Sharding()
        self.proto.serialized_sharding.type_name = type_name
        self.proto.serialized_sharding.data = message.SerializeToString()
        self.memory_kind: str | None = message.memory_kind or None
        self._shard_shapes: dict[tuple[int, ...], tuple[int, ...]] = {}

    @cached_property
    def jax(self) -> JaxSharding:
        """The same for JAX, over this process's CPU devices and in the same kind of memory."""
        import jax
        from jax._src.lib import xla_client as xc
        from jax._src.sharding_impls import GSPMDSharding

        jax_devices = tuple(self._devices.jax_devices[each] for each in self.device_ids)
        if self._type_name == _SINGLE:
            return jax.sharding.SingleDeviceSharding(jax_devices[0], memory_kind=self.memory_kind)
        partitioning = xc.OpSharding()
        if self._type_name == _HLO:
            partitioning.ParseFromString(self._message.xla_op_sharding)
        else:
            _partition_evenly(partitioning, self._message.shape.dims, self._message.shard_shape.dims, len(jax_devices))
        return GSPMDSharding(jax_devices, partitioning, memory_kind=self.memory_kind)

    def shard_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of each shard of an array of this shape."""
        if self._type_name == _SINGLE:
            return shape
        shard = self._shard_shapes.get(shape)
        if shard is None:
            shard = self._shard_shapes[shape] = tuple(self.jax.shard_shape(shape))
        return shard

    def encoding_on(self, device_ids: Sequence[int], memory_kind: str | None) -> tuple[str, bytes]:
        """Return the encoding of this sharding moved to other devices, and to another memory if one is named."""
        message = type(self._message)()
        message.CopyFrom(self._message)
        if self._type_name == _SINGLE:
            message.device_id = device_ids[0]
        else:
            message.devices.device_ids[:] = device_ids
        if memory_kind is not None:
            message.memory_kind = memory_kind
        return self._type_name, message.SerializeToString()


class Shardings:
    """Makes shardings, each once: they are compared and looked up all the time."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._decode = lru_cache(maxsize=4096)(self._decoded)

    def read(self, message: Any) -> Sharding:
        """Return the sharding in a ShardingProto.

        Raises:
          IfrtStatusError: It is of a kind that this server does not know.
        """
        serialized = message.serialized_sharding
        return self._decode(serialized.type_name, serialized.data)

    def single(self, device_id: int, memory_kind: str | None = None) -> Sharding:
        """Return the sharding on one device."""
        return self._decode(
            _SINGLE, messages.SingleDeviceSharding(device_id=device_id, memory_kind=memory_kind).SerializeToString()
        )

    def partitioned(self, device_ids: Sequence[int], partitioning: bytes, memory_kind: str | None = None) -> Sharding:
        """Return XLA's partitioning, an encoded ``OpSharding``, over these devices."""
        message = messages.HloSharding(xla_op_sharding=partitioning, memory_kind=memory_kind)
        message.devices.device_ids.extend(device_ids)
        return self._decode(_HLO, message.SerializeToString())

    def over(self, device_ids: Sequence[int], partitioning: bytes, memory_kind: str | None = None) -> Sharding:
        """Like :meth:`partitioned`, also over a single device."""
        if len(device_ids) == 1:
            return self.single(device_ids[0], memory_kind)
        return self.partitioned(device_ids, partitioning, memory_kind)

    def moved(self, sharding: Sharding, device_ids: Sequence[int], memory_kind: str | None) -> Sharding:
        """Return `sharding` on other devices."""
        return self._decode(*sharding.encoding_on(device_ids, memory_kind))

    def _decoded(self, type_name: str, data: bytes) -> Sharding:
        message = _MESSAGES.get(type_name)
        if message is None:
            raise statuses.unimplemented(f"shardings of type {type_name} are not supported")
        return Sharding(type_name, message.FromString(data), self._devices)


def _partition_evenly(partitioning: Any, shape: Sequence[int], shard: Sequence[int], devices: int) -> None:
    tiles = [size // part if part else 1 for size, part in zip(shape, shard, strict=True)]
    count = math.prod(tiles)
    kinds = type(partitioning).Type
    if count == 1:
        partitioning.type = kinds.REPLICATED
        return
    partitioning.type = kinds.OTHER
    partitioning.replicate_on_last_tile_dim = count < devices
    partitioning.tile_assignment_dimensions = tiles + ([devices // count] if count < devices else [])
    partitioning.tile_assignment_devices = list(range(devices))
