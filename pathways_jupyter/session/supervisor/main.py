"""The process that owns everything of a session outside the kernel, from the proxy Job to the tunnel's socket.

A process and not a thread of the kernel: a killed kernel runs no cleanup, a computation that holds the GIL would block
a tunnel in the same process, and a busy kernel answers no requests. It is started by
:mod:`~pathways_jupyter.session.kernel.spawn` with the owner's connection as its standard input. It exits when that
connection ends, when the kernel's process ends, or on request.

Nothing heavy is imported here: the start-up time of this process is part of every connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop

from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import PathwaysError, SessionError
from pathways_jupyter.events import Event, EventKind, SessionState
from pathways_jupyter.kube.client import Client
from pathways_jupyter.service import leases
from pathways_jupyter.service.naming import current_user
from pathways_jupyter.session import cleanup, protocol, reach, registry, sweep
from pathways_jupyter.session.protocol import Method, Request
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor import control_socket
from pathways_jupyter.session.supervisor.control_socket import Connection
from pathways_jupyter.session.supervisor.lifeline import Lifeline, peer_pid
from pathways_jupyter.session.supervisor.proxy_session import Proxy
from pathways_jupyter.session.supervisor.session_log import SessionLog

logger = logging.getLogger(__name__)

_LOG_BYTES = 1 << 20
_UNUSED_SECONDS = 900.0
"""How long a supervisor that was started in advance waits for a request."""
_OLD_PROXY_GRACE_SECONDS = 1.0
"""Longest wait for the previous proxy's removal once another proxy is requested."""
_BUG_HINT = "This is a bug in pathways_jupyter; see the supervisor's log: %pathways logs supervisor."


class Supervisor:
    """One session, from ``start`` to its end.

    Args:
      record: The initial record.
      owner: The kernel's connection.
    """

    def __init__(self, record: SessionRecord, config: ConnectConfig, owner: Connection) -> None:
        self._session_log = SessionLog(record, config)
        self._client: Client | None = None
        self._embedded: reach.Embedded | None = None
        self._proxy: Proxy | None = None
        self._server: asyncio.Server | None = None
        loop = asyncio.get_running_loop()
        # The outcome of the current attempt to connect; start and reconnect requests wait for it.
        self._attempt: asyncio.Future[Mapping[str, Any]] = loop.create_future()
        # Set by a reconnect request; cleared when the next attempt begins.
        self._wanted = asyncio.Event()
        self._ending = asyncio.Event()
        self._over = False
        self._ended: asyncio.Future[str] = loop.create_future()
        self._owner: Connection | None = owner
        self._lifeline = Lifeline(record.kernel_pid, self._owner_gone)
        self._lingering: asyncio.TimerHandle | None = None
        self._session_log.history.listen(owner.writer, owner=True)

    async def run(self) -> None:
        """Connect, keep the session alive, and return when it is cleaned up."""
        life = asyncio.create_task(self._live())
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait({life, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        life.cancel()
        # Wait for the cancelled task: cleaning up must not run beside a task that may still create objects.
        outcome, _ = await asyncio.gather(life, ending, return_exceptions=True)
        if isinstance(outcome, Exception):
            logger.error("the session failed", exc_info=outcome)
            self._refuse(SessionError(f"The supervisor failed: {type(outcome).__name__}: {outcome}", hint=_BUG_HINT))
        # From here on handle() refuses to reconnect: no attempt would ever answer the request.
        self._over = True
        self._refuse(SessionError("The session ended before it was connected.", hint="Connect again."))
        await self._clean_up()

    async def handle(self, request: Request, connection: Connection) -> Any:
        """Answer one request; see :class:`~pathways_jupyter.session.protocol.Method`."""
        if request.method is Method.PING:
            return self._record.pid
        if request.method is Method.STATUS:
            return self._status()
        if request.method is Method.EVENTS:
            self._session_log.history.listen(connection.writer)
            return None
        if request.method is Method.ATTACH:
            return self._attach(connection)
        if request.method is Method.DISCONNECT:
            self.end("asked to disconnect")
            # Shielded: a client that goes away must not cancel the future that other clients wait for.
            left = await asyncio.shield(self._ended)
            return {"left": left}
        if request.method is Method.RECONNECT and self._over:
            raise SessionError(f"Session {self._record.id} is ending.", hint="Connect again once it has ended.")
        # While an attempt is under way, a second request shares its outcome.
        if request.method is Method.RECONNECT and self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()
            self._wanted.set()
        return await asyncio.shield(self._attempt)

    def end(self, reason: str) -> None:
        """End the session."""
        if not self._ending.is_set():
            logger.info("ending: %s", reason)
            self._ending.set()

    def left(self, connection: Connection) -> None:
        """Handle the end of a connection; the end of the owner's ends the session or starts its linger time."""
        self._session_log.history.leave(connection.writer)
        if connection is self._owner:
            self._owner_gone()

    # One proxy after the other.

    async def _live(self) -> None:
        """Bring up one proxy after the other, a new one for each reconnect; return when the first one failed.

        Never ends by itself otherwise: :meth:`run` cancels it.
        """
        while not self._ending.is_set():
            try:
                proxy = await self._bring_up()
            except PathwaysError as error:
                if not self._failed(error):
                    return
            else:
                # The state before the answer: a client that has its answer must not see an older state.
                self._session_log.connected(generation=self._record.generation)
                if not self._attempt.done():
                    self._attempt.set_result(self._status())
                await self._keep(proxy)
            # Remove the old proxy before the next one is made: both have the same name in the cluster.
            await self._discard()
            # Cleared here only, so that a reconnect during _keep() or _discard() is remembered. No request is lost
            # between the two lines, because there is no await between them.
            await self._wanted.wait()
            self._wanted.clear()

    async def _bring_up(self) -> Proxy:
        if self._record.generation:
            self._session_log.enter(SessionState.STARTING, "Connecting again.")
        self._session_log.update(generation=self._record.generation + 1)
        await self._prepare()
        assert self._client is not None
        if self._proxy is not None:
            # _discard() could not remove the old proxy. The new one would collide with it, because its Job has the
            # same name.
            try:
                await cleanup.remove(self._client, self._record.namespace, self._record.id, patience=0)
            except SessionError as error:
                # Report the cause only: the user asked to reconnect, not to remove anything.
                raise error.__cause__ if isinstance(error.__cause__, PathwaysError) else error from None
        self._proxy = Proxy(self._client, self._session_log, self._embedded)
        await self._proxy.start()
        return self._proxy

    async def _prepare(self) -> None:
        """Resolve the cluster and open a client; before every proxy, since address or credentials may have changed."""
        config = self._session_log.config
        self._embedded = reach.Embedded.of(config)
        if self._client is not None:
            cluster = await reach.again(self._record)
            self._client.close()
            self._client = Client(cluster)
            return
        cluster = await reach.cluster(config)
        self._client = Client(cluster)
        namespace = config.namespace or cluster.namespace
        # Listen before the record is published: a record whose socket refuses connections counts as a dead session,
        # and would be swept.
        try:
            self._server = await control_socket.listen(Path(self._record.socket), self.handle, self.left)
        except OSError as error:
            raise SessionError(
                f"The session's socket {self._record.socket} cannot be made: {error.strerror or error}.",
                hint="Free some space there, or set JUPYTER_RUNTIME_DIR to another directory, and connect again.",
            ) from error
        self._session_log.publish(namespace=namespace, context=cluster.name, instances=dict(config.instances))

    def _failed(self, error: PathwaysError) -> bool:
        """Report that the proxy did not come up; return whether the session continues without one."""
        again = self._record.generation > 1
        state = SessionState.LOST if again else SessionState.FAILED
        self._session_log.enter(state, str(error), hint=error.hint)
        self._refuse(error)
        return again

    def _refuse(self, error: PathwaysError) -> None:
        """Fail the pending start or reconnect request, if there is one."""
        if not self._attempt.done():
            self._attempt.set_exception(error)
            # Mark it as retrieved: there may be no waiter, and asyncio would log that on garbage collection.
            self._attempt.exception()

    async def _keep(self, proxy: Proxy) -> None:
        """Wait until the proxy is lost or a reconnect is requested."""
        # Sweeping other sessions starts only now, so that it does not delay connecting.
        tidying = asyncio.create_task(_tidy(self._client, self._record.namespace))
        lost = asyncio.ensure_future(proxy.lost())
        wanted = asyncio.create_task(self._wanted.wait())
        try:
            await asyncio.wait({lost, wanted}, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                reason = lost.result()
                # This event carries the state as well: a cell that starts between this event and the next one must
                # already see that the proxy is lost.
                about = {"pod": self._record.pod, "state": SessionState.LOST}
                self._session_log.report(EventKind.PROXY_LOST, reason, **about)
                self._session_log.enter(SessionState.LOST, f"{reason} Its arrays are lost.")
        finally:
            # All three, also when run() cancels this task: otherwise they would outlive the proxy.
            lost.cancel()
            wanted.cancel()
            tidying.cancel()

    async def _discard(self) -> None:
        """Remove the lost or replaced proxy, if there is one.

        Stops waiting for the removal shortly after a reconnect was requested, because the API server may be unreachable
        for minutes; :meth:`_bring_up` then tries again, and reports the failure to the user who is waiting.
        """
        if self._proxy is None:
            return
        removing = asyncio.create_task(self._proxy.remove())
        grace_over = asyncio.create_task(self._grace_over())
        try:
            await asyncio.wait({removing, grace_over}, return_when=asyncio.FIRST_COMPLETED)
            if removing.done():
                removing.result()
                # Only after a successful removal: a proxy that is still set makes _bring_up() try again.
                self._proxy = None
        except PathwaysError as error:
            self._session_log.report(EventKind.WARNING, f"{error} {error.hint}".strip())
        finally:
            for task in (removing, grace_over):
                task.cancel()
            # Wait for the cancelled removal, so that it deletes nothing of the next proxy, which has the same labels.
            await asyncio.gather(removing, grace_over, return_exceptions=True)

    async def _grace_over(self) -> None:
        """Return when another proxy has been requested for a second."""
        await self._wanted.wait()
        await asyncio.sleep(_OLD_PROXY_GRACE_SECONDS)

    @property
    def _record(self) -> SessionRecord:
        return self._session_log.record

    def _status(self) -> dict[str, Any]:
        return self._record.to_json()

    # The owner.

    def _attach(self, connection: Connection) -> dict[str, Any]:
        if self._owner is not None:
            raise SessionError(
                f"Session {self._record.id} belongs to a running kernel (process {self._record.kernel_pid}).",
                hint="Disconnect it there, or start a session of your own here.",
            )
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        pid = peer_pid(connection.writer.get_extra_info("socket"))
        self._owner = connection
        connection.owner = True
        self._lifeline = Lifeline(pid, self._owner_gone)
        self._session_log.update(kernel_pid=pid)
        self._session_log.history.listen(connection.writer, owner=True)
        return self._status()

    def _owner_gone(self) -> None:
        """End the session or start its linger time; called when the owner's connection or process ends."""
        self._owner = None
        self._lifeline.close()
        if self._lingering is not None or self._ending.is_set():
            return
        if not self._session_log.config.linger or not self._record.state.is_connected:
            self.end("the kernel has ended")
            return
        message = f"The kernel has ended; its proxy lingers for {self._session_log.config.linger:.0f} s."
        self._session_log.report(EventKind.WARNING, message, linger=self._session_log.config.linger)
        loop = asyncio.get_running_loop()
        self._lingering = loop.call_later(self._session_log.config.linger, self.end, "the linger time is over")

    # The end.

    async def _clean_up(self) -> None:
        """Remove everything of the session, in the cluster first; a step that fails does not stop the next one."""
        self._lifeline.close()
        self._session_log.enter(SessionState.CLOSING, "Removing the proxy.")
        left = await self._remove_proxy()
        if self._client is not None:
            self._client.close()
        if self._server is not None:
            self._server.close()
        if not left:
            try:
                registry.remove(self._record)
            except PathwaysError as error:
                left = f"{error} {error.hint}"
                logger.warning("%s", left)
        # The last event says that nothing is left, so a kernel that sees this process exit need not clean up.
        logger.info("closed")
        state = {} if left else {"state": SessionState.CLOSED}
        self._session_log.history.add(Event(EventKind.STATE, left or "Disconnected.", time.time(), state))
        self._ended.set_result(left)

    async def _remove_proxy(self) -> str:
        """Remove the session's objects from the cluster; return what is left and why, or an empty string."""
        if self._proxy is not None:
            try:
                await self._proxy.close()
            except Exception:
                # The local end is closed with this process anyway; the objects in the cluster must still be removed.
                logger.exception("the tunnel and its watches could not be closed")
        if self._client is None or not self._record.job:
            return ""
        try:
            await cleanup.remove(
                self._client,
                self._record.namespace,
                self._record.id,
                waiting=self._session_log.cleanup_waits,
                embedded=self._embedded,
            )
        except PathwaysError as error:
            left = f"{error} {error.hint}".strip()
            self._session_log.report(EventKind.WARNING, left)
            return left
        return ""


async def _tidy(client: Client | None, namespace: str) -> None:
    assert client is not None
    try:
        for session in await sweep.sweep_dead():
            logger.info("swept session %s, whose supervisor had died", session)
        for gone in await leases.sweep(client, namespace):
            logger.info("swept proxy %s: %s %s", gone.job, gone.reason, gone.error)
    except PathwaysError as error:
        logger.info("could not sweep: %s", error)


async def serve(session: str, connection: socket.socket) -> None:
    """Run a session for the kernel at the other end of `connection`, which must ask for ``start`` first."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=protocol.MAX_LINE)
    owner = Connection(reader, writer, owner=True)
    started: asyncio.Future[Supervisor] = asyncio.get_running_loop().create_future()

    async def handle(request: Request, asking: Connection) -> Any:
        if not started.done():
            started.set_result(_begin(session, request, owner))
        return await started.result().handle(request, asking)

    conversation = asyncio.create_task(control_socket.converse(owner, handle))
    either: set[asyncio.Future[Any]] = {conversation, started}
    await asyncio.wait(either, timeout=_UNUSED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if started.done():
        supervisor = started.result()
        conversation.add_done_callback(lambda _: supervisor.left(owner))
        _on_signals(supervisor)
        await supervisor.run()
        # Two turns of the loop: the first wakes the handlers that wait for the end, the second writes their answers.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    else:
        # No request ever came, so there is no record; the log is the only file.
        registry.log_path(session).unlink(missing_ok=True)
    conversation.cancel()
    await owner.close()


def _begin(session: str, request: Request, owner: Connection) -> Supervisor:
    if request.method is not Method.START:
        raise SessionError(f"{request.method} was sent before start; the session does not exist yet.")
    params = request.params
    config = protocol.config_from_json(params["config"])
    socket_path, tunnel_path = registry.socket_paths(session)
    now = time.time()
    record = SessionRecord(
        id=session,
        pid=os.getpid(),
        kernel_pid=int(params.get("kernel_pid") or 0),
        kernel_id=str(params.get("kernel_id") or ""),
        notebook=str(params.get("notebook") or ""),
        user=current_user(),
        created=now,
        state_since=now,
        socket=str(socket_path),
        tunnel=str(tunnel_path),
        log=str(registry.log_path(session)),
        config=protocol.config_to_json(config),
        kubeconfigs=os.environ.get("KUBECONFIG", ""),
        host=registry.this_host(),
    )
    return Supervisor(record, config, owner)


def _on_signals(supervisor: Supervisor) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.end, f"received {number.name}")


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
    """Run the session named in `arguments`; standard input is the kernel's socket."""
    logging.basicConfig(level=logging.INFO, handlers=[_BoundedLog()])
    connection = socket.socket(fileno=0)
    # uvloop, because all bytes between JAX and its devices pass through this loop.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(arguments[0], connection))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
