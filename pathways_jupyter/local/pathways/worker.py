"""The worker: represents one host of a slice, and registers it with the resource manager.

On real hardware it drives the host's chips. Here the proxy computes on CPU devices of its own, so a worker only has to
stay alive: when it dies, the slice is down. While it is stopped (``kill -s TSTP 1``, until ``kill -s CONT 1``), nothing
is computed on its slice. After ``echo 30 > $TMPDIR/slow; kill -s USR1 1`` it is slow for 30 seconds: it reports itself
as stopped four fifths of the time. Another number replaces these seconds; 0 ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.local.pathways import links, program_start
from pathways_jupyter.local.pathways.links import Link, LinkError
from pathways_jupyter.local.pathways.program_start import Flags
from pathways_jupyter.local.settings import WORKER_START_VARIABLE
from pathways_jupyter.service import names

_log = logging.getLogger(__name__)

_STOPPED_SECONDS, _RUNNING_SECONDS = 0.4, 0.1
"""Of a slow worker."""


def main(argv: Sequence[str]) -> int:
    """Run the program until a signal ends it."""
    program_start.set_up("worker", argv)
    flags = Flags("worker")
    flags.add_argument("--resource_manager_address", required=True)
    try:
        values = flags.read(argv)
        links.split_address(values.resource_manager_address)
    except ConfigError as error:
        _log.error("%s", program_start.refusal(error))
        return 2
    return asyncio.run(_run(values.server_port, values.resource_manager_address))


async def _run(port: int, resource_manager: str) -> int:

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    if (seconds := float(os.environ.get(WORKER_START_VARIABLE) or 0)) > 0:
        # As a real one does while it sets up its chips; until then its slice is down.
        _log.info("Starting takes %g s", seconds)
        await asyncio.sleep(seconds)
    # Connections show probes and users that the worker runs.
    server = await asyncio.start_unix_server(accept, links.own_socket(port))
    _log.info("Pathways Server serving on [::]:%d", port)
    link: Link | None = None

    def report(kind: str) -> None:
        if link is not None:
            link.send(kind)

    def stop() -> None:
        # SIGTSTP and not SIGSTOP, which would leave no time to say so.
        report("stopped")
        os.kill(os.getpid(), signal.SIGSTOP)

    async def be_slow(seconds: float) -> None:
        deadline = loop.time() + seconds
        try:
            while loop.time() < deadline:
                report("stopped")
                await asyncio.sleep(_STOPPED_SECONDS)
                report("continues")
                await asyncio.sleep(_RUNNING_SECONDS)
        finally:
            # Also when another call ends this one.
            report("continues")

    slow: asyncio.Task[None] | None = None

    def slow_down() -> None:
        nonlocal slow
        if slow is not None:
            slow.cancel()
        with contextlib.suppress(OSError, ValueError):
            seconds = float(Path(tempfile.gettempdir(), "slow").read_text(encoding="ascii"))
            slow = loop.create_task(be_slow(seconds))

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTSTP, stop)
    loop.add_signal_handler(signal.SIGCONT, report, "continues")
    loop.add_signal_handler(signal.SIGUSR1, slow_down)
    async with server:
        async for link in links.connections(resource_manager):
            link.send("hello", role="worker", host=_about_this_host())
            try:
                while True:
                    message = await link.receive()
                    if message["type"] == "refused":
                        _log.error("The resource manager refused this worker: %s", message["message"])
                        return 1
                    if message["type"] == "welcome":
                        _log.info("MegaScale transport initialized.")
                        _log.info("MegaScale transport init succeeded.")
            except LinkError as error:
                _log.warning("Lost the resource manager: %s", error)
    raise AssertionError("unreachable")


def _about_this_host() -> dict[str, Any]:
    """Read this host's registration from the environment: the fields of an ``inventory.RegisteredHost``."""
    slice_index = int(os.environ.get("MEGASCALE_SLICE_ID", "0"))
    jobset = os.environ.get("JOBSET_NAME", names.DEFAULT_SERVICE)
    replicated_job = os.environ.get("REPLICATED_JOB_NAME", names.WORKER_JOB)
    return {
        "slice_index": slice_index,
        # Kubernetes gives every pod of an indexed Job its number; here that is the host's place in the slice.
        "index": int(os.environ.get("JOB_COMPLETION_INDEX", "0")),
        "job": f"{jobset}-{replicated_job}-{slice_index}",
        "pod": os.environ.get("HOSTNAME") or socket.gethostname(),
        "sidecar": str(links.own_socket(names.SIDECAR_PORT)),
        # How many the service had when this worker was made: an embedded cluster grows.
        "slices": int(os.environ.get("MEGASCALE_NUM_SLICES", "1")),
    }
