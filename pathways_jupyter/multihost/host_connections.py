"""Find the hosts that a user names, and connect to them.

A notebook keeps connections between its runs, so that the next one begins at once. They belong to one event loop, that
of a background thread, and so do all runs that use them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.packages import require
from pathways_jupyter.multihost.errors import RemoteHostError
from pathways_jupyter.multihost.host_program import Connect, Connection, Program
from pathways_jupyter.multihost.targets import Selection, Target, from_hosts

_IDLE_START_SECONDS = 5.0


@dataclass
class IdleConnections:
    """The open connections without use, by login and target, and the loop that they belong to."""

    background: tasks.Background = field(default_factory=tasks.Background)
    process: int = field(default_factory=os.getpid)
    free: dict[tuple[Hashable, Target], Connection] = field(default_factory=dict)

    async def close(self) -> None:
        """Close all connections."""
        idle = list(self.free.values())
        self.free.clear()
        await asyncio.gather(*(each.close() for each in idle), return_exceptions=True)


class Connections:
    """Starts the program on hosts, and closes or keeps the connections after their use.

    Args:
      idle: Where to keep them; None to close them.
      login: The kind of connection, which those that are kept have to share.
    """

    def __init__(self, connect: Connect, idle: IdleConnections | None = None, login: Hashable = None) -> None:
        self._connect, self._idle, self._login = connect, idle, login

    async def open(self, target: Target) -> Program:
        """Start the program on `target`, over a connection that was kept if it still works.

        Raises:
          HostUnreachable: The host cannot be reached.
          RemoteHostError: It refuses the login.
        """
        connection = None if self._idle is None else self._idle.free.pop((self._login, target), None)
        if connection is not None:
            # A connection that was idle may have been lost without a sign.
            with contextlib.suppress(RemoteHostError, TimeoutError):
                async with asyncio.timeout(_IDLE_START_SECONDS):
                    return await _started(target, connection)
        return await _started(target, await self._connect(target))

    async def release(self, program: Program) -> None:
        """End a program and keep its connection, or close it, also if another one is kept already."""
        await program.close()
        key = (self._login, program.target)
        if self._idle is not None and key not in self._idle.free:
            self._idle.free[key] = program.connection
        else:
            await program.connection.close()


async def _started(target: Target, connection: Connection) -> Program:
    """Start the program over `connection`, which is closed if that fails or is cancelled."""
    try:
        return await Program.start(target, connection)
    except BaseException:
        await connection.close()
        raise


_idle: IdleConnections | None = None


def here() -> IdleConnections:
    """Return the connections of this process."""
    global _idle
    # After a fork there is no background thread.
    if _idle is None or _idle.process != os.getpid():
        _idle = IdleConnections()
        atexit.register(close)
    return _idle


def close() -> None:
    """Close the connections of this process."""
    if _idle is not None and _idle.process == os.getpid():
        tasks.run(_idle.close(), _idle.background)


@contextlib.asynccontextmanager
async def connecting(
    selection: Selection, idle: IdleConnections | None = None
) -> AsyncIterator[tuple[tuple[Target, ...], Connections]]:
    """Find hosts; yield them, and what connects to them.

    Args:
      idle: Where to keep connections over SSH afterwards.

    Raises:
      ConfigError: Not exactly one kind of hosts is named, or there is none; or a key or the kubeconfig is missing.
      ClusterError: The cluster cannot be reached.
    """
    named = [name for name in ("hosts", "tpu_prefix", "job", "service", "session") if getattr(selection, name)]
    if len(named) != 1:
        raise ConfigError(
            "Which hosts?" if not named else f"Hosts are named in {len(named)} ways: {', '.join(named)}.",
            hint="Give one of --hosts FILE, --tpu-prefix NAME, --service NAME, --session ID, --job NAME.",
        )
    if selection.cluster is not None:
        # Imported here, as those below: hosts of a list need no cluster and no Google.
        from pathways_jupyter.kube.client import Client
        from pathways_jupyter.multihost import pod_hosts
        from pathways_jupyter.session import clusters

        async with Client(await clusters.resolve(selection.cluster)) as client:

            async def to_pod(target: Target) -> Connection:
                return pod_hosts.PodConnection(client, target)

            hosts = await pod_hosts.find(
                client,
                selection.cluster.namespace or client.namespace,
                job=selection.job,
                service=selection.service or selection.session,
                partial=selection.keep_going,
            )
            # Not kept: the client and its connection to the API server end with this block.
            yield hosts, Connections(to_pod)
        return
    if selection.hosts:
        targets = from_hosts(selection.hosts, selection.user)
    else:
        from pathways_jupyter.multihost import tpuvm

        targets = await asyncio.to_thread(tpuvm.find, selection)
    require("hosts", "SSH", "asyncssh")
    from pathways_jupyter.multihost.ssh import Ssh

    login = (selection.keys, selection.known_hosts, selection.accept_new)
    ssh = Ssh(selection.keys, selection.known_hosts, accept_new=selection.accept_new)
    yield targets, Connections(ssh.connect, idle, login)
