"""The process that owns everything of a session outside the kernel, from the proxy Job to the tunnel's socket.

A process and not a thread of the kernel: a killed kernel runs no cleanup, a computation that holds the GIL would block
a tunnel in the same process, and a busy kernel answers no requests. It is started by
:mod:`~pathways_jupyter.session.kernel.spawn` with the owner's connection as its standard input. It exits when that
connection ends, when the kernel's process ends, or on request.

Little is imported here that is not needed to connect: a script waits for this process to start. A notebook does not,
because loading the extension starts one in advance.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from typing import Any

import uvloop

from pathways_jupyter.base import process_setup
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SuspendedArrays
from pathways_jupyter.kube import claim_package
from pathways_jupyter.kube.client import preload
from pathways_jupyter.service.names import current_user
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.protocol import Method, Request
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor import control_socket
from pathways_jupyter.session.supervisor.control_socket import ControlConnection
from pathways_jupyter.session.supervisor.early_connections import EarlyConnections
from pathways_jupyter.session.supervisor.supervisor import Supervisor

_LOG_BYTES = 1 << 20
_UNUSED_SECONDS = 900.0
"""Longest time that a supervisor which was started in advance waits for a request."""


async def serve(session: str, connection: socket.socket, *, stands_by: bool) -> None:
    """Run a session for the kernel at the other end of `connection`, which must ask for ``start`` first.

    Args:
      stands_by: Open connections for it until then, because it was started in advance.
    """
    reader, writer = await asyncio.open_connection(sock=connection, limit=protocol.MAX_START)
    owner = ControlConnection(reader, writer)
    started: asyncio.Future[Supervisor] = asyncio.get_running_loop().create_future()
    early = EarlyConnections()
    if stands_by:
        early.open()

    async def handle(request: Request, asking: ControlConnection) -> Any:
        # Until one is a start; _begin() refuses any other.
        if not started.done():
            started.set_result(_begin(session, request, owner, early))
        return await started.result().handle(request, asking)

    conversation = asyncio.create_task(control_socket.converse(owner, handle))
    either: set[asyncio.Future[Any]] = {conversation, started}
    await asyncio.wait(either, timeout=_UNUSED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if started.done():
        supervisor = started.result()
        # Only now: before its start there was no session that the kernel's end could end.
        conversation.add_done_callback(lambda _: supervisor.left(owner))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            why = f"Ended: its supervisor received {number.name}."
            loop.add_signal_handler(number, supervisor.end, why)
        await supervisor.run()
        # Two turns of the loop: the first wakes the handlers that wait for the end, the second writes their answers.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    else:
        # No request ever came, so there is no record; the log is the only file.
        registry.log_path(session).unlink(missing_ok=True)
    conversation.cancel()
    await owner.close()


def _begin(session: str, request: Request, owner: ControlConnection, early: EarlyConnections) -> Supervisor:
    if request.method is not Method.START:
        raise SessionError(f"{request.method} was sent before start; the session does not exist yet.")
    params = request.params
    if "environment" in params:
        # For credential plugins, proxies, and relative paths of kubeconfigs.
        os.environ.clear()
        os.environ.update(params["environment"])
        with contextlib.suppress(OSError):
            os.chdir(params["directory"])
    config = protocol.config_from_json(params["config"])
    socket_path, tunnel_path = registry.socket_paths(session)
    # One time for both fields: the session is in its first state since it was created.
    now = time.time()
    record = SessionRecord(
        id=session,
        pid=os.getpid(),
        kernel_pid=int(params.get("kernel_pid") or 0),
        kernel_id=str(params.get("kernel_id") or ""),
        notebook=str(params.get("notebook") or ""),
        program=str(params.get("program") or ""),
        tcp_port=int(params.get("tcp_port") or 0),
        user=current_user(),
        created=now,
        state_since=now,
        socket=str(socket_path),
        tunnel=str(tunnel_path),
        log=str(registry.log_path(session)),
        config=protocol.config_to_json(config),
        suspend_after=config.suspend_after,
        # Of a session that is resumed after its supervisor has died.
        saved=SuspendedArrays(**params["saved"]) if "saved" in params else None,
        kubeconfigs=os.environ.get("KUBECONFIG", ""),
        host=registry.this_host(),
    )
    return Supervisor(record, config, owner, early)


class _BoundedLog(logging.StreamHandler[Any]):
    """Writes to standard error, which is this session's log file, and truncates it when it grows too long."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            if os.fstat(2).st_size > _LOG_BYTES:
                os.ftruncate(2, 0)
        super().emit(record)


def main(arguments: list[str]) -> int:
    """Run the session that `arguments` name; standard input is the kernel's socket."""
    logging.basicConfig(level=logging.INFO, handlers=[_BoundedLog()])
    # Messages of 256 KB come and go here. By chance of what lies behind them, glibc returned up to 150 pages for each
    # megabyte, and fetched them again filled with zeros: a tenth of the work for a megabyte down.
    process_setup.keep_freed_memory()
    # Here and not with the first request, so that it is done while a supervisor stands by.
    claim_package()
    with process_setup.without_certificates():
        preload()
    # What was imported stays until the end. Without this the interpreter would search all of it for cycles once more
    # when it exits, which is a fifth of the processor time that a short session's supervisor uses.
    gc.freeze()
    connection = socket.socket(fileno=0)
    # uvloop, because all bytes between JAX and its devices pass through this loop.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(arguments[0], connection, stands_by=protocol.STANDS_BY in arguments))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
