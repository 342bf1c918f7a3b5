"""Remote TPUs in a notebook: IPython magics and a JupyterLab sidebar for Pathways on Google Cloud."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.errors import (
    ApiError,
    CapacityError,
    ClusterError,
    ConfigError,
    LocalClusterError,
    PathwaysError,
    ServiceError,
    SessionError,
)

if TYPE_CHECKING:
    from pathways_jupyter import colocated
    from pathways_jupyter.session.kernel.session import Session

__all__ = [
    "ApiError",
    "CapacityError",
    "ClusterError",
    "ConfigError",
    "LocalClusterError",
    "PathwaysError",
    "ServiceError",
    "Session",
    "SessionError",
    "colocated",
    "connect",
    "current_session",
    "load_ipython_extension",
    "unload_ipython_extension",
]


def connect(
    *,
    tpu: Mapping[str, int] | str | None = None,
    service: str | None = None,
    cluster: str | None = None,
    project: str | None = None,
    region: str | None = None,
    gcs_bucket: str | None = None,
    context: str | None = None,
    kubeconfig: str | os.PathLike[str] | None = None,
    namespace: str | None = None,
    profile: str | None = None,
    local: bool | None = None,
    wait: bool | float | None = None,
    linger: float | None = None,
    max_lifetime: float | None = None,
    lease_seconds: float | None = None,
    timeout: float | None = None,
    proxy_image: str | None = None,
    proxy_options: Sequence[str] | None = None,
    progress: bool | None = None,
    pathways_service: str | None = None,
    expected_tpu_instances: Mapping[str, int] | str | None = None,
    proxy_server_image: str | None = None,
    proxy_job_name: str | None = None,
    collect_service_metrics: bool = False,
) -> Session:
    """Give this process a proxy of its own on a Pathways service, and point its JAX at it.

    What is left out comes from the environment (``PATHWAYS_JUPYTER_<NAME>``), the profile, or a default. Use it as a
    context manager, or call ``disconnect()``::

        with pathways_jupyter.connect(local=True, tpu={"tpuv6e:2x2": 2}):
            print(jax.devices())

    The keywords of pathwaysutils' ``isc_pathways.connect`` are understood as well.

    Args:
      tpu: Slices wanted per instance type; also as text, ``"tpuv6e:2x2=2"``.
      service: The Shared Pathways Service: its name, or ``host:port`` of its resource manager; may be left out where
        the namespace has only one.
      cluster: GKE cluster; with `project` and `region` it is reached without a kubeconfig.
      project: Google Cloud project of the cluster.
      region: Region or zone of the cluster.
      gcs_bucket: Scratch location of the proxy, ``gs://...``.
      context: Context in the kubeconfig; the file is never changed.
      kubeconfig: Another kubeconfig file.
      namespace: Kubernetes namespace of the service.
      profile: Settings kept under this name in ``pathways.toml``.
      local: Use the embedded cluster of this machine.
      wait: Wait for taken slices: True without end, or a number of seconds. Default: fail at once.
      linger: Seconds the proxy outlives this process. Default: 0.
      max_lifetime: Seconds after which the cluster ends the proxy, also while it is used. Default: 86400 (24 h).
      lease_seconds: How long the proxy stays when this machine is gone; at least 10. Default: 60.
      timeout: Seconds until a proxy pod that does not start counts as failed. Default: 300.
      proxy_image: Image of the proxy; the one of the service's own version when left out.
      proxy_options: Further flags for the proxy.
      progress: Show each stage, how long it takes and what it waits for: True, False, or where it is seen: in a
        notebook, and on the standard error of a script when that is a terminal.
      pathways_service: Another name of `service`.
      expected_tpu_instances: Another name of `tpu`.
      proxy_server_image: Another name of `proxy_image`.
      proxy_job_name: Not supported; accepted as None for pathwaysutils' sake.
      collect_service_metrics: Not supported; accepted as False for pathwaysutils' sake.

    Raises:
      ConfigError: An argument cannot be used; nothing was changed.
      ClusterError: The Kubernetes API cannot be reached or refuses.
      CapacityError: The slices are taken; the message says by whom.
      SessionError: The proxy did not come up; nothing is left of it.
    """
    # Stays the first statement: whatever is local here counts as a keyword.
    asked = dict(locals())
    del asked["progress"]
    from pathways_jupyter.magics import function

    return function.connect(asked, progress=progress)


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext pathways_jupyter``."""
    from pathways_jupyter.magics import extension

    extension.load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext pathways_jupyter``; a session stays until it is disconnected or the kernel ends."""
    from pathways_jupyter.magics import extension

    extension.unload(ipython)


def current_session() -> Session | None:
    """The session of this process, also while its proxy is lost; None when there is none."""
    # A process that has a session has loaded its module.
    module = sys.modules.get("pathways_jupyter.session.kernel.session")
    return module.current() if module is not None else None


def __getattr__(name: str) -> Any:
    # What takes long to import is imported when it is first asked for.
    if name == "Session":
        from pathways_jupyter.session.kernel.session import Session

        return Session
    if name == "colocated":
        return importlib.import_module("pathways_jupyter.colocated")
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
