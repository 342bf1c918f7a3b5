"""A cache of facts about the hosts of this process's session; cleared when JAX drops its clients."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.colocated.channel import channel
from pathways_jupyter.colocated.errors import CheckError
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.interruptible_wait import ask


@dataclass(frozen=True)
class Facts:
    """One host's own description.

    Attributes:
      python: Its Python's version.
      executable: Its Python's path.
      embedded: Whether it belongs to the embedded cluster, whose hosts run this machine's Python.
      versions: Versions by component, ``python`` among them.
      pid: The sidecar's process id there.
      hostname: The host's name; in Kubernetes the pod's, or the node's under host networking.
      pod_ip: The pod's address, if its environment contains it.
      directory: The sidecar's working directory.
      process_index: What ``jax.process_index()`` is there.
      packages: Top-level names of the modules that can be imported.
      boot: Identifies the sidecar's process.
    """

    python: str
    executable: str
    embedded: bool
    versions: dict[str, str]
    pid: int
    hostname: str
    pod_ip: str
    directory: str
    process_index: int
    packages: frozenset[str]
    boot: str


def _no_session() -> None:
    return None


class _Memory:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[Any, Facts] = {}
        self._notified: set[Hashable] = set()
        self._released: list[str] = []
        self._session: Callable[[], Any] = _no_session
        self._named: dict[int, tuple[str, int]] = {}
        self._epoch = 0
        self._registered = False
        self._process = uuid.uuid4().hex[:12]

    @property
    def session(self) -> str:
        """Id of the namespace on the hosts: this process's session, or the process if JAX was connected by hand."""
        from pathways_jupyter.session.kernel.session import current

        session = current()
        return session.id if session is not None else self._process

    def facts(self, to: Sequence[Host], *, fresh: bool = False) -> dict[int, Facts]:
        """The facts about `to` by host index; asks the hosts that are not cached, or all of them if `fresh`.

        Raises:
          CheckError: A host's versions are incompatible, or hosts have no sidecar.
          ColocatedError: The hosts could not be reached.
        """
        self._register()
        unknown = [host for host in to if fresh or host.cpus not in self._facts]
        if unknown:
            for answer in ask(channel(unknown), {"op": "facts"}):
                head = answer.head
                _require_sidecar(head["hostname"])
                with self._lock:
                    self._facts[answer.host.cpus] = Facts(
                        python=head["python"],
                        executable=head["executable"],
                        embedded=head["embedded"],
                        versions={"python": head["python"], **head["versions"]},
                        pid=head["pid"],
                        hostname=head["hostname"],
                        pod_ip=head["pod_ip"],
                        directory=head["directory"],
                        process_index=head["process_index"],
                        packages=frozenset(head["packages"]),
                        boot=head["boot"],
                    )
        return {host.index: self._facts[host.cpus] for host in to}

    def restarted(self, host: Host, boot: str) -> bool:
        """Whether the host's sidecar is another process than before; if so, drop the facts about it."""
        known = self._facts.get(host.cpus)
        if known is None or known.boot == boot:
            return False
        with self._lock:
            self._facts.pop(host.cpus, None)
        return True

    def note_names(self, host: Host, boot: str) -> None:
        """Note that a cell ran in this process of the host's sidecar and may have defined names there."""
        self._of_this_session()[host.index] = (boot, self._epoch)

    def names_gone(self, to: Sequence[Host]) -> dict[str, list[int]]:
        """The hosts on which this session's earlier names are gone, by reason; each loss is returned once."""
        named_on = self._of_this_session()
        gone: dict[str, list[int]] = {}
        for host in to:
            named, known = named_on.get(host.index), self._facts.get(host.cpus)
            if named and known and named[0] != known.boot:
                del named_on[host.index]
                reason = "The sidecar restarted" if named[1] == self._epoch else "The session was reconnected"
                gone.setdefault(reason, []).append(host.index)
        return gone

    def forget(self, to: Sequence[Host]) -> None:
        """Drop the facts about hosts whose sidecar was restarted on purpose, so that no cell warns about it."""
        named_on = self._of_this_session()
        for host in to:
            with self._lock:
                self._facts.pop(host.cpus, None)
            named_on.pop(host.index, None)

    def _of_this_session(self) -> dict[int, tuple[str, int]]:
        # The object rather than its id, because a reconnect after the supervisor's death changes the id.
        from pathways_jupyter.session.kernel.session import current

        if self._session() is not current():
            session = current()
            self._session = weakref.ref(session) if session is not None else _no_session
            self._named = {}
        return self._named

    def is_first(self, what: Hashable) -> bool:
        """Whether this is the first call with `what`, so that a notice about it is shown once."""
        with self._lock:
            new = what not in self._notified
            self._notified.add(what)
        return new

    def release(self, key: str) -> None:
        """Note an object whose handle was collected; the next request releases it on the hosts."""
        # Garbage collection may call this in a thread that holds the lock, so it must not take the lock; appending to a
        # list is atomic.
        self._released.append(key)

    def take_released(self) -> list[str]:
        """The objects to release."""
        released, self._released = self._released, []
        return released

    def cache_clear(self) -> None:
        """Clear the cache; JAX calls this when it drops its clients."""
        with self._lock:
            self._epoch += 1
            self._facts.clear()
            self._notified.clear()
            self._released.clear()

    def _register(self) -> None:
        if not self._registered:
            from jax.extend.backend import register_backend_cache

            register_backend_cache(self, "pathways_jupyter_hosts")
            self._registered = True


def _require_sidecar(hostname: str) -> None:
    """Fail if the proxy answered instead of a sidecar, as the embedded cluster's proxy does without sidecars."""
    from pathways_jupyter.session.kernel.session import current

    session = current()
    if session is not None and session.record.pod == hostname:
        raise CheckError(
            "The service's workers have no colocated Python sidecar, so nothing can run on its hosts.",
            hint="Add one: pathways-jupyter sidecar build --help, or pathways-jupyter local up --sidecar.",
        )


MEMORY = _Memory()
