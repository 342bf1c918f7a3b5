"""A proxy's connection to the resource manager: requests slices, and follows their state.

It runs on the main thread, beside the threads that serve the client. When the resource manager is lost, the proxy keeps
its slices and asks for the same ones again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pathways_jupyter.base.tpu import InstanceType, parse_instance_type
from pathways_jupyter.local.pathways import links
from pathways_jupyter.local.pathways.links import Link, LinkError

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Receives the state of the slices."""

    def placed(self, slices: Sequence[PlacedSlice]) -> None:
        """All slices are granted: for the first time, or again after the resource manager was lost."""

    def changed(self, slices: Sequence[PlacedSlice]) -> None:
        """Handle that a slice went down or healed."""

    def stopped(self, slices: Collection[int]) -> None:
        """On these of the proxy's slices nothing is computed for now, because a worker is stopped."""


@dataclass(frozen=True)
class PlacedSlice:
    """Location and state of one of the proxy's slices.

    Attributes:
      index: The slice's number at the resource manager.
      up: Whether all of its hosts are registered.
      sidecars: The unix socket of each host's sidecar, in the order of hosts; only known while the slice is up.
    """

    index: int
    job: str
    up: bool
    sidecars: tuple[str, ...] = ()


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
    _stopped: set[int] = field(default_factory=set)

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
                    self._placed(message["slices"])
                case "down":
                    virtual, job = message["virtual"], message["job"]
                    gone = self._slices[virtual]
                    if gone.up:
                        self._log_unplaced(virtual, job, f"lost {message['pod']} ({message['reason']})")
                    self._slices[virtual] = PlacedSlice(gone.index, job, up=False)
                    # Before what waits for the worker goes on: it must find the slice down.
                    self.listener.changed(tuple(self._slices))
                    self._stop(virtual, False)
                case "healed":
                    virtual = message["virtual"]
                    self._slices[virtual] = _read(message, up=True)
                    # Before the log says so: a reader of the log may use the slice at once.
                    self.listener.changed(tuple(self._slices))
                    self._log_placed(virtual, self._slices[virtual])
                case "stopped" | "continues":
                    self._stop(message["virtual"], message["type"] == "stopped")
                case "waiting" if message["reason"] != reason:
                    reason = message["reason"]
                    _log.info("Waiting for slices: %s", reason)
                case "refused":
                    _log.error("FAILED_PRECONDITION: %s", message["message"])
                    return str(message["message"])

    def _placed(self, found: Sequence[Mapping[str, Any]]) -> None:
        before = self._slices
        self._slices = [_read(each, up=each["ready"]) for each in found]
        for virtual, now in enumerate(self._slices):
            was_up = before[virtual].up if before else False
            if now.up and not was_up:
                self._log_placed(virtual, now)
            elif was_up and not now.up:
                self._log_unplaced(virtual, now.job, "lost while the resource manager was away")
        # What was stopped before the resource manager was lost may run by now; it says so again if it is stopped anew.
        self._stopped.clear()
        self.listener.stopped(())
        self.listener.placed(tuple(self._slices))

    def _stop(self, virtual: int, stopped: bool) -> None:
        if (virtual in self._stopped) == stopped:
            return
        (self._stopped.add if stopped else self._stopped.discard)(virtual)
        _log.info("Slice %d (%s) %s", virtual, self.instance_types[virtual], "stands still" if stopped else "goes on")
        self.listener.stopped(frozenset(self._stopped))

    def _log_placed(self, virtual: int, now: PlacedSlice) -> None:
        kind = self.instance_types[virtual]
        _log.info("Transition slice %d (%s) unplaced -> placed on %s", virtual, kind, now.job)

    def _log_unplaced(self, virtual: int, job: str, why: str) -> None:
        kind = self.instance_types[virtual]
        _log.warning("Transition slice %d (%s) placed -> unplaced from %s: %s", virtual, kind, job, why)


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


def _read(message: Mapping[str, Any], *, up: bool) -> PlacedSlice:
    sidecars = tuple(message["sidecars"]) if up else ()
    return PlacedSlice(int(message["slice"]), str(message["job"]), up, sidecars)
