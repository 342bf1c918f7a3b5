"""The resource manager: workers register with it, and it grants slices to proxies.

Runs in the head pod of a service. It handles no data: it only grants slices and reports their loss.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tpu import InstanceType, parse_count
from pathways_jupyter.local.pathways import links, program_start
from pathways_jupyter.local.pathways.inventory import InventorySlice, RegisteredHost, SliceRequest, Slices
from pathways_jupyter.local.pathways.links import Link, LinkError
from pathways_jupyter.local.pathways.program_start import instance_list

_log = logging.getLogger(__name__)

_GATHERING_SECONDS = 10.0
"""Longest time that a worker that lives takes to register with a new resource manager; it tries every two seconds."""


def main(argv: Sequence[str]) -> int:
    """Run the program until a signal ends it; see :class:`ResourceManager`."""
    program_start.set_up("resource_manager", argv)
    flags = program_start.flags("resource_manager")
    flags.add_argument("--instance_type", required=True)
    flags.add_argument("--instance_count", default="1")
    try:
        values, _ = flags.parse_known_args(argv)
        kinds = instance_list(values.instance_type)
        counts = [parse_count(each, "--instance_count") for each in values.instance_count.split(",")]
        if len(counts) != len(kinds):
            raise ConfigError("--instance_type and --instance_count must have the same number of entries.")
    except ConfigError as error:
        _log.error("%s", program_start.refusal(error))
        return 2
    instances = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
    asyncio.run(ResourceManager(instances).serve(values.server_port))
    return 0


class ResourceManager:
    """Keeps workers and proxies informed of each other."""

    def __init__(self, instances: Sequence[InstanceType]) -> None:
        self._slices = Slices(instances)
        self._proxies: dict[SliceRequest, Link] = {}

    async def serve(self, port: int) -> None:
        """Serve on a port of this pod, until cancelled."""
        server = await links.listen(port, self.accept)
        _log.info("Pathways Server serving on [::]:%d", port)
        asyncio.get_running_loop().call_later(_GATHERING_SECONDS, self._end_gathering)
        async with server:
            await server.serve_forever()

    async def accept(self, link: Link) -> None:
        """Serve one worker or proxy until it disconnects."""
        try:
            hello = await link.receive()
        except LinkError:
            return  # A probe of the port, which sends nothing.
        try:
            match hello["role"]:
                case "worker":
                    await self._serve_worker(link, RegisteredHost(**hello["host"]))
                case "proxy":
                    instance_types = instance_list(",".join(hello["slices"]))
                    await self._serve_proxy(link, SliceRequest(hello["name"], instance_types, hello["held"]))
                case "inventory":
                    link.send("inventory", slices=[str(each.instance_type) for each in self._slices.slices])
        except (ValueError, ConfigError) as error:
            _log.warning("Refused a %s: %s", hello["role"], error)
            link.send("refused", message=str(error))

    # -- workers

    async def _serve_worker(self, link: Link, host: RegisteredHost) -> None:
        # The embedded cluster adds slices to a running service by adding workers.
        self._slices.grow(host.slices)
        if refusal := self._slices.refusal(host):
            raise ValueError(refusal)
        joined = self._slices.slices[host.slice_index]
        if (missed := joined.hosts.get(host.index)) is not None:
            # Its arrays are lost: its proxy learns that before it learns that the slice is back.
            self._lose(missed, "its replacement has registered")
        self._slices.add(host)
        _log.info("Host %d of slice %d registered: %s", host.index, joined.index, host.pod)
        link.send("welcome")
        if joined.ready:
            _log.info("*** %d/%d Pathways Slices Now Ready", self._slices.ready, len(self._slices.slices))
            if joined.holder is not None:
                _log.info("Slice %d (%s) is healed: %s", joined.index, joined.instance_type, joined.job)
            self._notify_holder(joined)
            self._place()
        reason = ""
        try:
            while True:
                await link.receive()
        except LinkError as error:
            reason = str(error)
        finally:
            self._lose(host, reason)

    def _lose(self, host: RegisteredHost, reason: str) -> None:
        """Remove a worker; no-op if its replacement has registered already."""
        lost = self._slices.remove(host)
        if lost is None:
            return
        kind = lost.instance_type
        _log.warning("Slice %d (%s) is down: lost host %d, %s (%s)", lost.index, kind, host.index, host.pod, reason)
        self._notify_holder(lost, f"lost {host.pod} ({reason})")

    def _notify_holder(self, each: InventorySlice, why: str = "") -> None:
        """Send the state of a slice to the proxy that holds it, if one does, with the slice's number there."""
        if (holder := each.holder) is not None:
            state = each.to_message()
            self._proxies[holder].send("changed", virtual=holder.granted.index(each), why=why, **state)

    # -- proxies

    async def _serve_proxy(self, link: Link, request: SliceRequest) -> None:
        # This resource manager may be the replacement of one that had grown.
        self._slices.grow(max(request.held, default=-1) + 1)
        if reason := self._slices.impossible(request):
            raise ValueError(reason)
        self._proxies[request] = link
        self._slices.waiting.append(request)
        _log.info("Proxy %s wants %s", request.name, ", ".join(map(str, request.instance_types)))
        self._place()
        try:
            while True:
                await link.receive()
        except LinkError as error:
            _log.info("Proxy %s is gone: %s", request.name, error)
        finally:
            # Before slices are granted anew, so that no message is sent to the closed link.
            del self._proxies[request]
            for freed in self._slices.release(request):
                _log.info("Slice %d (%s) is free", freed.index, freed.instance_type)
            self._place()

    def _end_gathering(self) -> None:
        self._slices.gathering = False
        self._place()

    def _place(self) -> None:
        for request in self._slices.place():
            _log.info("Placed proxy %s on slices %s", request.name, [each.index for each in request.granted])
            self._proxies[request].send("placed", slices=[each.to_message() for each in request.granted])
        for request, link in self._proxies.items():
            if not request.granted:
                link.send("waiting", reason=self._slices.why_waiting(request))
