"""One request to some hosts and their answers, through JAX's own colocated Python.

The programs that JAX compiles for this are few and kept: they depend on the devices and on the arrays that go along,
not on the user's code, which travels in the request. So a cell costs one execution, and another for arrays that come
back; only arrays of a new shape cost a compilation.
"""

from __future__ import annotations

import gc
import math
import re
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.sentences import advice
from pathways_jupyter.colocated.errors import HOST, CheckError, ColocatedError, LostError
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.remote import codec
from pathways_jupyter.colocated.ship import Shipped
from pathways_jupyter.saved import on_devices
from pathways_jupyter.service.images import no_sidecar
from pathways_jupyter.session.kernel import process

if TYPE_CHECKING:
    import jax

ROW_BYTES = 16 * 1024
_FETCH_BYTES = (1 << 16, 1 << 18, 1 << 20)
_SMALLEST_REQUEST_BYTES = 4096
_MAX_ANSWER_BYTES = 1 << 30
"""Longest answer of one host that is fetched: a host may claim any length, and all of it lies in this process."""
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception)\b.*$", re.MULTILINE)
_STATUS_CODE = re.compile(r"^[A-Z_]+: ")


@dataclass(frozen=True)
class Answer:
    """Answer of one host: JSON values and binary parts."""

    host: Host
    head: dict[str, Any]
    parts: list[bytes]


class Channel:
    """Requests to some hosts. Use :func:`channel`, which keeps them.

    Args:
      to: The hosts.
      devices: CPU devices of theirs, at least one of each. Every array that goes along has to be on all of them.
    """

    def __init__(self, to: Sequence[Host], devices: Collection[jax.Device]) -> None:
        import jax
        import numpy as np

        self.hosts = tuple(to)
        self.slices = {host.slice for host in to}
        self._counts = [sum(cpu in devices for cpu in host.cpus) for host in to]
        self.devices = tuple(cpu for host in to for cpu in host.cpus if cpu in devices)
        self.mesh = jax.sharding.Mesh(np.array(self.devices), ("devices",))
        self.everywhere = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())
        self.by_device = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec("devices"))
        serve_rows = self.row_spec()
        self._serve = self.compiled(Shipped("serve", ROW_BYTES), lambda request, *inputs: serve_rows)
        self._fetches: dict[int, Callable[..., Any]] = {}
        self._take: dict[Any, Callable[..., Any]] = {}

    def ask(
        self, head: dict[str, Any], blobs: Sequence[bytes] = (), inputs: Sequence[jax.Array] = ()
    ) -> tuple[Answer, ...]:
        """Send one request and wait for every host's answer; blocks in C++, so Interrupt has no effect meanwhile.

        Raises:
          ColocatedError: The hosts could not be reached, were lost meanwhile, or could not read the request.
        """
        head.setdefault("call", uuid.uuid4().hex[:8])
        sent: list[jax.Array] = []
        try:
            sent.append(self.request(head, blobs))
            rows = self._per_host(self._serve(*sent, *inputs), ROW_BYTES)
            return self._answers(self._rest(head["call"], rows))
        except Exception as error:
            # The error would hold it for as long as the notebook remembers it, as an array that no variable reaches.
            for each in sent:
                each.delete()
            raise explain(error) from error

    def read(self, rows: jax.Array) -> tuple[Answer, ...]:
        """Return the hosts' answers in `rows`, where they fit into them; raises what :meth:`ask` raises."""
        try:
            return self._answers(self._per_host(rows, ROW_BYTES))
        except Exception as error:
            raise explain(error) from error

    def row_spec(self, row_bytes: int = ROW_BYTES) -> jax.ShapeDtypeStruct:
        """Return what an answer is, before it is there."""
        import jax
        import numpy as np

        return jax.ShapeDtypeStruct((len(self.devices), row_bytes), np.uint8, sharding=self.by_device)

    def take(self, call: str, specs: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
        """Return arrays that `call` left on these devices, by name, as global arrays of these specs."""
        out_specs = tuple(specs.values())
        targets = [(spec.shape, spec.dtype, spec.sharding) for spec in out_specs]
        program = self._take.get(tuple(targets))
        if program is None:
            program = self.compiled(Shipped("take", targets), lambda request: list(out_specs))
            self._take[tuple(targets)] = program
        try:
            arrays = program(self.request({"call": call, "names": list(specs)}, ()))
        except Exception as error:
            raise explain(error) from error
        return dict(zip(specs, arrays, strict=True))

    def compiled(self, function: Any, out_specs: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` as a colocated function on these devices, of which JAX knows the outputs beforehand."""
        from jax.experimental import colocated_python

        made: Callable[..., Any] = colocated_python.colocated_python(function).specialize(
            devices=self.devices, out_specs_fn=out_specs
        )
        return made

    def request(self, head: dict[str, Any], blobs: Sequence[bytes]) -> jax.Array:
        """Return a request as an array on every device."""
        import jax
        import numpy as np

        data = codec.encode({**head, "counts": self._counts}, list(blobs))
        size = _SMALLEST_REQUEST_BYTES
        while size < len(data):
            size *= 2
        padded = np.zeros(size, np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        sent: jax.Array = jax.device_put(padded, self.everywhere)
        on_devices.of_calls[id(sent)] = sent
        return sent

    def _answers(self, rows: Sequence[bytes]) -> tuple[Answer, ...]:
        answers = []
        for host, row in zip(self.hosts, rows, strict=True):
            head, parts = codec.decode(row)
            if "broken" in head:
                raise ColocatedError(
                    f"{host} could not handle the request: {head['broken']}",
                    hint=advice("{logs:worker 0} shows the sidecar's side."),
                )
            answers.append(Answer(host, head, parts))
        return tuple(answers)

    def _per_host(self, rows: jax.Array, row_bytes: int) -> list[bytes]:
        import numpy as np

        on_devices.of_calls[id(rows)] = rows
        data = np.asarray(rows).reshape(-1)
        answers, position = [], 0
        for count in self._counts:
            answers.append(data[position : position + count * row_bytes].tobytes())
            position += count * row_bytes
        return answers

    def _rest(self, call: str, rows: list[bytes]) -> list[bytes]:
        """Return whole answers, of which `rows` are the first: fetch the rest from the hosts that have more.

        Raises:
          ColocatedError: A host claims a longer answer than is fetched.
        """
        pieces = {host: [row] for host, row in zip(self.hosts, rows, strict=True)}
        lengths = {host: codec.length(row) for host, row in zip(self.hosts, rows, strict=True)}
        for host, length in lengths.items():
            if length > _MAX_ANSWER_BYTES:
                raise ColocatedError(
                    f"{host} has an answer of {length} bytes; at most {_MAX_ANSWER_BYTES} are fetched.",
                    hint="Return large data as arrays of numbers, which do not go through the notebook.",
                )
        done = ROW_BYTES
        while missing := {
            host: math.ceil(lengths[host] / count) - done
            for host, count in zip(self.hosts, self._counts, strict=True)
            if lengths[host] > done * count
        }:
            # One of few sizes, as each is a program of its own.
            size = next((each for each in _FETCH_BYTES if each >= max(missing.values())), _FETCH_BYTES[-1])
            others = channel(list(missing), set(self.devices) & {cpu for host in missing for cpu in host.cpus})
            for host, part in zip(missing, others._fetch(call, done, size), strict=True):
                pieces[host].append(part)
            done += size
        return [b"".join(parts) for parts in pieces.values()]

    def _fetch(self, call: str, skip: int, size: int) -> list[bytes]:
        """Return the next `size` bytes a row of every host's answer to `call`, after `skip`."""
        program = self._fetches.get(size)
        if program is None:
            spec = self.row_spec(size)
            program = self._fetches[size] = self.compiled(Shipped("fetch", size), lambda request: spec)
        return self._per_host(program(self.request({"call": call, "skip": skip}, ())), size)


class _Channels:
    """Caches that are dropped when JAX drops its clients, so that no old one stays alive: channels and others'.

    Attributes:
      on_clear: Called then.
    """

    def __init__(self) -> None:
        self.on_clear: Callable[[], None] = lambda: None
        self._channels: dict[Any, Channel] = {}
        self._lock = threading.Lock()
        self._is_registered = False

    def get(self, to: Sequence[Host], devices: frozenset[jax.Device]) -> Channel:
        key = (tuple(host.cpus for host in to), devices)
        with self._lock:
            if not self._is_registered:
                from jax.extend.backend import register_backend_cache

                register_backend_cache(self, "pathways_jupyter_channels")
                self._is_registered = True
            if key not in self._channels:
                self._channels[key] = Channel(to, devices)
            return self._channels[key]

    def cache_clear(self) -> None:
        """Drop the channels; JAX calls this when it drops its clients."""
        self.on_clear()
        with self._lock:
            dropped, self._channels = self._channels, {}
        if dropped:
            # JAX's callables are cycles: collected only after the connection is gone, each would log an error.
            dropped.clear()
            gc.collect()


CHANNELS = _Channels()


def channel(to: Sequence[Host], devices: Collection[jax.Device] | None = None) -> Channel:
    """Return the channel to these hosts, always the same; over one device of each, if `devices` are not given."""
    return CHANNELS.get(to, frozenset(devices if devices is not None else (host.cpus[0] for host in to)))


def explain(error: Exception) -> ColocatedError:
    """Return a runtime's error as one line that says what happened to the call."""
    if isinstance(error, ColocatedError):
        return error
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    reason = _STATUS_CODE.sub("", first)
    if "DATA_LOSS" in text:
        return LostError(
            f"A slice that the call needs is down: {reason}",
            hint=advice("Its arrays and its hosts' names are gone. {slices} shows the slices."),
        )
    if "no colocated Python sidecars" in first:
        session = process.session()
        job = session.record.pathways_job if session is not None else ""
        of, deployed = (f"of job {job}", "job new") if job else ("of the service", "service deploy")
        return CheckError(
            f"The workers {of} have no colocated Python sidecar, so nothing can run on their hosts.",
            hint=(no_sidecar(version("jax")) or f"Deploy it with {deployed} --sidecar-image.")
            + ("" if job else " An embedded cluster has them unless it was started with --no-sidecar."),
        )
    if "sidecar" in first:
        return LostError(
            f"A sidecar was lost while the call ran: {reason}",
            hint="It restarts by itself, without the names of earlier cells: run them again.",
        )
    if any(code in text for code in ("UNAVAILABLE", "CANCELLED")):
        return LostError(
            f"The connection was lost while the call ran: {reason}", hint=advice("{reconnect} gets another.")
        )
    # What a host raised, without its traceback, after the host's name.
    host, raised = HOST.search(text), _RAISED.findall(text)
    return ColocatedError(
        f"The hosts could not run the call: {f'{host.group(0)}: {raised[-1]}' if host and raised else first}",
        hint=advice("{logs:worker 0} shows the sidecar's side."),
    )
