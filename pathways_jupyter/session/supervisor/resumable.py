"""Connections to the proxy that outlive the ways to it: the supervisor's end of the relay's streams.

JAX's client cannot resume a broken connection, and the proxy drops a client whose connection breaks, with all of its
arrays. So both talk to something that stays: JAX to this process, the proxy to the relay in its pod. Between the two,
one connection through the API server after the other carries the same stream.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube.podport import PortRefused, Remote, Target
from pathways_jupyter.kube.problems import ConnectionLost
from pathways_jupyter.retry import Backoff
from pathways_jupyter.service.relay.replay import Pool
from pathways_jupyter.service.relay.stream import Stream
from pathways_jupyter.service.relay.wire import ACCEPTED, Welcome
from pathways_jupyter.session.supervisor.carrier import Carrier, StreamLost, check

logger = logging.getLogger(__name__)

PING_SECONDS = 4.0
"""Time between a sign of life and the next ping, and the time to answer it: a dead way is noticed within twice this."""
ATTACH_SECONDS = 10.0
"""Longest time for one attempt to reach the relay."""
REFUSED_SECONDS = 15.0
"""How long a port that refuses connections may still be one whose way is being set up again."""

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0
_GRACE_SECONDS = 0.5
_MAX_PENDING_BYTES = 256 * 1024


class Way(Protocol):
    """What a connection needs of the way that it shares with others; see `relayed`."""

    target: Target
    secret: bytes
    keep: float
    pool: Pool

    def broken(self, connection: Resumable, error: ClusterError) -> None:
        """Note that `connection` has lost its way."""

    def restored(self, connection: Resumable) -> None:
        """Note that `connection` has a way again, or needs none any more."""

    def forget(self, connection: Resumable) -> None:
        """Note that `connection` has ended."""

    async def failed(self, error: ClusterError) -> None:
        """Note that an attempt failed."""


class Resumable:
    """One connection to the proxy; see :class:`~pathways_jupyter.kube.portforward.Connection`.

    It is made by :meth:`Relayed.open`.
    """

    def __init__(self, way: Way) -> None:
        self.answered = asyncio.Event()
        self.ended = False
        self.error: ClusterError | None = None
        self._way = way
        self._id = os.urandom(16)
        self._stream = Stream(way.pool)
        self._carrier: Remote | None = None
        self._known = self._pumping = self._closing = False
        self._room = asyncio.Event()
        self._all_received = asyncio.Event()
        self._near: asyncio.Future[Callable[[memoryview], Awaitable[None]]] = asyncio.get_running_loop().create_future()
        self._pending: list[memoryview] = []
        # Counts what arrives, and whether the local program is being waited for.
        self._arrivals = 0
        self._busy = False
        self._life: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # What the tunnel calls.

    async def start(self, *, patient: bool) -> None:
        """Make the first carrier.

        Raises:
          ClusterError: See :meth:`Relayed.open`.
        """
        try:
            carrier = await self._attach()
        except ClusterError as error:
            if not patient or isinstance(error, PortRefused):
                raise
            # Already interrupted when the local program connected: it waits like the others.
            self._way.broken(self, error)
            carrier = await self._again()
            self._way.restored(self)
        self._life = asyncio.create_task(self._live(carrier))

    async def send(self, data: bytes) -> None:
        """Send bytes to the proxy; wait while the buffer is full, as it may be when the way is cut.

        Raises:
          ConnectionLost: The connection is lost for good.
        """
        rest: bytes | memoryview = data
        while True:
            if self.ended:
                raise ConnectionLost("The connection to the proxy has ended.", hint="See %pathways status.")
            # Before the write: room that is made after it must not be missed.
            self._room.clear()
            written = self._stream.write(rest)
            if not self._pumping:
                await self._pump()
            if written == len(rest):
                return
            rest = memoryview(rest)[written:]
            await self._room.wait()

    async def deliver(self, write: Callable[[memoryview], Awaitable[None]]) -> None:
        """Give `write` all data from the proxy; return when no more comes."""
        while self._pending:
            await write(self._pending.pop(0))
        # No await since the last look at what is pending, so no data can overtake other data.
        if not self._near.done():
            self._near.set_result(write)
        await self._all_received.wait()

    def close(self) -> None:
        """Notify the relay that the local program has closed its connection; also later, when the way is cut now."""
        self._closing = True
        self._stream.finish()
        if not self._near.done():
            self._near.set_result(_drop)
        if self._life is not None and not self.ended:
            self._spawn(self._pump())

    async def end(self) -> None:
        """End at once; the pod ends as well."""
        tasks = [*self._tasks, *([self._life] if self._life is not None else [])]
        self._closing = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # One carrier after the other.

    async def _live(self, carrier: Carrier) -> None:
        try:
            while True:
                pinging = asyncio.create_task(self._keep_asking(carrier))
                try:
                    await asyncio.wait({carrier.listening})
                finally:
                    pinging.cancel()
                    self._carrier = None
                    await carrier.close()
                if self._is_over:
                    return
                reason = carrier.why_ended()
                if isinstance(reason, StreamLost):
                    raise reason
                self._way.broken(self, reason)
                carrier = await self._again()
                self._way.restored(self)
        except ClusterError as error:
            if not self._closing:
                self.error = error
        except Exception as error:
            logger.exception("a connection to the relay failed")
            self.error = ConnectionLost(f"The tunnel failed: {type(error).__name__}: {error}")
        finally:
            self.ended = True
            self._way.forget(self)
            self._stream.close()
            for event in (self.answered, self._room, self._all_received):
                event.set()

    @property
    def _is_over(self) -> bool:
        return self._stream.is_over and self._stream.peer_finished

    async def _again(self) -> Carrier:
        """Make another carrier.

        Raises:
          ConnectionLost: The stream is lost, or the time is over.
        """
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=self._way.keep)
        loop, refused = asyncio.get_running_loop(), 0.0
        while True:
            try:
                return await self._attach()
            except StreamLost:
                raise
            except ClusterError as error:
                if isinstance(error, ApiError) and error.status == 404:
                    raise ConnectionLost(f"The proxy's pod is gone: {error}") from error
                if isinstance(error, PortRefused):
                    refused = refused or loop.time()
                    if loop.time() - refused > REFUSED_SECONDS:
                        raise ConnectionLost(f"The relay beside the proxy has ended: {error}") from error
                else:
                    refused = 0.0
                if backoff.is_over:
                    raise ConnectionLost(
                        f"There was no way to the proxy for {self._way.keep:.0f} s: {error}"
                    ) from error
                await self._way.failed(error)
            await backoff.wait()

    async def _attach(self) -> Carrier:
        """Make one attempt to reach the relay.

        Raises:
          StreamLost: The stream cannot be continued.
          PortRefused: The relay or the proxy does not listen.
          ClusterError: The relay could not be reached.
        """
        try:
            async with asyncio.timeout(ATTACH_SECONDS):
                carrier = Carrier(await Remote.open(self._way.target, patience=0), self._begin, self._received)
                try:
                    hello = self._stream.hello(self._way.secret, self._id, is_new=not self._known)
                    await carrier.remote.send(hello.encode())
                    either: set[asyncio.Future[Any]] = {carrier.welcome, carrier.listening}
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                    if not carrier.welcome.done():
                        raise carrier.why_ended()
                    check(carrier.welcome.result())
                except BaseException:
                    # Before the next attempt: nothing that this one still delivers may come between.
                    await carrier.close()
                    raise
        except TimeoutError as error:
            raise ConnectionLost(f"The relay did not answer within {ATTACH_SECONDS:.0f} s.") from error
        self._known = True
        self._carrier = carrier.remote
        self.answered.set()
        self._spawn(self._pump())
        return carrier

    def _begin(self, welcome: Welcome) -> None:
        """Continue where the relay is; called before the first bytes that follow the relay's answer."""
        if welcome.code == ACCEPTED:
            self._stream.resume(welcome.received)

    async def _received(self, data: memoryview) -> None:
        """Take in bytes of the carrier; the next ones come when this returns."""
        self._arrivals += 1
        stream = self._stream
        if (whole := stream.take(data)) is not None:
            await self._hand_over(whole)
        else:
            for piece in stream.feed(data):
                await self._hand_over(piece)
            if stream.peer_finished:
                self._all_received.set()
            if not stream.out.is_full:
                self._room.set()
        # Not awaited: reading must not wait for writing, or two full pipes would wait for each other.
        if stream.must_answer and not self._pumping:
            self._spawn(self._pump())

    async def _hand_over(self, piece: memoryview) -> None:
        # Whatever happens to this task while it waits, the piece was handed over, and counts as received.
        if self._near.done():
            self._busy = True
            try:
                await self._near.result()(piece)
            finally:
                self._busy = False
        else:
            self._pending.append(piece)
            if sum(map(len, self._pending)) > _MAX_PENDING_BYTES:
                await self._near

    async def _pump(self) -> None:
        """Send what there is to send; one task at a time, which also sends what others add meanwhile."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while (carrier := self._carrier) is not None and (frame := self._stream.next()) is not None:
                try:
                    await carrier.send(*frame)
                except ConnectionLost:
                    # Where it is read, the reason is known; the next carrier may be there already.
                    if self._carrier is carrier:
                        self._carrier = None
            if carrier is not None and self._is_over:
                carrier.close()
        finally:
            self._pumping = False

    async def _keep_asking(self, carrier: Carrier) -> None:
        """Close a carrier on which nothing comes back."""
        number = 0
        while True:
            await asyncio.sleep(PING_SECONDS)
            number, before = number + 1, self._arrivals
            self._stream.ping(number)
            self._spawn(self._pump())
            await asyncio.sleep(PING_SECONDS)
            if self._arrivals == before:
                # If this process was stopped meanwhile, the answer is there and has not been read yet.
                await asyncio.sleep(_GRACE_SECONDS)
            if self._arrivals == before and not self._busy:
                carrier.problem = ConnectionLost(f"Nothing was received for {2 * PING_SECONDS:.0f} s.")
                carrier.remote.close()
                return

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _drop(_data: memoryview) -> None:
    """Take what is not read any more."""
