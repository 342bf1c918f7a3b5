"""From what was asked for to a config that a session can use; the only door from the faces to `local`.

:func:`resolve` checks and starts nothing. ``local=True`` means one thing only: see that the embedded cluster runs, and
go on with its kubeconfig and context, which :func:`located` does. From there on it is a cluster like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pathways_jupyter import blocking, config
from pathways_jupyter.commands import CLUSTER
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import ConfigError, SessionError
from pathways_jupyter.events import SessionState

if TYPE_CHECKING:
    from pathways_jupyter.kube.client import Client
    from pathways_jupyter.service.doctor import Finding
    from pathways_jupyter.session.registry import SessionRecord

Answer = TypeVar("Answer")

# Settings that pathwaysutils has and that have no meaning here: a Job is named after its session.
_UNSUPPORTED = ("proxy_job_name", "collect_service_metrics")


def resolve(arguments: Mapping[str, Any]) -> ConnectConfig:
    """The checked config that `arguments` ask for; starts nothing.

    Args:
      arguments: As for :func:`pathways_jupyter.config.resolve`, or what pathwaysutils has and this package has not.

    Raises:
      ConfigError: A value cannot be used.
    """
    given = dict(arguments)
    for name in _UNSUPPORTED:
        if given.pop(name, None):
            raise ConfigError(f"{name} is not supported.", hint="Leave it out: the proxy is named after its session.")
    checked = config.resolve(given)
    for name in ("cluster", "context", "kubeconfig"):
        if checked.local and getattr(checked, name):
            raise ConfigError(
                f"The embedded cluster was asked for, and so was {name} {getattr(checked, name)!r}.",
                hint=f"Leave out --local or --{name}.",
            )
    return checked


def located(asked: ConnectConfig) -> ConnectConfig:
    """`asked`, with the way to the embedded cluster filled in where that is meant; starts it when it is not running.

    Raises:
      LocalClusterError: It does not come up.
    """
    return on_local_cluster(asked) if asked.local else asked


def look(arguments: Mapping[str, Any]) -> ConnectConfig:
    """As :func:`resolve`, for what only looks: starts nothing.

    Raises:
      ConfigError: A value cannot be used.
      LocalClusterError: The embedded cluster is meant, and does not run.
    """
    asked = resolve(arguments)
    return on_local_cluster(asked, start=False) if asked.local else asked


def on_local_cluster(asked: ConnectConfig, *, start: bool = True) -> ConnectConfig:
    """`asked`, with the way to the embedded cluster filled in.

    Args:
      start: Start it when it is not running.

    Raises:
      LocalClusterError: It does not come up; or it does not run and is not to be started.
    """
    from pathways_jupyter.local import cluster

    running = cluster.ensure(asked.instances) if start else cluster.find()
    if running is None:
        raise cluster.absence()
    return dataclasses.replace(
        asked,
        instances=asked.instances or running.instances,
        kubeconfig=str(running.kubeconfig),
        context=running.context,
    )


def revive(asked: ConnectConfig, state: SessionState) -> None:
    """Starts the embedded cluster again before a session is reconnected that may have been lost together with it.

    The next cluster of the same name is where the session looks for it.

    Raises:
      LocalClusterError: It does not come up.
    """
    if asked.local and state is SessionState.LOST:
        on_local_cluster(dataclasses.replace(asked, kubeconfig="", context=""))


def where(arguments: Mapping[str, Any]) -> ConnectConfig:
    """The cluster and service that are meant outside of a connected notebook.

    Those that `arguments` name; when they name no cluster, those of the only session on this machine; when there is no
    such session, what :func:`look` makes of nothing.
    """
    from pathways_jupyter.session import protocol, registry

    given = config.canonical({name: value for name, value in arguments.items() if value})
    named = {option.name for option in CLUSTER} & set(given)
    records = [] if named else registry.sessions()
    if len(records) != 1 or not records[0].service:
        return look(arguments)
    (record,) = records
    return dataclasses.replace(
        protocol.config_from_json(record.config),
        namespace=record.namespace,
        context=record.context,
        service=given.get("service") or record.service,
    )


def find_session(beginning: str = "") -> SessionRecord:
    """The session whose id begins with `beginning`; the only one on this machine when that is empty.

    Raises:
      SessionError: There is none, or more than one.
    """
    from pathways_jupyter.session import registry

    records = registry.sessions()
    found = [record for record in records if record.id.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(record.id for record in records)
    if not records:
        raise SessionError("There is no session on this machine.", hint="%pathways connect makes one.")
    if not found:
        raise SessionError(f"There is no session {beginning!r}.", hint=f"Sessions on this machine: {listed}.")
    which = f"{beginning!r} fits" if beginning else "There are"
    raise SessionError(f"{which} {len(found)} sessions.", hint=f"Say which one: {listed}.")


def whole_number(option: str, value: str | int) -> int:
    """`value` as a number of things.

    Raises:
      ConfigError: It is not one.
    """
    if not str(value).strip().isdecimal():
        raise ConfigError(f"{option} {value}: this must be a whole number.", hint=f"For example: {option} 20.")
    return int(value)


def ask(where: ConnectConfig | SessionRecord, question: Callable[[Client, str], Awaitable[Answer]]) -> Answer:
    """What `question` answers, given a client of the cluster that `where` means, and the namespace.

    Raises:
      PathwaysError: The cluster cannot be reached, or what `question` raises.
    """

    async def answer() -> Answer:
        async with await _client(where) as client:
            return await question(client, where.namespace or client.namespace)

    return blocking.run(answer())


def stream(
    where: ConnectConfig | SessionRecord, source: Callable[[Client, str], AsyncIterator[Answer]]
) -> Iterator[Answer]:
    """What `source` yields, as it comes; as :func:`ask` for an answer that grows."""

    async def values() -> AsyncIterator[Answer]:
        async with await _client(where) as client:
            async for value in source(client, where.namespace or client.namespace):
                yield value

    return blocking.iterate(values)


def examine(config: ConnectConfig) -> tuple[Finding, ...]:
    """What the doctor finds for a connection from this process to the cluster that `config` means."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from pathways_jupyter.service import doctor
    from pathways_jupyter.service.versions import Versions
    from pathways_jupyter.session import strays, sweep

    try:
        # The metadata, because importing JAX takes longer than all checks together.
        versions = Versions(python=platform.python_version(), jax=version("jax"), jaxlib=version("jaxlib"))
    except PackageNotFoundError:
        versions = Versions(python=platform.python_version())
    left = [f"session {record.id} (its supervisor is gone)" for record in sweep.dead()]
    left += [f"files of session {each.session} (it died before it had a record)" for each in strays.find()]
    findings = blocking.run(doctor.examine(config, versions=versions, leftovers=left))
    hint = _embedded_hint(config)
    return tuple(
        dataclasses.replace(each, hint=f"{hint} {each.hint}") if each.name == "cluster" and each.hint and hint else each
        for each in findings
    )


async def _client(where: ConnectConfig | SessionRecord) -> Client:
    from pathways_jupyter.kube.client import Client
    from pathways_jupyter.session import reach

    if not isinstance(where, ConnectConfig):
        return Client(await reach.again(where))
    try:
        return Client(await reach.cluster(where))
    except ConfigError as error:
        if hint := _embedded_hint(where):
            raise ConfigError(str(error), hint=f"{hint} {error.hint}") from error
        raise


def _embedded_hint(config: ConnectConfig) -> str:
    """What to say when no cluster was found and none was named, but the embedded one runs; empty otherwise."""
    if config.cluster or config.context or config.kubeconfig:
        return ""
    from pathways_jupyter.local import cluster

    return "" if cluster.find() is None else "The embedded cluster runs on this machine: add --local to mean it."
