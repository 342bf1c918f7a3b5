"""Requests that make, move and read arrays.

None of them fails for what happens to the data: the answer is sent at once, and an error stays with the arrays that
should have held the data, until they are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pathways_jupyter.local.pathways.ifrt import array_values, dtypes, promises, session_arrays, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import ArraySpec
from pathways_jupyter.local.pathways.ifrt.client_session import UNCOUNTED, Handler, IfrtSession
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array

_DONATE = 3
_LARGE = 1 << 20
"""Bytes from which on copying is not done on the thread that takes the requests."""

Move = Callable[[Machine, ArraySpec, list[Any]], tuple[list[Any], Any]]
"""Starts to make an array of another one; returns the new one, in a list, and what to wait for."""


def make_array(session: IfrtSession, message: Any, body: Any) -> None:
    """Make an array of one host buffer: replicated if there are several devices."""
    spec = array_values.read_spec(message, session.machine.shardings)
    if message.layout.serialized_layout.type_name:
        raise statuses.unimplemented("arrays cannot be made with a layout of their own")
    shards = range(len(spec.sharding.device_ids))
    (body.array_handle,) = _from_host(session, [message.array_handle], spec, [(message, shards, spec.shape)])


def make_sharded_arrays(session: IfrtSession, message: Any, body: Any) -> None:
    """Many host buffers become the shards of arrays."""
    handles = list(message.array_handles) or [0] * len(message.specs)
    bound: list[int] = []
    for handle, each in zip(handles, message.specs, strict=True):
        spec = array_values.read_spec(each.array_spec, session.machine.shardings)
        parts = [
            (buffer, indices.indices, tuple(buffer.shape.dims))
            for indices, buffer in zip(each.addressable_shard_indices, each.host_buffers, strict=True)
        ]
        bound += _from_host(session, [handle], spec, parts)
    body.array_handles.extend(bound)


def assemble(session: IfrtSession, message: Any, body: Any) -> None:
    """Make one array of single-device arrays."""
    sources = [session.arrays[handle] for handle in message.single_device_array_handles]
    kind = message.dtype.kind or next((each.spec.kind for each in sources if each.spec), 0)
    spec = ArraySpec(kind, tuple(message.shape.dims), session.machine.shardings.read(message.sharding))
    handles, arrays = session.bind_new([message.result_handle], [spec])
    session_arrays.launch(
        lambda values: ([array_values.join(spec, [array_values.split(each)[0] for each in values])], None),
        sources,
        arrays,
        consumed=_donated(message, sources),
    )
    (body.array_handle,) = handles


def disassemble(session: IfrtSession, message: Any, body: Any) -> None:
    """Make one array for each device of an array."""
    body.array_handles.extend(_shards(session, message.array_handle, message.result_handles))


def first_shard(session: IfrtSession, message: Any, body: Any) -> None:
    """Return one shard of an array that is the same on all devices."""
    (body.array_handle,) = _shards(session, message.array_handle, [message.result_handle], most=1)


def copy(session: IfrtSession, message: Any, body: Any) -> None:
    """Copy arrays to other devices, or to another kind of memory."""
    memory_kind = message.memory_kind if message.HasField("memory_kind") else None
    sources = [described(session.arrays[handle]) for handle in message.array_handles]
    targets = []
    for source in sources:
        spec = source.spec
        assert spec is not None
        device_ids = tuple(message.device_ids) or spec.sharding.device_ids
        sharding = session.machine.shardings.moved(spec.sharding, device_ids, memory_kind)
        targets.append(ArraySpec(spec.kind, spec.shape, sharding))
    _launch_each(session, message, body, _copied, sources, targets)


def remap(session: IfrtSession, message: Any, body: Any) -> None:
    """Make shards of some arrays those of others."""
    sources = [session.arrays[handle] for handle in message.array_handles]
    specs = [array_values.read_spec(each, session.machine.shardings) for each in message.plan.output_specs]
    handles, arrays = session.bind_new(message.result_handles, specs)
    mappings = list(message.plan.mappings)

    def work(values: list[Any]) -> tuple[list[Any], None]:
        shards: list[list[Any]] = [[None] * len(spec.sharding.device_ids) for spec in specs]
        for mapping in mappings:
            taken = array_values.split(values[mapping.in_array])
            intervals = zip(
                map(range, mapping.from_start, mapping.from_end, mapping.from_step),
                map(range, mapping.to_start, mapping.to_end, mapping.to_step),
                strict=True,
            )
            for taken_from, given_to in intervals:
                for source, target in zip(taken_from, given_to, strict=True):
                    shards[mapping.out_array][target] = taken[source]
        return [array_values.join(spec, each) for spec, each in zip(specs, shards, strict=True)], None

    session_arrays.launch(work, sources, arrays, consumed=_donated(message, sources))
    body.array_handles.extend(handles)


def reshard(session: IfrtSession, message: Any, body: Any) -> None:
    """Give arrays other shardings, over whatever devices these name."""
    sources = [session.arrays[handle] for handle in message.array_handles]
    targets = [array_values.read_spec(each, session.machine.shardings) for each in message.array_specs]
    _launch_each(session, message, body, resharded, sources, targets)


def read_array(session: IfrtSession, message: Any, body: Any) -> Promise:
    """Copy an array's bytes into a host buffer, which the client fetches over another stream."""
    del body
    array = session.arrays[message.array_handle]
    ready = array.ready(session.machine.queues.of)
    strides = tuple(message.byte_strides.strides) if message.HasField("byte_strides") else None
    done = Promise()

    def read() -> None:
        try:
            session.buffers.put(message.host_buffer_handle, array_values.to_host(ready.get(), strides))
        except Exception as error:
            done.fail(statuses.of(error))
        else:
            done.settle(None)

    def when_ready() -> None:
        # To change the layout of a large array takes a while, and this may be the thread that takes the requests.
        if ready.error is None and array.spec is not None and _size(array.spec) >= _LARGE:
            session.machine.queues.of(array.spec.sharding.device_ids).aside(read)
        else:
            read()

    ready.then(when_ready)
    return done


def check_ready(session: IfrtSession, message: Any, body: Any) -> Promise:
    """Wait until values are available, and report any error."""
    del body
    return promises.all_of([session.arrays[each].ready(session.machine.queues.of) for each in message.value_handles])


def is_deleted(session: IfrtSession, message: Any, body: Any) -> None:
    """Return whether an array was deleted or its memory reused."""
    body.deleted = session.arrays[message.array_handle].deleted


def delete(session: IfrtSession, message: Any, body: Any) -> Promise:
    """Free memory; the handles stay."""
    for array in message.array_handle:
        session.arrays[array].delete()
    body.deletion_future_handle = session.new_handle()
    # The client checks it outside of what it numbers, too.
    session.futures[body.deletion_future_handle] = UNCOUNTED
    return UNCOUNTED


def destruct(session: IfrtSession, message: Any, body: Any) -> Promise:
    """Free handles."""
    del body
    for handle in message.array_handle:
        session.arrays.pop(handle, None)
    return UNCOUNTED


HANDLERS: dict[str, Handler] = {
    "make_array_from_host_buffer": make_array,
    "make_arrays_from_host_buffer_shards": make_sharded_arrays,
    "assemble_array_from_single_device_arrays": assemble,
    "disassemble_into_single_device_arrays": disassemble,
    "fully_replicated_shard": first_shard,
    "copy_arrays": copy,
    "remap_arrays": remap,
    "reshard_arrays": reshard,
    "copy_to_host_buffer": read_array,
    "check_value_ready": check_ready,
    "is_array_deleted": is_deleted,
    "delete_array": delete,
    "destruct_array": destruct,
}


def _from_host(
    session: IfrtSession, handles: list[int], spec: ArraySpec, parts: Sequence[tuple[Any, Any, Any]]
) -> list[int]:
    """Make an array of host buffers: for each its description, the shards it is for, and its shape."""
    bound, arrays = session.bind_new(handles, [spec])
    buffers = [session.buffers.take(buffer.host_buffer_handle) for buffer, _, _ in parts]
    devices = session.machine.devices

    def work(_: list[Any]) -> tuple[list[Any], None]:
        devices.check_up(spec.sharding.device_ids)
        shards: list[Any] = [None] * len(spec.sharding.device_ids)
        for (buffer, indices, shape), promise in zip(parts, buffers, strict=True):
            strides = tuple(buffer.byte_strides.strides) if buffer.HasField("byte_strides") else None
            shard = array_values.read_host(promise.get(), spec.kind, shape, strides)
            for index in indices:
                shards[index] = shard
        return [
            array_values.from_host(spec, shards, [devices.jax_devices[each] for each in spec.sharding.device_ids])
        ], None

    session_arrays.launch(work, [], arrays, after=buffers)
    return bound


def _launch_each(
    session: IfrtSession,
    message: Any,
    body: Any,
    move: Move,
    sources: Sequence[Array],
    targets: Sequence[ArraySpec],
) -> None:
    """Make an array of each source."""
    handles, arrays = session.bind_new(message.result_handles, targets)
    for source, array in zip(sources, arrays, strict=True):
        launch_move(move, session.machine, source, array, donate=message.copy_semantics == _DONATE)
    body.array_handles.extend(handles)


def launch_move(move: Move, machine: Machine, source: Array, target: Array, *, donate: bool) -> Promise:
    """Make `target` of `source` on the queue of its devices; return a promise that is settled when it has begun."""
    spec = target.spec
    assert spec is not None
    queue = machine.queues.of(spec.sharding.device_ids)
    is_slow = move is resharded or _size(spec) >= _LARGE
    return session_arrays.launch(
        partial(move, machine, spec),
        [source],
        [target],
        consumed=[source] if donate else [],
        start=queue.launch_elsewhere if is_slow else queue.launch,
    )


def _copied(machine: Machine, target: ArraySpec, sources: list[Any]) -> tuple[list[Any], Any]:
    from jax._src.lib import xla_client as xc

    devices = machine.devices
    devices.check_up(target.sharding.device_ids)
    if target.is_strings:
        return [array_values.join(target, array_values.split(sources[0]))], None
    device_list = xc.DeviceList(tuple(devices.jax_devices[each] for each in target.sharding.device_ids))
    (copied,) = xc.batched_copy_array_to_devices_with_sharding(
        sources, [device_list], [target.sharding.jax], [xc.ArrayCopySemantics.ALWAYS_COPY]
    )
    return [copied], copied


def resharded(machine: Machine, target: ArraySpec, sources: list[Any]) -> tuple[list[Any], Any]:
    """Start to give an array another sharding; return the new one, and what to wait for."""
    import jax

    machine.devices.check_up(target.sharding.device_ids)
    if target.is_strings:
        raise statuses.unimplemented("arrays of strings cannot be resharded")
    moved = jax.device_put(sources[0], target.sharding.jax)
    return [moved], moved


def _size(spec: ArraySpec) -> int:
    if spec.kind in (dtypes.STRING, dtypes.TOKEN):
        return 0
    return dtypes.to_numpy(spec.kind).itemsize * math.prod(spec.shape)


def described(array: Array) -> Array:
    """Return the array; refuse one of which nothing is known, because making it failed."""
    if array.spec is None:
        array.promise.get()
    return array


def _shards(session: IfrtSession, handle: int, handles: Sequence[int], *, most: int | None = None) -> list[int]:
    """Make an array of each shard of an array, or of the first ones; return their handles."""
    source = described(session.arrays[handle])
    spec = source.spec
    assert spec is not None
    shape, memory_kind = spec.sharding.shard_shape(spec.shape), spec.sharding.memory_kind
    single = session.machine.shardings.single
    specs = [ArraySpec(spec.kind, shape, single(each, memory_kind)) for each in spec.sharding.device_ids[:most]]
    bound, arrays = session.bind_new(handles, specs)

    def work(values: list[Any]) -> tuple[list[Any], None]:
        return [
            array_values.join(each, [shard])
            for each, shard in zip(specs, array_values.split(values[0])[:most], strict=True)
        ], None

    session_arrays.launch(work, [source], arrays)
    return bound


def _donated(message: Any, sources: Sequence[Array]) -> Sequence[Array]:
    return sources if message.copy_semantics == _DONATE else ()
