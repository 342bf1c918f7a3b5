"""A service to deploy: read from what a person asked for, written as manifests, created and deleted in a cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter import tpu
from pathways_jupyter.errors import ApiError, ConfigError, PathwaysError, ServiceError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, NETWORK_POLICIES, Object
from pathways_jupyter.service import names, networkpolicy, service_jobset
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.service_jobset import ServiceSpec

HEAD_POOL = "cpu-np"
"""The node pool for heads in clusters that Pathways' own tools set up."""
ANY_POOL = "any"


@dataclass(frozen=True)
class Deployment:
    """A service to deploy.

    Attributes:
      nodes: Address ranges of the cluster's nodes, from which workers on the host network connect.
    """

    spec: ServiceSpec
    nodes: tuple[str, ...] = ()

    def within(self, namespace: str) -> Deployment:
        """Return the same service for another namespace."""
        return replace(self, spec=replace(self.spec, namespace=namespace))


def plan(values: Mapping[str, Any], *, jax: str) -> Deployment:
    """Read the options of ``service deploy``; contacts nothing.

    Args:
      values: Options by name, those that were given.
      jax: Version of JAX for the images that are not given.

    Raises:
      ConfigError: An option is missing or invalid; the hint says what fits.
    """
    name = str(values.get("name") or "")
    text = str(values.get("tpu") or "")
    if not text:
        raise ConfigError("No instance type was given.", hint="For example: --tpu tpuv6e:2x2 --slices 2.")
    instances = tpu.parse_instances(text)
    if len(instances) > 1:
        raise ConfigError(
            "A service has slices of one instance type.", hint=f"Deploy one service for each of {', '.join(instances)}."
        )
    ((instance, counted),) = instances.items()
    if values.get("slices") is not None:
        if "=" in text:
            raise ConfigError("The number of slices is given twice.", hint="Leave out =COUNT or --slices.")
        counted = tpu.parse_count(values["slices"], "--slices")
    host_network, nodes = bool(values.get("host_network")), tuple(values.get("nodes") or ())
    if nodes and not host_network:
        raise ConfigError(
            "Address ranges of nodes are only for workers on the host network.",
            hint="Add --host-network, or leave --nodes out.",
        )
    pool = str(values.get("head_pool") or HEAD_POOL)
    spec = ServiceSpec(
        tpu.parse_instance_type(instance),
        counted,
        _image("--server-image", values.get("server_image"))
        or f"{names.IMAGE_REPOSITORY}/{names.SERVER_IMAGE}:jax-{jax}",
        name=name,
        gcs_scratch_location=_bucket(str(values.get("gcs_bucket") or ""), needed=not values.get("local")),
        sidecar_image=_image("--sidecar-image", values.get("sidecar_image")),
        max_restarts=_number("--max-restarts", values.get("max_restarts"), 30),
        max_slice_restarts=_number("--max-slice-restarts", values.get("max_slice_restarts"), 1_000_000),
        head_node_selector={} if pool == ANY_POOL else {names.NODEPOOL_LABEL: pool},
        host_network=host_network,
        labels={names.SERVICE_LABEL: name},
    )
    deployment = Deployment(spec, tuple(address_range(each) for each in nodes))
    service_jobset.manifest(spec)
    return deployment


def manifests(deployment: Deployment) -> tuple[Object, ...]:
    """Return the objects of `deployment`, in the order in which they are created.

    Policies first, so that no port is open in between. The resource manager gets none if the workers' addresses are
    those of nodes that are not known: it would keep the workers out.
    """
    spec = deployment.spec
    policies = [networkpolicy.for_proxies(spec.namespace)]
    if deployment.nodes or not spec.host_network:
        policies.append(networkpolicy.for_resource_manager(spec.name, deployment.nodes, spec.namespace))
    return (*policies, service_jobset.manifest(spec))


async def create(client: Client, deployment: Deployment) -> None:
    """Create the objects of `deployment`; policies that exist are updated.

    Raises:
      ServiceError: There is a JobSet of that name already; nothing was changed.
      ApiError: Creating something is forbidden; what was created before it is removed.
      ClusterError: The server could not be reached.
    """
    spec = deployment.spec
    *policies, service = manifests(deployment)
    if await objects.find(client, JOBSETS, spec.name, namespace=spec.namespace) is not None:
        raise exists(spec)
    made: list[Object] = []
    try:
        for each in policies:
            # One by one, so that `made` is right when one of them fails.
            made += [each] if await _put(client, each, spec.namespace) else []
        await objects.create(client, JOBSETS, service)
    except PathwaysError as error:
        for each in made:
            await objects.delete(client, NETWORK_POLICIES, each["metadata"]["name"], namespace=spec.namespace)
        if isinstance(error, ApiError) and error.reason == "AlreadyExists":
            raise exists(spec) from error
        raise


async def delete(client: Client, service: ServiceInfo) -> bool:
    """Delete a service and its policy; return whether the service was there. The policy of the proxies stays.

    Raises:
      ApiError: Deleting is forbidden.
      ClusterError: The server could not be reached.
    """
    found = await objects.delete(client, JOBSETS, service.name, namespace=service.namespace)
    policy = networkpolicy.name_for_resource_manager(service.name)
    try:
        await objects.delete(client, NETWORK_POLICIES, policy, namespace=service.namespace)
    except ApiError as error:
        # The policy selects pods that are gone. A person who may delete JobSets only can leave it.
        if error.status != 403:
            raise
    return found


def exists(spec: ServiceSpec) -> ServiceError:
    """Return the error for a service whose name is taken."""
    return ServiceError(
        f"There is a JobSet {spec.name} in namespace {spec.namespace} already.",
        hint=f"See it: %pathways service show {spec.name}. Choose another name, or delete it first.",
    )


async def _put(client: Client, policy: Object, namespace: str) -> bool:
    """Create a policy, or update the one of that name; return whether it was created."""
    try:
        await objects.create(client, NETWORK_POLICIES, policy, namespace=namespace)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        name = policy["metadata"]["name"]
        await objects.patch(client, NETWORK_POLICIES, name, {"spec": policy["spec"]}, namespace=namespace)
        return False
    return True


def _bucket(text: str, *, needed: bool) -> str:
    if not text and needed:
        raise ConfigError(
            "A service needs a bucket for its scratch files.",
            hint="Add --gcs-bucket gs://BUCKET/PATH; gcloud storage buckets create makes one.",
        )
    if text and (not text.startswith("gs://") or not text.removeprefix("gs://").strip("/")):
        raise ConfigError(f"{text!r} is not a bucket address.", hint=f"Write it as gs://{text.strip('/') or 'BUCKET'}.")
    return text.rstrip("/")


def _image(option: str, value: Any) -> str:
    text = str(value or "")
    if any(character.isspace() for character in text):
        raise ConfigError(f"{option} {text!r} is not an image.", hint="For example: HOST/PROJECT/REPOSITORY/NAME:TAG.")
    return text


def _number(option: str, value: Any, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not str(value).strip().isdecimal():
        raise ConfigError(f"{option} must be a whole number, not {value!r}.", hint=f"For example: {option} {default}.")
    return int(value)


def address_range(text: str) -> str:
    """Return an address range as Kubernetes writes it.

    Raises:
      ConfigError: `text` is none.
    """
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is not an address range: {error}.", hint="For example: --nodes 10.128.0.0/20."
        ) from None
