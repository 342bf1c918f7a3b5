"""Runs one proxy's colocated functions, in a JAX in which only this host's devices are addressable.

The functions' arguments are global arrays of which this host has its own shards, as in any JAX with several processes;
their results' shards go back to the proxy, which has all hosts'.
"""

from __future__ import annotations

import logging
import math
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pathways_jupyter.local.pathways import program_start
from pathways_jupyter.local.pathways.sidecar import sidecar_protocol
from pathways_jupyter.local.pathways.sidecar.sidecar_protocol import Header, SidecarConnection, WireError

_log = logging.getLogger(__name__)


class LoadedFunctions:
    """The functions that one proxy has loaded here.

    Args:
      hello: ``host``, this host's number, and ``devices``, the host of each CPU device of the proxy.
    """

    def __init__(self, connection: SidecarConnection, hello: Header) -> None:
        self._connection = connection
        self._host = int(hello["host"])
        self._hosts = {int(device): int(host) for device, host in hello["devices"].items()}
        self._functions: dict[int, _Function] = {}

    def serve(self) -> None:
        """Serve until the proxy goes.

        Raises:
          WireError: It went.
        """
        _start_jax(self._host, self._hosts)
        self._connection.send({"ready": True})
        while True:
            header, parts = self._connection.receive()
            match header["op"]:
                case "load":
                    self._answer(header, parts)
                case "call":
                    # On a thread each: a call may take for ever, and others need not wait for it.
                    threading.Thread(target=self._answer, args=(header, parts), name="call", daemon=True).start()
                case "release":
                    self._functions.pop(header["function"], None)

    def _answer(self, header: Header, parts: Sequence[memoryview]) -> None:
        """Load or call a function, and send what came of it."""
        fields: Header = {}
        outputs: list[memoryview] = []
        try:
            if header["op"] == "load":
                aliases = {int(device): int(beside) for device, beside in header["aliases"].items()}
                self._functions[header["function"]] = _Function(bytes(parts[0]), header["outputs"], aliases)
            else:
                shards = iter(parts)
                inputs = [[(device, next(shards)) for device in devices] for devices in header["inputs"]]
                fields["outputs"], outputs = self._functions[header["function"]].call(inputs, header["shapes"])
        except BaseException as error:
            fields = {"error": "".join(traceback.format_exception(error))}
        try:
            self._connection.send({"id": header["id"], **fields}, outputs)
        except WireError as error:
            _log.info("An answer came too late: %s", error)


class _Function:
    """One function, unpickled as JAX pickled it."""

    def __init__(self, code: bytes, outputs: Sequence[Mapping[str, Any]], aliases: Mapping[int, int]) -> None:
        from jax.experimental.colocated_python import serialization

        devices = serialization._get_cpu_device_map()
        # A function that was called with arrays on chips runs on the CPU devices beside them; only then do the
        # chips' numbers mean anything here.
        missing = {chip: devices[beside] for chip, beside in aliases.items() if chip not in devices}
        with _unpickling:
            devices.update(missing)
            try:
                self._fun, self._in_tree, self._in_specs, self._out_tree, _, _ = serialization._deserialize(code)
            finally:
                for chip in missing:
                    del devices[chip]
        self._outputs = outputs
        self._aliases = aliases

    def call(
        self, inputs: Sequence[Sequence[tuple[int, memoryview]]], shapes: Sequence[Sequence[int]]
    ) -> tuple[list[list[int]], list[memoryview]]:
        """Call it with this host's shards of each argument; return the devices of its results' shards, and these."""
        import jax
        from jax._src import core
        from jax._src.lib import xla_client as xc

        local = {device.id: device for device in jax.local_devices()}
        arguments = []
        for spec, shards, shape in zip(self._in_specs, inputs, shapes, strict=True):
            arrays = []
            for device, part in shards:
                if spec.dtype.kind == "T":
                    words = [word.decode() for word in sidecar_protocol.unpack_strings(part, math.prod(shape))]
                    array = np.array(words, dtype=spec.dtype)
                else:
                    array = np.frombuffer(part, spec.dtype)
                # Without this JAX would narrow 64-bit data of a client that works with 64 bits.
                with jax.enable_x64(True):
                    arrays.append(jax.device_put(array.reshape(shape), local[self._aliases.get(device, device)]))
            aval = core.ShapedArray(spec.shape, spec.dtype)
            arguments.append(xc.ArrayImpl(aval, spec.sharding, arrays, True, True))
        args, kwargs = jax.tree.unflatten(self._in_tree, arguments)
        results, tree = jax.tree.flatten(self._fun(*args, **kwargs))
        if tree != self._out_tree:
            raise TypeError(f"the function returned {tree} where {self._out_tree} was declared")
        devices: list[list[int]] = []
        parts: list[memoryview] = []
        for declared, value in zip(self._outputs, results, strict=True):
            found = self._result(declared, value)
            devices.append(list(found))
            for shard in map(np.asarray, found.values()):
                if shard.dtype.kind == "T":
                    parts.append(sidecar_protocol.pack_strings([word.encode() for word in shard.ravel().tolist()]))
                else:
                    parts.append(np.ascontiguousarray(shard).reshape(-1).view(np.uint8).data)
        return devices, parts

    def _result(self, declared: Mapping[str, Any], value: Any) -> dict[int, Any]:
        """Return the shards of a result on this host's devices, by the declared numbers of these."""
        import jax

        if not isinstance(value, jax.Array):
            raise TypeError(f"a colocated function must return jax.Arrays, not {type(value).__name__}")
        dtype = sidecar_protocol.STRING if value.dtype.kind == "T" else value.dtype.name
        if [*value.shape] != declared["shape"] or dtype != declared["dtype"]:
            raise TypeError(
                f"the function returned {dtype}{[*value.shape]} where"
                f" {declared['dtype']}{declared['shape']} was declared"
            )
        shards = {shard.device.id: shard.data for shard in value.addressable_shards}
        places = {device: self._aliases.get(device, device) for device in declared["devices"]}
        if set(shards) != set(places.values()):
            raise TypeError(
                f"the function returned an array on devices {sorted(shards)} of this host, declared were"
                f" {sorted(places.values())}"
            )
        return {device: shards[place] for device, place in places.items()}


_unpickling = threading.Lock()


def _start_jax(host: int, hosts: Mapping[int, int]) -> None:
    """Make the only backend of this process a CPU client that knows all hosts' devices, and has this one's."""
    import jax
    from jax._src import xla_bridge
    from jaxlib import _pathways

    program_start.set_xla_flags()
    # JAX_PLATFORMS may name what a notebook uses, and XLA_FLAGS may ask for more devices: neither is meant for here.
    jax.config.update("jax_platforms", "cpu")
    mine = {device for device, its_host in hosts.items() if its_host == host}
    xla_bridge.register_backend_factory(
        "cpu", lambda: _pathways._create_cpu_client(mine, dict(hosts)), priority=0, fail_quietly=False
    )
    if not hasattr(jax, "process_id"):
        # What Pathways' own documentation of colocated Python calls it.
        jax.process_id = jax.process_index
    if jax.process_index() != host:
        raise RuntimeError(f"JAX says that this is host {jax.process_index()}, and not {host}")
