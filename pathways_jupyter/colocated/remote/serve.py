"""Serve requests on a host: one request array in, one reply array out.

A request is bytes, the same on every device. The reply is bytes too: each host's devices carry a row each of what that
host answers. What does not fit is kept here until the notebook fetches it. A failure of user code is an answer like any
other, so that every host's own failure is reported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import platform
import socket
import sys
import threading
import uuid
from collections import OrderedDict
from typing import Any

import jax
import numpy as np

from . import calls, codec, namespaces, outputs, prefetching, shardings, stoppable

BOOT = uuid.uuid4().hex
"""Changes when the sidecar's process does; names that cells defined are gone then."""
_MAX_REPLIES = 8
_DISTRIBUTIONS = ("jax", "jaxlib", "numpy", "cloudpickle")
_CALLS = {"cell": calls.cell, "function": calls.function, "open": calls.open_iterator}
_lock = threading.Lock()
_replies: OrderedDict[str, bytes] = OrderedDict()


def serve(row_bytes: int, request: jax.Array, *inputs: jax.Array) -> jax.Array:
    """Answer one request; called by JAX on every host of the call."""
    head, blobs = _read(request)
    mesh = request.sharding.mesh
    try:
        arrays = []
        for index, array in enumerate(inputs):
            if wrapped := head["wrapped"].get(str(index)):
                array = outputs.unwrap(array, wrapped)
            elif index in head["free"]:
                array = outputs.free(array)
            if index in head["weak"]:
                array = shardings.typed(array, weak_type=True, committed=array.committed)
            arrays.append(array)
        payload = _answer(head, blobs, tuple(arrays), mesh)
    except Exception as error:
        payload = codec.encode({"boot": BOOT, "broken": f"{type(error).__name__}: {error}"})
    return _rows(payload, head, row_bytes, mesh)


def fetch(row_bytes: int, request: jax.Array) -> jax.Array:
    """Return a later part of an answer that did not fit; `skip` bytes a row went before."""
    head, _ = _read(request)
    with _lock:
        payload = _replies.get(head["call"], b"")
        if (head["skip"] + row_bytes) * min(head["counts"]) >= len(payload):
            # The rest of it: nothing is fetched twice, and an answer may be large.
            _replies.pop(head["call"], None)
    return _spread(payload, head["skip"], head["counts"], row_bytes, request.sharding.mesh)


def take(targets: list[Any], request: jax.Array) -> list[jax.Array]:
    """Return the arrays that a call kept."""
    head, _ = _read(request)
    return outputs.take(head["call"], head["names"], targets)


def next_batch(row_bytes: int, targets: list[Any], request: jax.Array) -> list[jax.Array]:
    """Return the next batch of an iterator: a row that says what happened, and the batch's arrays."""
    head, _ = _read(request)
    state, batch = prefetching.next_batch(calls.held(head["object"]), targets)
    return [_rows(codec.encode({"boot": BOOT, **state}), head, row_bytes, request.sharding.mesh), *batch]


def _answer(head: dict[str, Any], blobs: list[bytes], inputs: tuple[jax.Array, ...], mesh: Any) -> bytes:
    for key in head.get("released", ()):
        dropped = calls.objects.pop(key, None)
        if isinstance(dropped, prefetching.Prefetcher):
            dropped.close()
        # The object goes now, and not when the call that follows has ended.
        del dropped
    operation = head["op"]
    answer: dict[str, Any] = {}
    parts: list[bytes] = []
    if operation in _CALLS:
        answer, parts = _CALLS[operation](head, blobs, inputs, mesh)
    elif operation == "facts":
        answer = _facts()
    elif operation == "missing":
        importlib.invalidate_caches()
        absent = (name for name in head["names"] if name not in sys.modules)
        answer["missing"] = [name for name in absent if importlib.util.find_spec(name) is None]
    elif operation == "cancel":
        stoppable.cancel(head["target"])
    elif operation == "who":
        answer["names"] = namespaces.who(head["session"])
    elif operation == "reset":
        namespaces.reset(head["session"])
    elif operation == "restart":
        stoppable.end_process()
    elif operation != "ping":
        raise ValueError(f"This host does not know the request {operation!r}.")
    return codec.encode({**answer, "boot": BOOT}, parts)


def _facts() -> dict[str, Any]:
    """Describe this host: versions, process, place, and which packages it has."""
    versions = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = ""
    installed = {module.name for module in pkgutil.iter_modules() if not module.name.startswith("_")}
    return {
        "executable": sys.executable,
        "embedded": "PATHWAYS_LOCAL_SOCKETS" in os.environ,
        "versions": {"python": platform.python_version(), **versions},
        "pid": os.getpid(),
        "hostname": os.environ.get("HOSTNAME") or socket.gethostname(),
        "pod_ip": os.environ.get("POD_IP", ""),
        "directory": os.getcwd(),
        "packages": sorted({*sys.builtin_module_names, *sys.stdlib_module_names, *installed}),
    }


def _read(request: jax.Array) -> tuple[dict[str, Any], list[bytes]]:
    return codec.decode(np.asarray(request.addressable_shards[0].data).tobytes())


def _rows(payload: bytes, head: dict[str, Any], row_bytes: int, mesh: Any) -> jax.Array:
    if len(payload) > row_bytes * min(head["counts"]):
        with _lock:
            _replies[head["call"]] = payload
            while len(_replies) > _MAX_REPLIES:
                _replies.popitem(last=False)
    return _spread(payload, 0, head["counts"], row_bytes, mesh)


def _spread(payload: bytes, skip: int, counts: list[int], row_bytes: int, mesh: Any) -> jax.Array:
    """Lay `payload` over the rows of each host that this process is, without `skip` bytes a row of earlier parts."""
    local = set(mesh.local_devices)
    rows: dict[int, np.ndarray] = {}
    first = 0
    for count in counts:
        if mesh.devices.flat[first] in local:
            part = payload[skip * count : (skip + row_bytes) * count]
            padded = np.zeros((count, row_bytes), np.uint8)
            padded.reshape(-1)[: len(part)] = np.frombuffer(part, np.uint8)
            rows.update({first + row: padded[row : row + 1] for row in range(count)})
        first += count
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*mesh.axis_names))
    return jax.make_array_from_callback((mesh.size, row_bytes), sharding, lambda index: rows[index[0].start or 0])
