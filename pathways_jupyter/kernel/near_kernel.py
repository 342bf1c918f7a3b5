"""One kernel as this machine has it: its sockets, and the process that the front end takes for it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, PathwaysError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kernel import EXIT, RETURN, differences, fetch
from pathways_jupyter.kernel.folder import SentFolder
from pathways_jupyter.kernel.handover import KernelRequest
from pathways_jupyter.kernel.lab_host import PROTOCOL
from pathways_jupyter.kernel.moved import Moved
from pathways_jupyter.kernel.places import KernelPlace, PlaceFile
from pathways_jupyter.kernel.zmq_handshake import SOCKETS, FrontEndConnection, Occurrences
from pathways_jupyter.service.lab.lab_stream import LabStream
from pathways_jupyter.session import registry
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.multiplexer import StreamChannel
from pathways_jupyter.tunnel.portforward import Forward

_CELL = b"execute_request"
"""Kind of the message that runs a cell, as it is in its header, whatever packs that."""
_PORT_SECONDS = 10.0
"""Longest wait for another process to leave a port of the connection file."""
_QUIET_SECONDS, _LONGEST_QUIET_SECONDS, _LONGEST_CELLS_SECONDS = 0.5, 5.0, 30.0
"""Longer than most round trips; the longest wait after an answer, as a widget may send without end; and in all, as a
program may send cells without end."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.2

logger = logging.getLogger(__name__)


class NearKernel:
    """One kernel, until its process here or there has ended.

    Args:
      place: What is known of its place.
      open_stream: Returns the stream to the lab's pod; PathwaysError when there is none.
    """

    def __init__(
        self, request: KernelRequest, place: KernelPlace, open_stream: Callable[[], Awaitable[LabStream]]
    ) -> None:
        self.request = request
        self._open_stream = open_stream
        self._forwards: list[Forward] = []
        self._stream: LabStream | None = None
        self._listens, self._begun, self._moves = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._exit: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self._folder = SentFolder(request.directory)
        self._fetches = tasks.Running()
        # Of packages in this Python and in the pod's, and what is otherwise there.
        self._versions: asyncio.Task[dict[str, str | None]] | None = None
        self._there: dict[str, str | None] = {}
        self._differs = self._sent = ""
        # What the kernel that takes its place on this machine does first.
        self._returns: Moved | None = None
        self._place = PlaceFile(place)

    async def run(self) -> None:
        """Run the kernel."""
        left, living = asyncio.create_task(self._until_left()), asyncio.create_task(self._live())
        try:
            returning = asyncio.create_task(self._until_quiet())
            await asyncio.wait({left, living, returning}, return_when=asyncio.FIRST_COMPLETED)
            code, words = living.result() if living.done() else (0, "")
            # First: to close the ports waits for what is on its way through them.
            if not self._exit.done() and self._stream is not None:
                self._stream.channels.post({"kernel": self.request.run, "end": True})
            # The next process of this kernel wants them at once.
            for each in self._forwards:
                await each.close()
            if code and words:
                self._place.update(ready=False, message=words, failed=True)
                self._say(words)
            if self._returns is not None:
                self._write(RETURN + self._returns.to_json().encode())
            self._write(EXIT + str(code).encode())
        except asyncio.CancelledError:
            # The near end ends, and the kernels with it. Without this word it was killed, and needs a successor.
            self._write(EXIT + b"1")
            raise
        finally:
            await tasks.stop(left, living, returning, *self._fetches, *([self._versions] if self._versions else []))
            self._place.close()
            os.close(self.request.answer)
            os.close(self.request.lifeline)

    def take(self, message: dict[str, Any]) -> None:
        """Handle a message of the pod's host about this kernel."""
        if "ready" in message:
            self._there = message["versions"]
            self._listens.set()
        elif "exit" in message and not self._exit.done():
            self._exit.set_result((int(message["exit"]), str(message.get("last") or "")))

    def accept(self, channel: StreamChannel) -> None:
        """Take the files that a cell fetches, or its wish to go on with a kernel of this machine."""
        work = functools.partial(fetch.receive, root=self._folder.root, move=self._move)
        fetching = portforward.join(channel, functools.partial(portforward.dial_thread, work))
        self._fetches.begin(fetching).add_done_callback(_log_failure)

    @property
    def _shell(self) -> Forward:
        return self._forwards[list(SOCKETS).index("shell")]

    async def _until_quiet(self) -> None:
        """Return when the kernel is to go on here, and has answered the cell that says so and all behind it.

        What is under way when the sockets are closed would be lost; what comes later waits in the front end.
        """
        await self._moves.wait()
        seen, traffic = -1, self._shell.traffic
        begun = answered = since = time.monotonic()
        async for _ in Backoff(_QUIET_SECONDS / 5, _QUIET_SECONDS / 5):
            now = time.monotonic()
            if any(isinstance(each, FrontEndConnection) and each.awaits_answer for each in self._shell.connections):
                answered = now
            if seen != (seen := traffic.sent + traffic.received):
                since = now
            is_quiet = now - max(answered, since) > _QUIET_SECONDS or now - answered > _LONGEST_QUIET_SECONDS
            if is_quiet or now - begun > _LONGEST_CELLS_SECONDS:
                return

    def _move(self, what: str) -> None:
        moved, origin = Moved.from_json(what), Moved.from_json(self.request.moved or Moved().to_json()).origin
        where = {name: each for name, each in self._place.place.where.items() if each}
        # `local` names the cluster alone.
        where = {"local": True} if where.get("local") else where
        self._returns = dataclasses.replace(moved, settings={**moved.settings, **where}, origin=origin)
        self._exit.get_loop().call_soon_threadsafe(self._moves.set)

    def report(self, words: str, cluster: str) -> None:
        """Show what the kernel waits for, empty when that is over; and the cluster's name, empty while not known."""
        if words:
            self._say(words)
        self._place.update(message=words, cluster=cluster)

    async def _live(self) -> tuple[int, str]:
        """Return the kernel's exit code, and in words how it has ended."""
        request, starting = self.request, None
        try:
            await self._listen()
            self._stream = stream = await self._open_stream()
            self._place.update(pod=stream.pod, cluster=stream.cluster)
            about = {"id": request.kernel_id, "run": request.run, "key": request.connection["key"]}
            packages = await asyncio.to_thread(differences.imported, request.environment.get("JPY_SESSION_NAME", ""))
            self._versions = asyncio.create_task(asyncio.to_thread(differences.versions, packages))
            about["packages"] = packages
            begin = [Moved.from_json(request.moved).line] if request.moved else []
            about |= {
                "begin": begin,
                "environment": request.environment,
                "folder": self._folder.name,
                "machine": registry.this_host(),
            }
            stream.channels.post({"setup": {**about, "protocol": PROTOCOL}})
            self._begun.set()
            # Beside its start; cells wait for both.
            starting = asyncio.create_task(self._start())
            either: set[asyncio.Future[Any]] = {self._exit, stream.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._exit.done():
                return 1, f"The kernel is lost: {stream.ended.result()}"
            code, last = self._exit.result()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            return code, f"The kernel has ended with {how} in pod {stream.pod}{f': {last}' if last else '.'}"
        except PathwaysError as error:
            return 1, f"The kernel cannot start: {_sentences(error)}"
        except Exception as error:
            logger.exception("a kernel cannot start")
            return 1, f"The kernel cannot start: {type(error).__name__}: {error}"
        finally:
            if starting is not None:
                await tasks.stop(starting)

    async def _start(self) -> None:
        """Return when the kernel listens, and has its files."""
        await self._send_files()
        await self._listens.wait()
        assert self._versions is not None
        self._differs = differences.sentences(await self._versions, self._there)
        self._note(self._sent)
        self._place.update(ready=True, message="")

    async def _send_files(self) -> None:
        """Send what has changed in the notebook's folder; that something cannot be sent is said, and cells run."""
        stream = self._stream
        assert stream is not None
        try:
            await self._folder.send(lambda: stream.channels.open({"files": self._folder.name}))
            note = self._folder.note
        except PathwaysError as error:
            note = _sentences(error)
        except Exception as error:
            # The cell that waits for it runs, with the files that there are.
            logger.exception("the files of %s cannot be sent", self.request.directory)
            note = f"Files were not sent: {type(error).__name__}: {error}"
        self._note(note)

    def _before_cells(self) -> Callable[[bytes], Awaitable[None]]:
        """Return what comes before bytes of a front end: where they are a cell, the files as they are now."""
        cells = Occurrences(_CELL)

        async def before(data: bytes) -> None:
            if cells.add(data):
                await self._send_files()

        return before

    def _note(self, sent: str) -> None:
        """Say once what became of the files, and what is otherwise in the pod."""
        self._sent = sent
        note = f"{self._differs} {sent}".strip()
        if note != self._place.place.note:
            self._say(note)
            self._place.update(note=note)

    async def _listen(self) -> None:
        """Listen on the sockets of the connection file, before there is a pod: what a front end sends first waits here.

        Raises:
          ClusterError: Another process has one of them.
        """
        about = self.request.connection
        for name in SOCKETS:

            async def open_channel(name: str = name) -> StreamChannel:
                # The pod's end waits until the kernel listens.
                await self._begun.wait()
                assert self._stream is not None
                channel = self._stream.channels.open({"kernel": self.request.run, "socket": name})
                if name == "shell":
                    channel.before = self._before_cells()
                return channel

            port = int(about[f"{name}_port"])
            is_file = about.get("transport") == "ipc"
            path = Path(f"{about['ip']}-{port}") if is_file else None
            async for _ in (attempts := Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=_PORT_SECONDS)):
                try:
                    forward = await portforward.listen(
                        None,
                        path=path,
                        port=0 if is_file else port,
                        open_stream=open_channel,
                        local=functools.partial(FrontEndConnection, socket=name),
                    )
                    break
                except ClusterError:
                    if attempts.is_over:
                        raise
            self._forwards.append(forward)

    async def _until_left(self) -> None:
        """Return when the kernelspec's process is gone; pass its Interrupts on meanwhile."""
        loop, changed, lifeline = asyncio.get_running_loop(), asyncio.Event(), self.request.lifeline
        # The loop may report it once more than there is something to read, and no kernel may wait for that.
        os.set_blocking(lifeline, False)
        loop.add_reader(lifeline, changed.set)
        try:
            while True:
                await changed.wait()
                changed.clear()
                try:
                    if not os.read(lifeline, 16):
                        return
                except BlockingIOError:
                    continue
                if self._stream is not None:
                    number = int(signal.SIGINT)
                    self._stream.channels.post({"kernel": self.request.run, "signal": number})
        finally:
            loop.remove_reader(lifeline)

    def _say(self, words: str) -> None:
        self._write(words.replace("\n", " ").encode())

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self.request.answer, line + b"\n")


def _log_failure(fetched: asyncio.Task[None]) -> None:
    if not fetched.cancelled() and (error := fetched.exception()) is not None:
        logger.info("a fetch has ended: %s", error)


def _sentences(error: PathwaysError) -> str:
    return f"{str(error).rstrip('.')}. {error.advice(Face.TERMINAL)}".strip()
