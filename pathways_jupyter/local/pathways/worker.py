"""The worker: represents one host of a slice, and registers it with the resource manager.

On real hardware it drives the host's chips. Here the proxy computes on CPU devices of its own, so a worker only has to
stay alive: when it dies, the slice is down.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.local.pathways import links, program_start
from pathways_jupyter.local.pathways.links import LinkError
from pathways_jupyter.service import names

_log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run the program until a signal ends it."""
    program_start.set_up("worker", argv)
    flags = program_start.flags("worker")
    flags.add_argument("--resource_manager_address", required=True)
    try:
        values, _ = flags.parse_known_args(argv)
        links.split_address(values.resource_manager_address)
    except ConfigError as error:
        _log.error("%s", program_start.refusal(error))
        return 2
    return asyncio.run(_run(values.server_port, values.resource_manager_address))


async def _run(port: int, resource_manager: str) -> int:

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    # Connections show probes and users that the worker runs.
    server = await asyncio.start_unix_server(accept, links.own_socket(port))
    _log.info("Pathways Server serving on [::]:%d", port)
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
