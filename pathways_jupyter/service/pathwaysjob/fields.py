"""The names and values of a PathwaysJob's fields."""

from __future__ import annotations

from typing import Any

GROUP = "pathways-job.pathways.domain"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "PathwaysJob"
PLURAL = "pathwaysjobs"

DEFAULT_MODE = "default"
COLOCATE_MODE = "colocate_head_with_workers"
MODES = (DEFAULT_MODE, COLOCATE_MODE)

SERVER = "pathways_server"
WORKER = "worker"
PROXY = "proxy_server"
SIDECAR = "colocated_python_sidecar"
COMPONENTS = (SERVER, WORKER, PROXY, SIDECAR)

MAIN_CONTAINER = "main"
START_SUSPENDED_ANNOTATION = "pathways-jupyter/start-suspended"
"""On a PathwaysJob: create its JobSet suspended. The API has no field for that; queueing systems suspend the JobSet."""

Manifest = dict[str, Any]
