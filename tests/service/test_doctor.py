import asyncio
import dataclasses

import pytest

from pathways_jupyter.base import tpu
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, LEASES, NETWORK_POLICIES
from pathways_jupyter.operator.election import Election
from pathways_jupyter.service import checks, doctor, leases, names, networkpolicy, service_jobset, status
from pathways_jupyter.service.images import Versions
from pathways_jupyter.service.permissions import NEEDS

HERE = Versions("3.12.4", "0.10.2", "0.10.2")


async def examine(bench, *, config=None, **options):
    found = await doctor.examine(config or ConnectConfig(kubeconfig=bench.kubeconfig()), versions=HERE, **options)
    return {each.name: each for each in found}


async def service(client, image="r/pathways/server:jax-0.10.2", **options):
    spec = service_jobset.ServiceSpec(tpu.parse_instance_type("tpuv6e:2x2"), 1, image, **options)
    return await objects.create(client, JOBSETS, service_jobset.manifest(spec))


def ready(name, job, container):
    labels = {
        names.JOBSET_NAME_LABEL: names.DEFAULT_SERVICE,
        names.REPLICATED_JOB_LABEL: job,
        names.JOB_INDEX_LABEL: "0",
        names.POD_INDEX_LABEL: "0",
    }
    made_by = f"{names.DEFAULT_SERVICE}-{job}-0"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": made_by, "uid": "u", "controller": True}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": container}]},
    }


async def test_a_sound_cluster_has_nothing_to_fix(bench, client):
    await service(client)
    await objects.create(client, NETWORK_POLICIES, networkpolicy.for_proxies("default"))
    for name, job, container in [
        ("head", names.HEAD_JOB, names.RESOURCE_MANAGER_CONTAINER),
        ("worker", names.WORKER_JOB, names.WORKER_CONTAINER),
    ]:
        await bench.running(client, ready(name, job, container), "sleep", "600")
    found = await examine(bench)
    assert {each.level for each in found.values()} == {Tone.OK}, found
    assert found["slices"].message == "1 of 1 tpuv6e:2x2 slice ready, 1 free"
    assert found["jobset"].message == "jobset.x-k8s.io/v1alpha2 is served"
    assert found["credentials"].message.startswith("accepted, as ")
    assert {f"permission {need}" for need in NEEDS} <= found.keys()
    assert not any(each.hint for each in found.values())


async def test_a_missing_permission_is_named_with_its_role(bench):
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]},
    ]
    found = await examine(bench, config=ConnectConfig(kubeconfig=bench.kubeconfig(rules=rules, name="reader")))
    jobs = found["permission jobs"]
    assert jobs.level is Tone.FAIL
    assert "Not allowed to create, delete jobs" in jobs.message
    assert "manifests roles pathways-jupyter-user | kubectl apply -n default" in jobs.hint
    assert found["permission pods/log"].level is Tone.OK


async def test_no_kubeconfig_is_the_only_finding(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    found = await examine(bench, config=ConnectConfig())
    assert [each.level for each in found.values()] == [Tone.FAIL]
    assert "--local" in found["cluster"].hint


async def test_an_unreachable_cluster_ends_the_checks(bench):
    config = ConnectConfig(kubeconfig=bench.kubeconfig(cluster={"server": "https://127.0.0.1:1"}, name="away"))
    found = await examine(bench, config=config)
    assert list(found) == ["cluster", "reachable"]
    assert found["reachable"].level is Tone.FAIL


async def test_credentials_that_are_refused_are_reported_as_such_and_end_the_checks(bench):
    found = await examine(
        bench, config=ConnectConfig(kubeconfig=bench.kubeconfig(user={"token": "forged"}, name="forged"))
    )
    assert next(reversed(found.values())).level is Tone.FAIL
    assert next(reversed(found)) == "credentials"
    assert found["credentials"].hint


async def test_a_cluster_without_jobsets_is_reported_with_what_to_install(bench, monkeypatch):
    # This server has built-in JobSets, but not in every version.
    monkeypatch.setattr(checks, "JOBSETS", dataclasses.replace(JOBSETS, version="v9"))
    found = await examine(bench)
    assert found["jobset"].level is Tone.FAIL
    assert "install JobSet" in found["jobset"].hint
    assert "service" not in found
    assert found["leftovers"].level is Tone.OK


async def test_a_missing_service_is_reported(bench):
    found = await examine(bench)
    assert found["service"].level is Tone.FAIL
    assert "no Pathways service" in found["service"].message


async def test_services_among_which_the_type_decides_are_no_problem(bench, client):
    await service(client)
    wide = service_jobset.ServiceSpec(tpu.parse_instance_type("tpuv5e:4x4"), 1, "r/server:jax-0.10.2", name="wide")
    await objects.create(client, JOBSETS, service_jobset.manifest(wide))
    await bench.running(client, ready("head", names.HEAD_JOB, names.RESOURCE_MANAGER_CONTAINER), "sleep", "600")
    await bench.running(client, ready("worker", names.WORKER_JOB, names.WORKER_CONTAINER), "sleep", "600")
    config = ConnectConfig(kubeconfig=bench.kubeconfig())
    found = await doctor.examine(config, versions=HERE)
    choice, *about = [each for each in found if each.name in {"service", "slices"}]
    assert choice.level is Tone.OK
    listed = "pathways-cluster (tpuv6e:2x2), wide (tpuv5e:4x4)"
    assert choice.message == f"There are 2 services: {listed}. Connecting chooses by the type of slice."
    # The other one is not up, and the first can be used.
    assert [each.level for each in about] == [Tone.OK, Tone.OK, Tone.WARN, Tone.WARN]
    for instances, level in (
        ({"tpuv6e:2x2": 1}, Tone.OK),
        ({"tpuv5e:4x4": 1}, Tone.FAIL),
        ({"tpuv6e:2x2": 2}, Tone.FAIL),
    ):
        chosen = await examine(bench, config=dataclasses.replace(config, instances=instances))
        assert chosen["service"].level is level, chosen["service"]
    twin = service_jobset.ServiceSpec(tpu.parse_instance_type("tpuv6e:2x2"), 1, "r/server:jax-0.10.2", name="twin")
    await objects.create(client, JOBSETS, service_jobset.manifest(twin))
    choice = next(each for each in await doctor.examine(config, versions=HERE) if each.name == "service")
    assert choice.level is Tone.WARN
    assert "The type of slice does not decide between all of them." in choice.message


async def test_a_service_that_is_not_up_is_reported(bench, client):
    await service(client)
    found = await examine(bench)
    assert found["service"].level is Tone.FAIL
    assert "not ready: no pod" in found["service"].message
    assert found["slices"].level is Tone.FAIL


@pytest.mark.parametrize(
    ("image", "sidecar", "name", "level", "message"),
    [
        ("r/server:jax-0.9.0", "", "jax", Tone.WARN, "jax 0.10.2 here, 0.9.0 there"),
        ("r/server:latest", "", "jax", Tone.WARN, "does not name the proxy's JAX version"),
        ("r/worker:1", "", "proxy image", Tone.FAIL, "no proxy beside it"),
        (
            "r/server:jax-0.10.2",
            "r/sidecar:python_3.11-jax_0.10.2",
            "sidecar",
            Tone.WARN,
            "python 3.12.4 here, 3.11 there",
        ),
        ("r/server:jax-0.10.2", "r/sidecar:python_3.12-jax_0.10.2", "sidecar", Tone.OK, "JAX 0.10.2"),
        ("r/server:jax-0.10.2", "", "sidecar", Tone.OK, "none, which only %%colocated needs"),
    ],
)
async def test_versions_are_compared_component_by_component(bench, client, image, sidecar, name, level, message):
    await service(client, image, sidecar_image=sidecar)
    found = await examine(bench)
    assert found[name].level is level
    assert message in found[name].message


async def test_a_kernel_whose_jax_no_sidecar_has_gets_advice(bench, client):
    await service(client, "r/server:jax-0.12.0", sidecar_image="r/sidecar:python_3.12-jax_0.10.0")
    newer = Versions("3.13.0", "0.12.0", "0.12.0")
    found = await doctor.examine(ConnectConfig(kubeconfig=bench.kubeconfig()), versions=newer)
    (sidecar,) = (each for each in found if each.name == "sidecar")
    assert sidecar.level is Tone.WARN
    assert "No sidecar is released for JAX 0.12" in sidecar.hint
    assert "use a kernel and a service with JAX 0.10." in sidecar.hint


async def test_proxies_that_other_pods_can_reach_are_reported_until_a_policy_closes_them(bench, client):
    found = (await examine(bench))["network"]
    assert found.level is Tone.WARN
    assert found.message.endswith("run code on TPU hosts: no NetworkPolicy covers them.")
    assert found.hint == "Close their ports: pathways-jupyter network-policy | kubectl apply -n default -f -"
    everything = networkpolicy.for_proxies("default")
    everything["metadata"]["name"] = "lenient"
    everything["spec"]["ingress"] = [{}]
    await objects.create(client, NETWORK_POLICIES, everything)
    assert "lenient lets every pod in" in (await examine(bench))["network"].message
    await objects.delete(client, NETWORK_POLICIES, "lenient", namespace="default")
    await objects.create(client, NETWORK_POLICIES, networkpolicy.for_proxies("default"))
    found = (await examine(bench))["network"]
    assert (found.level, found.message) == (Tone.OK, "NetworkPolicy pathways-proxies covers the proxies")


async def test_policies_that_may_not_be_looked_at_are_a_missing_permission_and_nothing_else(bench):
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}]
    found = await examine(bench, config=ConnectConfig(kubeconfig=bench.kubeconfig(rules=rules, name="narrow")))
    assert "network" not in found
    assert found["permission networkpolicies"].level is Tone.WARN


async def test_leftovers_here_and_in_the_cluster_are_reported(bench, client, monkeypatch):
    await leases.create(client, await bench.proxy(client, "dead"), seconds=1)
    now = leases.Client.now
    monkeypatch.setattr(leases.Client, "now", lambda self: now(self) + 60)
    found = await examine(bench, leftovers=["session a1b2 of kernel 17"])
    assert found["leftovers"].level is Tone.WARN
    assert "session a1b2 of kernel 17" in found["leftovers"].message
    assert "pathways-proxy-jane-dead" in found["leftovers"].message
    assert "pathways-jupyter clean" in found["leftovers"].hint


async def test_objects_that_cannot_be_read_are_named_with_their_user(bench, client):
    job = await bench.proxy(client, "bad", user="mallory", notebook="\x1b[2Ja.ipynb")
    lease = await leases.create(client, job, seconds=3600)
    name = lease["metadata"]["name"]
    change = {
        "metadata": {"annotations": {names.FIGURES_ANNOTATION: "{}", names.KEEP_ANNOTATION: "1" + "0" * 400}},
        "spec": {"renewTime": "9999-12-31T23:59:59.000000Z"},
    }
    await objects.patch(client, LEASES, name, change, namespace="default")
    found = (await examine(bench))["objects"]
    assert found.level is Tone.WARN
    assert found.message.startswith(f"2 objects cannot be read in full: Lease default/{name} of mallory (annotation ")
    assert "renewTime 9999-12-31" in found.message
    assert f"Job default/{name} of mallory (annotation {names.NOTEBOOK_ANNOTATION}=\N{REPLACEMENT CHARACTER}[2J" in (
        found.message
    )
    assert "\x1b" not in found.message
    assert len(found.message) < 800


async def test_a_service_of_more_slices_than_any_cluster_has_is_named_and_not_drawn(bench, client):
    await service(client)
    made = service_jobset.manifest(
        service_jobset.ServiceSpec(tpu.parse_instance_type("tpuv6e:2x2"), 2**31 - 1, "r/server:1", name="vast")
    )
    await objects.create(client, JOBSETS, made)
    assert [each.name for each in await status.fetch(client, "default")] == [names.DEFAULT_SERVICE]
    found = (await examine(bench))["objects"]
    assert "JobSet default/vast (it asks for more slices or hosts than any cluster has)" in found.message


async def test_an_operator_that_no_longer_renews_its_lease_is_reported(bench, client, monkeypatch):
    assert "operator" not in await examine(bench)
    election = Election(client, "default", me="operator-0", say=lambda text: None, seconds=3600)
    leading = asyncio.Event()

    async def lead() -> None:
        leading.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(election.run(lead))
    await asyncio.wait_for(leading.wait(), 60)
    assert (await examine(bench))["operator"].level is Tone.OK
    # The client's clock is the only fake part.
    now = Client.now
    monkeypatch.setattr(Client, "now", lambda self: now(self) + 7200)
    found = (await examine(bench))["operator"]
    assert found.level is Tone.WARN
    assert "No operator renews Lease default/pathways-jupyter-operator: PathwaysJobs stay pending" in found.message
    assert "kubectl get pods -n default" in found.hint
    weak = ConnectConfig(kubeconfig=bench.kubeconfig(rules=[], name="weak"))
    assert "operator" not in await examine(bench, config=weak)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
