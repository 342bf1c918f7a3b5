"""A pod's token: it is its service account's, may do what roles say, and ends with the pod."""

import asyncio
import contextlib
import shutil

import pytest
from kinds import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.watch import watch

NAME = "accounted"
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
POD = {
    "serviceAccountName": NAME,
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "600"]}],
}


async def until(client, done):
    async with asyncio.timeout(60):
        async with contextlib.aclosing(watch(client, objects.PODS, namespace="default", name=NAME)) as changes:
            async for change in changes:
                if done(change):
                    return change.object


def runs(change):
    return change.object and (change.object.get("status") or {}).get("phase") == "Running"


async def status_of_lists(client):
    """List pods until that is refused, and return the status of the refusal."""
    async with asyncio.timeout(60):
        while True:
            try:
                await objects.list_(client, objects.PODS, namespace="default")
            except ApiError as error:
                return error.status


async def test_a_pods_token_is_its_accounts_and_ends_with_the_pod(cluster, tmp_path):
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": "default"}
    made = (
        (SERVICE_ACCOUNTS, {}),
        (ROLES, {"rules": RULES}),
        (
            ROLE_BINDINGS,
            {"roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": NAME}, "subjects": [subject]},
        ),
        (objects.PODS, {"spec": POD}),
    )
    async with Client(auth.load(str(cluster))) as admin:
        for kind, body in made:
            about = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": NAME}}
            await objects.create(admin, kind, about | body, namespace="default")
        pod = await until(admin, runs)
        files = cluster.parent / "pods" / pod["metadata"]["uid"] / "serviceaccount"
        assert (files / "token").stat().st_mode & 0o077 == 0
        assert (files / "namespace").read_text() == "default"
        # The pod's own files go with it.
        copied = shutil.copytree(files, tmp_path / "serviceaccount")
        # What a client in the pod does with the three files.
        server = admin.cluster.server.removeprefix("https://")
        host, _, port = server.partition(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        async with Client(auth.in_cluster(environ, directory=copied)) as inside:
            assert (await objects.list_(inside, objects.PODS, namespace="default")).items
            with pytest.raises(ApiError, match="not allowed to create jobs"):
                await objects.create(inside, objects.JOBS, {"metadata": {"name": "x"}}, namespace="default")
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            who = await inside.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
            info = who["status"]["userInfo"]
            assert info["username"] == f"system:serviceaccount:default:{NAME}"
            assert info["extra"]["authentication.kubernetes.io/pod-name"] == [NAME]
            await objects.delete(admin, objects.PODS, NAME, namespace="default", grace_seconds=0)
            assert await status_of_lists(inside) == 401
        for kind, _ in made[:3]:
            await objects.delete(admin, kind, NAME, namespace="default")
