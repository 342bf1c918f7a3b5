"""State that all sessions of a proxy share."""

from __future__ import annotations

from collections.abc import Sequence

from pathways_jupyter.base.tpu import InstanceType
from pathways_jupyter.local.pathways.ifrt.device_queues import DeviceQueues
from pathways_jupyter.local.pathways.ifrt.devices import Devices
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.shardings import Shardings
from pathways_jupyter.local.pathways.ifrt.sidecars import Sidecars


class Machine:
    """The devices of a proxy, and what computes on them.

    Args:
      slices: The instance type of each slice, in the order of the proxy's request.
      sidecars: Whether the hosts have sidecars, which run colocated Python; without them it is refused.

    Attributes:
      placed: Settled once the resource manager has placed every slice; sessions open only then.
    """

    def __init__(self, slices: Sequence[InstanceType], *, sidecars: bool) -> None:
        self.devices = Devices(slices)
        self.shardings = Shardings(self.devices)
        self.queues = DeviceQueues()
        self.sidecars = Sidecars(self.devices, present=sidecars)
        self.placed = Promise()
