"""Find a session's cluster: at its start, and once more for whoever cleans up after it from another shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace

from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.cluster import Cluster
from pathways_jupyter.session import protocol
from pathways_jupyter.session.registry import SessionRecord


async def cluster(config: ConnectConfig, environ: Mapping[str, str] | None = None) -> Cluster:
    """The cluster that `config` means.

    Raises:
      ConfigError: There is no kubeconfig, or it cannot be used.
      ClusterError: Google knows no such cluster.
    """
    if not config.cluster:
        return load(config.kubeconfig, config.context, environ=environ)
    return await asyncio.to_thread(
        load, cluster=config.cluster, project=config.project, region=config.region, environ=environ
    )


async def again(record: SessionRecord) -> Cluster:
    """The cluster of a session, also after the current context was changed.

    Raises:
      ConfigError: Its kubeconfig is gone, or cannot be used any more.
      ClusterError: Google knows no such cluster any more.
    """
    config = protocol.config_from_json(record.config)
    environ = {**os.environ, "KUBECONFIG": record.kubeconfigs} if record.kubeconfigs else None
    if not config.cluster and not config.context and record.context != "in-cluster":
        config = replace(config, context=record.context)
    return await cluster(config, environ)
