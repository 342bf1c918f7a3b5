"""Reasons for a proxy's end from its Job, against an API server whose objects stay as the test makes them."""

from __future__ import annotations

from typing import Any

import pytest
from session_records import new_record

from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, Object
from pathways_jupyter.service import leases, names
from pathways_jupyter.session.supervisor import proxy_end

REASON = "The proxy is gone."


class Ended:
    """A session's proxy Job whose status and annotations the test sets."""

    def __init__(self, client: Client, job: Object) -> None:
        self.client = client
        self.record = new_record(namespace="default", job=job["metadata"]["name"], pod="proxy")

    async def change(self, body: dict[str, Any], subresource: str = "") -> None:
        path = JOBS.item("default", self.record.job, subresource)
        await self.client.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    async def why(self) -> str:
        return await proxy_end.why_gone(self.client, self.record, REASON, None)


@pytest.fixture
async def ended(bench, client) -> Ended:
    return Ended(client, await bench.proxy(client, "s1", max_lifetime=600))


async def test_a_job_that_says_nothing_adds_nothing(ended):
    assert await ended.why() == REASON


async def test_a_job_that_was_removed_adds_nothing_without_a_lease(ended):
    await objects.delete(ended.client, JOBS, ended.record.job, namespace="default")
    assert await ended.why() == REASON


async def test_who_has_taken_the_slices_is_named(ended, bench):
    await objects.delete(ended.client, JOBS, ended.record.job, namespace="default")
    job = await bench.proxy(ended.client, "s2", "john", notebook="b.ipynb")
    await leases.create(ended.client, job, reclaimed=["other", ended.record.id])
    assert "taken by john (b.ipynb)" in await ended.why()
    name, namespace = job["metadata"]["name"], "default"
    await leases.note_reclaimed(ended.client, name, namespace=namespace, sessions=["another"])
    assert await ended.why() == REASON
    await leases.note_reclaimed(ended.client, name, namespace=namespace, sessions=["another", ended.record.id])
    assert "taken by john (b.ipynb)" in await ended.why()


async def test_a_job_that_failed_says_why_unless_it_only_repeats_that_its_pod_did(ended):
    def failed(reason: str) -> dict[str, Any]:
        condition = {"type": "Failed", "status": "True", "reason": reason, "message": "no quota"}
        return {"status": {"conditions": [condition]}}

    await ended.change(failed("BackoffLimitExceeded"), "status")
    assert await ended.why() == REASON
    await ended.change(failed("Evicted"), "status")
    assert await ended.why() == f"{REASON} Evicted: no quota."


async def test_a_lifetime_that_is_over_is_the_cause_before_and_after_the_proxy_is_used(ended):
    began = stamp(ended.client.now() - 601, micro=True)
    await ended.change({"status": {"startTime": began}}, "status")
    assert "longest lifetime of 600 s" in await ended.why()
    error = await proxy_end.before_use(ended.client, ended.record, "none", "It failed.", "Try again.")
    assert "ended before it could be used" in str(error)
    assert "longest lifetime of 600 s" in str(error)
    assert "--max-lifetime" in str(error.hint)


@pytest.fixture
async def fail(ended, bench):
    """Runs the proxy's pod, which fails after it has written these lines to its log."""

    async def run(*lines: str) -> None:
        metadata = {"name": ended.record.pod, "labels": {names.SESSION_LABEL: "s1"}}
        manifest = {"metadata": metadata, "spec": {"containers": [{"name": names.PROXY_CONTAINER}]}}
        await bench.running(ended.client, manifest, "sh", "-c", 'printf "%s\n" "$@"; exit 134', "sh", *lines)
        await bench.until(ended.client, ended.record.pod, lambda pod: pod["status"]["phase"] == "Failed")

    return run


async def test_the_last_line_of_the_log_explains_an_end_before_the_proxy_is_used(ended, fail):
    await fail("first", "no such flag", "")
    error = await proxy_end.before_use(ended.client, ended.record, "proxy", "It failed.", "Try again.")
    assert str(error) == "It failed. Its log says: no such flag"
    assert error.hint == "Try again."
    assert await ended.why() == REASON, "only a fatal line is the cause of a loss"


async def test_the_last_fatal_line_of_the_log_explains_a_loss(ended, fail):
    xla = "F1123 10:28:52.123456       7 rendezvous.cc:161] Termination timeout of 40 seconds exceeded."
    await fail("F1123 10:28:51.0 7 a.cc:1] earlier", xla, "Fatal Python error: Aborted", "", 'File "a.py", line 1')
    said = "Its log says: Termination timeout of 40 seconds exceeded."
    assert await ended.why() == f"{REASON} {said}"
    error = await proxy_end.before_use(ended.client, ended.record, "proxy", "It failed.", "Try again.")
    assert str(error) == f"It failed. {said}"


async def test_a_crash_of_which_only_python_knows_explains_a_loss(ended, fail):
    await fail("I1123 10:28:52.0 7 a.cc:1] served", "Fatal Python error: Segmentation fault", "", 'File "a.py", line 1')
    assert await ended.why() == f"{REASON} Its log says: Fatal Python error: Segmentation fault"


async def test_a_log_that_cannot_be_read_hides_nothing(ended):
    error = await proxy_end.before_use(ended.client, ended.record, "none", "It failed.", "Try again.")
    assert (str(error), error.hint) == ("It failed.", "Try again.")
