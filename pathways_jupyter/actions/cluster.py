"""Turn a user's arguments into a config for a session; the only place where the interfaces reach `local`.

:func:`resolve` validates and starts nothing. For ``local=True``, :class:`Located` ensures that the embedded cluster is
running and fills in its kubeconfig and context. From there on it is a cluster like any other.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base import interrupts, setting_sources
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.sentences import advice, option
from pathways_jupyter.commands.declaration import CLUSTER
from pathways_jupyter.service import names
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel import process

if TYPE_CHECKING:
    from pathways_jupyter.local.cluster import Growth, LocalCluster
    from pathways_jupyter.session.registry import SessionRecord

_CLUSTER = {option.name for option in CLUSTER}


def resolve(arguments: Mapping[str, Any]) -> ConnectConfig:
    """Return the validated config of `arguments`; starts nothing.

    Args:
      arguments: As for :func:`pathways_jupyter.base.setting_sources.resolve`.

    Raises:
      ConfigError: A value is invalid.
    """
    checked = setting_sources.resolve(arguments)
    for name in ("cluster", "context", "kubeconfig"):
        if checked.local and getattr(checked, name):
            raise ConfigError(
                f"The embedded cluster was asked for, and so was {name} {getattr(checked, name)!r}.",
                hint=advice("Leave out {local} or {it}.", it=option(name)),
            )
    # In a pod of the embedded cluster, that is the one around it.
    return dataclasses.replace(checked, local=False) if checked.local and clusters.in_embedded_pod() else checked


def locate(requested: ConnectConfig) -> ConnectConfig:
    """Return `requested`; if it means the embedded cluster, which must be running, with its kubeconfig filled in.

    Raises:
      LocalClusterError: The embedded cluster is not running.
    """
    if not requested.local:
        return requested
    from pathways_jupyter.local import cluster as embedded

    running = embedded.find()
    if running is None:
        raise embedded.absence()
    return dataclasses.replace(requested, kubeconfig=str(running.kubeconfig), context=running.context)


class Located:
    """Cluster of a session; the embedded one is started if need be, with slices for it.

    A ``with`` block of it yields the config with the cluster filled in. If the block fails or is interrupted, the
    slices that were added go again, so that an attempt to connect that comes to nothing changes nothing.

    Args:
      free: Add slices for those that sessions hold; not for a session that has its slices already.
      confirm: Asks the user whether the cluster may have more hosts than this machine runs well; None if that cannot
        be asked here.

    Raises:
      LocalClusterError: On entry, the embedded cluster does not start, or would be too large.
    """

    def __init__(
        self, requested: ConnectConfig, *, free: bool = True, confirm: Callable[[str], bool] | None = None
    ) -> None:
        self._requested = requested
        # A session that waits, or accepts fewer slices, needs no new ones; a lingering proxy is reused with its own.
        self._free = free and not (requested.wait or requested.at_least or requested.linger)
        self._confirm = confirm
        self._growth: Growth | None = None

    def __enter__(self) -> ConnectConfig:
        requested = self._requested
        # A cluster that is started now has no jobs; a job has its own slices, which are not those of the service.
        if not requested.local or requested.job:
            return locate(requested)
        from pathways_jupyter.local import cluster as embedded

        def permit(question: str) -> bool:
            return requested.yes or (self._confirm is not None and self._confirm(question))

        try:
            # They wait for other processes in calls of their own, and print nothing.
            with interrupts.raise_sigint():
                growth = embedded.ensure(_addable(requested), free=self._free, permit=permit, own=self._own)
                growth.cluster.wait()
            instances = requested.instances or _slices_of(growth.cluster, requested.service)
            return dataclasses.replace(locate(requested), instances=instances)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def _own(self, growth: Growth) -> None:
        self._growth = growth

    def keep(self) -> None:
        """Keep what was added, whatever happens in the rest of the block: a session has it."""
        self._growth = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Undo what was added if the block failed, and say in a KeyboardInterrupt what stays."""
        if error is None or self._growth is None:
            return
        stays = self._growth.undo()
        if stays and isinstance(error, KeyboardInterrupt):
            error.args = (f"{error or 'Everything else that it had created was removed.'} {stays}",)


def _addable(requested: ConnectConfig) -> dict[str, int]:
    """Return the slices that the embedded cluster may add for `requested`: none where they would not help."""
    from pathways_jupyter.local import cluster as embedded

    if len(requested.instances) != 1:
        # A service has slices of one type.
        return {}
    running, (kind,) = embedded.find(), requested.instances
    types = running.settings.services if running is not None else {names.DEFAULT_SERVICE: kind}
    service = names.service_of(requested.service)[0]
    return dict(requested.instances) if not service or types.get(service) == kind else {}


def _slices_of(running: LocalCluster, service: str) -> dict[str, int]:
    """Return all slices of a service of the embedded cluster's own; by default of the first."""
    name = names.service_of(service)[0] or names.DEFAULT_SERVICE
    kind = running.settings.services.get(name)
    return {kind: running.settings.instances[kind]} if kind is not None else {}


def embedded_stage(requested: ConnectConfig) -> str:
    """Return what :class:`Located` has to do for `requested`, as a stage of connecting."""
    from pathways_jupyter.local import cluster as embedded

    running = embedded.find()
    if running is None:
        return "start the embedded cluster"
    return f"{'add slices to' if running.lacks(requested.instances) else 'find slices of'} the embedded cluster"


def revive(requested: ConnectConfig, state: SessionState) -> None:
    """Restart the embedded cluster before a reconnect, if the session may have been lost together with it.

    The session finds the new cluster, because it has the same name.

    Raises:
      LocalClusterError: It does not start.
    """
    if requested.local and not requested.job and state in {SessionState.LOST, SessionState.SUSPENDED}:
        with Located(requested, free=False):
            pass


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's values that name a cluster or a service."""
    settings = {*_CLUSTER, "service"}
    return {name: value for name, value in setting_sources.canonical(values).items() if name in settings and value}


def named_options(values: Mapping[str, Any]) -> str:
    """Return the options by which a command's values name a cluster; empty where they name none."""
    given = {name: value for name, value in named(values).items() if name in _CLUSTER}
    return " ".join(f"--{name}" if value is True else f"--{name} {shlex.quote(value)}" for name, value in given.items())


def session_of(values: Mapping[str, Any]) -> Any:
    """Return this process's session if a command is about its cluster; None if there is none, or another is named."""
    return None if set(named(values)) & (_CLUSTER - {"namespace"}) else process.session()


def own_session(values: Mapping[str, Any]) -> SessionRecord | None:
    """Return the session that a command names, else this process's as :func:`session_of`; None if there is none.

    Raises:
      SessionError: There is no such session.
    """
    if beginning := values.get("session"):
        return find_session(beginning)
    current = session_of(values)
    return current.record if current is not None else None


def where(values: Mapping[str, Any], *, others: bool = True) -> ConnectConfig:
    """Return the cluster and service that a command is about, whatever else its values say; starts nothing.

    A session that they name comes first, then a cluster, then this process's session, then the only session on this
    machine, then the defaults.

    Args:
      others: Whether sessions of other processes count: not for a command that makes or deletes something of its own.

    Raises:
      ConfigError: A value is invalid.
      LocalClusterError: The embedded cluster is requested, but not running.
      SessionError: There is no such session.
    """
    from pathways_jupyter.session import registry

    options = named(values)
    record = own_session(values)
    if record is None:
        records = registry.sessions() if others and not _CLUSTER & set(options) else []
        if len(records) != 1 or not (records[0].service or records[0].pathways_job):
            return locate(resolve(options))
        (record,) = records
    namespace = options.get("namespace") or record.namespace
    service = options.get("service") or (record.service if namespace == record.namespace else "")
    return dataclasses.replace(of_session(record), namespace=namespace, service=service)


def options_of(where: ConnectConfig) -> str:
    """Return the options by which a command names the cluster of `where`; empty for the one that needs none."""
    if where.local:
        return "--local"
    given = ("cluster", "project", "region") if where.cluster else ("kubeconfig", "context")
    return " ".join(f"--{name} {shlex.quote(getattr(where, name))}" for name in given if getattr(where, name))


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
    matching = [record for record in records if record.id.startswith(beginning)]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(record.id for record in records)
    if not records:
        raise SessionError("There is no session on this machine.", hint=advice("{connect} makes one."))
    if not matching:
        raise SessionError(f"There is no session {beginning!r}.", hint=f"Sessions on this machine: {listed}.")
    which = f"{beginning!r} matches" if beginning else "There are"
    raise SessionError(f"{which} {len(matching)} sessions.", hint=f"Choose one: {listed}.")
