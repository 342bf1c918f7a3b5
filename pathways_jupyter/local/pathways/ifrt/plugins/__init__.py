"""Plugin programs: JSON requests that travel as programs, because a client can only compile and run.

The requests are those of pathwaysutils 0.1.13. Its code shows what a client sends and what it does with the answer;
what it leaves open is answered as docs/embedded.md says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pathways_jupyter.local.pathways.ifrt import statuses
from pathways_jupyter.local.pathways.ifrt.executables import OpaqueExecutable
from pathways_jupyter.local.pathways.ifrt.machine import Machine
from pathways_jupyter.local.pathways.ifrt.plugins import persistence, profiling, side_channel

PROGRAM_TYPE = "xla::ifrt::PluginProgram"
_PREFIX = b"__serialized_plugin_program "
"""Prefix that jaxlib puts before the client's text."""


def read(data: bytes, machine: Machine) -> OpaqueExecutable:
    """Return the executable of one plugin program.

    Raises:
      IfrtStatusError: It is not a request that is served, or a field is missing or wrong.
    """
    try:
        ((name, request),) = json.loads(data.removeprefix(_PREFIX)).items()
    except (ValueError, AttributeError) as error:
        raise statuses.invalid(f"Bad PluginProgram: not a JSON object with one request ({error})") from None
    if name not in _REQUESTS:
        raise statuses.unimplemented(f"Bad PluginProgram: {name!r} is not supported by the embedded proxy")
    try:
        return _REQUESTS[name](request, machine)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise statuses.invalid(f"Bad PluginProgram: {name}: {type(error).__name__}: {error}") from error


_REQUESTS: Mapping[str, Callable[[Any, Machine], OpaqueExecutable]] = {
    "persistenceWriteRequest": lambda request, machine: persistence.Write([request], machine),
    "bulk_persistence_write_request": lambda request, machine: persistence.Write(request["write_requests"], machine),
    "persistenceReadRequest": lambda request, machine: persistence.Read([request], machine),
    "bulk_persistence_read_request": lambda request, machine: persistence.Read(request["read_requests"], machine),
    "reshardRequest": side_channel.Reshard,
    "profileRequest": profiling.Profile,
}
