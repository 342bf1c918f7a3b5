"""Findings of checks, and the checks that connecting and deploying a service share."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from pathways_jupyter.base.errors import ApiError, PathwaysError
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, LEASES
from pathways_jupyter.service import discovery, leases, queues


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
      name: What was checked, in one or two words.
      level: OK; WARN if connecting works, but something else does not; FAIL if it cannot work, or would leave something
        behind in the cluster.
      hint: What to do; empty when the check passed.
    """

    name: str
    level: Tone
    message: str
    hint: str = ""

    @property
    def heading(self) -> str:
        """The heading under which the documentation explains it; all permissions share one."""
        return "permission" if self.name.startswith("permission ") else self.name


_KUEUE_NAMESPACE = "kueue-system"
_KUEUE_LEASE = "c1f6bfd2.kueue.x-k8s.io"
"""The Lease of its leader, by the name that all its releases give it."""


async def jobsets(client: Client) -> Finding:
    """Check that the cluster has the JobSet kind."""
    try:
        await client.get(f"/apis/{JOBSETS.api_version}")
    except ApiError as error:
        if error.status == 404:
            return failed("jobset", discovery.no_jobsets(client))
        return Finding("jobset", Tone.WARN, f"Cannot be checked: {error}", error.hint)
    except PathwaysError as error:
        return failed("jobset", error)
    return Finding("jobset", Tone.OK, f"{JOBSETS.api_version} is served")


async def queue(client: Client, namespace: str, name: str, priority: str = "") -> list[Finding]:
    """Check a queue: that it is there and active, how much of its quota is used, and that Kueue handles JobSets.

    Args:
      name: Empty for none, and no finding.
    """
    if not name:
        return []
    there = None
    try:
        there = await queues.check(client, namespace, name, priority)
        used = "it may not be read" if there is None else await queues.usage(client, there)
        finding = Finding("queue", Tone.OK, f"{name}: {used}")
    except PathwaysError as error:
        finding = failed("queue", error)
        if there is None:
            return [finding]
    return [finding, await _kueue(client)]


async def _kueue(client: Client) -> Finding:
    """Check that Kueue runs and handles JobSets, as far as these credentials may see that."""
    lease = None
    # Forbidden for most; of an installation that names it otherwise, nothing is known.
    with contextlib.suppress(ApiError):
        lease = await objects.find(client, LEASES, _KUEUE_LEASE, namespace=_KUEUE_NAMESPACE)
    if lease is not None and leases.is_stale(lease, client.now()):
        message = f"Kueue does not run: Lease {_KUEUE_NAMESPACE}/{_KUEUE_LEASE} is not renewed."
        return Finding("kueue", Tone.FAIL, message, f"Look for its pod: kubectl get pods -n {_KUEUE_NAMESPACE}.")
    runs = "Kueue runs" if lease is not None else "whether Kueue runs may not be read"
    handled = await queues.handles_jobsets(client)
    if handled is None:
        return Finding("kueue", Tone.OK, f"{runs}; whether it handles JobSets is not known: it may not be read")
    if handled:
        return Finding("kueue", Tone.OK, f"{runs}; it handles JobSets")
    hint = "Add jobset.x-k8s.io/jobset to integrations.frameworks in its ConfigMap kueue-manager-config."
    return Finding("kueue", Tone.FAIL, "Kueue does not handle JobSets, which would wait for ever.", hint)


def failed(name: str, error: PathwaysError) -> Finding:
    """Return the finding of a check that `error` ended."""
    return Finding(name, Tone.FAIL, str(error), error.hint)
