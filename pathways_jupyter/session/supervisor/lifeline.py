"""Detect a kernel's death, however it dies.

Two independent signals, either is enough: the end of its connection, which comes at once unless a child of the kernel
holds a copy of the descriptor; and the end of the process, where the system can wait for a process that is not a child
(Linux: pidfd).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable


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
