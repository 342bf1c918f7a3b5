"""Deploy a service: read the options, check the cluster, create the objects, follow the start; and delete one."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.config import SETTINGS
from pathways_jupyter.base.errors import ApiError, ConfigError, PathwaysError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.setting_values import ANNOTATION, UnfitError, bucket_address, pairs, toleration
from pathways_jupyter.base.text import count, parse_seconds, parse_whole_number
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, JOBSETS, NETWORK_POLICIES, PODS, Object
from pathways_jupyter.kube.watch import until_gone
from pathways_jupyter.service import deploychecks, names, networkpolicy, queues, rollout, service_jobset, status
from pathways_jupyter.service.checks import Finding
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.rollout import RolloutStep
from pathways_jupyter.service.service_jobset import EXCLUSIVE, PodPlacement, ServiceSpec

HEAD_POOL = "cpu-np"
"""The node pool for heads in clusters that Pathways' own tools set up."""
ANY_POOL = "any"
REMOVAL_SECONDS = 120.0
_FLAG = re.compile(r"--[a-zA-Z]\w*(=.*)?")


def plan(values: Mapping[str, Any], *, jax: str) -> ServiceSpec:
    """Read the options of ``service deploy``, all but the namespace; contacts nothing.

    Args:
      values: Options by name, those that were given.
      jax: Version of JAX for the images that are not given.

    Raises:
      ConfigError: An option is missing or invalid; the hint says what fits.
    """

    def number(option: str, default: int) -> int:
        value = values.get(option)
        return default if value is None else parse_whole_number(f"--{option.replace('_', '-')}", value)

    name, text = str(values.get("name") or ""), str(values.get("tpu") or "")
    if not text:
        raise ConfigError("No instance type was given.", hint=advice("For example: {tpu:tpuv6e:2x2} --slices 2."))
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
    head, workers = (_placement(part, values) for part in ("head", "worker"))
    # Who names the head's nodes by other labels need not have a pool of the default's name.
    pool = str(values.get("head_pool") or (ANY_POOL if head.node_selector else HEAD_POOL))
    if pool != ANY_POOL:
        if head.node_selector.get(names.NODEPOOL_LABEL, pool) != pool:
            raise ConfigError(
                "The node pool of the resource manager is given twice.",
                hint=f"Leave out --head-pool, or {names.NODEPOOL_LABEL} in --head-node-selector.",
            )
        head = replace(head, node_selector={**head.node_selector, names.NODEPOOL_LABEL: pool})
    spec = ServiceSpec(
        tpu.parse_instance_type(instance),
        counted,
        _image("--server-image", values.get("server_image"))
        or f"{names.IMAGE_REPOSITORY}/{names.SERVER_IMAGE}:jax-{jax}",
        name=name,
        gcs_scratch_location=_bucket(str(values.get("gcs_bucket") or ""), needed=not values.get("local")),
        sidecar_image=_image("--sidecar-image", values.get("sidecar_image")),
        max_restarts=number("max_restarts", ServiceSpec.max_restarts),
        max_slice_restarts=number("max_slice_restarts", ServiceSpec.max_slice_restarts),
        service_account=_checked("--service-account", "proxy_service_account", values.get("service_account") or ""),
        head=head,
        workers=workers,
        resource_manager_flags=_flags("--resource-manager-options", values.get("resource_manager_options")),
        worker_flags=_flags("--worker-options", values.get("worker_options")),
        host_network=host_network,
        nodes=tuple(address_range(each) for each in nodes),
        labels={
            names.SERVICE_LABEL: name,
            **queues.labels(*queues.requested(values)),
        },
        annotations=(
            {names.SUSPEND_AFTER_ANNOTATION: f"{parse_seconds('--suspend-after', idle):.0f}"}
            if (idle := values.get("suspend_after"))
            else {}
        ),
    )
    # Raises for a name that does not fit.
    service_jobset.manifest(spec)
    return spec


def manifests(spec: ServiceSpec) -> tuple[Object, ...]:
    """Return the objects of a service, in the order in which they are created.

    Policies first, so that no port is open in between. The resource manager gets none if the workers' addresses are
    those of nodes that are not known: it would keep the workers out.
    """
    policies = [networkpolicy.for_proxies(spec.namespace)]
    if spec.nodes or not spec.host_network:
        policies.append(networkpolicy.for_resource_manager(spec.name, spec.nodes, spec.namespace))
    return (*policies, service_jobset.manifest(spec))


async def create(client: Client, spec: ServiceSpec) -> None:
    """Create the objects of a service; policies that exist are updated.

    Raises:
      ServiceError: There is a JobSet of that name already; nothing was changed.
      ApiError: Creating something is forbidden; what was created before it is removed.
      ClusterError: The server could not be reached.
    """
    *policies, service = manifests(spec)
    if await objects.find(client, JOBSETS, spec.name, namespace=spec.namespace) is not None:
        raise deploychecks.name_taken(spec)
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
            raise deploychecks.name_taken(spec) from error
        raise


async def run(
    client: Client,
    spec: ServiceSpec,
    *,
    skip_checks: bool = False,
    follow: bool = True,
    seconds: float = rollout.TIMEOUT_SECONDS,
) -> AsyncGenerator[Finding | RolloutStep, None]:
    """Deploy a service; yield the findings of the checks, then the steps of its start.

    Args:
      skip_checks: Deploy whatever the checks find.
      follow: Yield the steps until the service is ready, or `seconds` are over; else end when it is created.

    Raises:
      ServiceError: A check failed, and nothing was created; or the service is not ready in time, and stays.
      ApiError: Creating something is forbidden.
      ClusterError: The server could not be reached.
    """
    failed = []
    async for finding in deploychecks.findings(client, spec):
        yield finding
        failed += [finding] if finding.level is Tone.FAIL else []
    if failed and not skip_checks:
        which = ", ".join(each.name for each in failed)
        raise ServiceError(
            f"Service {spec.name} was not deployed: {'a check' if len(failed) == 1 else 'checks'} failed "
            f"({which}). {failed[0].message}",
            hint=failed[0].hint,
        )
    # From here on an interrupt leaves the service: it starts without this process too.
    await create(client, spec)
    yield RolloutStep(Tone.OK, f"Service {spec.name} is created in namespace {spec.namespace}.", 0, spec.slices)
    if follow:
        async with contextlib.aclosing(rollout.follow(client, spec.namespace, spec.name, seconds=seconds)) as steps:
            async for step in steps:
                yield step


async def find_to_delete(client: Client, namespace: str, name: str) -> tuple[ServiceInfo, Service, str]:
    """Return a service, its model, and the question to ask before it is deleted.

    Raises:
      ServiceError: There is no such service.
    """
    ((service, model),) = await status.fetch_with_services(client, namespace, name, logs=False)
    what = f"{count(service.slices, 'slice')} of {service.instance_type}" if service.instance_type else "a service"
    users = [str(each) for each in model.holders]
    used = f" {', '.join(users)} {'uses' if len(users) == 1 else 'use'} it, and would lose it." if users else ""
    where = f"in namespace {service.namespace} of {client.cluster.name}"
    return service, model, f"{service.name} ({what}) {where}.{used} Delete it?"


async def remove(client: Client, service: ServiceInfo) -> None:
    """Delete a service, its policy and its sessions' proxies; return when its pods are gone.

    A proxy would hold on without it, and wait for another service of that name. The policy of the proxies stays.

    Raises:
      ServiceError: Some pods are still there after two minutes.
      ApiError: Deleting is forbidden.
      ClusterError: The server could not be reached.
    """
    # First, so that who may not do it changes nothing.
    proxies = f"{names.SESSIONS},{names.SERVICE_LABEL}={names.label_value(service.name)}"
    listed = await objects.list_(client, JOBS, namespace=service.namespace, labels=proxies)
    own = [str(each["metadata"]["name"]) for each in listed.items]
    await asyncio.gather(*(objects.delete(client, JOBS, each, namespace=service.namespace) for each in own))
    await objects.delete(client, JOBSETS, service.name, namespace=service.namespace)
    policy = networkpolicy.name_for_resource_manager(service.name)
    try:
        await objects.delete(client, NETWORK_POLICIES, policy, namespace=service.namespace)
    except ApiError as error:
        # The policy selects pods that are gone. A person who may delete JobSets only can leave it.
        if error.status != 403:
            raise
    labels = f"{names.JOBSET_NAME_LABEL}={service.name}"
    try:
        async with asyncio.timeout(REMOVAL_SECONDS):
            await until_gone(client, PODS, namespace=service.namespace, labels=labels)
    except TimeoutError:
        raise ServiceError(
            f"Pods of {service.name} are still ending after {REMOVAL_SECONDS:g} s.",
            hint=f"See them: kubectl get pods -n {service.namespace} -l {labels}",
        ) from None


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
            hint=advice("Add {gcs_bucket:gs://BUCKET/PATH}; gcloud storage buckets create makes one."),
        )
    if text:
        bucket_address(text)
    return text.rstrip("/")


def _checked(option: str, setting: str, value: Any) -> Any:
    """Check an option's value as the proxy's setting of the same kind is checked."""
    return SETTINGS[setting].check(value, option) if value else value


def _placement(part: str, values: Mapping[str, Any]) -> PodPlacement:
    """Read the options that place the pods of `part`, ``head`` or ``worker``."""

    def given(name: str) -> tuple[str, Any]:
        return f"--{part}-{name.replace('_', '-')}", values.get(f"{part}_{name}") or ()

    option, texts = given("annotations")
    try:
        annotations = pairs(ANNOTATION.check_list(texts, option))
    except UnfitError as problem:
        raise ConfigError(f"{option} {problem}.", hint=f"For example: {option} KEY=VALUE.") from None
    if EXCLUSIVE in annotations:
        raise ConfigError(
            f"{option} cannot be {EXCLUSIVE}: the service sets that itself.",
            hint="Each slice has a node pool of its own.",
        )
    option, texts = given("node_selector")
    selector = pairs(_checked(option, "proxy_node_selector", texts))
    if own := {names.ACCELERATOR_LABEL, names.TOPOLOGY_LABEL} & set(selector) if part == "worker" else None:
        raise ConfigError(f"{option} cannot be {min(own)}: that follows from the type of slice.", hint="Leave it out.")
    option, texts = given("tolerations")
    return PodPlacement(
        selector, tuple(toleration(each) for each in _checked(option, "proxy_tolerations", texts)), annotations
    )


def _image(option: str, value: Any) -> str:
    text = str(value or "")
    if any(character.isspace() for character in text):
        raise ConfigError(f"{option} {text!r} is not an image.", hint="For example: HOST/PROJECT/REPOSITORY/NAME:TAG.")
    return text


def _flags(option: str, values: Any) -> tuple[str, ...]:
    flags = tuple(values or ())
    if wrong := [each for each in flags if not _FLAG.fullmatch(each)]:
        raise ConfigError(
            f"{option} {wrong[0]!r} is not a flag of a program.",
            hint=f"Write each as {option}=--NAME=VALUE, such as {option}=--enable_gcs_olm=false.",
        )
    return flags


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
