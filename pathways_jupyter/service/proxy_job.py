"""The proxy Job, which a session runs in the cluster.

Each session has a proxy of its own, which holds the session's slices while it runs. The Job cannot outlive its use: it
never restarts, it has a deadline, and it is deleted after it ended. Its Lease (see `leases`) covers sessions that die
before their deadline.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pathways_jupyter.base import setting_values
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import LARGEST_NUMBER
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import JOBS, Object
from pathways_jupyter.service import discovery, names, queues, untrusted
from pathways_jupyter.service.images import Image
from pathways_jupyter.service.names import job_name, label_value
from pathways_jupyter.service.podstate import State, pod_state
from pathways_jupyter.tunnel.relay import relay_container as relay_container
from pathways_jupyter.tunnel.relay.relay_container import RelaySpec

TTL_SECONDS = 60
"""A finished Job stays this long, so that people can read why it ended."""
GRACE_SECONDS = 5
_FIRST_PORT, _PORTS = 29100, 900
_OWN_FLAGS = ("server_port", "resource_manager_address", "gcs_scratch_location", "virtual_slices")
_LONGEST_REQUEST = 65_536
"""In characters: some thousand slices."""
_LONGEST_TYPE, _MOST_TYPES = 64, 16
_FLAG = re.compile(r"--(?P<name>[a-z][a-z0-9_]*)(=.*)?", re.DOTALL)


@dataclass(frozen=True)
class ProxyOptions:
    """Options of a proxy besides its slices.

    Attributes:
      sidecar: Allow colocated Python on the slices' hosts.
      elastic_slices: How many slices the proxy may lose without ending.
      host_network: Use the host network; then two proxies on one node may conflict over a port.
      flags: Additional flags of the program.
    """

    sidecar: bool = False
    elastic_slices: int = 0
    host_network: bool = False
    flags: tuple[str, ...] = ()

    @classmethod
    def from_list(cls, options: Iterable[str] | None) -> Self:
        """Parse ``sidecar:true``, ``num_elastic_slices:2``, ``xla_flags:--xla_a=1 --xla_b``, and plain flags.

        Raises:
          ConfigError: An option is unknown or malformed, or a flag is one that the session sets itself.
        """
        sidecar = host_network = False
        elastic = 0
        flags: list[str] = []
        for option in filter(None, (each.strip() for each in options or ())):
            if option.startswith("--"):
                flags.append(_checked_flag(option))
                continue
            key, separator, value = (part.strip() for part in option.partition(":"))
            if not separator or not value:
                raise _bad_option(option, "it is not KEY:VALUE")
            if key == "sidecar":
                sidecar = _flag_value(option, value)
            elif key == "host_network":
                host_network = _flag_value(option, value)
            elif key == "use_insecure_credentials":
                # The tunnel ends outside of Google's network, where there is no ALTS, so `true` is the only value.
                if not _flag_value(option, value):
                    raise _bad_option(option, "a proxy behind a tunnel cannot use ALTS")
            elif key == "num_elastic_slices" and value.isdecimal():
                elastic = int(value)
            elif key == "xla_flags":
                flags.extend(_checked_flag(flag) for flag in value.strip("\"'").split())
            else:
                raise _bad_option(option, "there is no such option")
        return cls(sidecar, elastic, host_network, tuple(flags))


@dataclass(frozen=True)
class ProxySpec:
    """A proxy to create.

    Attributes:
      session: The session's id.
      service: Name of the service.
      address: ``host:port`` of its resource manager.
      image: The proxy's image; see :func:`image_for`.
      instances: Number of slices per instance type.
      max_lifetime: Seconds after which the cluster ends it; ``inf`` for never.
      kernel: The kernel's id.
      notebook: The notebook's path.
      host: The machine that the kernel runs on.
      insecure: Whether its clients connect without ALTS.
      relay: The relay beside the proxy, where there is one.
      chips_queue: The queue of the service; empty for none.
      queue: The queue of Kueue's in which the Job waits; empty for none.
      priority: Its priority class there.
      owner: Reference to the pod of the notebook, with which the cluster deletes the Job; empty outside of the cluster.
      settings: What a person wants of the pod: those settings that begin with ``proxy_``, from its CPUs to its labels.
    """

    session: str
    service: str
    address: str
    image: str
    instances: Mapping[str, int]
    namespace: str = names.DEFAULT_NAMESPACE
    user: str = ""
    gcs_bucket: str = ""
    max_lifetime: float = math.inf
    kernel: str = ""
    notebook: str = ""
    host: str = ""
    insecure: bool = True
    relay: RelaySpec | None = None
    chips_queue: str = ""
    queue: str = ""
    priority: str = ""
    owner: Mapping[str, Any] = field(default_factory=dict)
    options: ProxyOptions = field(default_factory=ProxyOptions)
    settings: ConnectConfig = field(default_factory=ConnectConfig)

    @property
    def name(self) -> str:
        """Name of the Job and of its Lease."""
        return job_name(self.user, self.session)

    @property
    def port(self) -> int:
        """The port that this proxy listens on; derived from the session, so that ports differ on a host network."""
        return _FIRST_PORT + zlib.crc32(self.session.encode()) % _PORTS


def job(spec: ProxySpec) -> Object:
    """Return the Job of `spec`."""
    labelled = labels(spec)
    manifest: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": spec.name,
            "namespace": spec.namespace,
            # Not those of a queue on the pod too, which Kueue would take for a job of its own.
            "labels": {**labelled, **queues.labels(spec.queue, spec.priority)},
            "annotations": _annotations(spec),
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {
                "metadata": {"labels": {"app": "pathways-proxy", **labelled}, "annotations": _annotations(spec)},
                "spec": _pod(spec),
            },
        },
    }
    if spec.queue:
        # Kueue resumes it; where it does not handle Jobs, nothing runs past the quota.
        manifest["spec"]["suspend"] = True
    if spec.owner:
        manifest["metadata"]["ownerReferences"] = [dict(spec.owner)]
    if math.isfinite(spec.max_lifetime):
        seconds = manifest["spec"]["activeDeadlineSeconds"] = max(1, math.ceil(spec.max_lifetime))
        # For a pod whose Job was deleted without it. Later, so that it is the Job that says why it ended.
        manifest["spec"]["template"]["spec"]["activeDeadlineSeconds"] = min(seconds + TTL_SECONDS, LARGEST_NUMBER)
    return manifest


def container(job: Object) -> Mapping[str, Any] | None:
    """Return the proxy's container in a Job; None if the Job is no proxy."""
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    return next((each for each in pod.get("containers") or () if each.get("name") == names.PROXY_CONTAINER), None)


def of_orphan(pod: Object) -> Object | None:
    """Return the pod of a proxy that has lost its Job as if it were that Job; None for every other pod.

    Deleting a Job through Kubernetes' API leaves its pods and its Lease, unless the request says otherwise. Such a pod
    holds its slices for as long as it runs. The key ``orphan_of`` of what is returned names the Job.
    """
    metadata, status, spec = pod["metadata"], pod.get("status") or {}, pod.get("spec") or {}
    name = untrusted.label(pod, names.JOB_NAME_LABEL)
    if metadata.get("ownerReferences") or not name:
        return None
    orphan: Object = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "orphan_of": name,
        "metadata": metadata,
        "spec": {"activeDeadlineSeconds": spec.get("activeDeadlineSeconds"), "template": {"spec": spec}},
        "status": {"startTime": status.get("startTime"), "ready": int(pod_state(pod)[0] is State.READY)},
    }
    if status.get("phase") in {"Failed", "Succeeded"}:
        ended = {"type": "Failed", "status": "True", "message": "its Job was deleted without it"}
        orphan["status"]["conditions"] = [ended]
    return orphan if container(orphan) is not None else None


def deadline(job: Object) -> float:
    """Return when Kubernetes ends a Job, in seconds since the epoch; 0 if it has no deadline or has not begun."""
    seconds = untrusted.number((job.get("spec") or {}).get("activeDeadlineSeconds"), untrusted.LONGEST_SECONDS)
    began = untrusted.time((job.get("status") or {}).get("startTime"))
    return began + seconds if seconds and began else 0.0


def instances(container: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of slices per instance type that a proxy's container asks for; empty if it cannot be read."""
    written = discovery.flags(container).get("virtual_slices", "")
    if len(written) > _LONGEST_REQUEST:
        return {}
    counted = Counter(untrusted.text(each, longest=_LONGEST_TYPE) for each in written.split(",") if each)
    return dict(counted) if len(counted) <= _MOST_TYPES else {}


def labels(spec: ProxySpec) -> dict[str, str]:
    """Return the labels of everything that belongs to the session."""
    values = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.SESSION_LABEL: label_value(spec.session),
        names.USER_LABEL: label_value(spec.user),
        names.SERVICE_LABEL: label_value(spec.service),
        names.CHIPS_QUEUE_LABEL: label_value(spec.chips_queue),
    }
    return setting_values.pairs(spec.settings.proxy_labels) | {key: value for key, value in values.items() if value}


def image_for(server_image: str) -> str:
    """Return the proxy image that matches a service's server image: the same release, in the same repository.

    Raises:
      ServiceError: It cannot be derived from that image.
    """
    server = Image.parse(server_image)
    name = server.name
    hint = advice("Give the proxy's image with {proxy_image}.")
    if name != names.SERVER_IMAGE and not re.search(r"(^|[-_.])server($|[-_.])", name):
        raise ServiceError(f"The service runs {server_image or 'no image'}, which has no proxy beside it.", hint=hint)
    if server.digest and not server.tag:
        named = replace(server, digest="")
        raise ServiceError(f"The service's image {named} is pinned by digest, without its release.", hint=hint)
    fitting = name if names.PROXY_IMAGE in name else name.replace(names.SERVER_IMAGE, names.PROXY_IMAGE)
    return str(Image(server.directory, fitting, server.tag))


def virtual_slices(instances: Mapping[str, int]) -> str:
    """Return the value of the proxy's flag: one entry per slice."""
    return ",".join(name for name, count in instances.items() for _ in range(count))


def _pod(spec: ProxySpec) -> Object:
    settings = spec.settings
    insecure = {names.INSECURE_CREDENTIALS: "true"} if spec.insecure else {}
    environment = insecure | setting_values.pairs(settings.proxy_env)
    pod: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": names.PROXY_CONTAINER,
                "image": spec.image,
                "args": _arguments(spec),
                "env": [{"name": name, "value": value} for name, value in environment.items()],
                "ports": [{"containerPort": spec.port, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": settings.proxy_cpu, "memory": settings.proxy_memory}},
                "securityContext": objects.restricted(runAsNonRoot=True, runAsUser=1000, runAsGroup=1000),
            }
        ],
    }
    if spec.relay is not None:
        pod["initContainers"] = [relay_container.container(spec.relay, spec.port)]
        pod["containers"][0]["livenessProbe"] = relay_container.liveness_probe(spec.port)
    if spec.options.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    further = {
        "nodeSelector": setting_values.pairs(settings.proxy_node_selector),
        "tolerations": [setting_values.toleration(each) for each in settings.proxy_tolerations],
        "priorityClassName": settings.proxy_priority_class,
        "serviceAccountName": settings.proxy_service_account,
    }
    return pod | {name: value for name, value in further.items() if value}


def _arguments(spec: ProxySpec) -> list[str]:
    arguments = [
        f"--server_port={spec.port}",
        f"--resource_manager_address={spec.address}",
        f"--gcs_scratch_location={spec.gcs_bucket}",
        f"--virtual_slices={virtual_slices(spec.instances)}",
    ]
    if spec.options.sidecar:
        arguments.append("--sidecar_name=external")
    if spec.options.elastic_slices:
        arguments.append(f"--num_elastic_slices={spec.options.elastic_slices}")
    return [*arguments, *spec.options.flags]


def _annotations(spec: ProxySpec) -> dict[str, str]:
    values = {
        names.KERNEL_ANNOTATION: spec.kernel,
        names.NOTEBOOK_ANNOTATION: spec.notebook,
        names.HOST_ANNOTATION: spec.host,
        names.KEEP_ANNOTATION: f"{spec.relay.keep:.0f}" if spec.relay is not None else "",
    }
    return {key: value for key, value in values.items() if value}


def _checked_flag(flag: str) -> str:
    match = _FLAG.fullmatch(flag)
    if match is None:
        raise _bad_option(flag, "it is not --NAME or --NAME=VALUE")
    if match["name"] in _OWN_FLAGS:
        raise _bad_option(flag, "the session sets that itself")
    return flag


def _flag_value(option: str, value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise _bad_option(option, "its value must be true or false")
    return value.lower() == "true"


def _bad_option(option: str, problem: str) -> ConfigError:
    return ConfigError(
        f"Proxy option {option!r}: {problem}.",
        hint="Options: sidecar:true, num_elastic_slices:N, host_network:true, xla_flags:--xla_..., or --FLAG=VALUE.",
    )
