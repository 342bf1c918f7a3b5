"""Cache of facts about the hosts of a session; it is cleared when JAX drops its clients."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.colocated.channel import CHANNELS, channel
from pathways_jupyter.colocated.errors import printable
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.interruptible_wait import ask


@dataclass(frozen=True)
class Facts:
    """One host's own description.

    Attributes:
      executable: The path of its Python.
      embedded: Whether it belongs to the embedded cluster, whose hosts run this machine's Python.
      versions: Versions by component, ``python`` among them.
      pid: The sidecar's process id there.
      hostname: The host's name; in Kubernetes the pod's, or the node's under host networking.
      pod_ip: The pod's address, if its environment contains it.
      directory: The sidecar's working directory.
      packages: Top-level names of the modules that can be imported.
      boot: Identifies the sidecar's process.
    """

    executable: str
    embedded: bool
    versions: dict[str, str]
    pid: int
    hostname: str
    pod_ip: str
    directory: str
    packages: frozenset[str]
    boot: str


class _Memory:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[Any, Facts] = {}
        self._notified: set[Hashable] = set()
        self._released: list[str] = []
        self._named: weakref.WeakKeyDictionary[Any, dict[int, tuple[str, int]]] = weakref.WeakKeyDictionary()
        self._epoch = 0
        self._process = uuid.uuid4().hex[:12]

    @property
    def session(self) -> str:
        """Id of the namespace on the hosts: this process's session, or the process if JAX was connected by hand."""
        from pathways_jupyter.session.kernel.session import current

        session = current()
        return session.id if session is not None else self._process

    def facts(self, to: Sequence[Host], *, fresh: bool = False) -> dict[int, Facts]:
        """Return the facts about `to` by host index; asks the hosts that are not cached, or all of them if `fresh`.

        Raises:
          CheckError: A host's versions are incompatible, or hosts have no sidecar.
          ColocatedError: The hosts could not be reached.
        """
        unknown = [host for host in to if fresh or host.cpus not in self._facts]
        for answer in ask(channel(unknown), {"op": "facts"}) if unknown else ():
            head = answer.head
            texts = {each: printable(head[each]) for each in ("executable", "hostname", "pod_ip", "directory", "boot")}
            facts = Facts(
                **texts,
                embedded=bool(head["embedded"]),
                versions={component: printable(version) for component, version in head["versions"].items()},
                pid=int(head["pid"]),
                packages=frozenset(head["packages"]),
            )
            with self._lock:
                self._facts[answer.host.cpus] = facts
        return {host.index: self._facts[host.cpus] for host in to}

    def note_names(self, host: Host, boot: str) -> None:
        """Note that a cell ran in this process of the host's sidecar and may have defined names there."""
        self._of_this_session()[host.index] = (boot, self._epoch)

    def lost_names(self, boots: Mapping[Host, str]) -> dict[str, list[int]]:
        """Return the hosts on which this session's earlier names are gone, by reason; each loss once.

        Args:
          boots: The process of each host's sidecar, as the host has named it. The facts about another one are dropped.
        """
        named_on = self._of_this_session()
        gone: dict[str, list[int]] = {}
        for host, boot in boots.items():
            facts, named = self._facts.get(host.cpus), named_on.get(host.index)
            if facts is not None and facts.boot != boot:
                with self._lock:
                    self._facts.pop(host.cpus, None)
            if named is not None and named[0] != boot:
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
        # By the object rather than its id, because a reconnect after the supervisor's death changes the id.
        from pathways_jupyter.session.kernel.session import current

        return self._named.setdefault(current() or self, {})

    def is_first(self, what: Hashable) -> bool:
        """Return whether this is the first call with `what`, so that a notice about it is shown once."""
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
        """Return the objects to release, each once."""
        released, self._released = self._released, []
        return released

    def clear(self) -> None:
        """Forget what belongs to a client of JAX."""
        with self._lock:
            self._epoch += 1
            self._facts.clear()
            self._notified.clear()
            self._released.clear()


MEMORY = _Memory()
CHANNELS.on_clear = MEMORY.clear
