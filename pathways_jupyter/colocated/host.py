"""The hosts of the session's slices, and how a few of them are chosen.

A host is a set of chips with the same slice and task; each chip has one CPU device on the same host ("colocated"),
and that is where arrays live when Python code sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.events import find_slice
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import parse_ranges
from pathways_jupyter.colocated import loss
from pathways_jupyter.colocated.errors import CheckError
from pathways_jupyter.session.kernel import process

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class Host:
    """One TPU host.

    Attributes:
      index: Counted over all slices, in the order of slices and of tasks in a slice.
      slice: The slice's index.
      task: The host's index in its slice.
      chips: Its TPU devices, in JAX's order.
      cpus: The CPU devices colocated with them.
    """

    index: int
    slice: int
    task: int
    chips: tuple[jax.Device, ...] = field(repr=False)
    cpus: tuple[jax.Device, ...] = field(repr=False)

    def __str__(self) -> str:
        return f"host {self.index}"


def hosts() -> tuple[Host, ...]:
    """Return the hosts of all of JAX's devices.

    Raises:
      CheckError: JAX's devices have no CPU devices on their hosts, as when no session is connected.
    """
    import jax
    from jax.experimental import colocated_python

    loss.require_session()
    if all(device.platform == "cpu" for device in jax.devices()):
        # JAX would run the function in this very process without a warning.
        raise CheckError("JAX has no TPUs here, and so no hosts.", hint=advice("Connect to some first: {connect}."))
    by_task: dict[tuple[int, int], list[Any]] = {}
    for device in jax.devices():
        task = getattr(device, "virtual_task_index", device.process_index)
        by_task.setdefault((getattr(device, "slice_index", 0) or 0, task), []).append(device)
    listed = []
    for index, ((slice_index, task), chips) in enumerate(sorted(by_task.items())):
        try:
            cpus = colocated_python.colocated_cpu_devices(tuple(chips))
        except (ValueError, AttributeError) as error:
            raise CheckError(
                f"JAX's {chips[0].platform} devices have no CPU devices beside them.",
                hint=advice("Connect to TPUs first: {connect}."),
            ) from error
        listed.append(Host(index, slice_index, task, tuple(chips), tuple(cpus)))
    return tuple(listed)


def choose(
    among: Sequence[Host],
    *,
    slices: str | Iterable[int] | None = None,
    hosts: str | Iterable[int] | None = None,
    once: bool = False,
) -> tuple[Host, ...]:
    """Return hosts by slice, by index, or the first of those.

    Args:
      among: Hosts to choose from.
      slices: Numbers of slices, or text such as ``0,1`` or ``0-3``; as everywhere the service's numbers, or the
        session's own where the session holds no slice of that number.
      hosts: Host indices in the same forms.
      once: Only the first.

    Raises:
      CheckError: A number is malformed, or there is no such slice or host.
    """
    chosen = tuple(among)
    for kind, requested in (("slice", slices), ("host", hosts)):
        if requested is None:
            continue
        try:
            numbers = parse_ranges(requested) if isinstance(requested, str) else set(requested)
        except ValueError as error:
            hint = f"For example: --{kind}s 0,1 or --{kind}s 0-3."
            raise CheckError(f"{requested!r} does not name a {kind}.", hint=hint) from error
        existing = {host.slice if kind == "slice" else host.index for host in among}
        held = process.slices() if kind == "slice" else ()
        numbers = {each if (held_slice := find_slice(held, each)) is None else held_slice.index for each in numbers}
        if absent := sorted(numbers - existing):
            names = {each.index: each.numbers for each in held}
            listed = ", ".join(names.get(each, str(each)) for each in sorted(existing))
            raise CheckError(f"There is no {kind} {', '.join(map(str, absent))}.", hint=f"This session has: {listed}.")
        chosen = tuple(host for host in chosen if (host.slice if kind == "slice" else host.index) in numbers)
    if not chosen:
        raise CheckError(
            "No host is in both the slices and the hosts that were chosen.",
            hint=advice("{colocated_hosts} lists them."),
        )
    return chosen[:1] if once else chosen
