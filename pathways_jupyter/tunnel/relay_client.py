"""The resumable streams of one tunnel: they share a relay, a secret, and memory for what is not acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import os

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.tunnel.carrier import Carrier, PodPort
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.relay.stream import Pool
from pathways_jupyter.tunnel.relay.wire import Hello
from pathways_jupyter.tunnel.resumable_stream import ATTACH_SECONDS, RelayContext, ResumableStream

IDLE_SECONDS = 60.0
"""Longest time without a sign of life while no program uses the tunnel; shorter where a proxy is kept for less."""

# What waits for the relay's acknowledgement: 6 MB in all, 4 MB for one stream. The relay keeps as much for a proxy
# that does not read, so it cannot be larger than what the relay has memory for.
_POOL_BLOCKS, _STREAM_BLOCKS = 24, 16


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
        self._is_proven = True
        if self._idling is None:
            self._idling = asyncio.create_task(self._show_signs_of_life())
        return stream

    def cut(self) -> int:
        """Drop the carriers of all streams, as a network does that fails; return how many there were."""
        return sum(each.cut() for each in self._streams)

    async def close(self) -> None:
        """End every stream, and wait for their tasks."""
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
                async with asyncio.timeout(ATTACH_SECONDS):
                    carrier = await Carrier.open(self._relay.target, patience=0)
                    try:
                        # For a stream that does not exist, so that the relay need not connect to the proxy.
                        await carrier.send(Hello(self._relay.secret, os.urandom(16), 1, 0, is_new=False).encode())
                        await carrier.answered.wait()
                    finally:
                        carrier.close()
