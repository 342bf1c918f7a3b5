"""The sessions of kernels beside the chips, as sessions of this machine.

A session's supervisor runs in the pod, and so do its record, its socket and its log. The pod's host sends the record
and the log as they change. Here they become files like those of any other session, with a socket beside them whose
connections lead to the supervisor. So whatever finds sessions on this machine finds these: the sidebar, ``sessions``,
``clean``, other machines of the same home directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConnectionLost, PathwaysError
from pathways_jupyter.base.tasks import Running
from pathways_jupyter.kernel.kernel_settings import cluster_settings
from pathways_jupyter.service.lab.lab_stream import LabStream
from pathways_jupyter.session import registry
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.multiplexer import StreamChannel
from pathways_jupyter.tunnel.portforward import Forward

_ANSWER_SECONDS = 5.0
_ID = re.compile("[0-9a-f]{10}")

logger = logging.getLogger(__name__)


class MirroredSessions:
    """All sessions of the kernels of one lab.

    Args:
      where: The cluster, as this machine names it.
      changed: Called when there are fewer sessions.
      is_cut: Returns whether the line to the pod is cut. What a client asks then is refused: it would be done when no
        one expects it any more.
    """

    def __init__(self, where: ConnectConfig, changed: Callable[[], None], is_cut: Callable[[], bool]) -> None:
        self._stream: LabStream | None = None
        self._context = ""
        self._where, self._changed, self._is_cut = where, changed, is_cut
        self._records: dict[str, SessionRecord] = {}
        self._forwards: dict[str, Forward] = {}
        self._logs: dict[str, int] = {}
        self._writing = asyncio.Lock()
        self._tasks = Running()

    @property
    def sessions(self) -> int:
        """The number of sessions."""
        return len(self._records)

    def follow(self, stream: LabStream) -> None:
        """Take the sessions that `stream` reports."""
        self._stream = stream
        self._context = "" if self._where.cluster else stream.cluster

    def take(self, message: Mapping[str, Any], processes: Mapping[str, int]) -> None:
        """Handle a message of the pod's host; one that is not about sessions is ignored.

        Args:
          processes: Those that stand for the kernels here, by Jupyter's ids.
        """
        self._tasks.begin(self._handle(message, processes))

    def forget(self, stream: LabStream | None) -> None:
        """Forget all sessions of a stream that is lost; what is left in the cluster is its pod's to remove."""
        if stream is self._stream:
            self._stream = None
            for session in list(self._records):
                self._forget(session)

    async def close(self) -> None:
        """Forget all sessions, and wait until nothing of them is left here."""
        self.forget(self._stream)
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _handle(self, message: Mapping[str, Any], processes: Mapping[str, int]) -> None:
        # One after the other: a record must not be overtaken by its end.
        async with self._writing:
            try:
                if "session" in message:
                    await self._write(SessionRecord.from_json(message["session"]), processes)
                elif "gone" in message:
                    self._forget(message["gone"])
                elif "log" in message and message["log"] in self._logs:
                    os.write(self._logs[message["log"]], message["text"].encode())
            except (PathwaysError, OSError, KeyError, TypeError, ValueError) as error:
                logger.warning("a session of the kernel cannot be shown here: %s", error)

    async def _write(self, there: SessionRecord, processes: Mapping[str, int]) -> None:
        if self._stream is None:
            return
        pod, known = self._stream.pod, self._records.get(there.id)
        if known is None:
            # It becomes the name of files, and any program in the pod may have chosen it.
            present = registry.read(there.id) if _ID.fullmatch(there.id) else there
            if present is not None and (present is there or registry.is_alive(present)):
                raise ValueError(f"{there.id!r} is not the id of a new session")
            socket_path, tunnel_path = registry.socket_paths(there.id)
            # Locked, so that it counts as used until this process ends.
            log = registry.log_path(there.id)
            self._logs[there.id] = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):
                fcntl.flock(self._logs[there.id], fcntl.LOCK_SH)
            known = dataclasses.replace(there, socket=str(socket_path), tunnel=str(tunnel_path), log=str(log))
            try:
                self._forwards[there.id] = await self._listen(there.id, socket_path)
            except BaseException:
                os.close(self._logs.pop(there.id))
                raise
        here = dataclasses.replace(
            known,
            pid=os.getpid(),
            kernel_pid=processes.get(there.kernel_id, known.kernel_pid),
            host=registry.this_host(),
            place=f"beside the chips, in pod {pod}",
            config={**there.config, **cluster_settings(self._where), "namespace": there.config.get("namespace", "")},
            kubeconfigs=os.environ.get("KUBECONFIG", ""),
            context=self._context,
        )
        record = here.as_here(there)
        self._records[there.id] = record
        registry.write(record)

    async def _listen(self, session: str, path: Path) -> Forward:
        async def open_channel() -> StreamChannel:
            if self._stream is None or self._is_cut():
                raise ConnectionLost("The connection to the kernel's pod is lost.")
            return self._stream.channels.open({"session": session})

        return await portforward.listen(None, path=path, open_stream=open_channel)

    def _forget(self, session: str) -> None:
        record = self._records.pop(session, None)
        if record is None and (left := registry.read(session)) is not None and not registry.is_alive(left):
            # Of a process like this one that was killed.
            registry.remove(left)
        elif record is not None:
            # Who has asked it to end still gets the answer.
            self._tasks.begin(self._forwards.pop(session).finish(_ANSWER_SECONDS))
            os.close(self._logs.pop(session))
            registry.remove(record)
        self._changed()
