"""Parts that the proxy of a session is made from: its settings, the service, and the slices that were chosen."""

from __future__ import annotations

import platform
from dataclasses import replace

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import proxy_job
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.session import clusters
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor.proxy_slices import ProxySlices
from pathways_jupyter.tunnel.relay.container import RelaySpec


def of_session(
    record: SessionRecord,
    config: ConnectConfig,
    service: ServiceInfo,
    slices: ProxySlices,
    *,
    pod: Object | None,
    insecure: bool,
    relay: RelaySpec | None,
) -> proxy_job.ProxySpec:
    """Return the spec of a proxy for the session of `record`.

    Args:
      slices: Those that were chosen.
      pod: That of the notebook, if it is in the cluster; it owns the Job in the same namespace.
      insecure: The proxy takes connections without ALTS.
      relay: The relay beside the proxy.
    """
    # An owner in another namespace does not exist for the cluster, which would delete the Job at once.
    owned = pod is not None and pod["metadata"]["namespace"] == service.namespace
    options = proxy_job.ProxyOptions.from_list(config.proxy_options)
    if service.sidecar_image:
        options = replace(options, sidecar=True)
    return proxy_job.ProxySpec(
        session=record.id,
        service=service.name,
        address=service.address,
        image=config.proxy_image or proxy_job.image_for(service.server_image),
        instances=slices.instances,
        reclaimed=tuple(slices.reclaimed),
        namespace=service.namespace,
        user=record.user,
        gcs_bucket=clusters.bucket(config),
        max_lifetime=config.max_lifetime,
        kernel=record.kernel_id,
        notebook=record.notebook,
        host=platform.node(),
        insecure=insecure,
        relay=relay,
        chips_queue=service.queue,
        queue=config.queue,
        priority=config.priority,
        owner=objects.owner(pod) if pod is not None and owned else {},
        options=replace(options, flags=(*options.flags, *config.proxy_xla_flags)),
        settings=config,
    )
