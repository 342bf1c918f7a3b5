"""JobSets in the shapes that Google's tools write, which this package does not make itself."""

import copy

_COORDINATOR = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/coordinator']"}}
_HEAD = {"name": "PATHWAYS_HEAD", "valueFrom": _COORDINATOR}
_IMAGES = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"
_SCRATCH = "--gcs_scratch_location=gs://bucket/tmp"


def toolkit(name="gc", *command, slices=1):
    """Of `gcluster job submit --pathways`; headless without a command."""
    made = _jobset(name, command, slices, own="workload-container", worker="worker", host_network=True)
    made["metadata"]["labels"] = {"gcluster.google.com/workload": name}
    made["spec"] |= {"ttlSecondsAfterFinished": 3600}
    made["spec"]["failurePolicy"] |= {"maxRestarts": 0}
    return made


def xpk(name="xp", *command, slices=1):
    """Of `xpk workload create-pathways`; headless without a command."""
    made = _jobset(name, command, slices, own="jax-tpu", worker="worker", host_network=True)
    made["metadata"]["labels"] = {"xpk.google.com/workload": name}
    made["spec"]["suspend"] = False
    if not command:
        # In both forms.
        for container in _pod(made)["containers"]:
            container["restartPolicy"] = "Always"
    return made


def pathwaysutils(name="pu", *command, slices=1):
    """Of pathwaysutils' builder of JobSets; headless without a command."""
    return _jobset(name, command, slices, own="jax-tpu", worker="pathways-worker")


def shared_service(name="svc", *, slices=1):
    """Of pathwaysutils' deploy script: a service, whose proxies belong to its users."""
    made = pathwaysutils(name, slices=slices)
    pod = _pod(made)
    pod["containers"] = [each for each in pod["containers"] if each["name"] != "pathways-proxy"]
    made["spec"]["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["pathways-head"]}
    return made


HEADLESS = {"toolkit": toolkit, "xpk": xpk, "pathwaysutils": pathwaysutils}
MAKERS = {"toolkit": "the Cluster Toolkit", "xpk": "xpk", "pathwaysutils": "another tool"}


def _jobset(name, command, slices, *, own, worker, host_network=False):
    programs = [_proxy(), _manager(slices)]
    pod = {"restartPolicy": "Never"}
    if command:
        pod["initContainers"] = [{**each, "restartPolicy": "Always"} for each in programs]
        environment = [
            _HEAD, {"name": "JAX_PLATFORMS", "value": "proxy"}, {"name": "XCLOUD_ENVIRONMENT", "value": "GCP"},
            {"name": "JAX_BACKEND_TARGET", "value": "grpc://$(PATHWAYS_HEAD):29000"},
        ]  # fmt: skip
        pod["containers"] = [{"name": own, "image": "python:3.12", "command": list(command), "env": environment}]
    else:
        pod["containers"] = programs
    workers = {
        "restartPolicy": "OnFailure",
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
            "cloud.google.com/gke-tpu-topology": "2x2",
        },
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
        "containers": [_worker()],
    }
    if host_network:
        for each in (pod, workers):
            each |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        pod["nodeSelector"] = {"cloud.google.com/gke-nodepool": "cpu-np"}
    spec = {
        "coordinator": {"replicatedJob": "pathways-head"},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "failurePolicy": {"restartStrategy": "Recreate"},
        "replicatedJobs": [
            {"name": "pathways-head", "replicas": 1, "template": _job(pod, 1, 0)},
            {"name": worker, "replicas": slices, "template": _job(workers, 1, 4)},
        ],
    }
    if command:
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["pathways-head"]}
    metadata = {"name": name, "namespace": "default"}
    return copy.deepcopy(
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
    )


def _job(pod, hosts, backoff_limit):
    spec = {"completionMode": "Indexed", "completions": hosts, "parallelism": hosts, "backoffLimit": backoff_limit}
    return {"spec": {**spec, "template": {"spec": pod}}}


def _pod(jobset):
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def _proxy():
    arguments = ["--server_port=29000", "--resource_manager_address=$(PATHWAYS_HEAD):29001", _SCRATCH]
    return {"name": "pathways-proxy", "image": f"{_IMAGES}/proxy_server:latest", "args": arguments, "env": [_HEAD],
            "ports": [{"containerPort": 29000}], "resources": {"limits": {"cpu": "16", "memory": "100G"}}}  # fmt: skip


def _manager(slices):
    arguments = [
        "--server_port=29001", _SCRATCH, "--node_type=resource_manager", f"--instance_count={slices}",
        "--instance_type=tpuv6e:2x2",
    ]  # fmt: skip
    return {"name": "pathways-rm", "image": f"{_IMAGES}/server:latest", "args": arguments,
            "env": [*_marks(), {"name": "HOST_ADDRESS", "valueFrom": _COORDINATOR}],
            "ports": [{"containerPort": 29001}, {"containerPort": 29002}]}  # fmt: skip


def _worker():
    arguments = ["--server_port=29005", "--resource_manager_address=$(PATHWAYS_HEAD):29001", _SCRATCH]
    labels = {"MEGASCALE_NUM_SLICES": "replicatedjob-replicas", "MEGASCALE_SLICE_ID": "job-index"}
    fields = [
        {"name": each, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['jobset.sigs.k8s.io/{label}']"}}}
        for each, label in labels.items()
    ]
    return {"name": "pathways-worker", "image": f"{_IMAGES}/server:latest", "args": arguments,
            "env": [*_marks(), *fields, _HEAD], "resources": {"limits": {"google.com/tpu": "4"}}}  # fmt: skip


def _marks():
    path = "metadata.annotations['jobset.sigs.k8s.io/{}']"
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path.format(annotation)}}}
        for name, annotation in (("JOBSET_NAME", "jobset-name"), ("REPLICATED_JOB_NAME", "replicatedjob-name"))
    ]
