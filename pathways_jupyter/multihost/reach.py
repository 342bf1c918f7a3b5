"""Find the hosts that a user names, and connect to them, now or later from another process."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.errors import ConfigError
from pathways_jupyter.multihost.channel import Channel
from pathways_jupyter.multihost.hostsession import Sessions
from pathways_jupyter.multihost.kept import Kept, KeptSessions
from pathways_jupyter.multihost.targets import Target, from_hosts
from pathways_jupyter.multihost.wanted import Wanted


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
    from pathways_jupyter.multihost import pods
    from pathways_jupyter.session import protocol, reach

    async with Client(await reach.cluster(wanted.cluster)) as client:
        namespace = wanted.cluster.namespace or client.namespace
        if wanted.job:
            targets = await pods.of_job(client, namespace, wanted.job)
        else:
            targets = await pods.of_service(client, namespace, wanted.service or wanted.session)
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
        from pathways_jupyter.multihost import pods
        from pathways_jupyter.session import protocol, reach

        config = protocol.config_from_json(connection["config"])
        async with Client(await reach.cluster(config)) as client:

            async def to_pod(target: Target, command: list[str]) -> Channel:
                return await pods.connect(client, target, command)

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
