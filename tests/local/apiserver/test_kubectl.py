from __future__ import annotations

import asyncio
import os
import shutil

import pytest
import yaml

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "labels": {"a": "b"}},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "x:1", "env": [{"name": "A", "value": "1"}]}],
            }
        }
    },
}


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


async def test_it_shows_pods_as_it_always_does(bench) -> None:
    await bench.running_pod("p", app="web")

    head, pod = rows(await bench.kubectl("get", "pods"))
    assert head == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert pod[:-1] == ["p", "1/1", "Running", "0"]
    wide = rows(await bench.kubectl("get", "po", "-o", "wide", "-A", "-l", "app=web"))
    assert wide[0][:6] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert wide[1][6:8] == ["127.0.0.1", "n0"]
    assert "No resources found" in await bench.kubectl("get", "pods", "-l", "app=other")
    assert await bench.kubectl("get", "pod/p", "-o", "jsonpath={.status.phase}") == "Running"
    described = await bench.kubectl("describe", "pod", "p")
    assert "registry/thing:1" in described
    assert 'Error from server (NotFound): pods "nope" not found' in await bench.kubectl("get", "pod", "nope", code=1)


QUEUE = {"kind": "LocalQueue", "metadata": {"name": "team"}, "spec": {"clusterQueue": "chips"}}


async def test_queues_have_the_short_name_of_their_kind_and_both_versions(bench) -> None:
    for version, name in (("v1beta2", "new"), ("v1beta1", "old")):
        queue = {**QUEUE, "apiVersion": f"kueue.x-k8s.io/{version}", "metadata": {"name": name}}
        await bench.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(queue).encode())
        await bench.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(queue).encode())
    # Without the group: the visibility API has no kind of that name, only what is below it.
    assert [row[0] for row in rows(await bench.kubectl("get", "localqueues"))] == ["NAME", "new", "old"]
    for version in ("v1beta1", "v1beta2"):
        shown = yaml.safe_load(await bench.kubectl("get", f"localqueues.{version}.kueue.x-k8s.io", "-o", "yaml"))
        assert [each["apiVersion"] for each in shown["items"]] == [f"kueue.x-k8s.io/{version}"] * 2
        one = yaml.safe_load(await bench.kubectl("get", f"localqueues.{version}.kueue.x-k8s.io/new", "-o", "yaml"))
        assert (one["apiVersion"], one["spec"]) == (f"kueue.x-k8s.io/{version}", {"clusterQueue": "chips"})
    await bench.kubectl("delete", "localqueues.v1beta1.kueue.x-k8s.io", "new", "old")


async def test_it_shows_every_kind(bench) -> None:
    kinds = "pods,nodes,services,events,configmaps,secrets,serviceaccounts,jobs,leases,namespaces,crds,jobsets"
    await bench.kubectl("create", "-f", "-", stdin=yaml.safe_dump(JOB).encode())
    shown = await bench.kubectl("get", kinds, "-A")

    assert {"job.batch/j", "namespace/default", "serviceaccount/default"} <= {
        word for row in rows(shown) for word in row
    }
    assert {row[0] for row in rows(await bench.kubectl("api-resources", "-o", "name"))} >= {
        "pods",
        "jobs.batch",
        "jobsets.jobset.x-k8s.io",
    }


async def test_it_applies_changes_and_deletes(bench) -> None:
    async def apply(manifest, *more: str) -> str:
        return await bench.kubectl("apply", "-f", "-", *more, stdin=yaml.safe_dump(manifest).encode())

    assert "job.batch/j created" in await apply(JOB)
    assert "job.batch/j unchanged" in await apply(JOB)
    changed = {**JOB, "metadata": {"name": "j"}, "spec": {**JOB["spec"], "parallelism": 2}}
    assert "job.batch/j configured" in await apply(changed)
    job = yaml.safe_load(await bench.kubectl("get", "job", "j", "-o", "yaml"))
    assert (job["spec"]["parallelism"], job["metadata"].get("labels")) == (2, None)
    assert "serverside-applied" in await apply(changed, "--server-side", "--force-conflicts")
    assert "job.batch/j labeled" in await bench.kubectl("label", "job", "j", "x=y")
    assert "patched" in await bench.kubectl("patch", "job", "j", "-p", '{"spec":{"parallelism":1}}')
    assert 'job.batch "j" deleted' in await bench.kubectl("delete", "job", "j")


async def test_it_says_what_is_wrong_with_a_manifest(bench) -> None:
    wrong = yaml.safe_dump({**JOB, "spec": {**JOB["spec"], "paralellism": 2}}).encode()

    output = await bench.kubectl("apply", "-f", "-", stdin=wrong, code=1)

    assert 'unknown field "spec.paralellism"' in output
    unknown = yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}).encode()
    for words in ("create", "apply"):
        output = await bench.kubectl(words, "-f", "-", stdin=unknown, code=1)
        assert 'no matches for kind "Deployment" in version "apps/v1"' in output


async def test_its_typed_commands_work(bench) -> None:
    for words in (
        "create namespace team",
        "create configmap c --from-literal=a=b",
        "create secret generic s --from-literal=password=x",
        "create serviceaccount robot",
        "create job typed --image=x -- run this",
        "create role r --verb=get --resource=pods",
        "create rolebinding rb --role=r --serviceaccount=default:robot",
        "create service clusterip web --tcp=80:8080",
        "run bare --image=x",
    ):
        assert "created" in await bench.kubectl(*words.split())
    job = yaml.safe_load(await bench.kubectl("get", "job", "typed", "-o", "yaml"))
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["run", "this"]
    assert await bench.kubectl("get", "secret", "s", "-o", "jsonpath={.data.password}") == "eA=="
    assert 'namespace "team" deleted' in await bench.kubectl("delete", "namespace", "team")


async def test_it_asks_what_may_be_done(bench) -> None:
    assert "yes" in await bench.kubectl("auth", "can-i", "create", "jobs.batch")
    token = bench.server.users.add("eve", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
    assert "no" in await bench.kubectl("--token", token, "auth", "can-i", "create", "jobs.batch", code=1)
    assert "eve" in await bench.kubectl("--token", token, "auth", "whoami")
    assert "Forbidden" in await bench.kubectl("--token", token, "get", "jobs", code=1)
    assert "Unauthorized" in await bench.kubectl("--token", "wrong", "get", "jobs", code=1)


async def test_it_explains_where_fields_are_described(bench) -> None:
    for kind in ("pod", "jobset"):
        assert "The embedded cluster does not describe fields" in await bench.kubectl("explain", kind)


async def test_it_reads_logs_and_follows_them(bench) -> None:
    pod = await bench.running_pod("p", lines=(b"one", b"two"))

    assert await bench.kubectl("logs", "p", "--tail=1") == "two\n"
    following = asyncio.create_task(bench.kubectl("logs", "-f", "p"))
    await bench.runtime.write(pod["metadata"]["uid"], "main", b"three")
    await bench.runtime.end(pod["metadata"]["uid"])
    assert await following == "one\ntwo\nthree\n"


async def test_it_runs_programs(bench) -> None:
    await bench.running_pod("p")

    output = await bench.kubectl("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 3", code=3)
    assert {"out", "err"} <= set(output.splitlines())
    big = b"x" * 300_000
    assert await bench.kubectl("exec", "-i", "p", "--", "wc", "-c", stdin=big) == "300000\n"
    assert "no-such-program" in await bench.kubectl("exec", "p", "--", "no-such-program", code=1)


async def test_it_forwards_ports(bench, echo) -> None:
    await bench.running_pod("p")
    kubectl = await asyncio.create_subprocess_exec(
        *("kubectl", "--kubeconfig", str(bench.kubeconfig), "port-forward", "p", f":{echo}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HOME": str(bench.directory)},
    )
    try:
        line = (await asyncio.wait_for(kubectl.stdout.readline(), 60)).decode()
        port = int(line.split("127.0.0.1:")[1].split()[0])
        sent = os.urandom(1 << 21)

        async def through() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            got = await reader.read()
            while piece := await reader.read():
                got += piece
            writer.close()
            return got

        assert await asyncio.wait_for(asyncio.gather(through(), through(), through()), 60) == [sent] * 3
    finally:
        kubectl.terminate()
        await kubectl.wait()


async def test_it_watches_and_waits(bench) -> None:
    await bench.running_pod("p")
    waiting = asyncio.create_task(bench.kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s"))
    bench.store.edit(
        bench.store.resources.find("", "v1", "pods"),
        "default",
        "p",
        lambda pod: pod["status"].update(conditions=[{"type": "Ready", "status": "True"}]),
        subresource="status",
    )

    assert "pod/p condition met" in await waiting
    assert 'pod "p" force deleted' in await bench.kubectl("delete", "pod", "p", "--grace-period=0", "--force")
