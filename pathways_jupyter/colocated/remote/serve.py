"""The door on a host: one request array in, one reply array out.

A request is bytes, the same on every device. The reply is bytes too: each host's devices carry a row each of what that
host answers. What does not fit is kept here until the notebook fetches it. A failure of user code is an answer like any
other, so that every host's own story arrives.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from typing import Any

import jax
import numpy as np

from . import calls, codec, facts, feeds, kept, namespaces, returned, stoppable

BOOT = uuid.uuid4().hex
"""Changes when the sidecar's process does; names that cells defined are gone then."""
_KEPT = 8
_lock = threading.Lock()
_replies: OrderedDict[str, bytes] = OrderedDict()


def serve(row_bytes: int, request: jax.Array, *inputs: jax.Array) -> jax.Array:
    """Answers one request; called by JAX on every host of the call."""
    message = _read(request)
    try:
        inputs = tuple(_input(message[0], place, array) for place, array in enumerate(inputs))
        payload = _answer(message, inputs, request.sharding.mesh)
    except Exception as error:
        payload = codec.encode({"boot": BOOT, "broken": f"{type(error).__name__}: {error}"})
    return _rows(payload, message[0], row_bytes, request.sharding.mesh)


def fetch(row_bytes: int, request: jax.Array) -> jax.Array:
    """Hands out a later part of an answer that did not fit; `skip` bytes a row went before."""
    head, _ = _read(request)
    with _lock:
        payload = _replies.get(head["call"], b"")
    return _spread(payload, head["skip"], head["counts"], row_bytes, request.sharding.mesh)


def take(targets: list[Any], request: jax.Array) -> list[jax.Array]:
    """Hands out the arrays that a call kept."""
    head, _ = _read(request)
    return returned.take(head["call"], head["names"], targets)


def feed(row_bytes: int, targets: list[Any], request: jax.Array) -> list[jax.Array]:
    """The next batch of an iterator: a row that says what happened, and the batch's arrays."""
    head, _ = _read(request)
    state, batch = feeds.step(kept.get(head["object"]), targets)
    return [_rows(codec.encode({"boot": BOOT, **state}), head, row_bytes, request.sharding.mesh), *batch]


def _input(head: dict[str, Any], place: int, array: jax.Array) -> jax.Array:
    if str(place) in head["wrapped"]:
        return returned.unwrap(array, head["wrapped"][str(place)])
    return returned.free(array) if place in head["free"] else array


def _answer(message: tuple[dict[str, Any], list[bytes]], inputs: tuple[jax.Array, ...], mesh: Any) -> bytes:
    head, blobs = message
    operation, session = head["op"], head["session"]
    kept.release(head.get("released", ()))
    answer: dict[str, Any] = {"boot": BOOT}
    parts: list[bytes] = []
    if operation == "cell":
        done, parts = calls.cell(head, blobs, inputs, mesh)
    elif operation == "function":
        done, parts = calls.function(head, blobs, inputs, mesh)
    elif operation == "open":
        done, parts = calls.open_feed(head, blobs, mesh)
    elif operation == "facts":
        done = facts.about()
    elif operation == "missing":
        done = {"missing": facts.missing(head["names"])}
    elif operation == "cancel":
        done = {"running": stoppable.cancel(head["target"])}
    elif operation == "who":
        done = {"names": namespaces.who(session)}
    elif operation == "reset":
        namespaces.reset(session)
        done = {}
    elif operation == "ping":
        done = {}
    elif operation == "restart":
        stoppable.end_process()
        done = {}
    elif operation == "read":
        part, size = kept.read_file(head["name"], head["offset"], head["bytes"])
        done, parts = {"size": size}, [part]
    else:
        raise ValueError(f"This host does not know the request {operation!r}.")
    answer.update(done)
    return codec.encode(answer, parts)


def _read(request: jax.Array) -> tuple[dict[str, Any], list[bytes]]:
    return codec.decode(np.asarray(request.addressable_shards[0].data).tobytes())


def _rows(payload: bytes, head: dict[str, Any], row_bytes: int, mesh: Any) -> jax.Array:
    if len(payload) > row_bytes * min(head["counts"]):
        with _lock:
            _replies[head["call"]] = payload
            while len(_replies) > _KEPT:
                _replies.popitem(last=False)
    return _spread(payload, 0, head["counts"], row_bytes, mesh)


def _spread(payload: bytes, skip: int, counts: list[int], row_bytes: int, mesh: Any) -> jax.Array:
    """Lays `payload` over the rows of each host that this process is, `skip` rows of earlier parts left out."""
    local = set(mesh.local_devices)
    devices = list(mesh.devices.flat)
    rows: dict[int, np.ndarray] = {}
    first = 0
    for count in counts:
        if devices[first] in local:
            part = payload[skip * count : (skip + row_bytes) * count]
            padded = np.zeros((count, row_bytes), np.uint8)
            padded.reshape(-1)[: len(part)] = np.frombuffer(part, np.uint8)
            rows.update({first + place: padded[place : place + 1] for place in range(count)})
        first += count
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*mesh.axis_names))
    return jax.make_array_from_callback((mesh.size, row_bytes), sharding, lambda index: rows[index[0].start or 0])
