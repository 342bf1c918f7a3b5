"""The checks that need JAX, as the process of :mod:`.kernel_program` runs them; each yields its findings by line."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pathways_jupyter.accept.plan import Broken, Skipped
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.base.text import count

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

_ROUNDS = 3
_SMALL_MB, _LARGE_MB = 2, 64
_SLOW_MB_PER_SECOND = 4.0
"""Throughput of a small array below which no large one is moved."""
_LOSS_AT, _STEPS_AFTER = 12, 8
_RATE = 0.05


@dataclasses.dataclass
class CheckContext:
    """State that the checks of one process share."""

    config: ConnectConfig
    connected: Session | None = None

    @property
    def session(self) -> Session:
        """The session; the check is skipped where connecting was not possible."""
        if self.connected is None:
            raise Skipped("there is no session")
        return self.connected

    def slices(self) -> dict[int, tuple[Any, ...]]:
        """Return the devices by slice; the check is skipped where there is one slice only."""
        slices = self.session.slices()
        if len(slices) < 2:
            raise Skipped("the session has one slice only")
        return slices

    def wait_for(self, kind: EventKind, since: int) -> Event:
        """Return the first event of `kind` after number `since`; how long that may take, the other process decides."""
        for event in self.session.follow(since):
            if event.kind is kind:
                return event
        raise Broken(f"The session ended while {kind} was awaited.")

    def lose_a_slice(self) -> str:
        """Kill the workers of the session's last slice; return what was done."""
        from pathways_jupyter.elastic import faults

        numbers = [each.number for each in self.session.record.slices]
        if not numbers or (number := numbers[-1]) is None:
            raise Skipped("the proxy's log does not say which slices it has")
        try:
            return str(faults.slice_down(self.session, number, yes=True))
        except ApiError as error:
            if error.status != 403:
                raise
            raise Skipped(f"the Role pathways-jupyter-faults is needed: {error}") from error


def connect(context: CheckContext) -> Iterator[str]:
    """Connect, and see the slices that were asked for."""
    from pathways_jupyter.session.kernel import session

    connecting = session.attempt_connect(context.config)
    for event in connecting:
        if event.kind is EventKind.WARNING or event.data.get("done"):
            elapsed = event.data.get("elapsed")
            yield event.message if elapsed is None else f"after {elapsed:.1f} s: {event.message}"
    context.connected = connecting.session
    for index, devices in context.session.slices().items():
        coordinates = " ".join(str(tuple(device.coords)) for device in devices[:8])
        yield f"slice {index}: {len(devices)} × {devices[0].device_kind} at {coordinates}{' ...' * (len(devices) > 8)}"
    slices = sum(context.config.instances.values())
    _claim(len(context.session.slices()) == slices, f"JAX sees {len(context.session.slices())} of {slices} slices.")


def compute(context: CheckContext) -> Iterator[str]:
    """Compare a product of each chip with NumPy's."""
    import jax
    import jax.numpy as jnp

    # Whole numbers below 9: exact in bfloat16, in which a TPU multiplies, and so are their sums in float32.
    random = np.random.default_rng(0)
    left, right = (random.integers(-8, 9, shape).astype(np.float32) for shape in ((128, 256), (256, 128)))
    multiply, devices = jax.jit(jnp.matmul), context.session.devices()
    products = [multiply(*jax.device_put((left, right), device)) for device in devices]
    wrong = [str(device) for device, product in zip(devices, products, strict=True) if (product != left @ right).any()]
    _claim(not wrong, f"The product is wrong on {', '.join(wrong)}.")
    yield f"128 × 256 by 256 × 128 on each of {count(len(devices), 'chip')}: as NumPy's"


def all_reduce(context: CheckContext) -> Iterator[str]:
    """Add up one row of each chip, and read the sum on every chip."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.sharding.Mesh(np.array(list(context.slices().values())), ("slice", "chip"))
    rows = np.repeat(np.arange(mesh.size, dtype=np.float32)[:, None], 1 << 12, axis=1)
    spread = jax.device_put(rows, NamedSharding(mesh, PartitionSpec(("slice", "chip"))))
    add = jax.jit(lambda value: value.sum(axis=0), out_shardings=NamedSharding(mesh, PartitionSpec()))
    add(spread).block_until_ready()
    began = time.monotonic()
    total = add(spread).block_until_ready()
    took = time.monotonic() - began
    shards, expected = total.addressable_shards, rows.sum(axis=0)
    wrong = [str(each.device) for each in shards if (np.asarray(each.data) != expected).any()]
    _claim(not wrong, f"The sum is wrong on {', '.join(wrong)}.")
    yield f"16 KiB from each of {mesh.size} chips on {count(len(mesh.devices), 'slice')}, in {1000 * took:.1f} ms"


def transfer(context: CheckContext) -> Iterator[str]:
    """Measure both directions of the tunnel."""
    import jax

    device = context.session.devices()[0]
    change = jax.jit(lambda value: value + 1)
    for size in (_SMALL_MB, _LARGE_MB):
        data = np.arange(size * 250_000, dtype=np.int32)
        for _ in range(2):
            # The second time, everything is compiled.
            began = time.monotonic()
            # Not the array that was put, of which JAX may have a copy here, or the proxy not have the bytes yet.
            changed = change(jax.device_put(data, device)).block_until_ready()
            arrived = time.monotonic()
            back = np.asarray(changed)
            ended = time.monotonic()
        _claim(bool((back == data + 1).all()), "The array came back changed.")
        up, down = size / (arrived - began), size / (ended - arrived)
        yield f"{size} MB: {up:.0f} MB/s up, {down:.0f} MB/s down"
        if min(up, down) < _SLOW_MB_PER_SECOND:
            return


def colocated(context: CheckContext) -> Iterator[str]:
    """Run a cell on the hosts, on their own shards."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from pathways_jupyter import colocated
    from pathways_jupyter.service import discovery
    from pathways_jupyter.session import clusters

    record = context.session.record
    service = clusters.ask(record, lambda client, namespace: discovery.find(client, namespace, record.service))
    if not service.sidecar_image:
        raise Skipped(f"the workers of {service.name} have no colocated Python sidecar")
    devices = context.session.devices()
    mesh = jax.sharding.Mesh(np.array(devices), ("chip",))
    numbers = jax.device_put(np.arange(len(devices)), NamedSharding(mesh, PartitionSpec("chip")))
    cell = "here = len(numbers.addressable_shards)"
    result = colocated.run_cell(cell, inputs={"numbers": numbers}, outputs=["here"], unpickle=False)
    if (error := result.error()) is not None:
        raise error
    seen = [int(number) for number in result.outputs["here"]]
    _claim(sum(seen) == len(devices), f"The hosts saw {seen} of {count(len(devices), 'shard')}.")
    yield f"on {count(len(seen), 'host')}, each with its own shards of an array: {seen} of {len(devices)}"


def interruption(context: CheckContext) -> Iterator[str]:
    """Cut the connection while a step is on its way; go on with the same arrays."""
    import jax

    from pathways_jupyter.session import client
    from pathways_jupyter.session.protocol import Method

    record, step = context.session.record, jax.jit(lambda value: value + 1)
    values = [jax.device_put(np.zeros(1000, np.int32), device) for device in context.session.devices()]
    seconds = []
    for number in range(1, _ROUNDS + 1):
        values = [step(value) for value in values]
        cut = client.request(record, Method.CUT)
        if cut is None:
            raise Skipped("there is no relay beside the proxy")
        _claim(cut > 0, "The tunnel had no connection to the relay.")
        began = time.monotonic()
        wrong = [str(value.device) for value in values if (np.asarray(value) != number).any()]
        _claim(not wrong, f"After interruption {number}, the array on {', '.join(wrong)} is another.")
        seconds.append(time.monotonic() - began)
    listed = ", ".join(f"{each:.2f}" for each in seconds)
    yield f"cut {_ROUNDS} times; every array survived, and was read {listed} s later"


def slice_lost(context: CheckContext) -> Iterator[str]:
    """Lose a slice: its arrays fail, the others stay, and it comes back."""
    import jax

    slices, since = context.slices(), context.session.event_count
    values = {index: jax.device_put(np.ones(8, np.float32), devices[0]) for index, devices in slices.items()}
    jax.block_until_ready(list(values.values()))
    began = time.time()
    yield context.lose_a_slice()
    down = context.wait_for(EventKind.SLICE_DOWN, since)
    yield f"{down.at - began:.1f} s later: {down.message}"
    lost = int(down.data["slice"])
    try:
        value = np.asarray(values.pop(lost) + 1)
    except jax.errors.JaxRuntimeError as error:
        yield f"an array on it: {str(error).partition(chr(10))[0]}"
    else:
        raise Broken(f"An array on the slice that is down could be read: {value}")
    _claim(all(float((value + 1).sum()) == 16 for value in values.values()), "Another slice computes wrongly.")
    yield "the other slices keep their arrays, and compute"
    healed = context.wait_for(EventKind.SLICE_HEALED, since)
    yield f"{healed.at - began:.1f} s later: {healed.message}"
    again = jax.device_put(np.ones(8, np.float32), context.session.slices()[lost][0]) + 1
    _claim(float(again.sum()) == 16, "The slice computes wrongly.")


def elastic(context: CheckContext) -> Iterator[str]:
    """Train; continue on fewer slices, and grow again."""
    import jax

    from pathways_jupyter import elastic
    from pathways_jupyter.elastic.record import Kind

    slices, since, record = context.slices(), context.session.event_count, elastic.Record()
    random = np.random.default_rng(0)
    target = random.standard_normal((16, 4), dtype=np.float32)

    def batches() -> Iterator[dict[str, np.ndarray]]:
        waited, more = False, _STEPS_AFTER
        for number in itertools.count():
            if number == _LOSS_AT:
                context.lose_a_slice()
            if not waited and record.count(Kind.RESUMED):
                # Training goes on without it: now it may come back.
                context.wait_for(EventKind.SLICE_HEALED, since)
                waited = True
            more -= record.count(Kind.GROWN) > 0
            if not more:
                return
            rows = random.standard_normal((4 * len(context.session.devices()), 16), dtype=np.float32)
            yield {"x": rows, "y": rows @ target}

    def step(state: Any, batch: Any) -> Any:
        def loss(weights: Any) -> Any:
            return ((batch["x"] @ weights - batch["y"]) ** 2).mean()

        value, gradient = jax.value_and_grad(loss)(state["weights"])
        return {"weights": state["weights"] - _RATE * gradient, "steps": state["steps"] + 1}, {"loss": value}

    state = {"weights": np.zeros((16, 4), np.float32), "steps": np.int32(0)}
    result = elastic.train_loop(step, state, batches(), steps=1_000_000, record=record)
    for event in record.events:
        yield event.message
    used = [note.slices for note in record.steps]
    first, *_, last = (result.metrics[number]["loss"] for number in range(result.step))
    without, applied = used.count(len(slices) - 1), int(result.state["steps"])
    yield f"{count(result.step, 'step')}, {without} of them without the slice: loss {first:.3g} -> {last:.3g}"
    _claim(applied == result.step, f"The state has had {applied} of {result.step} steps.")
    _claim({len(slices), len(slices) - 1} == set(used), f"The steps used {sorted(set(used))} slices.")
    _claim(last < first / 2, "Training did not lower the loss.")


def disconnect(context: CheckContext) -> Iterator[str]:
    """Disconnect; JAX is as it was."""
    import jax

    ended = context.session.disconnect()
    _claim(not ended.left, ended.left)
    yield f"JAX is back on {jax.devices()[0].platform}"


def _claim(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


CHECKS: Mapping[str, Callable[[CheckContext], Iterator[str]]] = {
    each.__name__.replace("_", "-"): each
    for each in (connect, compute, all_reduce, transfer, colocated, interruption, slice_lost, elastic, disconnect)
}
