"""Resolve a session's cluster, at its start and for a later clean-up, which may run in another process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pathways_jupyter import runtime_files
from pathways_jupyter.config import ConnectConfig, runtime_dir
from pathways_jupyter.kube.auth import of_config
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.session import protocol
from pathways_jupyter.session.registry import SessionRecord


async def cluster(config: ConnectConfig, environ: Mapping[str, str] | None = None) -> Cluster:
    """Return the cluster of `config`.

    Raises:
      ConfigError: There is no kubeconfig, or it cannot be used.
      ClusterError: Google Cloud has no such cluster.
    """
    # Only Google is asked over the network.
    return await asyncio.to_thread(of_config, config, environ) if config.cluster else of_config(config, environ)


async def again(record: SessionRecord) -> Cluster:
    """Return the cluster of a session, also after the current context was changed.

    Raises:
      ConfigError: Its kubeconfig is missing, or can no longer be used.
      ClusterError: Google Cloud no longer has the cluster.
    """
    config = protocol.config_from_json(record.config)
    environ = {**os.environ, "KUBECONFIG": record.kubeconfigs} if record.kubeconfigs else None
    if not config.cluster and not config.context and record.context != "in-cluster":
        config = replace(config, context=record.context)
    return await cluster(config, environ)


@dataclass(frozen=True)
class Embedded:
    """The embedded cluster that a session runs on, which ends with everything in it.

    Attributes:
      content: Its kubeconfig's content, which is unique, even among clusters of the same name.
    """

    kubeconfig: Path
    content: bytes

    @classmethod
    def of(cls, config: ConnectConfig) -> Embedded | None:
        """Return the embedded cluster that `config` names; None when it names another kind."""
        path = Path(config.kubeconfig)
        if not config.kubeconfig or not (config.local or path.is_relative_to(runtime_dir() / "local")):
            return None
        try:
            return cls(path, path.read_bytes())
        except OSError:
            return cls(path, b"")

    def has_ended(self) -> bool:
        """Whether it has ended, and all its objects with it."""
        if not runtime_files.is_held(self.kubeconfig.with_name(runtime_files.ALIVE)):
            return True
        try:
            return self.kubeconfig.read_bytes() != self.content
        except OSError:
            return True
