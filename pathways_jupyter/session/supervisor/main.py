"""The process that owns everything of a session outside the kernel, from the proxy Job to the tunnel's socket.

A process and not a thread of the kernel: a kernel that is killed runs no cleanup, a computation that holds the GIL
would stop a tunnel in the same process for ever, and a busy kernel answers no button. It is started by
:mod:`~pathways_jupyter.session.kernel.spawn` with the owner's connection as its standard input, and ends by itself when
that connection does, or the kernel's process, or when it is asked to.

Nothing heavy is imported here: how fast a notebook connects depends on how fast this starts.
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
from pathways_jupyter.session.supervisor.proxy import Proxy
from pathways_jupyter.session.supervisor.session_log import SessionLog

logger = logging.getLogger(__name__)

_LOG_BYTES = 1 << 20
_UNUSED_SECONDS = 900.0
"""How long a supervisor that was started ahead of need waits for its use."""
_HURRIED_SECONDS = 1.0
"""How long the proxy of before may keep its successor waiting."""
_OUR_FAULT = "This is a fault of pathways_jupyter; %pathways logs supervisor tells more."


class Supervisor:
    """One session, from ``start`` to its end.

    Args:
      record: The session as it begins.
      owner: The kernel's connection.
    """

    def __init__(self, record: SessionRecord, config: ConnectConfig, owner: Connection) -> None:
        self._session_log = SessionLog(record, config)
        self._client: Client | None = None
        self._embedded: reach.Embedded | None = None
        self._proxy: Proxy | None = None
        self._server: asyncio.Server | None = None
        loop = asyncio.get_running_loop()
        self._attempt: asyncio.Future[Mapping[str, Any]] = loop.create_future()
        self._wanted = asyncio.Event()
        self._ending = asyncio.Event()
        self._over = False
        self._ended: asyncio.Future[str] = loop.create_future()
        self._owner: Connection | None = owner
        self._lifeline = Lifeline(record.kernel_pid, self._owner_gone)
        self._lingering: asyncio.TimerHandle | None = None
        self._session_log.history.listen(owner.writer, owner=True)

    async def run(self) -> None:
        """Connects, keeps the connection, and returns when everything of it is gone again."""
        life = asyncio.create_task(self._live())
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait({life, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        life.cancel()
        outcome, _ = await asyncio.gather(life, ending, return_exceptions=True)
        if isinstance(outcome, Exception):
            logger.error("the session failed", exc_info=outcome)
            self._refuse(SessionError(f"The supervisor failed: {type(outcome).__name__}: {outcome}", hint=_OUR_FAULT))
        self._over = True
        self._refuse(SessionError("The session was ended before it was connected.", hint="Connect again."))
        await self._clean_up()

    async def handle(self, request: Request, connection: Connection) -> Any:
        """Answers one request; see :class:`~pathways_jupyter.session.protocol.Method`."""
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
            left = await asyncio.shield(self._ended)
            return {"left": left}
        if request.method is Method.RECONNECT and self._over:
            raise SessionError(f"Session {self._record.id} is ending.", hint="Connect anew.")
        if request.method is Method.RECONNECT and self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_future()
            self._wanted.set()
        return await asyncio.shield(self._attempt)

    def end(self, reason: str) -> None:
        """Ends the session."""
        if not self._ending.is_set():
            logger.info("ending: %s", reason)
            self._ending.set()

    def left(self, connection: Connection) -> None:
        """Takes note that a connection is over; the owner's ends the session."""
        self._session_log.history.leave(connection.writer)
        if connection is self._owner:
            self._owner_gone()

    # One proxy after the other.

    async def _live(self) -> None:
        while not self._ending.is_set():
            try:
                proxy = await self._bring_up()
            except PathwaysError as error:
                if not self._failed(error):
                    return
            else:
                self._session_log.connected(generation=self._record.generation)
                if not self._attempt.done():
                    self._attempt.set_result(self._status())
                await self._keep(proxy)
            await self._discard()
            await self._wanted.wait()
            self._wanted.clear()

    async def _bring_up(self) -> Proxy:
        if self._record.generation:
            self._session_log.enter(SessionState.STARTING, "Connecting again.")
        self._session_log.update(generation=self._record.generation + 1)
        await self._prepare()
        assert self._client is not None
        if self._proxy is not None:
            # It could not be removed when it was given up, and its successor will have its name.
            try:
                await cleanup.remove(self._client, self._record.namespace, self._record.id, patience=0)
            except SessionError as error:
                # Why, and not what: nobody asked for the removal.
                raise error.__cause__ if isinstance(error.__cause__, PathwaysError) else error from None
        self._proxy = Proxy(self._client, self._session_log, self._embedded)
        await self._proxy.start()
        return self._proxy

    async def _prepare(self) -> None:
        """Gets hold of the cluster; every time, because its address or credentials may have changed."""
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
        # A record whose socket nobody listens at is a dead session's.
        try:
            self._server = await control_socket.listen(Path(self._record.socket), self.handle, self.left)
        except OSError as error:
            raise SessionError(
                f"The session's socket {self._record.socket} cannot be made: {error.strerror or error}.",
                hint="Make room there, or set JUPYTER_RUNTIME_DIR to another directory, and connect again.",
            ) from error
        self._session_log.publish(namespace=namespace, context=cluster.name, instances=dict(config.instances))

    def _failed(self, error: PathwaysError) -> bool:
        """Tells that the proxy did not come up; whether the session goes on all the same."""
        again = self._record.generation > 1
        state = SessionState.LOST if again else SessionState.FAILED
        self._session_log.enter(state, str(error), hint=error.hint)
        self._refuse(error)
        return again

    def _refuse(self, error: PathwaysError) -> None:
        """Answers whoever waits for a connection, if anybody does."""
        if not self._attempt.done():
            self._attempt.set_exception(error)
            self._attempt.exception()

    async def _keep(self, proxy: Proxy) -> None:
        """Returns when the proxy is lost, or another one is wanted."""
        # Tidying up after others comes when nobody waits any more.
        tidying = asyncio.create_task(_tidy(self._client, self._record.namespace))
        lost = asyncio.ensure_future(proxy.lost())
        wanted = asyncio.create_task(self._wanted.wait())
        try:
            await asyncio.wait({lost, wanted}, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                reason = lost.result()
                # With the state in it: a cell that begins between this and the next event must know.
                about = {"pod": self._record.pod, "state": SessionState.LOST}
                self._session_log.report(EventKind.PROXY_LOST, reason, **about)
                self._session_log.enter(SessionState.LOST, f"{reason} What was on its devices is gone.")
        finally:
            lost.cancel()
            wanted.cancel()
            tidying.cancel()

    async def _discard(self) -> None:
        """Removes the proxy that is of no use any more, if there is one.

        When another one is wanted and that takes long, because the cluster is away, whoever makes that one goes on.
        """
        if self._proxy is None:
            return
        removing = asyncio.create_task(self._proxy.remove())
        hurried = asyncio.create_task(self._hurried())
        try:
            await asyncio.wait({removing, hurried}, return_when=asyncio.FIRST_COMPLETED)
            if removing.done():
                removing.result()
                self._proxy = None
        except PathwaysError as error:
            self._session_log.report(EventKind.WARNING, f"{error} {error.hint}".strip())
        finally:
            for task in (removing, hurried):
                task.cancel()
            await asyncio.gather(removing, hurried, return_exceptions=True)

    async def _hurried(self) -> None:
        await self._wanted.wait()
        await asyncio.sleep(_HURRIED_SECONDS)

    @property
    def _record(self) -> SessionRecord:
        return self._session_log.record

    def _status(self) -> dict[str, Any]:
        return self._record.to_json()

    # The owner.

    def _attach(self, connection: Connection) -> dict[str, Any]:
        if self._owner is not None:
            raise SessionError(
                f"Session {self._record.id} belongs to a kernel that runs (process {self._record.kernel_pid}).",
                hint="Disconnect it there, or connect anew here.",
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
        self._owner = None
        self._lifeline.close()
        if self._lingering is not None or self._ending.is_set():
            return
        if not self._session_log.config.linger or not self._record.state.is_connected:
            self.end("the kernel is gone")
            return
        message = f"The kernel is gone; its proxy lingers for {self._session_log.config.linger:.0f} s."
        self._session_log.report(EventKind.WARNING, message, linger=self._session_log.config.linger)
        loop = asyncio.get_running_loop()
        self._lingering = loop.call_later(self._session_log.config.linger, self.end, "nobody took the session over")

    # The end.

    async def _clean_up(self) -> None:
        """Remove everything of the session, in the cluster first; what goes wrong at one step never stops the next."""
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
        # From here on nothing of the session is left, so a kernel that sees this process end need not clean up.
        logger.info("closed")
        state = {} if left else {"state": SessionState.CLOSED}
        self._session_log.history.add(Event(EventKind.STATE, left or "Disconnected.", time.time(), state))
        self._ended.set_result(left)

    async def _remove_proxy(self) -> str:
        """Remove what the session made in the cluster; what could not be removed and why, or an empty text."""
        if self._proxy is not None:
            try:
                await self._proxy.close()
            except Exception:
                # The near side of the proxy ends with this process anyway; the far side does not.
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
            logger.info("swept session %s, which had died here", session)
        for gone in await leases.sweep(client, namespace):
            logger.info("swept proxy %s: %s %s", gone.job, gone.reason, gone.error)
    except PathwaysError as error:
        logger.info("could not sweep: %s", error)


async def serve(session: str, connection: socket.socket) -> None:
    """Runs a session for the kernel at the other end of `connection`, which must ask for ``start`` first."""
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
        # Those who asked are answered before their connections go.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    else:
        # Nobody ever asked for anything; the log is all there is.
        registry.log_path(session).unlink(missing_ok=True)
    conversation.cancel()
    await owner.close()


def _begin(session: str, request: Request, owner: Connection) -> Supervisor:
    if request.method is not Method.START:
        raise SessionError(f"The session has not been started; {request.method} has to wait.")
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
    """Writes to standard error, a file of this session's own, and starts over when that has grown too long."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            if os.fstat(2).st_size > _LOG_BYTES:
                os.ftruncate(2, 0)
        super().emit(record)


def main(arguments: list[str]) -> int:
    """Runs the session named in `arguments`; standard input is the kernel's socket."""
    logging.basicConfig(level=logging.INFO, handlers=[_BoundedLog()])
    connection = socket.socket(fileno=0)
    # All bytes between JAX and its devices pass through this loop.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(arguments[0], connection))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
