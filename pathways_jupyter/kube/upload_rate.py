"""The rate at which the network takes what is sent, as a program's own long transfers show it.

Nothing is sent to measure it: a short transfer, such as a probe would be, ends while TCP is still becoming faster.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pathways_jupyter.kube.clock import boot_seconds

if TYPE_CHECKING:
    from pathways_jupyter.kube.library import Sent, Socket

LARGE_BYTES = 32 * 1024
"""Size from which on a message is a part of a transfer."""

_LEAST_BYTES = 4 * 1024 * 1024
"""Shorter transfers show how fast TCP begins, and what fits into buffers."""
_IDLE_BYTES = 16 * 1024
"""So little waits for an acknowledgement while only small messages are under way."""
_LOOK_SECONDS = 0.02
"""Time between two looks into the kernel, which cost more than a message on a fast network."""


class UploadRate:
    """The rate of the last long transfer of any of a client's connections.

    Attributes:
      bytes_per_second: 0 while there was none. As fast as the network where that is what the sender waited for.
      measured: When, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.bytes_per_second = 0.0
        self.measured = 0.0


class Transfer:
    """Messages of one connection, from when it last had nothing to send.

    Without Linux the kernel does not say how many bytes were acknowledged, so that no transfer is long enough.

    Args:
      rate: Where the rate is kept.
    """

    def __init__(self, socket: Socket, rate: UploadRate) -> None:
        self._socket = socket
        self._rate = rate
        self._looked = 0.0
        self._began: tuple[float, Sent] | None = None

    def before_message(self) -> None:
        """Measure what was acknowledged until now, when another large message is about to be sent."""
        now = boot_seconds()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked, sent = now, self._socket.sent()
        if self._began is None or sent.waiting < _IDLE_BYTES:
            self._began = now, sent
            return
        began, first = self._began
        if (taken := sent.acknowledged - first.acknowledged) >= _LEAST_BYTES:
            self._rate.bytes_per_second, self._rate.measured = taken / (now - began), time.time()
