"""Objects of a new embedded cluster."""

from pathways_jupyter.base import tpu
from pathways_jupyter.local.apiserver.resources import JOBSETS
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers.fitting import selects
from pathways_jupyter.local.controllers.node_pools import PROVISIONED_LABEL
from pathways_jupyter.local.controllers.nodes import slice_nodes
from pathways_jupyter.local.initial_objects import ship
from pathways_jupyter.local.settings import ClusterSettings

TYPE = "tpuv6e:2x2"


def test_workers_of_a_service_leave_idle_nodes_of_jobs_alone_so_that_a_slice_that_is_kept_down_stays_down():
    store = Store()
    (name,) = ship(store, ClusterSettings({TYPE: 1}), "here")
    (workers,) = [
        each for each in store.get(JOBSETS, "default", name)["spec"]["replicatedJobs"] if each["name"] == "worker"
    ]
    pod = workers["template"]["spec"]["template"]["spec"]
    (node,) = slice_nodes(tpu.parse_instance_type(TYPE), "pool")
    assert selects(pod, node)
    node["metadata"]["labels"][PROVISIONED_LABEL] = "pool"
    assert not selects(pod, node)


def test_a_service_that_a_user_has_changed_stays_so_when_the_cluster_is_asked_for_what_it_has():
    store = Store()
    (name,) = ship(store, ClusterSettings({TYPE: 1}), "here")
    changed = store.get(JOBSETS, "default", name)
    container = changed["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "PYTHONPATH", "value": "/theirs"}]
    store.update(JOBSETS, changed)
    ship(store, ClusterSettings({TYPE: 1}), "here")
    assert store.get(JOBSETS, "default", name)["spec"] == changed["spec"]
    ship(store, ClusterSettings({TYPE: 2}), "here")
    assert store.get(JOBSETS, "default", name)["spec"] != changed["spec"]
