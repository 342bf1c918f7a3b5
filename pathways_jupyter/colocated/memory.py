"""Short requests to the hosts of a session, and a cache of what is known of them.

The requests ask for facts and for the names that cells have left there, have these forgotten, and end the processes.
The cache is cleared when JAX drops its clients.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.colocated import host_versions
from pathways_jupyter.colocated.channel import CHANNELS, Answer, Channel, channel
from pathways_jupyter.colocated.errors import ColocatedError, LostError, host_text, name_hosts
from pathways_jupyter.colocated.host import Host, choose, hosts
from pathways_jupyter.colocated.loss import wait_for_hosts
from pathways_jupyter.saved import on_devices

_RESTART_SECONDS = 60.0
"""Longest time for new processes: a kubelet backs off when a container ends again and again."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 2.0


def ask(channel: Channel, head: dict[str, Any], *, seconds: float = math.inf) -> tuple[Answer, ...]:
    """Send a short request and wait for every host's answer; Interrupt ends the wait.

    Raises:
      CheckError: A host's versions are incompatible, so it cannot read the request.
      ColocatedError: The hosts could not be reached, or went away meanwhile.
      TimeoutError: They did not answer within `seconds`.
    """
    try:
        return wait_for_hosts(channel.slices, lambda: channel.ask(head), seconds=seconds)
    except LostError:
        raise
    except ColocatedError as error:
        there = wait_for_hosts(channel.slices, lambda: host_versions.query_versions(channel.hosts), seconds=seconds)
        different = host_versions.differences(host_versions.here(), there)
        severe = [each for each in different if each.severe]
        if severe:
            raise host_versions.refuse(different, severe) from error
        raise


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
    """Facts about hosts, and the objects there.

    Attributes:
      epoch: Counts the clients of JAX: with another one, all objects on hosts are gone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[Any, Facts] = {}
        self._notified: set[Hashable] = set()
        self._released: deque[tuple[str, frozenset[int]]] = deque()
        self._named: weakref.WeakKeyDictionary[Any, dict[int, tuple[str, int]]] = weakref.WeakKeyDictionary()
        self.epoch = 0
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
            texts = {each: host_text(head[each]) for each in ("executable", "hostname", "pod_ip", "directory", "boot")}
            facts = Facts(
                **texts,
                embedded=bool(head["embedded"]),
                versions={component: host_text(version) for component, version in head["versions"].items()},
                pid=int(head["pid"]),
                packages=frozenset(head["packages"]),
            )
            with self._lock:
                self._facts[answer.host.cpus] = facts
        return {host.index: self._facts[host.cpus] for host in to}

    def note_names(self, host: Host, boot: str) -> None:
        """Note that a cell ran in this process of the host's sidecar and may have defined names there."""
        self._of_this_session()[host.index] = (boot, self.epoch)

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
                reason = "The sidecar restarted" if named[1] == self.epoch else "The session was reconnected"
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

    def release(self, key: str, on: Collection[int]) -> None:
        """Note an object whose handle was collected; the next call on each of the hosts `on` releases it there."""
        # Garbage collection may call this in a thread that holds the lock, so it must not take the lock; appending to a
        # deque is atomic.
        self._released.append((key, frozenset(on)))

    def take_released(self, to: Sequence[Host]) -> list[str]:
        """Return the objects to release on the hosts `to`, each once; on other hosts later calls release them."""
        indices, released = {host.index for host in to}, []
        with self._lock:
            for _ in range(len(self._released)):
                key, on = self._released.popleft()
                if on & indices:
                    released.append(key)
                if left := on - indices:
                    self._released.append((key, left))
        return released

    def clear(self) -> None:
        """Forget what belongs to a client of JAX."""
        with self._lock:
            self.epoch += 1
            self._facts.clear()
            self._notified.clear()
            self._released.clear()
        on_devices.ending.clear()


MEMORY = _Memory()
CHANNELS.on_clear = MEMORY.clear


def reset(**where: Any) -> None:
    """Delete the names that cells of this session defined; `where` is ``slices`` and ``hosts``, see `choose`."""
    ask(channel(choose(hosts(), **where)), {"op": "reset", "session": MEMORY.session})


def who(**where: Any) -> dict[int, dict[str, str]]:
    """Return the names that cells of this session defined, each with its type, by host index."""
    answers = ask(channel(choose(hosts(), **where)), {"op": "who", "session": MEMORY.session})
    return {
        answer.host.index: {host_text(name): host_text(kind) for name, kind in answer.head["names"].items()}
        for answer in answers
    }


def restart(**where: Any) -> tuple[Host, ...]:
    """Restart the sidecars' processes, and return when all of them answer again; names of earlier cells are gone.

    For what Interrupt does not end: code that catches it, or that waits in C. A process ends itself on request, as it
    answers requests beside whatever still runs. Its container then starts anew: in the embedded cluster the proxy gets
    another process, elsewhere the kubelet restarts the container.

    Args:
      where: ``slices`` and ``hosts``, see :func:`~pathways_jupyter.colocated.host.choose`; all hosts by default.

    Raises:
      ColocatedError: A host did not answer in time.
    """
    chosen = choose(hosts(), **where)
    deadline = time.monotonic() + _RESTART_SECONDS

    def answers_to(operation: str) -> tuple[Answer, ...]:
        """Return what hosts answer; nothing where a process went away before it did."""
        try:
            return ask(channel(chosen), {"op": operation}, seconds=deadline - time.monotonic())
        except LostError:
            return ()
        except TimeoutError:
            raise ColocatedError(
                f"{name_hosts([host.index for host in chosen])} did not answer for {_RESTART_SECONDS:.0f} s.",
                hint=advice(
                    "Delete the pods (kubectl delete pod NAME; {colocated_hosts} names them): arrays on their "
                    "slices are lost."
                ),
            ) from None

    before = {index: facts.boot for index, facts in MEMORY.facts(chosen).items()}
    before |= {answer.host.index: answer.head["boot"] for answer in answers_to("restart")}
    for _ in Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS):
        answers = answers_to("ping")
        if answers and all(answer.head["boot"] != before[answer.host.index] for answer in answers):
            break
    MEMORY.forget(chosen)
    return chosen
