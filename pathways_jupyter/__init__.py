"""Remote TPUs in a notebook: IPython magics and a JupyterLab sidebar for Pathways on Google Cloud.

In a notebook, ``jax.devices()`` are the TPUs from ``connect`` on::

    %load_ext pathways_jupyter
    %pathways connect --tpu tpuv6e:2x2=2    # two slices of a Shared Pathways Service
    %pathways connect --local               # or the same on a small cluster on this machine
    %pathways status
    %pathways disconnect                    # %pathways help lists all commands

In a script::

    import pathways_jupyter

    with pathways_jupyter.connect(service="pathways-cluster", tpu={"tpuv6e:2x2": 2}) as session:
        import jax

        print(session.status(), jax.devices())

Beside :func:`connect` and :func:`current_session` there are :mod:`pathways_jupyter.colocated`, functions that run on
the TPU hosts (in a notebook the cell magic ``%%colocated``), and :mod:`pathways_jupyter.elastic`, training that
outlives a slice. Every error is a :class:`PathwaysError` whose ``hint`` says what to do next. In a terminal,
``pathways-jupyter --help`` lists the commands. Modules that are not named here are internal.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import (
    ApiError,
    CapacityError,
    ClusterError,
    ConfigError,
    ConnectionLost,
    LocalClusterError,
    NoKubeconfigError,
    PathwaysError,
    ServiceError,
    SessionError,
    Unreachable,
)

if TYPE_CHECKING:
    from pathways_jupyter import colocated, elastic
    from pathways_jupyter.base.events import Event, EventKind, SessionSlice, SessionState
    from pathways_jupyter.profile.summary import Summary
    from pathways_jupyter.saved.saves import Save, Saves
    from pathways_jupyter.saved.suspension import Suspension
    from pathways_jupyter.session.kernel.jax_switch import Switched
    from pathways_jupyter.session.kernel.kernel_side import Ended
    from pathways_jupyter.session.kernel.session import Session
    from pathways_jupyter.session.kernel.trace import Trace
    from pathways_jupyter.session.kernel.user_arrays import NamedArray
    from pathways_jupyter.session.registry import SessionRecord

__all__ = [
    "ApiError",
    "CapacityError",
    "ClusterError",
    "ConfigError",
    "ConnectionLost",
    "Ended",
    "Event",
    "EventKind",
    "LocalClusterError",
    "NamedArray",
    "NoKubeconfigError",
    "PathwaysError",
    "Save",
    "Saves",
    "ServiceError",
    "Session",
    "SessionError",
    "SessionRecord",
    "SessionSlice",
    "SessionState",
    "Summary",
    "Suspension",
    "Switched",
    "Trace",
    "Unreachable",
    "colocated",
    "connect",
    "current_session",
    "elastic",
    "load_ipython_extension",
    "prepare",
    "unload_ipython_extension",
]
_TYPES = {
    "Ended": "session.kernel.kernel_side",
    "Event": "base.events",
    "EventKind": "base.events",
    "NamedArray": "session.kernel.user_arrays",
    "Save": "saved.saves",
    "Saves": "saved.saves",
    "Session": "session.kernel.session",
    "SessionRecord": "session.registry",
    "SessionSlice": "base.events",
    "SessionState": "base.events",
    "Summary": "profile.summary",
    "Suspension": "saved.suspension",
    "Switched": "session.kernel.jax_switch",
    "Trace": "session.kernel.trace",
}
"""The module of each type of a session and of what its methods return."""
_OF_THE_PEER = {"DEFAULT_PROXY_IMAGE": None, "PROXY_FILEPATH": None, "PROXY_SERVER_PORT": 29000}
"""Constants of pathwaysutils' ``isc_pathways``: here the service's version is the default, and no file the template."""


def connect(
    *,
    tpu: Mapping[str, int] | str | None = None,
    service: str | None = None,
    local: bool | None = None,
    context: str | None = None,
    kubeconfig: str | os.PathLike[str] | None = None,
    namespace: str | None = None,
    cluster: str | None = None,
    project: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    yes: bool | None = None,
    wait: bool | float | None = None,
    at_least: int | None = None,
    queue: str | None = None,
    priority: str | None = None,
    gcs_bucket: str | None = None,
    linger: float | None = None,
    suspend_after: float | str | None = None,
    max_lifetime: float | None = None,
    lease_seconds: float | None = None,
    relay: bool | None = None,
    keep: float | None = None,
    relay_image: str | None = None,
    timeout: float | None = None,
    tunnel: bool | None = None,
    job: str | None = None,
    proxy_image: str | None = None,
    proxy_options: Sequence[str] | None = None,
    proxy_cpu: str | float | None = None,
    proxy_memory: str | None = None,
    proxy_node_selector: Mapping[str, str] | Sequence[str] | None = None,
    proxy_tolerations: Sequence[str] | None = None,
    proxy_priority_class: str | None = None,
    proxy_service_account: str | None = None,
    proxy_labels: Mapping[str, str] | Sequence[str] | None = None,
    proxy_env: Mapping[str, str] | Sequence[str] | None = None,
    unpickle: bool | None = None,
    progress: bool | None = None,
    pathways_service: str | None = None,
    expected_tpu_instances: Mapping[str, int] | str | None = None,
    proxy_server_image: str | None = None,
    proxy_job_name: str | None = None,
    collect_service_metrics: bool = False,
) -> Session:
    """Give this process its own proxy on a Pathways service, and point its JAX at it.

    Omitted arguments come from the environment (``PATHWAYS_JUPYTER_<NAME>``), the profile, or a default. Use the result
    as a context manager, or call its ``disconnect()``::

        with pathways_jupyter.connect(local=True, tpu={"tpuv6e:2x2": 2}):
            print(jax.devices())

    The keywords of pathwaysutils' ``isc_pathways.connect`` are accepted as well.

    Args:
      tpu: Slices per instance type, ``TYPE=COUNT[,TYPE=COUNT]``, such as ``tpuv6e:2x2=2``.
      service: The Shared Pathways Service: its name, or ``host:port`` of its resource manager. Default: the only one in
        the namespace.
      local: Use the embedded cluster on this machine.
      context: Context in the kubeconfig, if not the current one; the file is never modified.
      kubeconfig: Another kubeconfig file.
      namespace: Kubernetes namespace of the service, if not the context's.
      cluster: GKE cluster, reached without a kubeconfig; with its project and region.
      project: Google Cloud project of the cluster.
      region: Region or zone of the cluster.
      profile: Name of a profile in ``pathways.toml``, if not the one named ``default``.
      yes: Let the embedded cluster have more hosts than this machine runs well, without a question.
      wait: Seconds to wait for taken slices; true, or the flag alone, for no limit. Default: 0, fail at once.
      at_least: Take fewer slices if not all are free, but at least so many. Default: all or none.
      queue: Wait in this queue of Kueue's for quota.
      priority: Its WorkloadPriorityClass in that queue. Default: none, which is 0.
      gcs_bucket: Where arrays are saved, and scratch location of the proxy, ``gs://BUCKET/PATH``. Default: none; on the
        embedded cluster its own.
      linger: Seconds that the proxy outlives the kernel or script. Default: 0, not at all.
      suspend_after: Save the arrays of a notebook and free its slices when nothing was computed for so long: seconds,
        or ``2h``, ``90m``. Default: 0, never.
      max_lifetime: Seconds after which the cluster ends the proxy, even if it is in use; at least 60, ``inf`` for no
        limit. Default: 86400, which is 24 h.
      lease_seconds: Seconds that the proxy stays when this machine cannot be reached, at least 10; with a relay it
        stays for ``keep``, until its slices are needed. Default: 60.
      relay: Put a relay beside the proxy, so that the session and its arrays outlive interruptions of the network.
        Default: true where the connection goes through an API server, except on the embedded cluster.
      keep: Seconds for which the relay keeps arrays without a connection. Default: 7200, which is 2 h.
      relay_image: Image of the relay, any with Python 3.9 or later, such as that of the colocated sidecar. Default:
        ``mirror.gcr.io/library/python:3.13-slim``.
      timeout: Seconds that the proxy's pod may take to start. Default: 300.
      tunnel: In a pod of the cluster: go through the API server instead of connecting directly.
      job: Attach to the proxy of this headless job, which stays, instead of making one.
      proxy_image: Image of the proxy. Default: the one of the service's version.
      proxy_options: Additional flags for the proxy, also XLA's.
      proxy_cpu: CPUs that the proxy may use. Default: 16.
      proxy_memory: Memory that the proxy may use. Default: 100G.
      proxy_node_selector: Labels of the nodes that the proxy may run on, each ``KEY=VALUE``.
      proxy_tolerations: Taints that the proxy tolerates, each ``KEY[=VALUE][:EFFECT]``.
      proxy_priority_class: Priority class of the proxy's pod.
      proxy_service_account: The Kubernetes account with which the proxy uses the bucket. Default: the namespace's
        default.
      proxy_labels: Labels for the proxy's Job and pod, each ``KEY=VALUE``.
      proxy_env: Variables of the proxy's program, each ``NAME=VALUE``.
      unpickle: Trust the TPU hosts to run code here: take any object, and show any HTML, that colocated code sends
        back.
      progress: Show each stage and its duration. Default: in a notebook, and in a script whose standard error is a
        terminal.
      pathways_service: Another name of `service`.
      expected_tpu_instances: Another name of `tpu`.
      proxy_server_image: Another name of `proxy_image`.
      proxy_job_name: A keyword of pathwaysutils that changes nothing here, which a warning says.
      collect_service_metrics: Another one.

    Raises:
      ConfigError: An argument is invalid; nothing was changed.
      ClusterError: The Kubernetes API is unreachable or refuses a request.
      CapacityError: The slices are taken; the message says by whom.
      SessionError: The proxy did not start, and was removed.
    """
    from pathways_jupyter.magics import function

    arguments = {
        "tpu": tpu, "service": service, "local": local, "context": context, "kubeconfig": kubeconfig,
        "namespace": namespace, "cluster": cluster, "project": project, "region": region, "profile": profile,
        "yes": yes, "wait": wait, "at_least": at_least, "queue": queue, "priority": priority, "gcs_bucket": gcs_bucket,
        "linger": linger, "suspend_after": suspend_after, "max_lifetime": max_lifetime, "lease_seconds": lease_seconds,
        "relay": relay, "keep": keep, "relay_image": relay_image, "timeout": timeout, "tunnel": tunnel, "job": job,
        "proxy_image": proxy_image, "proxy_options": proxy_options, "proxy_cpu": proxy_cpu,
        "proxy_memory": proxy_memory, "proxy_node_selector": proxy_node_selector,
        "proxy_tolerations": proxy_tolerations, "proxy_priority_class": proxy_priority_class,
        "proxy_service_account": proxy_service_account, "proxy_labels": proxy_labels, "proxy_env": proxy_env,
        "unpickle": unpickle, "pathways_service": pathways_service, "expected_tpu_instances": expected_tpu_instances,
        "proxy_server_image": proxy_server_image, "proxy_job_name": proxy_job_name,
        "collect_service_metrics": collect_service_metrics,
    }  # fmt: skip
    return function.connect(arguments, progress=progress)


def prepare() -> None:
    """Start what :func:`connect` needs in advance, in a script that imports JAX or loads data before it connects::

        pathways_jupyter.prepare()

        import jax

    It ends with this process if that does not connect. In a notebook, loading the extension does this.

    Raises:
      SessionError: The process could not be started.
    """
    from pathways_jupyter.session.kernel import spawn

    spawn.prepare()


def load_ipython_extension(ipython: Any) -> None:
    """Entry point of ``%load_ext pathways_jupyter``."""
    from pathways_jupyter.magics import extension

    extension.load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Entry point of ``%unload_ext pathways_jupyter``; a session stays until it is disconnected or the kernel ends."""
    from pathways_jupyter.magics import extension

    extension.unload(ipython)


def current_session() -> Session | None:
    """Return the session of this process, also while its proxy is lost; None if there is none."""
    from pathways_jupyter.session.kernel import process

    session: Session | None = process.session()
    return session


def __getattr__(name: str) -> Any:
    # Import what takes long on first use only.
    module = "service.proxy_job" if name == "ProxyOptions" else _TYPES.get(name)
    if module is not None:
        return getattr(importlib.import_module(f"pathways_jupyter.{module}"), name)
    if name == "isc_pathways":
        # A script written for pathwaysutils runs with only the package in its import changed.
        return sys.modules[__name__]
    if name in _OF_THE_PEER:
        return _OF_THE_PEER[name]
    if name in {"colocated", "elastic"}:
        return importlib.import_module(f"pathways_jupyter.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("pathways_jupyter")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__version__"])


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "pathways-jupyter"}]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "pathways_jupyter.server"}]
