"""Arrays that get other shardings, over whatever devices these name: what pathwaysutils calls the side channel."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from pathways_jupyter.local.pathways.ifrt import array_requests, promises, statuses
from pathways_jupyter.local.pathways.ifrt.array_values import ArraySpec
from pathways_jupyter.local.pathways.ifrt.executables import OpaqueExecutable
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.session_arrays import Array
from pathways_jupyter.local.pathways.ifrt.shardings import Sharding


class Reshard(OpaqueExecutable):
    """A plan to give arrays other shardings; can be run again and again."""

    kind = "requests to reshard"
    name = "reshard"

    def __init__(self, request: Mapping[str, Any], machine: Machine) -> None:
        def read(described: Mapping[str, Any]) -> Sharding:
            return machine.shardings.over(
                tuple(described["devices"]["device_ids"]),
                base64.b64decode(described["xla_hlo_sharding"]),
                described.get("memory_kind"),
            )

        self._machine = machine
        self._sources, self._targets = (
            [read(each) for each in request[name]] for name in ("inSharding", "outSharding")
        )
        self._donate = bool(request["donateInput"])
        if not self._sources or len(self._sources) != len(self._targets):
            raise statuses.invalid("a request to reshard has as many shardings for results as for arguments")
        # jaxlib's client accepts arguments with as many shards as the program has devices.
        self.device_ids = tuple(dict.fromkeys(device for each in self._sources for device in each.device_ids))

    def outputs(self, inputs: Sequence[Array]) -> list[ArraySpec]:
        """Return the same arrays with other shardings.

        Raises:
          IfrtStatusError: The arguments are not on the devices of the plan.
        """
        current = [array_requests.described(each).spec for each in inputs]
        device_ids = [each.sharding.device_ids for each in current if each is not None]
        if device_ids != [each.device_ids for each in self._sources]:
            raise statuses.invalid("the arguments are not on the devices that the request to reshard names")
        specs = zip(current, self._targets, strict=True)
        return [ArraySpec(each.kind, each.shape, target) for each, target in specs if each is not None]

    def execute(self, inputs: Sequence[Array], outputs: Sequence[Array], options: Any) -> Promise:
        """Start to move each array."""
        return promises.all_of(
            [
                array_requests.launch_move(array_requests.resharded, self._machine, source, target, donate=self._donate)
                for source, target in zip(inputs, outputs, strict=True)
            ]
        )
