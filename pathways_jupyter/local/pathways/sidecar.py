"""The sidecar: runs colocated Python on one host, beside the host's worker.

Each proxy that connects gets a process of its own, forked from this one: a proxy has its own numbers for devices and
hosts, and a crash in its user's code must not affect others. The process ends with the connection; when it crashes,
the proxy connects again and gets a fresh one.

It has a JAX in which only this host's devices are addressable. A function's arguments are global arrays of which this
host has its own shards, as in any JAX with several processes; its results' shards go back to the proxy, which has all
hosts'.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pwd
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pathways_jupyter.local.pathways import links, program_start, sidecar_protocol
from pathways_jupyter.local.pathways.sidecar_protocol import Header, SidecarConnection, WireError
from pathways_jupyter.service import names

_log = logging.getLogger(__name__)

_ADDRESS_VARIABLE = "GRPC_SERVER_ADDRESS"
_BACKLOG = 16


def main(argv: Sequence[str]) -> int:
    """Run the program until it is stopped."""
    del argv
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s", stream=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        # What user code prints belongs into the log as it is printed, whatever the log is.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.setdefault("MPLBACKEND", "Agg")
    # A pod's home is new, and matplotlib would list the machine's fonts once more, which takes it many seconds.
    fonts = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "matplotlib"
    if fonts.is_dir():
        os.environ.setdefault("MPLCONFIGDIR", str(fonts))
    _, _, port = os.environ.get(_ADDRESS_VARIABLE, f":{names.SIDECAR_PORT}").rpartition(":")
    _serve(links.own_socket(int(port)))
    return 0


def _serve(path: Path) -> None:
    # Imported before any fork, so that a new process has it at once. Nothing here may start a thread.
    import jax.experimental.colocated_python  # noqa: F401

    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        _log.info("Colocated Python sidecar serving on %s", path.name)
        signal.signal(signal.SIGCHLD, _reap)
        # Open for writing in this process alone: the others see the end of it when this one ends.
        life, held = os.pipe()
        while True:
            peer, _ = listener.accept()
            sys.stdout.flush()
            sys.stderr.flush()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(held)
                listener.close()
                threading.Thread(target=_end_with, args=(life,), name="life", daemon=True).start()
                _run(peer)
            peer.close()


def _run(peer: socket.socket) -> None:
    """Serve one proxy, in a process of its own, and end that process."""
    code = 1
    try:
        connection = SidecarConnection(peer)
        hello, _ = connection.receive()
        _LoadedFunctions(connection, hello).serve()
    except WireError as error:
        _log.info("A connection ended: %s", error)
        code = 0
    except BaseException:
        _log.exception("Serving a proxy failed")
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit: user code's threads may still run, and nothing waits for them any more.
        os._exit(code)


def _reap(*_: object) -> None:
    """Reap processes that have ended, and log those that failed."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            pid, status = ended
            if code := os.waitstatus_to_exitcode(status):
                by = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
                _log.warning("Process of a proxy %d was ended %s", pid, by)


def _end_with(life: int) -> None:
    """End this process when the one that forked it ends."""
    os.read(life, 1)
    os._exit(0)


class _LoadedFunctions:
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
            result = self._result(declared, value)
            devices.append(list(result))
            for shard in map(np.asarray, result.values()):
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
        aliases = {device: self._aliases.get(device, device) for device in declared["devices"]}
        if set(shards) != set(aliases.values()):
            raise TypeError(
                f"the function returned an array on devices {sorted(shards)} of this host, declared were"
                f" {sorted(aliases.values())}"
            )
        return {device: shards[alias] for device, alias in aliases.items()}


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
