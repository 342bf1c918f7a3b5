"""The first answer of a session: who this server is, and which devices and memories there are."""

from __future__ import annotations

from typing import Any

from pathways_jupyter.local.pathways.ifrt import attributes
from pathways_jupyter.local.pathways.ifrt.attributes import Attribute
from pathways_jupyter.local.pathways.ifrt.client_session import Answer, Handler, Session
from pathways_jupyter.local.pathways.ifrt.devices import MEMORY_KINDS, PLATFORM, Device

_PLATFORM_VERSION = "pathways_jupyter"
_PLATFORM_ID = 0x70617468  # any number that stays the same


def introduce(session: Session, message: Any, answer: Answer) -> None:
    """Answers once every slice is placed, which is when the devices begin to exist."""
    del message

    def placed() -> None:
        error = session.machine.placed.error
        if error is not None:
            answer.fail(error)
            return
        fill(answer.body, session)
        answer.send()

    session.machine.placed.then(placed)


def fill(response: Any, session: Session) -> None:
    """Fills an InitResponse."""
    response.session_id = session.id
    response.platform_name = PLATFORM
    response.platform_version = _PLATFORM_VERSION
    response.platform_id = _PLATFORM_ID
    response.runtime_type = "pathways"
    for device in session.machine.devices.all:
        _describe(response, device)
        response.addressable_device_ids.append(device.id)
        if device.is_chip:
            response.primary_device_ids.append(device.id)
    # With Shardy, programs arrive with their shardings still in the client's own axes.
    attributes.write(response.client_attributes, {"serialize_with_sdy": True})


def _describe(response: Any, device: Device) -> None:
    entry = response.all_devices.add(
        id=device.id,
        local_device_id=device.id,
        local_hardware_id=device.id,
        platform_name=device.platform,
        device_kind=device.kind,
        debug_string=str(device),
        to_string=str(device),
        default_memory_id=device.id * len(MEMORY_KINDS),
    )
    known: dict[str, Attribute] = {
        "slice_index": device.slice_index,
        "virtual_task_index": device.host,
        "colocation_id": device.chip,
    }
    if device.coords is not None:
        known |= {"coords": device.coords, "core_on_chip": 0, "num_cores": 1}
    attributes.write(entry.attributes, known)
    for number, kind in enumerate(MEMORY_KINDS):
        name = f"{kind}:{device.id}"
        memory = response.memories.add(
            id=device.id * len(MEMORY_KINDS) + number,
            memory_space_kind=kind,
            kind_id=number,
            debug_string=name,
            to_string=name,
        )
        memory.device_ids.append(device.id)
        entry.memory_ids.append(memory.id)


HANDLERS: dict[str, Handler] = {"init": introduce}
