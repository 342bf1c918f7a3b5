"""Runs colocated Python in this very process: every host is here.

Simple and fast, but user code can take the proxy down with it, and all hosts share one working directory. It serves a
proxy whose hosts have no sidecars.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pathways_jupyter.local.pathways.ifrt import dtypes
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.statuses import Code, StatusError
from pathways_jupyter.local.pathways.ifrt.values import Spec

if TYPE_CHECKING:
    import jax


class ThisProcess:
    """The hosts of `devices`, all in this process."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices

    def load(
        self, code: bytes, inputs: Sequence[Spec], outputs: Sequence[Spec], device_ids: Sequence[int]
    ) -> _Function:
        """Unpickles a function.

        Raises:
          StatusError: It cannot be unpickled.
        """
        host = self._devices.all[device_ids[0]].host
        first = next(each.id for each in self._devices.all if not each.is_chip and each.host == host)
        # The CPU devices that the pickle speaks of are those of this process; asking for one makes them all.
        return _Function(code, inputs, outputs, self._devices.jax_devices[first])


class _Function:
    def __init__(self, code: bytes, inputs: Sequence[Spec], outputs: Sequence[Spec], device: jax.Device) -> None:
        from jax.experimental.colocated_python import serialization

        try:
            self._fun, self._in_tree, self._in_specs, self._out_tree, _, _ = serialization._deserialize(code)
        except Exception as error:
            raise StatusError(Code.INVALID_ARGUMENT, _message(error)) from error
        self._inputs = inputs
        self._outputs = outputs
        self._device = device

    def call(self, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Calls the function, with JAX's defaults and not the server's own 64-bit mode.

        What the function makes without naming a device lands on the first CPU device of its host, as on a sidecar. In
        this process the first device of all poses as a chip, and an array on it could not be returned to the client.
        """
        import jax

        try:
            with jax.enable_x64(False), jax.default_device(self._device):
                arguments = [
                    _argument(spec, declared, shards)
                    for spec, declared, shards in zip(self._inputs, self._in_specs, inputs, strict=True)
                ]
                args, kwargs = jax.tree.unflatten(self._in_tree, arguments)
                results, tree = jax.tree.flatten(self._fun(*args, **kwargs))
                if tree != self._out_tree:
                    raise TypeError(f"the function returned {tree} where {self._out_tree} was declared")
                return [_result(spec, value) for spec, value in zip(self._outputs, results, strict=True)]
        except BaseException as error:
            raise StatusError(Code.INTERNAL, _message(error)) from error

    def release(self) -> None:
        """Drops the function, and with it what only it refers to."""
        self._fun = None


def _argument(spec: Spec, declared: Any, shards: Sequence[Any]) -> Any:
    import jax
    from jax._src import core
    from jax._src.lib import xla_client as xc

    if spec.is_strings:
        shape = spec.sharding.shard_shape(spec.shape)
        devices = declared.sharding._device_assignment
        shards = [
            jax.device_put(_string_array(shard, shape), device) for shard, device in zip(shards, devices, strict=True)
        ]
        return jax.make_array_from_single_device_arrays(declared.shape, declared.sharding, shards)
    return xc.ArrayImpl(core.ShapedArray(declared.shape, declared.dtype), declared.sharding, list(shards), True, True)


def _result(spec: Spec, value: Any) -> list[Any]:
    import jax

    if not isinstance(value, jax.Array):
        raise TypeError(f"a colocated function must return jax.Arrays, not {type(value).__name__}")
    if value.shape != spec.shape or dtypes.from_numpy(value.dtype) != spec.kind:
        raise TypeError(f"the function returned {value.dtype}{list(value.shape)}, which is not what was declared")
    shards = _in_order(spec, value)
    if spec.is_strings:
        return [tuple(text.encode() for text in np.asarray(shard).ravel().tolist()) for shard in shards]
    return list(shards)


def _in_order(spec: Spec, value: Any) -> list[Any]:
    """The value's shards in the order of the declared devices.

    Raises:
      TypeError: It is on other devices.
    """
    by_device = {next(iter(shard.devices())).id: shard for shard in value._arrays}
    if set(by_device) != set(spec.sharding.device_ids):
        raise TypeError(
            f"the function returned an array on devices {sorted(by_device)}, declared were"
            f" {sorted(spec.sharding.device_ids)}"
        )
    return [by_device[each] for each in spec.sharding.device_ids]


def _string_array(shard: Sequence[bytes], shape: tuple[int, ...]) -> Any:
    return np.array([text.decode() for text in shard], dtype=np.dtypes.StringDType()).reshape(shape)


def _message(error: BaseException) -> str:
    return "colocated_python: " + "".join(traceback.format_exception(error))
