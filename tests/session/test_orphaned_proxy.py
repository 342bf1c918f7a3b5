"""A proxy whose Job was deleted without its pod, as Kubernetes does where a request does not say otherwise."""

import asyncio
import contextlib
import os
import signal
import time

import pytest
from asks import ask
from waits import has_ended, wait_until

from pathways_jupyter.kube.objects import JOBS, PODS
from pathways_jupyter.kube.watch import watch
from pathways_jupyter.service import abandoned, status
from pathways_jupyter.service.names import SESSION_LABEL
from pathways_jupyter.session import registry

DEADLINE = 60.0
LEASE_SECONDS = 5.0
"""A supervisor that has to wait for a processor renews it in time."""


async def delete_without_pods(client, record):
    """Delete a session's Job, and return once its pod has no owner any more."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    await client.delete(JOBS.item(record.namespace, record.job), body=options)
    changes = watch(client, PODS, namespace=record.namespace, labels=f"{SESSION_LABEL}={record.id}")
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(changes):
        async for change in changes:
            if change.object and not change.object["metadata"].get("ownerReferences"):
                return change.object["metadata"]["name"]


async def look(client, record):
    """Delete the Job; return who holds slices then, and what a sweep would delete."""
    pod = await delete_without_pods(client, record)
    (service,) = await status.fetch(client, record.namespace)
    return pod, service, await abandoned.sweep(client, record.namespace, dry_run=True, reclaim=abandoned.EVERY)


def test_it_is_seen_to_hold_its_slice_lives_as_long_as_its_session_and_goes_with_it(cluster, hold, gone):
    link = hold(1)
    record = registry.read(link.session)
    pod, service, swept = ask(cluster.kubeconfig, look, record)
    (holder,) = service.holders
    assert (holder.session, holder.pod, holder.notebook) == (record.id, pod, "work/holder.ipynb")
    assert holder.until > time.time()
    assert (service.free, service.in_use) == (1, 1)
    # Its session renews its Lease.
    assert swept == ()
    assert link.close(patience=DEADLINE)
    gone(record.id)


@pytest.mark.thorough
def test_the_operator_deletes_it_once_its_session_is_dead(cluster, hold, gone):
    link = hold(1, lease_seconds=LEASE_SECONDS)
    record = registry.read(link.session)
    ask(cluster.kubeconfig, look, record)
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: has_ended(record.pid), DEADLINE)
    registry.remove(record)
    gone(record.id)
