import kinds
import pytest

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import JOBSETS
from pathways_jupyter.service import discovery, names, service_jobset, status
from pathways_jupyter.service.derivation import derive
from pathways_jupyter.service.namespacestate import PodIndex
from pathways_jupyter.service.podstate import State

V6E = tpu.parse_instance_type("tpuv6e:2x2")


def manifest(name="pathways-cluster", **options):
    return service_jobset.manifest(service_jobset.ServiceSpec(V6E, 2, "r/server:jax-0.10.2", name=name, **options))


def test_a_jobset_says_all_that_a_connection_needs():
    info = discovery.describe(manifest(sidecar_image="r/sidecar:1"))
    assert (info.name, info.address) == ("pathways-cluster", service_jobset.address("pathways-cluster"))
    assert (info.instance_type, info.slices, info.hosts_per_slice) == ("tpuv6e:2x2", 2, 1)
    assert (info.image, info.sidecar_image) == ("r/server:jax-0.10.2", "r/sidecar:1")


def test_a_service_of_other_tools_is_found_by_its_other_names():
    found = manifest()
    found["spec"]["replicatedJobs"][1]["name"] = "pathways-worker"
    assert discovery.describe(found).worker_job == "pathways-worker"


def test_what_is_no_shared_service_is_not_taken_for_one():
    own = manifest()
    head = own["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    head["containers"].append({"name": names.PROXY_CONTAINER, "image": "x"})
    assert discovery.describe(own) is None
    assert discovery.describe({"metadata": {"name": "x"}, "spec": {"replicatedJobs": [{"name": "main"}]}}) is None
    assert discovery.describe({"metadata": {"name": "x"}}) is None


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("tpus", ("tpus", "")),
        ("tpus-pathways-head-0-0.tpus:29001", ("tpus", "")),
        ("tpus-pathways-head:29001", ("tpus", "")),
        ("tpus-pathways-head-0-0.tpus.research.svc.cluster.local:29001", ("tpus", "research")),
        ("10.0.0.1:29001", ("", "0")),
        ("", ("", "")),
    ],
)
def test_a_name_or_an_address_means_a_service(wanted, expected):
    assert names.service_of(wanted)[0] == expected[0]
    if expected[0]:
        assert names.service_of(wanted)[1] == expected[1]


def test_addresses_are_the_same_however_much_is_spelled_out():
    short, long = "a-pathways-head-0-0.a:29001", "a-pathways-head-0-0.a.ns.svc.cluster.local:29001"
    assert discovery.same_address(short, long)
    assert not discovery.same_address(short, "b-pathways-head-0-0.b:29001")
    assert not discovery.same_address(short, "a-pathways-head-0-0.a:29002")
    assert not discovery.same_address(long, long.replace(".ns.", ".other."))


async def test_a_service_is_found_by_name_by_address_or_because_it_is_the_only_one(client):
    await objects.create(client, JOBSETS, manifest())
    for wanted in (
        "",
        "pathways-cluster",
        service_jobset.address("pathways-cluster"),
        "pathways-cluster-pathways-head:29001",
    ):
        assert (await discovery.find(client, "default", wanted)).name == "pathways-cluster"


async def test_among_several_one_has_to_be_chosen(client):
    for name in ("one", "two"):
        await objects.create(client, JOBSETS, manifest(name))
    with pytest.raises(ServiceError, match="several") as raised:
        await discovery.find(client, "default")
    assert "one, two" in raised.value.hint
    with pytest.raises(ServiceError, match="no Pathways service three") as raised:
        await discovery.find(client, "default", "three")
    assert "one, two" in raised.value.hint
    assert (await discovery.find(client, "default", "two")).name == "two"


async def test_an_empty_namespace_is_reported(client):
    with pytest.raises(ServiceError, match="no Pathways service in namespace default"):
        await discovery.find(client, "default")


async def test_a_namespace_that_does_not_exist_is_named_where_that_may_be_known(bench, client):
    for wanted in ("", "pathways-cluster"):
        with pytest.raises(ServiceError, match=r"^There is no namespace nowhere in cluster x\."):
            await discovery.find(client, "nowhere", wanted)
    with pytest.raises(ServiceError, match="no namespace nowhere"):
        await status.fetch(client, "nowhere")
    assert await status.fetch(client, "default") == ()
    token = bench.server.users.add("reader", [{"apiGroups": ["*"], "resources": ["jobsets"], "verbs": ["get", "list"]}])
    async with bench.client(user={"token": token}) as reader:
        assert await discovery.list_services(reader, "nowhere") == ()


async def test_a_cluster_without_jobsets_is_reported(client):
    definition = f"{JOBSETS.plural}.{JOBSETS.group}"
    if not await objects.delete(client, kinds.CRDS, definition):
        pytest.skip("this server has JobSets built in")
    with pytest.raises(ServiceError, match="has no JobSets"):
        await discovery.find(client, "default")


async def test_the_picture_is_fetched_with_the_logs_of_the_proxies(bench, client):
    await objects.create(client, JOBSETS, manifest())
    job = await bench.proxy(client, "s1", notebook="a.ipynb")
    line = "Transition slice 0 (tpuv6e:2x2) unplaced -> placed on pathways-cluster-worker-1"
    await bench.proxy_printing(client, job, line, name="proxy-pod", seconds=0)
    await bench.until(client, "proxy-pod", lambda pod: pod["status"]["phase"] == "Succeeded")
    (drawn,) = await status.fetch(client, "default")
    assert drawn.slices[1].held_by.session == "s1"
    assert drawn.slices[0].state is State.STARTING
    assert (drawn.certain, drawn.holders[0].waiting) == (True, False)
    (blind,) = await status.fetch(client, "default", "pathways-cluster", logs=False)
    assert (blind.certain, blind.holders[0].waiting) == (False, None)
    rules = [{"apiGroups": ["*"], "resources": ["pods", "jobs", "jobsets"], "verbs": ["get", "list"]}]
    async with bench.client(rules=rules, name="deaf") as deaf:
        (unheard,) = await status.fetch(deaf, "default")
    assert (unheard.certain, unheard.holders[0].waiting, unheard.slices[1].held_by) == (False, None, None)


def test_a_service_that_ended_says_how_and_what_to_do():
    found = manifest()
    assert discovery.describe(found).ended == ""
    found["status"] = {"conditions": [{"type": "Failed", "status": "True", "message": "too many restarts."}]}
    info = discovery.describe(found)
    error = discovery.has_ended(info)
    assert str(error).endswith("will not come back: its JobSet has failed for good (too many restarts).")
    assert "kubectl delete jobset pathways-cluster" in error.hint
    drawn = derive(info, pods=PodIndex(), jobs=[])
    assert (drawn.state, drawn.reason) == (State.DOWN, "its JobSet has failed for good (too many restarts)")
    found["metadata"]["labels"][names.EMBEDDED_LABEL] = "other"
    assert "local down --name other" in discovery.remedy(discovery.describe(found))
    found["status"] = {"conditions": [{"type": "Failed", "status": "False"}, {"type": "Completed", "status": "True"}]}
    assert discovery.describe(found).ended == "its JobSet has completed"
