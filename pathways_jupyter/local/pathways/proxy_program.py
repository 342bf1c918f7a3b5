"""The proxy: serves one client's JAX over the IFRT proxy protocol, on the slices that the resource manager grants.

It accepts connections as soon as it runs; a client's session opens once every slice is placed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence

from pathways_jupyter.base import process_setup
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tpu import InstanceType
from pathways_jupyter.local.pathways import links, program_start
from pathways_jupyter.local.pathways.ifrt.ifrt_service import Server
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.statuses import Code, IfrtStatusError
from pathways_jupyter.local.pathways.program_start import instance_list
from pathways_jupyter.local.pathways.slice_requests import PlacedSlice, SliceRequester, inventory

_log = logging.getLogger(__name__)

_LARGEST = 2**31 - 1
_CHECK_SECONDS = 5.0
_IDLE_SHARE = 0.05
"""Of one core: a process that used less has nothing to compute."""


def main(argv: Sequence[str]) -> int:
    """Run the program until a signal ends it, or its slices are refused."""
    program_start.set_up("proxy", argv)
    # If XLA crashes, the pod's log has the stack of Python.
    faulthandler.enable()
    program_start.set_xla_flags()
    flags = program_start.flags("proxy")
    flags.add_argument("--resource_manager_address", required=True)
    flags.add_argument("--virtual_slices", default="")
    flags.add_argument("--num_elastic_slices", type=int, default=0)
    flags.add_argument("--sidecar_name", default="")
    try:
        values, _ = flags.parse_known_args(argv)
        links.split_address(values.resource_manager_address)
        # Without slices of its own it serves all of the resource manager's, as in a job that has one to itself.
        instance_types = (
            instance_list(values.virtual_slices)
            if values.virtual_slices
            else asyncio.run(inventory(values.resource_manager_address))
        )
    except ConfigError as error:
        _log.error("FAILED_PRECONDITION: %s", program_start.refusal(error))
        return 2
    return ProxyServer(instance_types, sidecars=bool(values.sidecar_name)).run(
        values.server_port, values.resource_manager_address
    )


class ProxyServer:
    """One proxy: its machine, its server, and the state of its slices.

    Args:
      sidecars: Whether the hosts have sidecars, which run colocated Python; without them it is refused.
    """

    def __init__(self, instance_types: Sequence[InstanceType], *, sidecars: bool) -> None:
        self._machine = Machine(instance_types, sidecars=sidecars)
        self._server = Server(self._machine)

    def run(self, port: int, resource_manager: str) -> int:
        """Serve until the slices are refused; return the exit code."""
        keep_freed_memory()
        path = links.own_socket(port)
        self._server.listen(path)
        _log.info("Pathways Server serving on %s", path.name)
        name = os.environ.get("HOSTNAME") or socket.gethostname()
        reason = asyncio.run(SliceRequester(resource_manager, name, self._machine.devices.slices, self).run())
        self._machine.placed.fail(IfrtStatusError(Code.FAILED_PRECONDITION, reason))
        return 1

    # -- called by the requester of slices

    def changed(self, slices: Sequence[PlacedSlice]) -> None:
        """Apply the state of the slices in all sessions."""
        paths: dict[int, str] = {}
        first_host = 0
        for instance, each in zip(self._machine.devices.slices, slices, strict=True):
            paths.update(enumerate(each.sidecars, start=first_host))
            first_host += instance.hosts
        # First: on a slice that is up again, functions find their sidecars at once.
        self._machine.sidecars.set_paths(paths)
        self._server.set_down({virtual for virtual, each in enumerate(slices) if not each.up})

    def placed(self) -> None:
        """Open the sessions that wait for slices."""
        placed, devices = self._machine.placed, self._machine.devices
        if not placed.settled:
            # Only now: a proxy that waits for slices should not hold the threads and memory of XLA.
            count = devices.client.device_count() // 2
            _log.info("All %d slices are placed: %d devices", len(devices.slices), count)
            placed.settle(None)


def keep_freed_memory() -> None:
    """Keep freed memory in this process while it computes; no-op where the C library has no such options.

    By default glibc returns the memory of a large array at once. A training step, which frees as much as it allocates,
    then has the kernel clear all of it again: page faults were 40 % of the CPU of a step that writes 300 MB.
    """

    def trim_when_idle() -> None:
        while True:
            before = time.process_time()
            time.sleep(_CHECK_SECONDS)
            if time.process_time() - before < _IDLE_SHARE * _CHECK_SECONDS:
                process_setup.trim()

    # One arena, because the others give up their memory in pieces.
    if process_setup.keep_freed_memory(_LARGEST, mapped=_LARGEST, arenas=1):
        threading.Thread(target=trim_when_idle, name="malloc-trim", daemon=True).start()
