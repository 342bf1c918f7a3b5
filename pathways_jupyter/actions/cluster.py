"""Turn a user's arguments into a config for a session; the only place where the interfaces reach `local`.

:func:`resolve` validates and starts nothing. For ``local=True``, :func:`locate` ensures that the
embedded cluster is running and fills in its kubeconfig and context. From there on it is a cluster like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base import config
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import advice, option
from pathways_jupyter.commands.declaration import CLUSTER
from pathways_jupyter.session.kernel import process

if TYPE_CHECKING:
    from pathways_jupyter.session.registry import SessionRecord

_CLUSTER = {option.name for option in CLUSTER}


def resolve(arguments: Mapping[str, Any]) -> ConnectConfig:
    """Return the validated config of `arguments`; starts nothing.

    Args:
      arguments: As for :func:`pathways_jupyter.base.config.resolve`.

    Raises:
      ConfigError: A value is invalid.
    """
    checked = config.resolve(arguments)
    for name in ("cluster", "context", "kubeconfig"):
        if checked.local and getattr(checked, name):
            raise ConfigError(
                f"The embedded cluster was asked for, and so was {name} {getattr(checked, name)!r}.",
                hint=advice("Leave out {local} or {it}.", it=option(name)),
            )
    return checked


def locate(requested: ConnectConfig, *, start: bool = True) -> ConnectConfig:
    """Return `requested`; if it means the embedded cluster, with that one's kubeconfig filled in.

    Args:
      start: Start the embedded cluster if it is not running, and add the slices that it lacks.

    Raises:
      LocalClusterError: The embedded cluster does not start; or it is not running and `start` is false.
    """
    if not requested.local:
        return requested
    from pathways_jupyter.local import cluster as embedded

    # A cluster that is started now has no jobs.
    running = embedded.ensure(requested.instances) if start and not requested.job else embedded.find()
    if running is None:
        raise embedded.absence()
    return dataclasses.replace(
        requested,
        # A job has its own slices, which are not those of the cluster's service.
        instances=requested.instances or ({} if requested.job else running.instances),
        kubeconfig=str(running.kubeconfig),
        context=running.context,
    )


def embedded_stage(requested: ConnectConfig) -> str:
    """Return what :func:`locate` has to do for `requested`, as a stage of connecting."""
    from pathways_jupyter.local import cluster as embedded

    running = embedded.find()
    if running is None:
        return "start the embedded cluster"
    return f"{'add slices to' if running.lacks(requested.instances) else 'find'} the embedded cluster"


def revive(requested: ConnectConfig, state: SessionState) -> None:
    """Restart the embedded cluster before a reconnect, if the session may have been lost together with it.

    The session finds the new cluster, because it has the same name.

    Raises:
      LocalClusterError: It does not start.
    """
    if requested.local and not requested.job and state is SessionState.LOST:
        locate(dataclasses.replace(requested, kubeconfig="", context=""))


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's values that name a cluster or a service."""
    names = {*_CLUSTER, "service"}
    return {name: value for name, value in config.canonical(values).items() if name in names and value}


def session_of(values: Mapping[str, Any]) -> Any:
    """Return this process's session if a command is about its cluster; None if there is none, or another is named."""
    return None if set(named(values)) & (_CLUSTER - {"namespace"}) else process.session()


def where(values: Mapping[str, Any], *, others: bool = True) -> ConnectConfig:
    """Return the cluster and service that a command is about, whatever else its values say; starts nothing.

    What they name comes first, then this process's session, then the only session on this machine, then the defaults.

    Args:
      others: Whether sessions of other processes count: not for a command that makes or deletes something of its own.

    Raises:
      ConfigError: A value is invalid.
      LocalClusterError: The embedded cluster is requested, but not running.
    """
    from pathways_jupyter.session import registry

    given = named(values)
    current = session_of(given)
    if current is not None:
        record: SessionRecord = current.record
    else:
        records = registry.sessions() if others and not _CLUSTER & set(given) else []
        if len(records) != 1 or not (records[0].service or records[0].pathways_job):
            return locate(resolve(given), start=False)
        (record,) = records
    namespace = given.get("namespace") or record.namespace
    service = given.get("service") or (record.service if namespace == record.namespace else "")
    return dataclasses.replace(of_session(record), namespace=namespace, service=service)


def of_session(record: SessionRecord) -> ConnectConfig:
    """Return the cluster and service of a session, also after the kubeconfig's current context was changed."""
    from pathways_jupyter.session import protocol

    settings = protocol.config_from_json(record.config)
    # GKE's clusters and a pod's own have no context.
    context = "" if settings.cluster or record.context == "in-cluster" else settings.context or record.context
    return dataclasses.replace(settings, namespace=record.namespace, context=context, service=record.service)


def find_session(beginning: str = "") -> SessionRecord:
    """Return the session whose id begins with `beginning`; the only one on this machine if that is empty.

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
        raise SessionError("There is no session on this machine.", hint=advice("{connect} makes one."))
    if not found:
        raise SessionError(f"There is no session {beginning!r}.", hint=f"Sessions on this machine: {listed}.")
    which = f"{beginning!r} matches" if beginning else "There are"
    raise SessionError(f"{which} {len(found)} sessions.", hint=f"Choose one: {listed}.")
