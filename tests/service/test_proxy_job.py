import math

import pytest

from pathways_jupyter.base.errors import ConfigError, ServiceError
from pathways_jupyter.service import names, proxy_job
from pathways_jupyter.service.lab import manifests
from pathways_jupyter.tunnel.relay.relay_container import RelaySpec

REPOSITORY = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"


def spec(**options):
    given = {
        "session": "a1b2c3d4",
        "service": "pathways-cluster",
        "address": "pathways-cluster-pathways-head-0-0.pathways-cluster:29001",
        "image": f"{REPOSITORY}/proxy_server:jax-0.10.2",
        "instances": {"tpuv6e:2x2": 2},
        "user": "jane",
        "gcs_bucket": "gs://bucket",
        "kernel": "k-1",
        "notebook": "work/train.ipynb",
        "host": "laptop",
    }
    return proxy_job.ProxySpec(**{**given, **options})


def container(manifest):
    return manifest["spec"]["template"]["spec"]["containers"][0]


def test_a_proxy_asks_for_one_entry_per_slice():
    arguments = container(proxy_job.job(spec(instances={"tpuv6e:2x2": 2, "tpuv5e:4x4": 1})))["args"]
    assert "--virtual_slices=tpuv6e:2x2,tpuv6e:2x2,tpuv5e:4x4" in arguments
    assert "--resource_manager_address=pathways-cluster-pathways-head-0-0.pathways-cluster:29001" in arguments
    assert "--gcs_scratch_location=gs://bucket" in arguments


def test_a_job_says_whose_it_is():
    manifest = proxy_job.job(spec())
    expected = {
        "app.kubernetes.io/managed-by": "pathways-jupyter",
        "pathways-jupyter/session": "a1b2c3d4",
        "pathways-jupyter/user": "jane",
        "pathways-jupyter/service": "pathways-cluster",
    }
    assert manifest["metadata"]["labels"] == expected
    assert expected.items() <= manifest["spec"]["template"]["metadata"]["labels"].items()
    assert manifest["metadata"]["annotations"] == {
        names.KERNEL_ANNOTATION: "k-1",
        names.NOTEBOOK_ANNOTATION: "work/train.ipynb",
        names.HOST_ANNOTATION: "laptop",
    }


def test_a_job_cannot_outlive_its_use():
    job = proxy_job.job(spec(max_lifetime=3600.4))["spec"]
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 3601)
    assert job["ttlSecondsAfterFinished"] == proxy_job.TTL_SECONDS
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    # Also where the Job is deleted without it. Later than the Job, which says why it ended.
    assert job["template"]["spec"]["activeDeadlineSeconds"] == 3601 + proxy_job.TTL_SECONDS
    longest = proxy_job.job(spec(max_lifetime=2.0**31 - 1))["spec"]
    assert longest["template"]["spec"]["activeDeadlineSeconds"] == longest["activeDeadlineSeconds"] == 2**31 - 1
    endless = proxy_job.job(spec(max_lifetime=math.inf))["spec"]
    assert "activeDeadlineSeconds" not in {**endless, **endless["template"]["spec"]}


def test_proxies_keep_off_the_nodes_network_and_listen_on_ports_of_their_own():
    manifests = [proxy_job.job(spec(session=f"session{index}")) for index in range(20)]
    assert all("hostNetwork" not in each["spec"]["template"]["spec"] for each in manifests)
    ports = {container(each)["ports"][0]["containerPort"] for each in manifests}
    assert len(ports) > 15
    for each in manifests:
        assert f"--server_port={container(each)['ports'][0]['containerPort']}" in container(each)["args"]


def test_a_proxy_has_no_rights_in_the_cluster():
    pod = proxy_job.job(spec())["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    security = pod["containers"][0]["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (f"{REPOSITORY}/server:jax-0.10.2", f"{REPOSITORY}/proxy_server:jax-0.10.2"),
        (f"{REPOSITORY}/server", f"{REPOSITORY}/proxy_server"),
        ("localhost:5000/server:x", "localhost:5000/proxy_server:x"),
        ("localhost:5000/server", "localhost:5000/proxy_server"),
        ("gcr.io/mine/my-server:1", "gcr.io/mine/my-proxy_server:1"),
        ("server", "proxy_server"),
        ("server.example/server:1", "server.example/proxy_server:1"),
        ("r/server:1@sha256:abc", "r/proxy_server:1"),
    ],
)
def test_the_proxys_image_is_the_same_release_beside_the_servers(server, expected):
    assert proxy_job.image_for(server) == expected


@pytest.mark.parametrize("server", ["r/server@sha256:abc", "r/worker:1", "", "r/observer:1"])
def test_an_image_that_says_nothing_of_the_proxys_is_refused(server):
    with pytest.raises(ServiceError) as raised:
        proxy_job.image_for(server)
    assert "--proxy-image" in raised.value.hint


def test_options_are_read_in_either_spelling():
    options = proxy_job.ProxyOptions.from_list(
        (
            "sidecar:true",
            "num_elastic_slices:2",
            "xla_flags:'--xla_a=1 --xla_b'",
            "--xla_c=x,y",
            "use_insecure_credentials:true",
        )
    )
    assert options == proxy_job.ProxyOptions(True, 2, False, ("--xla_a=1", "--xla_b", "--xla_c=x,y"))
    arguments = container(proxy_job.job(spec(options=options)))["args"]
    assert arguments[-5:] == [
        "--sidecar_name=external",
        "--num_elastic_slices=2",
        "--xla_a=1",
        "--xla_b",
        "--xla_c=x,y",
    ]


@pytest.mark.parametrize(
    "option",
    ["sidecar", "sidecar:perhaps", "sidecar:", "unknown:1", "num_elastic_slices:two", "--server_port=1",
     "--virtual_slices=x", "-x", "xla_flags:oops", "use_insecure_credentials:false", "--Bad Flag"],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_by_name(option):
    with pytest.raises(ConfigError) as raised:
        proxy_job.ProxyOptions.from_list((option,))
    assert "Proxy option" in str(raised.value)
    assert raised.value.hint


def test_the_node_network_can_be_asked_for():
    pod = proxy_job.job(spec(options=proxy_job.ProxyOptions.from_list(("host_network:true",))))["spec"]["template"][
        "spec"
    ]
    assert pod["hostNetwork"] is True


LAB = manifests.job(manifests.LabSpec("lab", "default", "image"))


@pytest.mark.parametrize(
    "manifest", [proxy_job.job(spec(relay=RelaySpec("0" * 64, "", 900.0))), LAB], ids=["proxy", "lab"]
)
def test_the_pods_of_users_fit_into_a_namespace_that_is_restricted(manifest):
    # https://kubernetes.io/docs/concepts/security/pod-security-standards: what `restricted` asks of a pod on Linux.
    pod = manifest["spec"]["template"]["spec"]
    containers = [*pod["containers"], *pod.get("initContainers", ())]
    assert containers
    for each in containers:
        context = {**pod.get("securityContext", {}), **each["securityContext"]}
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] != 0
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod.get("hostNetwork")
    kinds = {kind for volume in pod.get("volumes", ()) for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
