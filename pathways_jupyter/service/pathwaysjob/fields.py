"""The names and values of a PathwaysJob's fields, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tpu import InstanceType

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
LATEST = "latest"
START_SUSPENDED_ANNOTATION = "pathways-jupyter/start-suspended"
"""On a PathwaysJob: create its JobSet suspended. The API has no field for that; queueing systems suspend the JobSet."""

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Component:
    """What a job changes about one Pathways program."""

    image: str = ""
    flags: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Job:
    """A PathwaysJob, with the defaults of absent fields.

    Attributes:
      directory: Bucket path (``gs://...``) where the programs keep scratch data.
      version: Tag of the Pathways images.
      elastic_slices: Slices that may be missing at any time; 0 for a job that is not elastic.
      template: The user's pod template; None for a headless job.
    """

    name: str
    namespace: str
    instance_type: InstanceType
    slices: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    version: str = LATEST
    mode: str = DEFAULT_MODE
    main_container: str = MAIN_CONTAINER
    metrics: bool = False
    elastic_slices: int = 0
    template: Manifest | None = None
    max_restarts: int = 0
    max_slice_restarts: int = 1
    grace_seconds: int | None = None
    priority_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    components: Mapping[str, Component] = field(default_factory=dict)
    suspended: bool = False

    @property
    def headless(self) -> bool:
        """Whether a client connects from outside, instead of a user's container in the head pod."""
        return self.template is None


def read(manifest: Mapping[str, Any]) -> Job:
    """Read a PathwaysJob.

    Raises:
      ConfigError: It has no workers, a TPU type that does not exist, or a value that is none of its field; an API
        server with this definition of the API refuses these too.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    name = str(metadata.get("name") or "")
    try:
        (workers,), controller = spec["workers"], dict(spec["controller"])
        components = {
            each["componentType"]: Component(
                each.get("image") or "", tuple(each.get("customFlags") or ()), tuple(each.get("customEnv") or ())
            )
            for each in spec.get("customComponents") or ()
        }
        return Job(
            name=name,
            namespace=str(metadata.get("namespace") or ""),
            instance_type=tpu.parse_instance_type(f"{workers['type']}:{workers['topology']}"),
            slices=int(workers["numSlices"]),
            labels=metadata.get("labels") or {},
            annotations=metadata.get("annotations") or {},
            directory=spec.get("pathwaysDir") or "",
            version=spec.get("pathwaysVersion") or LATEST,
            mode=controller.get("deploymentMode") or DEFAULT_MODE,
            main_container=controller.get("mainContainerName") or MAIN_CONTAINER,
            metrics=bool(controller.get("enableMetricsCollection")),
            elastic_slices=int(controller.get("elasticSlices") or 0),
            template=controller.get("template"),
            max_restarts=int(spec.get("maxRestarts") or 0),
            max_slice_restarts=1 if (restarts := workers.get("maxSliceRestarts")) is None else int(restarts),
            grace_seconds=workers.get("terminationGracePeriodSeconds"),
            priority_class=workers.get("priorityClassName") or "",
            node_selector=workers.get("nodeSelector") or {},
            components=components,
            suspended=(metadata.get("annotations") or {}).get(START_SUSPENDED_ANNOTATION) == "true",
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError(
            f"PathwaysJob {name!r} is incomplete.",
            hint="It needs spec.controller, and one entry in spec.workers with type, topology and numSlices.",
        ) from error
