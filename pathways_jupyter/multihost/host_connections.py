"""Find the hosts that a user names, and connect to them, now or later from another process.

A notebook keeps connections between its runs, so that the next one begins at once. They belong to one event loop, that
of a background thread, and so do all runs that use them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import json
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter import blocking
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.multihost.host_program import Channel, Connect
from pathways_jupyter.multihost.hostsession import HostSession, Sessions
from pathways_jupyter.multihost.targets import Target, Wanted, from_hosts

KEPT_SECONDS = 600.0
"""How long a connection without use is kept."""
_CLOSE_SECONDS = 2.0

_Key = tuple[str, Target]


@dataclass
class Kept:
    """The open connections without use, and the loop that they belong to."""

    background: blocking.Background = field(default_factory=blocking.Background)
    process: int = field(default_factory=os.getpid)
    free: dict[_Key, HostSession] = field(default_factory=dict)
    timers: dict[_Key, asyncio.TimerHandle] = field(default_factory=dict)

    def take(self, key: _Key) -> HostSession | None:
        """Return the connection with `key`, which is the caller's from now on; None if there is none."""
        if (timer := self.timers.pop(key, None)) is not None:
            timer.cancel()
        return self.free.pop(key, None)

    def put(self, key: _Key, session: HostSession) -> None:
        """Keep `session` for a while."""
        loop = asyncio.get_running_loop()
        self.free[key] = session
        self.timers[key] = loop.call_later(KEPT_SECONDS, lambda: loop.create_task(self._expire(key)))

    async def close(self) -> None:
        """Close all connections."""
        keys = list(self.free)
        await asyncio.gather(*(self._expire(key) for key in keys), return_exceptions=True)

    async def _expire(self, key: _Key) -> None:
        if (session := self.take(key)) is not None:
            await session.close()


class KeptSessions(Sessions):
    """Sessions of one kind of connection that are kept after their use."""

    def __init__(self, connect: Connect, kept: Kept, connection: Mapping[str, Any]) -> None:
        super().__init__(connect)
        self._kept = kept
        self._login = json.dumps(dict(connection), sort_keys=True)

    async def _open(self, target: Target) -> HostSession:
        """Return the kept session with `target` if it still works, or else a new one."""
        session = self._kept.take((self._login, target))
        if session is not None:
            if await session.works():
                return session
            await session.close()
        return await super()._open(target)

    async def release(self, session: HostSession) -> None:
        """Keep `session`, unless something on it is unfinished, or another one is kept already."""
        key = (self._login, session.target)
        if session.idle and key not in self._kept.free:
            self._kept.put(key, session)
        else:
            await session.close()


_kept: Kept | None = None


def here() -> Kept:
    """Return the connections of this process."""
    global _kept
    # After a fork there is no background thread.
    if _kept is None or _kept.process != os.getpid():
        _kept = Kept()
        atexit.register(close)
    return _kept


def close() -> None:
    """Close the connections of this process."""
    if _kept is None or _kept.process != os.getpid():
        return

    async def in_time() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await kept.close()

    kept = _kept
    blocking.run(in_time(), kept.background)


@dataclass(frozen=True)
class Hosts:
    """Hosts, and how to connect to them.

    Attributes:
      connection: JSON values for :func:`connecting`.
    """

    targets: tuple[Target, ...]
    connection: Mapping[str, Any]


async def find(wanted: Wanted) -> Hosts:
    """Return the hosts.

    Raises:
      ConfigError: Not exactly one kind of hosts is named, or there is none.
      ClusterError: The cluster cannot be reached.
    """
    named = [name for name in ("hosts", "tpu_prefix", "job", "service", "session") if getattr(wanted, name)]
    if len(named) != 1:
        raise ConfigError(
            "Which hosts?" if not named else f"Hosts are named in {len(named)} ways: {', '.join(named)}.",
            hint="Give one of --hosts FILE, --tpu-prefix NAME, --service NAME, --job NAME.",
        )
    ssh = {"kind": "ssh", "keys": list(wanted.keys), "known_hosts": wanted.known_hosts, "accept_new": wanted.accept_new}
    if wanted.hosts:
        return Hosts(from_hosts(wanted.hosts, wanted.user), ssh)
    if wanted.tpu_prefix:
        from pathways_jupyter.multihost.tpuvm import find as find_vms

        return Hosts(await find_vms(wanted), ssh)
    assert wanted.cluster is not None
    from pathways_jupyter.kube.client import Client
    from pathways_jupyter.multihost import pod_hosts
    from pathways_jupyter.session import protocol, reach

    async with Client(await reach.cluster(wanted.cluster)) as client:
        namespace = wanted.cluster.namespace or client.namespace
        if wanted.job:
            targets = await pod_hosts.of_job(client, namespace, wanted.job)
        else:
            targets = await pod_hosts.of_service(client, namespace, wanted.service or wanted.session)
    return Hosts(targets, {"kind": "pods", "config": protocol.config_to_json(wanted.cluster)})


@contextlib.asynccontextmanager
async def connecting(connection: Mapping[str, Any], kept: Kept | None = None) -> AsyncIterator[Sessions]:
    """Yield what opens sessions with the hosts that were found with `connection`.

    Args:
      kept: Where to keep connections over SSH afterwards.

    Raises:
      ConfigError: A key or the kubeconfig is missing.
    """
    if connection["kind"] == "pods":
        from pathways_jupyter.kube.client import Client
        from pathways_jupyter.multihost import pod_hosts
        from pathways_jupyter.session import protocol, reach

        config = protocol.config_from_json(connection["config"])
        async with Client(await reach.cluster(config)) as client:

            async def to_pod(target: Target, command: list[str]) -> Channel:
                return await pod_hosts.connect(client, target, command)

            async with Sessions(to_pod) as sessions:
                yield sessions
        return
    try:
        from pathways_jupyter.multihost.ssh import Ssh, SshOptions
    except ImportError as error:
        raise ConfigError(f"SSH needs the package {error.name}.", hint="Run pip install asyncssh.") from error
    known = {each.name for each in dataclasses.fields(SshOptions)}
    given = {name: value for name, value in connection.items() if name in known}
    connect = Ssh(SshOptions(**{**given, "keys": tuple(given.get("keys", ()))})).connect
    async with Sessions(connect) if kept is None else KeptSessions(connect, kept, connection) as sessions:
        yield sessions
