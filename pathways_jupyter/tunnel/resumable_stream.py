"""Streams that outlive their carriers: the supervisor's ends, as the relay has the other ones.

JAX's client cannot resume a broken connection, and the proxy drops a client whose connection breaks, with all of its
arrays. So both are connected to something that stays: JAX to this process, the proxy to the relay in its pod. Between
the two, one carrier through the API server after the other carries the same stream. The streams of one tunnel share a
relay, a secret, and memory for what is not acknowledged: a :class:`RelayClient` opens them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import websocket
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.kube.websocket import AnswerPoints
from pathways_jupyter.tunnel.carrier import Carrier, PodPort, PortRefused
from pathways_jupyter.tunnel.local_connection import Inbox
from pathways_jupyter.tunnel.open_carrier import OpenCarrier, StreamLost, TooManyStreams
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.relay.stream import Pool, StreamEnd
from pathways_jupyter.tunnel.relay.wire import Hello

logger = logging.getLogger(__name__)

OPEN_SECONDS = 10.0
"""Longest time for one attempt to reach the relay."""
REFUSED_SECONDS = 15.0
"""Longest time that a port may refuse connections, as the relay's does while it is restarted."""
IDLE_SECONDS = 60.0
"""Longest time without a sign of life while no program uses the tunnel; shorter where a proxy is kept for less."""

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
# What waits for the relay's acknowledgement: 6 MB in all, 4 MB for one stream. The relay keeps as much for a proxy
# that does not read, so it cannot be larger than what the relay has memory for.
_POOL_BLOCKS, _STREAM_BLOCKS = 24, 16


@dataclass(frozen=True)
class RelayContext:
    """State that all streams to one relay share.

    Attributes:
      target: Its port.
      secret: The session's secret.
      keep: Seconds for which a stream without a carrier tries to get another one.
      pool: Memory for what the relay has not acknowledged.
      outage: The streams that have no carrier.
    """

    target: PodPort
    secret: bytes
    keep: float
    pool: Pool
    outage: Outage


class ResumableStream:
    """One stream to the proxy, with the attributes and methods of a :class:`Carrier`.

    Args:
      ended: Called with this object when it has ended.
    """

    def __init__(self, relay: RelayContext, ended: Callable[[ResumableStream], None]) -> None:
        self.answered = asyncio.Event()
        self.ended = False
        self.error: ClusterError | None = None
        self._relay = relay
        self._on_end = ended
        self._id = os.urandom(16)
        self._end = StreamEnd(relay.pool)
        self._carrier: Carrier | None = None
        self._known = self._pumping = self._closing = False
        self._room = asyncio.Event()
        self._all_received = asyncio.Event()
        self._inbox = Inbox()
        self._arrivals = self._pings = 0
        self._checkpoints = AnswerPoints()
        self._life: asyncio.Task[None] | None = None
        self._tasks = tasks.Running()

    async def start(self, *, patient: bool) -> None:
        """Open the first carrier.

        Args:
          patient: Wait for an interruption to end, as streams do that are open already.

        Raises:
          ClusterError: See :meth:`RelayClient.open`.
        """
        try:
            opened = await self._open()
        except ClusterError as error:
            # Both are answers, of the API server or of the relay: the path works, and waiting changes nothing.
            if not patient or isinstance(error, (PortRefused, TooManyStreams)):
                raise
            opened = await self._reopen(error)
        self._life = asyncio.create_task(self._live(opened))

    async def send(self, data: bytes) -> None:
        """Send bytes to the proxy; wait while the buffer is full, as it may be without a carrier.

        Raises:
          ConnectionLost: The stream is lost for good.
        """
        rest: bytes | memoryview = data
        while True:
            if self.ended:
                raise ConnectionLost("The connection to the proxy has ended.", hint=advice("See {status}."))
            # Before the write: room that is made after it must not be missed.
            self._room.clear()
            written = self._end.out.write(rest)
            if not self._pumping:
                await self._pump()
            if written == len(rest):
                return
            rest = memoryview(rest)[written:]
            await self._room.wait()

    async def deliver(self, write: Callable[[memoryview], Awaitable[None]]) -> None:
        """Give `write` all data from the proxy; return when no more comes."""
        await self._inbox.open(write)
        await self._all_received.wait()

    def close(self) -> None:
        """Notify the relay that the local program has closed its connection, as soon as there is a carrier."""
        self._closing = True
        self._end.finish()
        self._inbox.discard()
        if self._life is not None and not self.ended:
            self._tasks.begin(self._pump())

    def cut(self) -> bool:
        """Drop the carrier, as a network does that fails; return whether there was one."""
        carrier = self._carrier
        if carrier is not None:
            carrier.abort()
        return carrier is not None

    async def end(self) -> None:
        """End at once; the pod ends as well."""
        self._closing = True
        await tasks.stop(*self._tasks, *([self._life] if self._life is not None else []))

    # One carrier after the other.

    async def _live(self, opened: OpenCarrier) -> None:
        try:
            while True:
                pinging = asyncio.create_task(self._ping(opened))
                try:
                    await asyncio.wait({opened.listening})
                finally:
                    pinging.cancel()
                    # Nothing is written to it any more. What it was given and the relay has not acknowledged, the next
                    # one sends again.
                    self._carrier = None
                    # Before the next attempt: nothing that this one still delivers may come between.
                    await opened.close()
                # Both ends have finished: this is the end of the stream, and no interruption.
                if self._is_over:
                    return
                reason = opened.why_ended()
                if isinstance(reason, StreamLost):
                    raise reason
                opened = await self._reopen(reason)
        except ClusterError as error:
            if not self._closing:
                self.error = error
        except Exception as error:
            logger.exception("a stream to the relay failed")
            self.error = ConnectionLost(f"The tunnel failed: {type(error).__name__}: {error}")
        finally:
            # Before the events are set: what they wake looks at it, and at the error.
            self.ended = True
            self._on_end(self)
            self._end.close()
            for event in (self.answered, self._room, self._all_received):
                event.set()

    @property
    def _is_over(self) -> bool:
        return self._end.is_over and self._end.peer_finished

    async def _reopen(self, reason: ClusterError) -> OpenCarrier:
        """Open another carrier, after the last one or the first attempt has failed for `reason`.

        Raises:
          ConnectionLost: The stream is lost, or the time is over.
        """
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=self._relay.keep)
        loop, refused = asyncio.get_running_loop(), 0.0
        self._relay.outage.begin(self, reason)
        try:
            while True:
                try:
                    opened = await self._open()
                    break
                except (StreamLost, TooManyStreams):
                    raise
                except ClusterError as error:
                    if isinstance(error, ApiError) and error.status == 404:
                        raise ConnectionLost(f"The pod is gone: {error}") from error
                    # A refusal is final only when it lasts: a relay that was killed listens again after a moment.
                    refused = (refused or loop.time()) if isinstance(error, PortRefused) else 0.0
                    if refused and loop.time() - refused > REFUSED_SECONDS:
                        raise ConnectionLost(f"The program in the pod, or its relay, has ended: {error}") from error
                    if backoff.is_over:
                        seconds = f"{self._relay.keep:.0f} s"
                        raise ConnectionLost(f"The pod could not be reached for {seconds}: {error}") from error
                    await self._relay.outage.attempt_failed(error)
                await backoff.wait()
        except BaseException:
            # Also when the tunnel is closed meanwhile, for example by a reconnect: that restores nothing.
            self._relay.outage.lose(self)
            raise
        self._relay.outage.end(self)
        return opened

    async def _open(self) -> OpenCarrier:
        """Make one attempt to reach the relay.

        Raises:
          StreamLost: The stream cannot be continued.
          PortRefused: The relay or the proxy does not listen.
          ClusterError: The relay could not be reached.
        """
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                # Without the client's own retries, which would add to those around this.
                carrier = await Carrier.open(self._relay.target, patience=0)
                opened = OpenCarrier(carrier, self._end, self._received)
                try:
                    await opened.greet(self._end.hello(self._relay.secret, self._id, is_new=not self._known))
                except BaseException:
                    # Before the next attempt: nothing that this one still delivers may come between.
                    await opened.close()
                    raise
        except TimeoutError as error:
            # Not the relay's fault for certain: for a pod that is gone, an API server may take as long.
            raise ConnectionLost(f"No answer from {self._relay.target} within {OPEN_SECONDS:.0f} s.") from error
        # From here on the relay must have it. One that does not was restarted and has lost bytes, so it must not open
        # it as new.
        self._known = True
        self._carrier = carrier
        self.answered.set()
        self._tasks.begin(self._pump())
        return opened

    async def _received(self, data: memoryview) -> None:
        """Take in bytes of the carrier; the next ones come when this returns."""
        self._arrivals += 1
        for piece in self._end.feed(data):
            await self._inbox.put(piece)
        if self._end.peer_finished:
            self._all_received.set()
        if not self._end.out.is_full:
            self._room.set()
        # Not awaited: reading must not wait for writing, or two full pipes would wait for each other.
        if self._end.must_answer and not self._pumping:
            self._tasks.begin(self._pump())

    async def _pump(self) -> None:
        """Send what there is to send; one task at a time, which also sends what others add meanwhile."""
        if self._pumping:
            return
        self._pumping = True
        try:
            # Looked at for each frame: while one is sent, the carrier may be replaced, and more may be written.
            while (carrier := self._carrier) is not None and (frame := self._end.next()) is not None:
                try:
                    await carrier.send(*frame)
                    if self._checkpoints.passed(len(frame[1])):
                        self._ask()
                except ConnectionLost:
                    # Where it is read, the reason is known; the next carrier may be there already.
                    if self._carrier is carrier:
                        self._carrier = None
            if carrier is not None and self._is_over:
                carrier.close()
        finally:
            self._pumping = False

    async def _ping(self, opened: OpenCarrier) -> None:
        """Close a carrier on which nothing comes back; the WebSocket's own pings end at the API server."""
        silent = 0
        while silent < websocket.UNANSWERED_PINGS:
            before, sent, asked = self._arrivals, opened.carrier.sent(), boot_seconds()
            self._ask()
            self._tasks.begin(self._pump())
            await asyncio.sleep(websocket.PING_SECONDS)
            # While the local program is slow, or not there yet, nothing is read, so nothing can arrive.
            alive = self._arrivals != before or self._inbox.is_waiting or opened.carrier.sent().moves_since(sent)
            # Other streams have the same line.
            alive = alive or self._relay.target.client.round_trip.waited_at > asked
            silent = 0 if alive else silent + 1
        opened.problem = ConnectionLost(f"Nothing was received for {silent * websocket.PING_SECONDS:.0f} s.")
        # The client's other connections use the same line: requests, such as the next attempt's, open new ones.
        self._relay.target.client.leave_connections()
        opened.carrier.close()

    def _ask(self) -> None:
        """Ask the relay for a sign of life, which it sends when all data before have arrived there."""
        self._pings += 1
        self._end.ping(self._pings)


class RelayClient:
    """Opens streams to the proxy by its relay.

    Args:
      target: The relay's port.
      secret: The session's secret, 32 bytes.
      keep: Seconds for which a stream without a carrier tries to get another one.
      outage: Knows which streams have no carrier.
    """

    def __init__(self, target: PodPort, secret: bytes, keep: float, outage: Outage) -> None:
        self._relay = RelayContext(target, secret, keep, Pool(_POOL_BLOCKS, _STREAM_BLOCKS), outage)
        self._streams: set[ResumableStream] = set()
        self._is_proven = False
        self._idling: asyncio.Task[None] | None = None

    async def open(self) -> ResumableStream:
        """Open a stream to the proxy.

        Raises:
          PortRefused: The relay or the proxy does not listen.
          ClusterError: The relay could not be reached; after the first success only once `keep` is over.
        """
        stream = ResumableStream(self._relay, self._streams.discard)
        self._streams.add(stream)
        try:
            await stream.start(patient=self._is_proven)
        except BaseException:
            self._streams.discard(stream)
            raise
        # The path works, so a later failure is an interruption, and new streams wait for its end like the open ones.
        self._is_proven = True
        if self._idling is None:
            self._idling = asyncio.create_task(self._show_signs_of_life())
        return stream

    def cut(self) -> int:
        """Drop the carriers of all streams, as a network does that fails; return how many there were."""
        return sum(each.cut() for each in self._streams)

    async def close(self) -> None:
        """End every stream, and wait for their tasks."""
        # First: the end of all streams is no interruption to report.
        self._relay.outage.close()
        if self._idling is not None:
            await tasks.stop(self._idling)
        await asyncio.gather(*(each.end() for each in tuple(self._streams)))

    async def _show_signs_of_life(self) -> None:
        """Say hello now and then while there is no stream, or the relay would take this session for dead."""
        while True:
            await asyncio.sleep(min(IDLE_SECONDS, self._relay.keep / 4))
            if self._streams:
                continue
            # An interruption now shows when there is a stream again.
            with contextlib.suppress(ClusterError, TimeoutError):
                async with asyncio.timeout(OPEN_SECONDS):
                    carrier = await Carrier.open(self._relay.target, patience=0)
                    try:
                        # For a stream that does not exist, so that the relay need not connect to the proxy.
                        await carrier.send(Hello(self._relay.secret, os.urandom(16), 1, 0, is_new=False).encode())
                        await carrier.answered.wait()
                    finally:
                        carrier.close()
