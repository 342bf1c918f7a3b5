"""PathwaysJobs with the fields of google/pathways-job's samples, and the JobSets that its controller v0.1.4 makes.

The controller's rules are written down here once more, as data, with the values that JobSet's webhook adds: so a
difference to our expansion is one of fields, not of code.
"""

import math

from pathways_jobs import API_VERSION

CHIPS = {"ct4p-hightpu-4t": ("tpuv4", "tpu-v4-podslice", 4), "ct5lp-hightpu-4t": ("tpuv5e", "tpu-v5-lite-podslice", 4)}
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
REGISTRY = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"


def sample(name, main, *, env=(), controller=None, workers=None, **spec):
    """A job on two slices of v4 2x2x2 with a program in container `main`."""
    container = {"name": main, "image": "python:3.13", "imagePullPolicy": "Always", "command": ["/bin/sh", "-c", "x"]}
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env]
    return {
        "apiVersion": API_VERSION,
        "kind": "PathwaysJob",
        "metadata": {"name": name},
        "spec": {
            "maxRestarts": 0,
            "workers": [{"type": "ct4p-hightpu-4t", "topology": "2x2x2", "numSlices": 2, **(workers or {})}],
            "pathwaysDir": "gs://test-bucket/tmp",
            "controller": {
                "deploymentMode": "default",
                "mainContainerName": main,
                "template": {"spec": {"containers": [container]}},
                **(controller or {}),
            },
            **spec,
        },
    }


# The head that this sample names does not exist: it is that of a job of another name.
COLOCATED_PYTHON = sample(
    "pathways-colocated",
    "main",
    env=(
        ("XCLOUD_ENVIRONMENT", "GCP"),
        ("JAX_PLATFORMS", "proxy"),
        ("JAX_BACKEND_TARGET", "grpc://pathways-colocatedpython-trial-pathways-head-0-0"
                               ".pathways-colocatedpython-trial:29000"),
    ),
    customComponents=[{"componentType": "colocated_python_sidecar", "image": "registry/sidecar:1"}],
)  # fmt: skip
ELASTIC_TRAINING = sample(
    "pathways-elastic", "elastic-main", controller={"elasticSlices": 1}, workers={"maxSliceRestarts": 4}
)
TRIAL = sample("pathways-trial", "main-workload", maxRestarts=10)
# The job of its own test: no program, and an annotation.
ANNOTATED = {
    "apiVersion": API_VERSION,
    "kind": "PathwaysJob",
    "metadata": {"name": "test-resource", "annotations": {"test-annotation": "test-value"}},
    "spec": {
        "controller": {"deploymentMode": "default"},
        "workers": [{"type": "ct5lp-hightpu-4t", "topology": "2x2", "numSlices": 1}],
        "pathwaysDir": "gs://test-bucket/pathways",
    },
}
BESIDE = sample(
    "beside",
    "main",
    controller={"deploymentMode": "colocate_head_with_workers", "enableMetricsCollection": True, "elasticSlices": 1},
    workers={"nodeSelector": {"pool": "x"}},
    customComponents=[
        {"componentType": "proxy_server", "customFlags": ["--num_elastic_slices=2"], "image": "registry/proxy:1"}
    ],
)
BESIDE["metadata"] |= {"labels": {"team": "a"}, "annotations": {"note": "b"}}
BESIDE["spec"]["controller"]["template"]["spec"] |= {
    "initContainers": [{"name": "data", "image": "busybox"}],
    "nodeSelector": {"pool": "cpu"},
}


def jobset(job):
    """The JobSet of the controller, after JobSet's webhook."""
    meta, spec = job["metadata"], job["spec"]
    controller, (workers,) = spec["controller"], spec["workers"]
    notes, beside = meta.get("annotations") or {}, controller["deploymentMode"] != "default"
    template = controller.get("template")
    version, accelerator, chips = CHIPS[workers["type"]]
    hosts = max(1, math.prod(map(int, workers["topology"].split("x"))) // chips)
    components = {each["componentType"]: each for each in spec.get("customComponents") or ()}
    metrics = ["--enable_metrics_collection=true"] if controller.get("enableMetricsCollection") else []
    elastic = controller.get("elasticSlices") or 0
    scratch = f"--gcs_scratch_location={spec['pathwaysDir']}"

    def program(name, kind, image, args, env, ports, limits, last=()):
        custom = components.get(kind) or {}
        return {
            "name": name,
            "image": custom.get("image") or f"{REGISTRY}/{image}:latest",
            "imagePullPolicy": "Always",
            "args": [*args, *metrics, *custom.get("customFlags", ()), *last],
            "env": env,
            "ports": [{"containerPort": port, "protocol": "TCP"} for port in ports],
            "resources": {"limits": limits},
        }

    manager = program(
        "pathways-rm", "pathways_server", "server",
        ["--server_port=29001", scratch, "--node_type=resource_manager",
         f"--instance_count={workers['numSlices']}", f"--instance_type={version}:{workers['topology']}"],
        [annotation("REPLICATED_JOB_NAME", "replicatedjob-name"), annotation("JOBSET_NAME", "jobset-name"),
         label("HOST_ADDRESS", "coordinator"), {"name": "TPU_SKIP_MDS_QUERY", "value": "true"}],
        (29001, 29002), {"cpu": "8", "memory": "16G"},
    )  # fmt: skip
    proxy = program(
        "pathways-proxy", "proxy_server", "proxy_server",
        ["--server_port=29000", "--resource_manager_address=$(PATHWAYS_HEAD):29001", scratch],
        [label("PATHWAYS_HEAD", "coordinator")], (29000,), {"cpu": "16", "memory": "100G"},
        [f"--num_elastic_slices={elastic}"] if elastic else [],
    )  # fmt: skip
    worker = program(
        "pathways-worker", "worker", "server",
        ["--server_port=29005", "--resource_manager_address=$(PATHWAYS_HEAD):29001", scratch],
        [{"name": "TPU_MIN_LOG_LEVEL", "value": "0"}, {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "0"},
         {"name": "XCLOUD_ENVIRONMENT", "value": "GCP"}, {"name": "MEGASCALE_GRPC_ENABLE_XOR_TRACER", "value": "false"},
         label("MEGASCALE_NUM_SLICES", "replicatedjob-replicas"), annotation("JOBSET_NAME", "jobset-name"),
         annotation("REPLICATED_JOB_NAME", "replicatedjob-name"), label("MEGASCALE_SLICE_ID", "job-index"),
         label("PATHWAYS_HEAD", "coordinator"), label("MEGASCALE_COORDINATOR_ADDRESS", "coordinator")],
        (29005, 29006, 8471, 8080), {"google.com/tpu": str(chips)},
    ) | {"volumeMounts": [{"name": "shared-tmp", "mountPath": "/tmp"}]}  # fmt: skip
    selector = {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": workers["topology"],
        **workers.get("nodeSelector", {}),
    }
    host = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    head_pod = {"restartPolicy": "OnFailure", "containers": [manager, proxy], **host}
    if template:
        sidecars = [{**each, "restartPolicy": "Always"} for each in (manager, proxy)]
        (main,) = template["spec"]["containers"]
        injected = [
            label("PATHWAYS_HEAD", "coordinator"),
            {"name": "JAX_PLATFORMS", "value": "proxy"},
            {"name": "XCLOUD_ENVIRONMENT", "value": "GCP"},
            {"name": "JAX_BACKEND_TARGET", "value": "grpc://$(PATHWAYS_HEAD):29000"},
        ]
        head_pod |= template["spec"] | host
        head_pod["initContainers"] = [*template["spec"].get("initContainers", ()), *sidecars]
        head_pod["containers"] = [{**main, "env": [*main.get("env", ()), *injected]}]
    worker_pod = {
        "restartPolicy": "OnFailure",
        "containers": [worker],
        "nodeSelector": selector,
        "volumes": [{"name": "shared-tmp", "hostPath": {"path": "/tmp", "type": "DirectoryOrCreate"}}],
        **host,
    }
    if sidecar := components.get("colocated_python_sidecar"):
        worker_pod["initContainers"] = [
            {
                "name": "colocated-python-sidecar",
                "image": sidecar["image"],
                "imagePullPolicy": "Always",
                "restartPolicy": "Always",
                "env": [{"name": "GRPC_SERVER_ADDRESS", "value": "'0.0.0.0:50051'"}],
                "ports": [{"containerPort": 50051, "protocol": "TCP"}],
                "volumeMounts": [{"name": "shared-tmp", "mountPath": "/tmp"}],
            }
        ]
    if beside:
        head_pod["nodeSelector"] = selector
        head_pod["tolerations"] = [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]
        worker_pod["affinity"] = affinity(meta["name"])
    head_notes = notes if beside else {**notes, EXCLUSIVE: "kubernetes.io/hostname"}
    restarts = workers.get("maxSliceRestarts", 1) if elastic else 4
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": dict(meta),
        "spec": {
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "failurePolicy": {"maxRestarts": spec.get("maxRestarts", 0), "restartStrategy": "Recreate"},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            **({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["pathways-head"]}} if template else {}),
            "coordinator": {"replicatedJob": "pathways-head", "jobIndex": 0, "podIndex": 0},
            "replicatedJobs": [
                replicated("pathways-head", 1, 1, 0, head_pod, head_notes),
                replicated("worker", workers["numSlices"], hosts, hosts * restarts, worker_pod,
                           {EXCLUSIVE: "cloud.google.com/gke-nodepool"}, job_notes={}),
            ],
        },
    }  # fmt: skip


def replicated(name, replicas, pods, backoff, pod, notes, job_notes=None):
    """A replicated job."""
    job = {
        "backoffLimit": backoff,
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "template": {"metadata": {"annotations": notes}, "spec": pod},
    }
    metadata = {"annotations": notes if job_notes is None else job_notes}
    return {"name": name, "replicas": replicas, "template": {"metadata": metadata, "spec": job}}


def affinity(name):
    """The affinity of mode colocate_head_with_workers."""

    def required(*expressions):
        term = {"labelSelector": {"matchExpressions": expressions}, "topologyKey": "cloud.google.com/gke-nodepool"}
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    key = "jobset.sigs.k8s.io/jobset-name"
    return {
        "podAffinity": required({"key": key, "operator": "In", "values": [name]}),
        "podAntiAffinity": required(
            {"key": key, "operator": "NotIn", "values": [name]}, {"key": "job-name", "operator": "Exists"}
        ),
    }


def label(variable, key):
    """A variable from a label of JobSet's."""
    path = f"metadata.labels['jobset.sigs.k8s.io/{key}']"
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def annotation(variable, key):
    """A variable from an annotation of JobSet's."""
    path = f"metadata.annotations['jobset.sigs.k8s.io/{key}']"
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
