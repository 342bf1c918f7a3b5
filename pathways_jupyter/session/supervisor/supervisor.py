"""One session, from its first request to its end: who owns it, what clients ask of it, and when it is over.

A session ends with its kernel, however that dies. Two independent signals say so, and either is enough: the end of the
kernel's connection, which comes at once unless a child of the kernel holds a copy of the descriptor; and the end of the
process, where the system can wait for a process that is not a child (Linux: pidfd).
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.config import SETTINGS, ConnectConfig
from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionState, SuspendedArrays, Transfer
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.session import recording, registry
from pathways_jupyter.session.protocol import Method, Request
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor import control_socket
from pathways_jupyter.session.supervisor.control_socket import ControlConnection
from pathways_jupyter.session.supervisor.early_connections import EarlyConnections
from pathways_jupyter.session.supervisor.proxy_cycle import ProxyCycle
from pathways_jupyter.session.supervisor.session_log import SessionLog
from pathways_jupyter.session.supervisor.suspend_guard import SuspendGuard
from pathways_jupyter.session.verdicts import SessionCommand, verdict

_KERNEL_SECONDS = 1.0
"""Longest time that the kernel has for an answer: it comes at once, unless native code holds the interpreter's lock."""

logger = logging.getLogger(__name__)


class Supervisor:
    """One session.

    Args:
      record: The initial record.
      config: The settings of the connection.
      owner: The kernel's connection.
      early: Connections to the cluster from before.
    """

    def __init__(
        self, record: SessionRecord, config: ConnectConfig, owner: ControlConnection, early: EarlyConnections
    ) -> None:
        self._session_log = SessionLog(record, config)
        self._proxies = ProxyCycle(self._session_log, self._listen, early)
        self._suspend_guard = SuspendGuard(self._session_log, self._ask_owner)
        self._server: asyncio.Server | None = None
        self._ending = asyncio.Event()
        self._why_ended: str = "The session has ended."
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._owner: ControlConnection | None = owner
        self._lifeline = Lifeline(record.kernel_pid, self._owner_gone)
        self._lingering: asyncio.TimerHandle | None = None
        self._session_log.history.listen(owner.writer, owner=True)

    async def run(self) -> None:
        """Connect, keep the session alive, and return when it is cleaned up."""
        # The cycle has ended before cleaning up begins, because it may create objects.
        *work, _ = await tasks.first_done(self._proxies.run(), self._suspend_guard.run(), self._ending.wait())
        for each in work:
            if each is not None and not each.cancelled() and (problem := each.exception()) is not None:
                logger.error("the session failed", exc_info=problem)
                failure = f"The supervisor failed: {type(problem).__name__}: {problem}"
                self._proxies.refuse(SessionError(failure, hint=control_socket.BUG_HINT))
        why = f" {self._why_ended}" if self._ending.is_set() else ""
        # If it ends by itself, that is the reason, whatever is asked for while it cleans up.
        self._ending.set()
        self._proxies.refuse(SessionError(f"The session ended before it was connected.{why}", hint="Connect again."))
        await self._clean_up()

    async def handle(self, request: Request, connection: ControlConnection) -> Any:
        """Answer one request; see :class:`~pathways_jupyter.session.protocol.Method`.

        Connecting has begun with :meth:`run`, so ``START`` has only to wait for its outcome.
        """
        if request.method in {Method.ATTACH, Method.RECONNECT} and self._ending.is_set():
            # There is nothing to take over, and no attempt would ever answer.
            raise SessionError(f"Session {self._record.id} is ending.", hint="Connect again once it has ended.")
        if request.method is Method.STATUS:
            return self._proxies.present().to_json()
        if request.method is Method.EVENTS:
            self._session_log.history.listen(connection.writer)
            return None
        if request.method is Method.RECORD:
            events = recording.checked(request.params)
            for event in events:
                self._session_log.record_event(event)
            return len(events)
        if request.method is Method.ATTACH:
            return self._attach(connection)
        if request.method is Method.DISCONNECT:
            self.end("Disconnected.")
            # Shielded: a client that goes away must not cancel the future that other clients wait for.
            left = await asyncio.shield(self._ended)
            return {"left": left}
        if request.method is Method.ARRAYS:
            return await self._ask_owner(Method.ARRAYS)
        if request.method is Method.KEEP:
            self._suspend_guard.keep()
            return self._record.to_json()
        if request.method is Method.CUT:
            return self._proxies.cut()
        if request.method is Method.SUSPEND:
            return await self._have_suspended()
        if request.method is Method.SUSPENDED:
            count, nbytes, place = (request.params[name] for name in ("count", "bytes", "place"))
            return await self._proxies.suspend(SuspendedArrays(int(count), int(nbytes), str(place), time.time()))
        if request.method is Method.TRANSFER:
            self._session_log.transferred(_transfer(request.params))
            return self._record.to_json()
        if request.method is Method.RESUMED:
            self._session_log.resumed(str(request.params["outcome"]))
            return self._record.to_json()
        if request.method is Method.CANCEL:
            await self._proxies.cancel()
            return self._record.to_json()
        if request.method is Method.RECONNECT:
            self._proxies.reconnect(_changes(request.params))
        elif request.method is not Method.START:
            raise SessionError(f"A supervisor asks {request.method}, and does not answer it.", hint=recording.HINT)
        return await self._proxies.outcome()

    async def _have_suspended(self) -> Any:
        answer = verdict(self._record, SessionCommand.SUSPEND)
        if not answer.acts:
            raise answer.error()
        begun = await self._ask_owner(Method.SUSPEND, why="", after_cell=True)
        if begun is None:
            raise SessionError(
                f"The kernel of session {self._record.id} does not take the request to suspend.",
                hint=advice("{suspend} in a cell does it. Arrays and slices are as they were."),
            )
        return begun

    async def _ask_owner(self, method: Method, **params: Any) -> Any:
        owner = self._owner
        return None if owner is None else await owner.ask(method, patience=_KERNEL_SECONDS, **params)

    def end(self, why: str) -> None:
        """End the session; its last event says `why`, unless it ends by itself already, because it has failed."""
        if not self._ending.is_set() and self._record.state is not SessionState.FAILED:
            logger.info("ending: %s", why)
            self._why_ended = why
            self._ending.set()

    def left(self, connection: ControlConnection) -> None:
        """Handle the end of a connection; the end of the owner's ends the session or starts its linger time."""
        self._session_log.history.leave(connection.writer)
        if connection is self._owner:
            self._owner_gone()

    @property
    def _record(self) -> SessionRecord:
        return self._session_log.record

    async def _listen(self) -> None:
        try:
            self._server = await control_socket.listen(Path(self._record.socket), self.handle, self.left)
        except OSError as error:
            raise SessionError(
                f"The session's socket {self._record.socket} cannot be made: {error.strerror or error}.",
                hint="Free some space there, or set JUPYTER_RUNTIME_DIR to another directory, and connect again.",
            ) from error

    def _attach(self, connection: ControlConnection) -> dict[str, Any]:
        """Make `connection` the owner's, of a kernel that takes over a lingering session."""
        if self._owner is not None:
            raise SessionError(
                f"Session {self._record.id} belongs to a running kernel (process {self._record.kernel_pid}).",
                hint="Disconnect it there, or start a session of your own here.",
            )
        # Before it is the owner's: the timer must not end a session that has one again.
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        pid = peer_pid(connection.writer.get_extra_info("socket"))
        self._owner = connection
        self._lifeline = Lifeline(pid, self._owner_gone)
        self._session_log.update(kernel_pid=pid, kernel_ended=0.0)
        self._session_log.history.listen(connection.writer, owner=True)
        return self._record.to_json()

    def _owner_gone(self) -> None:
        """End the session or start its linger time; called when the owner's connection or process ends."""
        self._owner = None
        self._lifeline.close()
        # The second of the two signals, or one that comes after a request to end.
        if self._lingering is not None or self._ending.is_set():
            return
        linger = self._session_log.config.linger
        if not linger or not self._record.state.is_connected:
            self.end("Ended with its kernel.")
            return
        if math.isinf(linger):
            message = "The kernel has ended; its proxy lingers until it is disconnected."
        else:
            message = f"The kernel has ended; its proxy lingers for {linger:.0f} s."
        # Only its kernel could put them back; the save itself stays in the bucket.
        self._session_log.forget_saved()
        self._session_log.update(kernel_ended=time.time())
        # Nothing is suspended without a kernel, and the next one has the whole time.
        self._suspend_guard.keep()
        self._session_log.report(EventKind.WARNING, message)
        self._lingering = asyncio.get_running_loop().call_later(linger, self.end, "Ended: no kernel has taken it over.")

    async def _clean_up(self) -> None:
        """Remove everything of the session, in the cluster first; a step that fails does not stop the next one."""
        self._lifeline.close()
        job, has_proxy = self._record.pathways_job, bool(self._record.job)
        if job:
            message = f"Detaching from job {job}."
        elif has_proxy:
            message = "Removing the proxy."
        else:
            message = "Ending the session; it has no proxy."
        self._session_log.enter(SessionState.CLOSING, message)
        # The cluster first: while the record is there, a sweep finds what this process leaves if it is killed now.
        left = await self._proxies.end()
        if self._server is not None:
            self._server.close()
        # With something left the record stays, by which a later sweep finds it.
        if not left:
            try:
                registry.remove(self._record)
            except PathwaysError as error:
                left = f"{error} {error.hint}"
                logger.warning("%s", left)
        # The last event says that nothing is left, so a kernel that sees this process exit need not clean up.
        logger.info("closed")
        state = {} if left else {"state": SessionState.CLOSED}
        self._session_log.history.add(Event(EventKind.STATE, left or self._why_ended, time.time(), state))
        # Last: the answer to `disconnect` says that all of this is done.
        self._ended.set_result(left)


def _changes(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a reconnect changes.

    Raises:
      ConfigError: One has no valid value.
    """
    changes = {"wait": SETTINGS["wait"].check(params["wait"], "wait")} if "wait" in params else {}
    if params.get("instances"):
        changes["instances"] = SETTINGS["tpu"].check(params["instances"], "tpu")
    return changes


def _transfer(params: Mapping[str, Any]) -> Transfer | None:
    left = params.get("left")
    if params.get("total") is None:
        return None
    return Transfer(int(params["done"]), int(params["total"]), None if left is None else float(left))


class Lifeline:
    """Calls `died` once when the process `pid` is gone.

    Args:
      pid: The kernel's process; nothing is watched when it is 0, or where the system has no pidfd.
    """

    def __init__(self, pid: int, died: Callable[[], None]) -> None:
        self._died = died
        self._descriptor = -1
        if not pid or not hasattr(os, "pidfd_open"):
            return
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            # Not called from here: the owner of this object does not have it yet.
            asyncio.get_running_loop().call_soon(died)
        except OSError:
            # Some sandboxes forbid pidfd_open; the end of the connection still reports the death.
            return
        else:
            asyncio.get_running_loop().add_reader(self._descriptor, self._fire)

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _fire(self) -> None:
        self.close()
        self._died()


def peer_pid(connection: socket.socket) -> int:
    """Return the process at the other end of a unix socket; 0 where the system does not report it."""
    if sys.platform != "linux":
        return 0
    size = struct.calcsize("3i")
    pid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
    return pid
