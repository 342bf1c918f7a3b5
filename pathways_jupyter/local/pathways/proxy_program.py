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
from collections.abc import Collection, Sequence

from pathways_jupyter.errors import ConfigError
from pathways_jupyter.local.pathways import addresses, allocator, program_start
from pathways_jupyter.local.pathways.ifrt.client_session import Machine
from pathways_jupyter.local.pathways.ifrt.compilers import Compilers
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.inprocess import ThisProcess
from pathways_jupyter.local.pathways.ifrt.lanes import Lanes
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.server import Server
from pathways_jupyter.local.pathways.ifrt.shardings import Shardings
from pathways_jupyter.local.pathways.ifrt.sidecars import Sidecars
from pathways_jupyter.local.pathways.ifrt.statuses import Code, StatusError
from pathways_jupyter.local.pathways.links import LinkError
from pathways_jupyter.local.pathways.program_start import Flags, instance_list
from pathways_jupyter.local.pathways.slice_requests import PlacedSlice, Placement, inventory
from pathways_jupyter.tpu import InstanceType

_log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run the program until a signal ends it, or its slices are refused."""
    program_start.set_up("proxy", argv)
    # If XLA crashes after all, the pod's log has the stack of Python.
    faulthandler.enable()
    flags = Flags("proxy")
    flags.add_argument("--resource_manager_address", required=True)
    flags.add_argument("--virtual_slices", default="")
    flags.add_argument("--num_elastic_slices", type=int, default=0)
    flags.add_argument("--sidecar_name", default="")
    try:
        values = flags.read(argv)
        addresses.split(values.resource_manager_address)
        # Without slices of its own it serves all of the resource manager's, as in a job that has one to itself.
        wanted = (
            instance_list(values.virtual_slices)
            if values.virtual_slices
            else asyncio.run(inventory(values.resource_manager_address))
        )
    except (ConfigError, LinkError, ValueError) as error:
        _log.error("FAILED_PRECONDITION: %s", error)
        return 2
    return Proxy(wanted, sidecars=bool(values.sidecar_name)).run(values.server_port, values.resource_manager_address)


class Proxy:
    """One proxy: its devices, its server, and the state of its slices.

    Args:
      sidecars: Run colocated Python on the hosts' sidecars instead of in this process.
    """

    def __init__(self, wanted: Sequence[InstanceType], *, sidecars: bool) -> None:
        self._wanted = wanted
        self._devices = Devices(wanted)
        self._placed = Promise()
        self._ended = threading.Event()
        self._exit_code = 0
        self._sidecars = Sidecars(self._devices, addresses.secret()) if sidecars else None
        self._compilers = Compilers(self._devices)
        hosts = self._sidecars or ThisProcess(self._devices)
        shardings = Shardings(self._devices)
        self._lanes = Lanes()
        self._server = Server(Machine(self._devices, shardings, self._lanes, self._compilers, hosts, self._placed))

    def run(self, port: int, resource_manager: str) -> int:
        """Serve until the slices are refused; return the exit code."""
        # First: it forks, which a process with threads must not do.
        self._compilers.start()
        allocator.keep_freed_memory()
        self._listen(port)
        name = os.environ.get("HOSTNAME") or socket.gethostname()
        Placement(resource_manager, name, self._wanted, self).start(self._failed)
        self._ended.wait()
        self._server.stop()
        return self._exit_code

    # Called by the placement, on its thread.

    def placed(self, slices: Sequence[PlacedSlice]) -> None:
        """Open the sessions that wait for slices."""
        # Only now: a proxy that waits for slices should not hold threads and memory for compilers.
        self._compilers.warm()
        devices = self._devices.client.device_count()
        self.changed(slices)
        if not self._placed.settled:
            _log.info("All %d slices are placed: %d devices", len(slices), devices // 2)
            self._placed.settle(None)

    def changed(self, slices: Sequence[PlacedSlice]) -> None:
        """Mark the slices that are down in all sessions."""
        self._server.set_down({virtual for virtual, each in enumerate(slices) if not each.up})
        if self._sidecars is not None:
            self._sidecars.set_paths(self._sidecar_paths(slices))

    def _sidecar_paths(self, slices: Sequence[PlacedSlice]) -> dict[int, str]:
        paths: dict[int, str] = {}
        first_host = 0
        for instance, each in zip(self._wanted, slices, strict=True):
            paths.update(enumerate(each.sidecars, start=first_host))
            first_host += instance.hosts
        return paths

    def stopped(self, slices: Collection[int]) -> None:
        """Hold computations on these slices back until their workers go on."""
        self._lanes.hold(each.id for each in self._devices.all if each.slice_index in slices)

    def refused(self, reason: str) -> None:
        """Fail the waiting session, and end."""
        self._placed.fail(StatusError(Code.FAILED_PRECONDITION, reason))
        self._exit_code = 1
        self._ended.set()

    def _failed(self, error: BaseException) -> None:
        _log.error("Following the resource manager failed", exc_info=error)
        self._exit_code = 1
        self._ended.set()

    def _listen(self, port: int) -> None:
        path = addresses.own_socket(port)
        if path is not None:
            self._server.listen_on_socket(path)
        else:
            self._server.listen_on_loopback(port)
        _log.info("Pathways Server serving on %s", path.name if path is not None else f"{addresses.LOOPBACK}:{port}")
