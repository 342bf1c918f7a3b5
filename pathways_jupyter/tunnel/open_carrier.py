"""One carrier of a resumable stream: the hello and its answer, then the stream's frames, until it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, ConnectionLost
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.tunnel.carrier import Carrier, PortRefused
from pathways_jupyter.tunnel.relay.stream import StreamEnd
from pathways_jupyter.tunnel.relay.wire import (
    ACCEPTED,
    FULL,
    OUTDATED,
    REFUSED,
    WELCOME_BYTES,
    Hello,
    ProtocolError,
    Unrecoverable,
    Welcome,
)


class StreamLost(ConnectionLost):
    """The relay answered, and the stream cannot be continued."""


class TooManyStreams(ClusterError):
    """The relay takes no further stream; those that it has continue."""


class OpenCarrier:
    """A carrier to the relay, for as long as a stream uses it.

    Args:
      end: This end of the stream, which goes on from where the relay's answer says.
      received: Called with bytes of the stream.

    Attributes:
      listening: Done when the carrier has ended.
      problem: Why it has to end, where that is known before the carrier knows.
    """

    def __init__(self, carrier: Carrier, end: StreamEnd, received: Callable[[memoryview], Awaitable[None]]) -> None:
        self.carrier = carrier
        self.problem: ClusterError | None = None
        self._welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self._end = end
        self._received = received
        self._head = b""
        self.listening = asyncio.create_task(carrier.deliver(self._take))

    async def greet(self, hello: Hello) -> None:
        """Say hello, and return when the relay has continued the stream.

        Raises:
          StreamLost: The stream cannot be continued.
          PortRefused: The proxy does not listen.
          ClusterError: The relay does not take the stream, or the carrier has broken.
        """
        await self.carrier.send(hello.encode())
        # The carrier may end instead; and a relay that closes it without an answer has not found the secret in it.
        either: set[asyncio.Future[Any]] = {self._welcome, self.listening}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._welcome.done():
            raise self.why_ended()
        # An answer that came in time counts, also if the carrier has ended since.
        code = self._welcome.result().code
        if code == REFUSED:
            raise PortRefused("The proxy refuses connections.", hint=advice("See its log: {logs:proxy}."))
        if code == FULL:
            raise TooManyStreams(
                "The relay beside the proxy has as many connections as it can hold.",
                hint="End some of the processes that share this session.",
            )
        if code == OUTDATED:
            raise ConnectionLost("The relay has answered a later attempt.")
        if code != ACCEPTED:
            raise StreamLost("The relay no longer has the connection: it was restarted, or has waited too long.")

    async def _take(self, data: memoryview) -> None:
        if self.problem is not None:
            return
        try:
            if not self._welcome.done():
                missing = WELCOME_BYTES - len(self._head)
                self._head += data[:missing]
                data = data[missing:]
                if len(self._head) < WELCOME_BYTES:
                    return
                welcome = Welcome.decode(self._head)
                if welcome.code == ACCEPTED:
                    # At once, because the stream's own bytes may follow in the same message.
                    self._end.resume(welcome.received)
                self._welcome.set_result(welcome)
            if data and self._welcome.result().code == ACCEPTED:
                await self._received(data)
        except (ProtocolError, Unrecoverable) as error:
            self.problem = StreamLost(f"The relay and this process do not agree: {error}.")
            self.carrier.close()

    def why_ended(self) -> ClusterError:
        """Return why it ended."""
        return self.problem or self.carrier.error or ConnectionLost("The connection to the relay was closed.")

    async def close(self) -> None:
        """Close the carrier; after this it delivers nothing any more."""
        self.carrier.close()
        await tasks.stop(self.listening)
