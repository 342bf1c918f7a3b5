"""Colocated Python: programs that are Python functions, run on the hosts of their devices.

*What* runs is JAX's own pickle inside a custom-call program. It runs on the hosts' :mod:`sidecars`, in the order that
JAX promises for the calls of one client thread that share a device.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from concurrent import futures
from typing import Any

from pathways_jupyter.local.pathways import sidecar_protocol
from pathways_jupyter.local.pathways.ifrt import array_values, dtypes, messages, promises, session_arrays, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import ArraySpec
from pathways_jupyter.local.pathways.ifrt.executables import OpaqueExecutable
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array
from pathways_jupyter.local.pathways.ifrt.sidecars import HostAnswer, SidecarClient

PROGRAM_TYPE = "jax_colocated_python_v0.0.1"


class Order:
    """The calls of one session that later calls have to wait for: the last of each client thread on each device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[int, int], Promise] = {}

    def before(self, stream: int, device_ids: Sequence[int]) -> list[Promise]:
        """Return what must be over before a call of this client thread on these devices."""
        with self._lock:
            return [self._last[stream, each] for each in device_ids if (stream, each) in self._last]

    def outstanding(self) -> list[Promise]:
        """Return the calls after which none is left of those noted so far."""
        with self._lock:
            return list(self._last.values())

    def note(self, stream: int, device_ids: Sequence[int], call: Promise) -> None:
        """Put later calls behind `call`."""
        keys = [(stream, each) for each in device_ids]
        with self._lock:
            self._last.update(dict.fromkeys(keys, call))

        def leave() -> None:
            with self._lock:
                for key in keys:
                    if self._last.get(key) is call:
                        del self._last[key]

        call.then(leave)


class PythonExecutable(OpaqueExecutable):
    """A colocated Python function as a session's executable; making one loads it on every host of its devices.

    Args:
      program: An encoded CustomCallProgramProto.

    Raises:
      IfrtStatusError: It is another kind of program, a host cannot be reached, or cannot unpickle it; the message holds
        the remote traceback.
    """

    kind = "colocated Python functions"

    def __init__(self, program: bytes, machine: Machine, order: Order) -> None:
        message = messages.CustomCallProgram.FromString(program)
        if message.type != PROGRAM_TYPE:
            raise statuses.unimplemented(f"programs of type {message.type} are not supported")
        self.name = message.name
        self.device_ids = tuple(message.devices.device_ids)
        self._sidecars = machine.sidecars
        self._devices = machine.devices
        self._order = order
        self._code: bytes = message.serialized_program_text
        self._inputs = [array_values.read_spec(each, machine.shardings) for each in message.input_specs]
        self._outputs = [array_values.read_spec(each, machine.shardings) for each in message.output_specs]
        self._number = next(self._sidecars.function_numbers)
        self._hosts = sorted({self._devices.all[each].host for each in self.device_ids})
        for number in self._hosts:
            self._load_on(self._sidecars.host(number))

    def outputs(self, inputs: Sequence[Array]) -> list[ArraySpec]:
        """Return the outputs that the client declared."""
        del inputs
        return list(self._outputs)

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Call the function on a thread of its own, after the calls that JAX orders before it."""
        stream = options.execution_stream_id
        call = session_arrays.launch(
            self._call,
            inputs,
            outputs,
            after=self._order.before(stream, self.device_ids),
            start=session_arrays.on_thread(f"colocated {self.name}"),
        )
        self._order.note(stream, self.device_ids, call)
        return call

    def release(self) -> None:
        """Have the hosts forget the function, after all calls that were made before.

        JAX keeps a colocated object alive by the functions that refer to it, and lets go of one as soon as it has
        called another.
        """

        def forget() -> None:
            for number in self._hosts:
                # A host that is lost has forgotten it already: connecting again would only start a process there.
                host = self._sidecars.connected.get(number)
                if host is not None and self._number in host.loaded:
                    host.loaded.discard(self._number)
                    host.notify("release", function=self._number)

        promises.when_all(self._order.outstanding(), forget)

    def _load_on(self, host: SidecarClient) -> None:
        all_devices = self._devices.all
        outputs = [
            {
                "dtype": sidecar_protocol.STRING if spec.is_strings else dtypes.to_numpy(spec.kind).name,
                "shape": list(spec.shape),
                "devices": self._on(host.number, spec),
            }
            for spec in self._outputs
        ]
        chips = [each for each in self.device_ids if all_devices[each].is_chip]
        aliases = {str(each): self._devices.chips + all_devices[each].chip for each in chips}
        host.request("load", [self._code], function=self._number, outputs=outputs, aliases=aliases).result()
        host.loaded.add(self._number)

    def _call(self, sources: list[Any]) -> tuple[list[Any], None]:
        """Send every host its shards of the arguments, and put the hosts' shards of the results together."""
        import jax

        self._devices.check_up(self.device_ids)
        inputs = [array_values.split(source) for source in sources]
        running = [self._call_on(number, inputs) for number in self._hosts]
        futures.wait(running, return_when=futures.FIRST_EXCEPTION)
        # If several failed, the first host's error is reported; hosts that are not done no longer matter.
        for each in running:
            if each.done():
                each.result()
        results: list[dict[int, Any]] = [{} for _ in self._outputs]
        for each in running:
            header, parts = each.result()
            rest = iter(parts)
            for shards, spec, devices in zip(results, self._outputs, header["outputs"], strict=True):
                for device in devices:
                    part, shape = next(rest), spec.sharding.shard_shape(spec.shape)
                    if spec.is_strings:
                        shards[device] = tuple(sidecar_protocol.unpack_strings(part, math.prod(shape)))
                    else:
                        array = array_values.read_host(part, spec.kind, shape, None)
                        shards[device] = jax.device_put(array, self._devices.jax_devices[device])
        return [
            array_values.join(spec, [shards[device] for device in spec.sharding.device_ids])
            for shards, spec in zip(results, self._outputs, strict=True)
        ], None

    def _call_on(self, number: int, inputs: Sequence[Sequence[Any]]) -> futures.Future[HostAnswer]:
        host = self._sidecars.host(number)
        if self._number not in host.loaded:
            self._load_on(host)
        targets = [self._on(number, spec) for spec in self._inputs]
        parts = []
        for spec, shards, devices in zip(self._inputs, inputs, targets, strict=True):
            for device in devices:
                shard = shards[spec.sharding.device_ids.index(device)]
                parts.append(
                    sidecar_protocol.pack_strings(shard) if spec.is_strings else array_values.to_host(shard, None)
                )
        shapes = [list(spec.sharding.shard_shape(spec.shape)) for spec in self._inputs]
        return host.request("call", parts, function=self._number, inputs=targets, shapes=shapes)

    def _on(self, host: int, spec: ArraySpec) -> list[int]:
        return [each for each in spec.sharding.device_ids if self._devices.all[each].host == host]
