"""A proxy's connection to the resource manager: requests slices, and follows their state.

It runs on the main thread, beside the threads that serve the client. When the resource manager is lost, the proxy keeps
its slices and asks for the same ones again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pathways_jupyter.base.tpu import InstanceType, parse_instance_type
from pathways_jupyter.local.pathways import links
from pathways_jupyter.local.pathways.links import Link, LinkError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlacedSlice:
    """Location and state of one of the proxy's slices.

    Attributes:
      index: The slice's number at the resource manager.
      job: The Job of its workers.
      up: Whether all of its hosts are registered.
      sidecars: The unix socket of each host's sidecar, in the order of hosts; empty while the slice is down.
    """

    index: int
    job: str
    up: bool
    sidecars: tuple[str, ...] = ()


class Listener(Protocol):
    """Receives the state of the slices."""

    def changed(self, slices: Sequence[PlacedSlice]) -> None:
        """Apply the state of all slices; called when they are granted, and whenever one of them changes."""

    def placed(self) -> None:
        """All slices are granted, for the first time, or again after the resource manager was lost."""


@dataclass
class SliceRequester:
    """Requests slices of `instance_types`, and notifies `listener`.

    Attributes:
      name: The resource manager's name for this proxy, which it shows to those that wait for its slices.
    """

    resource_manager: str
    name: str
    instance_types: Sequence[InstanceType]
    listener: Listener
    _slices: list[PlacedSlice] = field(default_factory=list)

    async def run(self) -> str:
        """Follow the slices until the request is refused for good, and return the reason."""
        async for link in links.connections(self.resource_manager):
            try:
                return await self._follow(link)
            except LinkError as error:
                _log.warning("Lost the resource manager: %s", error)
        raise AssertionError("unreachable")

    async def _follow(self, link: Link) -> str:
        _log.info("Signaling to RM at %s", self.resource_manager)
        link.send(
            "hello",
            role="proxy",
            name=self.name,
            slices=[str(each) for each in self.instance_types],
            held=[each.index for each in self._slices],
        )
        reason = ""
        while True:
            message = await link.receive()
            match message["type"]:
                case "placed":
                    self._update(
                        [_read(each) for each in message["slices"]], "lost while the resource manager was away"
                    )
                    self.listener.placed()
                case "changed":
                    slices = list(self._slices)
                    slices[message["virtual"]] = _read(message)
                    self._update(slices, message["why"])
                case "waiting" if message["reason"] != reason:
                    reason = message["reason"]
                    _log.info("Waiting for slices: %s", reason)
                case "refused":
                    _log.error("FAILED_PRECONDITION: %s", message["message"])
                    return str(message["message"])

    def _update(self, slices: list[PlacedSlice], why: str) -> None:
        """Apply the state of all slices; `why` is the reason if one that was up is down now."""
        before, self._slices = self._slices, slices
        # Before the log says so: a reader of the log may use a slice at once.
        self.listener.changed(tuple(slices))
        for virtual, now in enumerate(slices):
            was = before[virtual] if before else PlacedSlice(now.index, now.job, up=False)
            kind = self.instance_types[virtual]
            if was.up and not now.up:
                _log.warning("Transition slice %d (%s) placed -> unplaced from %s: %s", virtual, kind, was.job, why)
            elif now.up and not was.up:
                _log.info("Transition slice %d (%s) unplaced -> placed on %s", virtual, kind, now.job)


async def inventory(resource_manager: str) -> list[InstanceType]:
    """Return the kinds of all slices of a resource manager, in order, once it answers."""
    async for link in links.connections(resource_manager):
        link.send("hello", role="inventory")
        try:
            message = await link.receive()
        except LinkError as error:
            _log.warning("Lost the resource manager: %s", error)
        else:
            return [parse_instance_type(each) for each in message["slices"]]
    raise AssertionError("unreachable")


def _read(message: Mapping[str, Any]) -> PlacedSlice:
    sidecars = tuple(message["sidecars"]) if message["up"] else ()
    return PlacedSlice(message["slice"], message["job"], message["up"], sidecars)
