"""Deploy a service in one go: check the cluster, create the objects, follow the start; and delete one again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from pathways_jupyter.errors import ServiceError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import deploychecks, deployment, names, rollout, status
from pathways_jupyter.service.checks import Finding, Level
from pathways_jupyter.service.deployment import Deployment
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.rollout import Step, StepKind
from pathways_jupyter.wording import count

REMOVAL_SECONDS = 120.0


async def run(
    client: Client,
    wanted: Deployment,
    *,
    skip_checks: bool = False,
    follow: bool = True,
    seconds: float = rollout.TIMEOUT_SECONDS,
) -> AsyncGenerator[Finding | Step, None]:
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
    async for found in deploychecks.findings(client, wanted):
        yield found
        failed += [found] if found.level is Level.FAIL else []
    if failed and not skip_checks:
        which = ", ".join(each.name for each in failed)
        raise ServiceError(
            f"Service {wanted.spec.name} was not deployed: {'a check' if len(failed) == 1 else 'checks'} failed "
            f"({which}). {failed[0].message}",
            hint=failed[0].hint,
        )
    await deployment.create(client, wanted)
    spec = wanted.spec
    yield Step(StepKind.DONE, f"Service {spec.name} is created in namespace {spec.namespace}.", 0, spec.slices)
    if follow:
        async with contextlib.aclosing(rollout.follow(client, spec.namespace, spec.name, seconds=seconds)) as steps:
            async for step in steps:
                yield step


async def find_to_delete(client: Client, namespace: str, name: str) -> tuple[ServiceInfo, Service, str]:
    """Return a service, its picture, and the question to ask before it is deleted.

    Raises:
      ServiceError: There is no such service.
    """
    ((found, picture),) = await status.fetch_with_services(client, namespace, name)
    return found, picture, _question(found, picture, client.cluster.name)


async def remove(client: Client, service: ServiceInfo) -> None:
    """Delete a service, and return when its pods are gone.

    Raises:
      ServiceError: Some pods are still there after two minutes.
      ApiError: Deleting is forbidden.
      ClusterError: The server could not be reached.
    """
    await deployment.delete(client, service)
    left: set[str] = set()
    try:
        async with asyncio.timeout(REMOVAL_SECONDS):
            labels = f"{names.JOBSET_NAME_LABEL}={service.name}"
            async with contextlib.aclosing(watch(client, PODS, namespace=service.namespace, labels=labels)) as changes:
                synced = False
                async for change in changes:
                    synced = synced or change.type is ChangeType.SYNCED
                    if change.object:
                        name = str(change.object["metadata"]["name"])
                        (left.discard if change.type is ChangeType.DELETED else left.add)(name)
                    if synced and not left:
                        return
    except TimeoutError:
        raise ServiceError(
            f"{count(len(left), 'pod')} of {service.name} are still ending after {REMOVAL_SECONDS:g} s.",
            hint=f"See them: kubectl get pods -n {service.namespace} -l {names.JOBSET_NAME_LABEL}={service.name}",
        ) from None


def _question(service: ServiceInfo, picture: Service, cluster: str) -> str:
    about = f"{count(service.slices, 'slice')} of {service.instance_type}" if service.instance_type else "a service"
    users = [str(each) for each in picture.holders]
    used = f" {', '.join(users)} {'uses' if len(users) == 1 else 'use'} it, and would lose it." if users else ""
    return f"{service.name} ({about}) in namespace {service.namespace} of {cluster}.{used} Delete it?"
