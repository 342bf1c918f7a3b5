"""Notice a kernel's death, however it dies.

The end of its connection says so at once, unless a child of the kernel holds a copy of it. The process itself says so
where the system lets one wait for a process that is not a child (Linux: pidfd). Either is enough.
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
      pid: The kernel; nothing is watched when it is 0, or where the system offers no way.
    """

    def __init__(self, pid: int, died: Callable[[], None]) -> None:
        self._died = died
        self._descriptor = -1
        if not pid or not hasattr(os, "pidfd_open"):
            return
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            asyncio.get_running_loop().call_soon(died)
        except OSError:
            # Some sandboxes forbid it; the connection's end is the other witness.
            return
        else:
            asyncio.get_running_loop().add_reader(self._descriptor, self._fire)

    def close(self) -> None:
        """Stops watching."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _fire(self) -> None:
        self.close()
        self._died()


def peer_pid(connection: socket.socket) -> int:
    """The process at the other end of a unix socket; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    size = struct.calcsize("3i")
    pid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
    return pid
