"""The devices a client sees: CPU devices of this process that pose as the chips of its slices.

There are twice as many CPU devices as chips. The first half pose as the chips, slice after slice; the second half are
the CPU devices beside them, on which colocated Python runs. A chip and its CPU device share a colocation id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.tpu import InstanceType
from pathways_jupyter.local.pathways.ifrt import dtypes
from pathways_jupyter.local.pathways.ifrt.statuses import Code, IfrtStatusError

if TYPE_CHECKING:
    import jax

PLATFORM = "tpu"
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")
"""Every device has one memory of each kind, as XLA's own CPU devices have; the first is the default."""


@dataclass(frozen=True)
class Device:
    """One device as a client sees it.

    Attributes:
      id: The same on both sides.
      chip: The number of the chip that this device is, or stands beside; 0 to chips - 1 over all slices.
      slice_index: The slice's place in the proxy's request.
      host: The host's number over all slices; the process index of what runs on it.
      coords: The chip's place in its slice along x, y and z; None for a CPU device.
    """

    id: int
    chip: int
    slice_index: int
    host: int
    kind: str
    coords: tuple[int, int, int] | None

    @property
    def is_chip(self) -> bool:
        """Return whether this is a chip and not the CPU device beside one."""
        return self.coords is not None

    def __str__(self) -> str:
        where = f"vtask={self.host},slice={self.slice_index}"
        if self.coords is None:
            return f"device({self.id},CPU_DEVICE,{where})"
        return f"device({self.id},TPU_DEVICE,coords=[{','.join(map(str, self.coords))}],{where})"


class Devices:
    """The devices of one proxy, and the slices of them that are down.

    Args:
      slices: The instance type of each slice, in the order of the proxy's request.
    """

    def __init__(self, slices: Sequence[InstanceType]) -> None:
        self.slices = tuple(slices)
        self.chips = sum(each.chips for each in self.slices)
        chips = list(_chips(self.slices))
        beside = [Device(self.chips + chip.id, chip.id, chip.slice_index, chip.host, "cpu", None) for chip in chips]
        self.all: tuple[Device, ...] = (*chips, *beside)
        self.down: frozenset[int] = frozenset()
        """The slices that are down now."""

    @cached_property
    def client(self) -> Any:
        """JAX's CPU client with these devices; made at the first use, once a process."""
        return self.jax_devices[0].client

    @cached_property
    def jax_devices(self) -> tuple[jax.Device, ...]:
        """The CPU devices, by id."""
        import jax

        # The server must keep the width that a client chose: it never narrows 64-bit data.
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", len(self.all))
        return tuple(jax.devices("cpu"))

    def default_layout(self, kind: int, shape: tuple[int, ...]) -> bytes:
        """Return the layout, in XLA's own text, of an array on one device by default."""
        if kind == dtypes.STRING:
            return f"{{{','.join(map(str, reversed(range(len(shape)))))}}}".encode()
        layout = self.client.get_default_layout(dtypes.to_numpy(kind), shape, self.jax_devices[0])
        # PjRtLayout gives its text to pickle only.
        text: bytes = layout.__getstate__()[0]
        return text

    def check_up(self, device_ids: Iterable[int]) -> None:
        """Refuse devices of slices that are down.

        Raises:
          IfrtStatusError: DATA_LOSS, which is what elastic training looks for.
        """
        if self.down and (lost := self.down.intersection(self.all[each].slice_index for each in device_ids)):
            raise slice_down(lost)


def slice_down(slices: Iterable[int]) -> IfrtStatusError:
    """Return the error that stands for whatever was, or would have been, on these slices."""
    names = ", ".join(map(str, sorted(slices)))
    return IfrtStatusError(
        Code.DATA_LOSS, f"slice down: the worker of slice {names} is gone, and the data on it is lost"
    )


def _chips(slices: Sequence[InstanceType]) -> Iterable[Device]:
    chip = first_host = 0
    for slice_index, instance in enumerate(slices):
        x_axis, y_axis = instance.shape[0], instance.shape[1]
        for index in range(instance.chips):
            coords = (index % x_axis, index // x_axis % y_axis, index // (x_axis * y_axis))
            host = first_host + index // instance.chips_per_host
            yield Device(chip, chip, slice_index, host, instance.machine.device_kind, coords)
            chip += 1
        first_host += instance.hosts
