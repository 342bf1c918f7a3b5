"""One connection to the relay: the hello and its answer, then a stream, until it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.podport import PortRefused, Remote
from pathways_jupyter.kube.problems import ConnectionLost
from pathways_jupyter.service.relay.wire import (
    ACCEPTED,
    FULL,
    OUTDATED,
    REFUSED,
    WELCOME_BYTES,
    ProtocolError,
    Unrecoverable,
    Welcome,
)


class StreamLost(ConnectionLost):
    """The relay answered, and the stream cannot be continued."""


class TooManyConnections(ClusterError):
    """The relay takes no further connection; those that it has continue."""


class Carrier:
    """One connection to the relay: first its answer, then the stream.

    Attributes:
      welcome: The relay's answer.
      listening: Done when the connection has ended.
    """

    def __init__(
        self,
        remote: Remote,
        begin: Callable[[Welcome], None],
        received: Callable[[memoryview], Awaitable[None]],
    ) -> None:
        self.remote = remote
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self.problem: ClusterError | None = None
        self._begin = begin
        self._received = received
        self._head = b""
        self.listening = asyncio.create_task(remote.deliver(self._take))

    async def _take(self, data: memoryview) -> None:
        if self.problem is not None:
            return
        try:
            if not self.welcome.done():
                missing = WELCOME_BYTES - len(self._head)
                self._head += data[:missing]
                data = data[missing:]
                if len(self._head) < WELCOME_BYTES:
                    return
                welcome = Welcome.decode(self._head)
                # At once, because the stream's own bytes may follow in the same message.
                self._begin(welcome)
                self.welcome.set_result(welcome)
            if data and self.welcome.result().code == ACCEPTED:
                await self._received(data)
        except (ProtocolError, Unrecoverable) as error:
            self.problem = StreamLost(f"The relay and this process do not agree: {error}.")
            self.remote.close()

    def why_ended(self) -> ClusterError:
        """Return why it ended."""
        return self.problem or self.remote.error or ConnectionLost("The connection to the relay was closed.")

    async def close(self) -> None:
        """Close the connection; after this it delivers nothing any more."""
        self.remote.close()
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)


def check(welcome: Welcome) -> None:
    """Raise unless the relay continues the stream.

    Raises:
      StreamLost: The stream cannot be continued.
      PortRefused: The proxy does not listen.
      ClusterError: The relay does not take the connection.
    """
    if welcome.code == REFUSED:
        raise PortRefused("The proxy refuses connections.", hint="See its log: %pathways logs proxy.")
    if welcome.code == FULL:
        raise TooManyConnections(
            "The relay beside the proxy has as many connections as it can hold.",
            hint="End some of the processes that share this session.",
        )
    if welcome.code == OUTDATED:
        raise ConnectionLost("The relay has answered a later attempt.")
    if welcome.code != ACCEPTED:
        raise StreamLost("The relay no longer has the connection: it was restarted, or has waited too long.")
