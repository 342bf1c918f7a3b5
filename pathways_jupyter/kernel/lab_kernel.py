"""A kernel in a lab's pod, as a program: it has imported what takes long, and waits to learn which kernel it is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from typing import Any

from ipykernel import kernelapp
from ipykernel.ipkernel import IPythonKernel

_PAUSE_SECONDS = 0.05
"""Longer than a thread takes from its last look at signals until it waits in the system."""


class LabKernel(IPythonKernel):
    """IPython's kernel, whose Interrupt cannot be missed.

    An Interrupt comes here as a message. The thread that takes it often gets Python's lock at the very moment when the
    main thread gives that up to wait in the system, as `time.sleep` does. A signal that is sent before the wait has
    begun does not end it: 2 of 1,500 Interrupts of plain ipykernel were missed. So another signal follows, which does
    nothing but end the wait; then Python handles the first one.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)  # type: ignore[no-untyped-call]
        signal.signal(signal.SIGURG, lambda number, frame: None)

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Interrupt the cell."""
        await super().interrupt_request(stream, ident, parent)  # type: ignore[no-untyped-call]
        main = threading.main_thread().ident
        assert main is not None
        asyncio.get_running_loop().call_later(_PAUSE_SECONDS, signal.pthread_kill, main, signal.SIGURG)


def main() -> None:
    """Read one line with the kernel's ``file``, ``environment``, ``directory`` and ``begin``, and be that kernel.

    Otherwise as ``ipykernel_launcher``.
    """
    words = sys.stdin.readline()
    if not words:
        return
    about = json.loads(words)
    os.environ.update(about["environment"])
    os.chdir(about["directory"])
    # Modules beside the notebook are found, as where a kernel is started in its folder.
    sys.path[0] = ""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["ipykernel_launcher.py", "-f", about["file"]]
    kernelapp.launch_new_instance(exec_lines=about["begin"], kernel_class=LabKernel)


if __name__ == "__main__":
    main()
