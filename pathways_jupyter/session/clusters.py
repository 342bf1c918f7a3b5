"""The cluster of a session or of a command's options: resolve it, and ask it something.

A session's cluster is resolved at its start and for a later clean-up, which may run in another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pathways_jupyter.base import runtime_files, tasks
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import (
    ApiError,
    ClusterError,
    ConfigError,
    LocalClusterError,
    NoKubeconfigError,
    PathwaysError,
    Unreachable,
)
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.base.text import parse_path
from pathways_jupyter.kube.auth import OTHER_CLUSTERS, of_config
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.registry import SessionRecord

Answer = TypeVar("Answer")
Reload = Callable[[ClusterError], Awaitable[None]]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.01
_ENDING_SECONDS = 1.0
"""Longest time that a process which was killed is still ending."""


async def resolve(where: ConnectConfig | SessionRecord) -> Cluster:
    """Return the cluster of a config, or of a session, also after the current context was changed.

    Raises:
      ConfigError: There is no kubeconfig, or it cannot be used; the hint says if the embedded cluster is running.
      ClusterError: Google Cloud has no such cluster.
    """
    config, environ = _config(where), None
    if isinstance(where, SessionRecord):
        if where.kubeconfigs:
            environ = {**os.environ, "KUBECONFIG": where.kubeconfigs}
        if not config.cluster and not config.context and where.context != "in-cluster":
            config = replace(config, context=where.context)
    try:
        # Only Google is asked over the network.
        return await asyncio.to_thread(of_config, config, environ) if config.cluster else of_config(config, environ)
    except ConfigError as error:
        if isinstance(where, ConnectConfig) and (here := embedded_hint(where)):
            others = advice("Otherwise use {others}", others=OTHER_CLUSTERS)
            hint = others if isinstance(error, NoKubeconfigError) else error.hint
            raise type(error)(str(error), hint=advice("{here} {hint}", here=here, hint=hint)) from error.__cause__
        raise


def _config(where: ConnectConfig | SessionRecord) -> ConnectConfig:
    return where if isinstance(where, ConnectConfig) else protocol.config_from_json(where.config)


def reloader(where: Callable[[], ConnectConfig | SessionRecord], client: Client) -> Reload:
    """Return what loads the cluster of `where` again, if it may have moved, or may have new credentials."""

    async def reload(error: ClusterError) -> None:
        try:
            cluster = await resolve(where())
        except PathwaysError as problem:
            logger.info("the cluster's address cannot be loaded again: %s", problem)
            return
        # A refusal may be about expired credentials, so the new ones are taken at the same address, too.
        if cluster.server != client.cluster.server or isinstance(error, ApiError):
            logger.info("continuing at %s", cluster.server)
            client.move(cluster)

    return reload


def ask(where: ConnectConfig | SessionRecord, question: Callable[[Client, str], Awaitable[Answer]]) -> Answer:
    """Run `question` with a client of the cluster of `where` and the namespace; return its result.

    Raises:
      PathwaysError: The cluster cannot be reached, or `question` raised it.
    """

    async def answer() -> Answer:
        async with explain_local_errors(where), Client(await resolve(where)) as client:
            return await question(client, where.namespace or client.namespace)

    return tasks.run(answer())


def stream(
    where: ConnectConfig | SessionRecord, source: Callable[[Client, str], AsyncIterator[Answer]]
) -> AbstractContextManager[Iterator[Answer]]:
    """Context manager over the values of `source` as they arrive; see :func:`.tasks.iterate`."""

    async def values() -> AsyncIterator[Answer]:
        async with explain_local_errors(where), Client(await resolve(where)) as client:
            async for value in source(client, where.namespace or client.namespace):
                yield value

    return tasks.iterate(values)


def embedded_hint(config: ConnectConfig) -> str:
    """Return a hint if no cluster was named but the embedded one is running; otherwise an empty string."""
    running = runtime_files.embedded_clusters() / runtime_files.DEFAULT_CLUSTER / runtime_files.ALIVE
    named = config.cluster or config.context or config.kubeconfig
    if named or not runtime_files.is_held(running):
        return ""
    return advice("The embedded cluster is running on this machine: add {local} to use it.")


@dataclass(frozen=True)
class Storage:
    """The bucket of an embedded cluster.

    Attributes:
      bucket: ``gs://NAME``.
      variables: Lead the clients of Google Cloud Storage to it, in this process or another of this machine.
    """

    bucket: str
    variables: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Storage | None:
        """Read a cluster's own file about it; None when the cluster has ended."""
        try:
            values = runtime_files.read_json(path)
            return cls(values["bucket"], values["variables"])
        except (OSError, ValueError, KeyError):
            return None

    @classmethod
    def of(cls, where: ConnectConfig | SessionRecord) -> Storage | None:
        """Return that of a config's or a session's cluster; None if it is not an embedded one, or has ended."""
        embedded, config = Embedded.of(where), _config(where)
        if embedded is not None:
            return cls.read(embedded.kubeconfig.with_name(runtime_files.STORAGE))
        if not in_embedded_pod() or config.cluster or config.context or config.kubeconfig:
            return None
        # The pod's own kubeconfig is deeper in the cluster's directory.
        around = (each / runtime_files.STORAGE for each in parse_path(os.environ.get("KUBECONFIG", "")).parents)
        return next((cls.read(each) for each in around if each.is_file()), None)


def in_embedded_pod() -> bool:
    """Return whether this process runs in a pod of an embedded cluster."""
    return bool(os.environ.get("PATHWAYS_LOCAL_SOCKETS"))


@dataclass(frozen=True)
class Embedded:
    """The embedded cluster that a session runs on, which ends with everything in it.

    Attributes:
      content: Its kubeconfig's content, which is unique, even among clusters of the same name.
    """

    kubeconfig: Path
    content: bytes

    @classmethod
    def of(cls, where: ConnectConfig | SessionRecord) -> Embedded | None:
        """Return the embedded cluster that a config or a session names, in whatever way; None for another kind.

        Its kubeconfig may be named by an option or by ``KUBECONFIG``, and may be a copy.
        """
        config = _config(where)
        listed = where.kubeconfigs if isinstance(where, SessionRecord) else os.environ.get("KUBECONFIG", "")
        named = config.kubeconfig or ("" if config.local else listed)
        if config.cluster or not named:
            return None
        path = parse_path(named)
        # A pod's own, deeper in that directory, is none of these: in the pod it is the cluster around it.
        if config.local or path.parent.parent == runtime_files.embedded_clusters():
            return cls(path, _content(path))
        content = _content(path)
        others = runtime_files.embedded_clusters().glob(f"*/{runtime_files.KUBECONFIG}") if content else ()
        return next((cls(each, content) for each in others if _content(each) == content), None)

    def has_ended(self) -> bool:
        """Return whether it has ended, and all its objects with it."""
        if not runtime_files.is_held(self.kubeconfig.with_name(runtime_files.ALIVE)):
            return True
        try:
            return self.kubeconfig.read_bytes() != self.content
        except OSError as error:
            return error.errno not in runtime_files.NO_DESCRIPTOR

    @property
    def named(self) -> str:
        """The end of a command that is for it; empty for the one of the default name."""
        # Only errors need it: a supervisor has no other use for the cluster's modules.
        from pathways_jupyter.local.directory import named

        return named(self.kubeconfig.parent.name)

    @property
    def pid(self) -> str:
        """Its process."""
        with contextlib.suppress(OSError):
            return self.kubeconfig.with_name(runtime_files.ALIVE).read_text(encoding="ascii").strip()
        return ""

    async def until_ended(self, every: float) -> None:
        """Return when it has ended; it is looked at every so many seconds."""
        async for _ in Backoff(every, every):
            if self.has_ended():
                return

    async def is_ending(self) -> bool:
        """Return whether it ends within a moment: a killed process may close its connections before its lock."""
        moments = Backoff(_FIRST_PAUSE_SECONDS, _ENDING_SECONDS, seconds=_ENDING_SECONDS)
        async for _ in moments:
            if self.has_ended() or moments.is_over:
                break
        return self.has_ended()


def _content(path: Path) -> bytes:
    """Return what is in a file; nothing if it cannot be read, or is none: to open a FIFO would wait for its writer."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def bucket(where: ConnectConfig | SessionRecord) -> str:
    """Return the scratch location of a session, ``gs://...``: what was asked for, or the embedded cluster's bucket."""
    storage = Storage.of(where)
    return _config(where).gcs_bucket or (storage.bucket if storage is not None else "")


def storage_of_machine() -> Storage | None:
    """Return the bucket of the embedded cluster that runs on this machine by default; None if it does not run."""
    directory = runtime_files.embedded_clusters() / runtime_files.DEFAULT_CLUSTER
    if not runtime_files.is_held(directory / runtime_files.ALIVE):
        return None
    return Storage.read(directory / runtime_files.STORAGE)


def storage_of(location: str) -> Storage | None:
    """Return the embedded cluster's bucket, of those that run on this machine, that `location` is in; else None."""
    paths = sorted(runtime_files.embedded_clusters().glob(f"*/{runtime_files.STORAGE}"), key=os.path.getmtime)
    # They all have the same name; one that began later is more likely to be meant.
    for path in reversed(paths):
        # One that was killed has left its address.
        storage = Storage.read(path) if runtime_files.is_held(path.with_name(runtime_files.ALIVE)) else None
        if storage is not None and f"{location}/".startswith(f"{storage.bucket}/"):
            return storage
    return None


@contextlib.asynccontextmanager
async def explain_local_errors(where: ConnectConfig | SessionRecord) -> AsyncIterator[None]:
    """Explain errors of the cluster of `where` by what became of the embedded cluster, if it is that one.

    The advice for a cluster that cannot be reached is about networks, which the embedded one does not need.

    Raises:
      LocalClusterError: It cannot be reached, because it has ended.
      Unreachable: It runs, but does not answer.
    """
    embedded = Embedded.of(where)
    try:
        yield
    except (ClusterError, ConfigError) as error:
        # Without a cluster there is not even its kubeconfig, which is a ConfigError. An ApiError is an answer.
        if embedded is None or isinstance(error, ApiError):
            raise
        if await embedded.is_ending():
            raise embedded_ended(embedded) from error
        if isinstance(error, Unreachable):
            raise embedded_silent(embedded) from error
        raise


def require_running(where: ConnectConfig | SessionRecord) -> None:
    """Check that the cluster of `where` has not ended, if it is an embedded one: its bucket ends with it.

    Raises:
      LocalClusterError: It has.
    """
    # Clients of the bucket would try for half a minute.
    if (embedded := Embedded.of(where)) is not None and embedded.has_ended():
        raise embedded_ended(embedded)


def embedded_silent(embedded: Embedded) -> Unreachable:
    """Return the error for an embedded cluster that runs, but does not answer."""
    return Unreachable(
        "The embedded cluster of this machine does not answer.",
        hint=f"Wait a moment: its API server may be restarting. If its process was stopped, kill -CONT {embedded.pid} "
        f"continues it. Only pathways-jupyter local down{embedded.named}, which ends everything on it, and then "
        f"local up{embedded.named} start it anew.",
    )


def embedded_ended(embedded: Embedded | None = None) -> LocalClusterError:
    """Return the error for an embedded cluster that has ended; without one it is that of the default name."""
    ended, named = "The embedded cluster of this machine has ended.", "" if embedded is None else embedded.named
    up = f"pathways-jupyter local up{named}"
    mine = _own_session(embedded) if embedded is not None else None
    # A notebook that has a session cannot connect.
    suspended = mine is not None and mine.state is SessionState.SUSPENDED
    back = advice("{resume}") if suspended else advice("{reconnect}")
    if mine is None and not named:
        hint = advice("Start it again: {connect:--local}, or pathways-jupyter local up.")
    elif mine is None or _config(mine).job:
        # A job has ended with its cluster: no session attaches to it again.
        hint = advice("Start it again: {up}.", up=up)
    elif _config(mine).local:
        hint = advice("{back} starts it again, and connects to it.", back=back)
    else:
        hint = advice("Start it again: {up}; then {back} connects to it.", up=up, back=back)
    return LocalClusterError(ended, hint=hint)


def _own_session(embedded: Embedded) -> SessionRecord | None:
    """Return the session of this process, or of this supervisor, that was connected to an embedded cluster."""
    for record in registry.sessions():
        if os.getpid() in {record.pid, record.kernel_pid} and record.is_here and record.connected_since:
            here = Embedded.of(record)
            if here is not None and here.kubeconfig == embedded.kubeconfig:
                return record
    return None
