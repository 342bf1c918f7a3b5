"""Scopes: the names by which pages refer to clusters, validated before any cluster is contacted.

A page can only name a cluster, not define how to reach it: a kubeconfig can run a program (its exec credential plugin),
so a page that could supply one could run programs as the user. Kubeconfigs come from this server's environment and from
the records of the user's own sessions and kernels only.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pathways_jupyter.base import setting_sources
from pathways_jupyter.base.config import SETTINGS, ConnectConfig
from pathways_jupyter.base.errors import ConfigError, LocalClusterError, SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kernel import places
from pathways_jupyter.kernel.places import KernelPlace
from pathways_jupyter.kube import kubeconfig
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.server.request_checks import RELOAD
from pathways_jupyter.session import clusters, registry
from pathways_jupyter.session.registry import SessionRecord

_ID = re.compile(r"[0-9A-Za-z]([-0-9A-Za-z]{0,62})")
_LONGEST_CONTEXT = 1000
_IN_CLUSTER = "in-cluster"
"""The name of the cluster around this pod, which has no context."""


@dataclass(frozen=True)
class Scope:
    """A cluster and a namespace in it, by name.

    Attributes:
      context: A context of the server's kubeconfig; its current one when empty.
      namespace: The context's default namespace when empty.
      session: Id of a session on this machine, whose cluster has no context of its own.
      kernel: Id of a kernel beside the chips, likewise.
      local: Whether it is the embedded cluster of this machine.
    """

    context: str = ""
    namespace: str = ""
    session: str = ""
    kernel: str = ""
    local: bool = False


@dataclass(frozen=True)
class ResolvedScope:
    """The cluster that a scope resolves to at the moment.

    Attributes:
      cluster: The connection settings, with the namespace to show.
      scope: The scope, with defaults replaced by the names that they resolved to.
    """

    cluster: Cluster
    scope: Scope


NAMES = tuple(field.name for field in fields(Scope))
"""The parameters of a request that make up a scope."""


def parse(parameters: Mapping[str, Any]) -> Scope:
    """Return the scope among a request's parameters; those that are missing stay empty.

    Raises:
      ConfigError: A value has the wrong type or form.
    """
    values = {name: parameters[name] for name in NAMES if parameters.get(name) not in (None, "")}
    if "local" in values:
        values["local"] = flag("local", values["local"])
    for name in set(values) - {"local"}:
        if not isinstance(values[name], str):
            raise ConfigError(f"{name} must be a string.", hint=RELOAD)
    scope = Scope(**values)
    if len(scope.context) > _LONGEST_CONTEXT:
        raise ConfigError(f"context is longer than {_LONGEST_CONTEXT} characters.", hint=RELOAD)
    # The id becomes part of a file name.
    for what, value in (("session", scope.session), ("kernel", scope.kernel)):
        if value and not _ID.fullmatch(value):
            raise ConfigError(f"{value!r} is not the id of a {what}.", hint=RELOAD)
    SETTINGS["namespace"].check(scope.namespace, "namespace")
    return scope


def flag(name: str, value: Any) -> bool:
    """Return `value`, a JSON boolean or its spelling in a query, as a bool.

    Raises:
      ConfigError: It is neither.
    """
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise ConfigError(f"{name} must be true or false, not {value!r}.", hint=RELOAD)


def of_record(record: SessionRecord) -> Scope:
    """Return the scope of a session's cluster; where possible one that stays valid after the session has ended."""
    config = record.config
    if config.get("local"):
        return Scope(namespace=record.namespace, local=True)
    if config.get("cluster") or config.get("kubeconfig") or record.kubeconfigs != os.environ.get("KUBECONFIG", ""):
        return Scope(namespace=record.namespace, session=record.id)
    return Scope(context="" if record.context == _IN_CLUSTER else record.context, namespace=record.namespace)


def of_kernel(place: KernelPlace) -> Scope:
    """Return the scope of a kernel's cluster."""
    where = place.where
    if where.get("local"):
        return Scope(namespace=str(where.get("namespace", "")), local=True)
    if where.get("cluster") or where.get("kubeconfig"):
        return Scope(namespace=str(where.get("namespace", "")), kernel=place.kernel_id)
    return Scope(context=str(where.get("context") or place.cluster), namespace=str(where.get("namespace", "")))


async def resolve(scope: Scope) -> ResolvedScope:
    """Find the cluster of `scope`.

    Raises:
      ConfigError: There is no kubeconfig, or it cannot be used, or a setting is invalid.
      ClusterError: Google Cloud has no such cluster.
      LocalClusterError: The embedded cluster is not running.
      SessionError: There is no such session, or no such kernel.
    """
    namespace = scope.namespace
    if scope.session:
        record = await asyncio.to_thread(registry.read, scope.session)
        if record is None:
            raise no_session(scope.session)
        resolved = ResolvedScope(replace(await clusters.resolve(record), namespace=record.namespace), scope)
    elif scope.kernel:
        present = await asyncio.to_thread(places.read)
        place = next((each for each in present if each.kernel_id == scope.kernel), None)
        if place is None:
            raise SessionError("There is no such kernel beside the chips.", hint="It may have ended in the meantime.")
        resolved = ResolvedScope(await clusters.resolve(ConnectConfig(**place.where)), scope)
    else:
        resolved = await asyncio.to_thread(_find, scope)
        # That of `connect`, which need not be the context's nor, in a hub's pod, the pod's.
        namespace = namespace or (await asyncio.to_thread(setting_sources.resolve, {})).namespace
    return replace(resolved, cluster=replace(resolved.cluster, namespace=namespace)) if namespace else resolved


async def client(scope: Scope) -> Client:
    """Return a client of the cluster of `scope`; raises what :func:`resolve` raises."""
    return Client((await resolve(scope)).cluster)


def no_session(session: str) -> SessionError:
    """Return the error for a session that is not there."""
    return SessionError(f"There is no session {session}.", hint="It may have ended in the meantime.")


def fingerprint() -> object:
    """Return a value that changes when scopes may resolve differently; reads no kubeconfig."""
    from pathways_jupyter.local import cluster

    embedded = cluster.find()
    stamps = []
    for file in (
        setting_sources.profiles_path(),
        *kubeconfig.paths(),
        *([embedded.kubeconfig] if embedded is not None else []),
    ):
        try:
            stamps.append((str(file), file.stat().st_mtime_ns))
        except OSError:
            stamps.append((str(file), 0))
    return stamps


def embedded_cluster_runs() -> bool:
    """Return whether the embedded cluster of this machine is running."""
    from pathways_jupyter.local import cluster

    return cluster.find() is not None


def in_cluster() -> bool:
    """Return whether this server runs in a pod of a cluster, which is used where there is no kubeconfig."""
    try:
        return load().name == _IN_CLUSTER
    except ConfigError:
        return False


def _find(scope: Scope) -> ResolvedScope:
    from pathways_jupyter.local import cluster

    # The embedded cluster, if it is named or if nothing else is configured. An invalid kubeconfig is an error and never
    # a reason to fall back: the page would show another cluster than the one that `connect` reports as broken.
    configured = os.environ.get("KUBERNETES_SERVICE_HOST") or os.environ.get("KUBECONFIG") or kubeconfig.paths()
    if scope.local or not (scope.context or configured):
        running = cluster.find()
        if running is not None:
            return ResolvedScope(load(str(running.kubeconfig), running.context), replace(scope, local=True))
        if scope.local:
            raise LocalClusterError(
                "The embedded cluster is not running.",
                hint=advice("{connect:--local} starts it, and so does pathways-jupyter local up."),
            )
    named = os.environ.get("KUBECONFIG", "")
    if named and not kubeconfig.paths():
        raise ConfigError(
            f"The kubeconfig {named}, set by KUBECONFIG, does not exist.",
            hint="Correct or unset KUBECONFIG, and restart the Jupyter server.",
        )
    config = load(context=scope.context)
    return ResolvedScope(config, replace(scope, context="" if config.name == _IN_CLUSTER else config.name))
