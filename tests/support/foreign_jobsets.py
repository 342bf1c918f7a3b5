"""JobSets of Google's tools: pathwaysutils' own builder makes its own, and these templates have what the others write.

The templates follow GoogleCloudPlatform/cluster-toolkit v1.95.0 (``pkg/orchestrator/gke``) and AI-Hypercomputer/xpk of
June 2026 (``src/xpk``), with the machine ``ct6e-standard-4t``, the topology 2x2, and settings left at their defaults.
Both tools put a job into a queue; without one here, so that no queue has to be made first.
"""

from pathwaysutils.experimental.gke.jobset import PathwaysJobSet

_IMAGES = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"
_SCRATCH = "--gcs_scratch_location=gs://bucket/tmp"
_TMP = {"name": "shared-tmp", "hostPath": {"path": "/tmp", "type": "DirectoryOrCreate"}}
_MOUNTS = [{"name": "shared-tmp", "mountPath": "/tmp"}]


def toolkit(name="gc", *command, slices=1, queue=""):
    """Of `gcluster job submit --pathways`; headless without a command."""
    sidecar = {"restartPolicy": "Always"} if command else {}
    programs = [
        # No `env`, though its arguments name a variable.
        {**_proxy([29000]), **_limits("16", "100Gi"), **sidecar},
        # What precedes the first dash of the compute type, whatever Pathways calls it.
        {**_manager(slices, "ct6e:2x2", [29001, 29002]), **_limits("8", "32Gi"), "volumeMounts": _MOUNTS, **sidecar},
    ]
    own = {"name": "workload-container", "image": "python:3.12", "command": ["/bin/bash", "-c", _line(command)]}
    worker = _worker([29005, 29006, 8471, 8080], _server_marks())
    made = _jobset(name, programs, [own] if command else [], worker, slices)
    made["metadata"]["labels"] = _labels("gcluster.google.com/workload", name, queue)
    rule = {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    made["spec"]["failurePolicy"] |= {"maxRestarts": 0, "rules": [rule]}
    made["spec"] |= {"ttlSecondsAfterFinished": 3600}
    _template(made, 0)["metadata"] = None
    _template(made, 1)["metadata"] = {"labels": {"gcluster.google.com/workload": name}}
    return made


def xpk(name="xp", *command, slices=1, queue=""):
    """Of `xpk workload create-pathways`; headless without a command."""
    # In both forms, though containers that are no sidecars have no policy of their own.
    own_policy = {"imagePullPolicy": "Always", "restartPolicy": "Always"}
    programs = [
        {**_proxy(_tcp(29000)), "env": [_coordinator("PATHWAYS_HEAD")], **_limits("16", "100G"), **own_policy},
        {**_manager(slices, "tpuv6e:2x2", _tcp(29001, 29002)), **_limits("8", "32G"), **own_policy},
    ]
    script = f"echo XPK Start: $(date); {_line(command)}; EXIT_CODE=$?; echo XPK End: $(date); exit $EXIT_CODE"
    target = {"name": "JAX_BACKEND_TARGET", "value": "grpc://$(PATHWAYS_HEAD):29000"}
    platform, cloud = {"name": "JAX_PLATFORMS", "value": "proxy"}, {"name": "XCLOUD_ENVIRONMENT", "value": "GCP"}
    own = {
        "name": "jax-tpu", "image": "python:3.12", "command": ["bash", "-c", script],
        "env": [_coordinator("PATHWAYS_HEAD"), platform, cloud, target],
    }  # fmt: skip
    logs = [{"name": each, "value": "0"} for each in ("TPU_MIN_LOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL")]
    worker = _worker(_tcp(29005, 29006, 8471, 8080), logs + _server_marks()) | {"imagePullPolicy": "Always"}
    made = _jobset(name, programs, [own] if command else [], worker, slices)
    made["metadata"]["labels"] = _labels("xpk.google.com/workload", name, queue)
    made["spec"]["suspend"] = False
    _template(made, 1)["metadata"] = {"labels": {"xpk.google.com/workload": name}}
    return made


def pathwaysutils(name="pu", *command, slices=1):
    """Of pathwaysutils' builder of JobSets; headless without a command."""
    made = _pathwaysutils(name, slices)
    return (made.add_user_workload("python:3.12", list(command)) if command else made).to_dict()


def shared_service(name="svc", *, slices=1):
    """Of the same builder: a service, whose proxies belong to its users."""
    return _pathwaysutils(name, slices, shared_pathways_service=True).to_dict()


HEADLESS = {"toolkit": toolkit, "xpk": xpk, "pathwaysutils": pathwaysutils}


def completed_toolkit(name):
    """A headless one of the Toolkit with what docs/jobs.md adds for notebooks."""
    made = toolkit(name)
    insecure = {"name": "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "value": "true"}
    proxy_of(made)["env"] = [_coordinator("PATHWAYS_HEAD"), insecure]
    return made


def proxy_of(jobset):
    """The proxy of a headless JobSet, to change it in place."""
    containers = _template(jobset, 0)["spec"]["containers"]
    return next(each for each in containers if each["name"] == "pathways-proxy")


def _pathwaysutils(name, slices, **more):
    scratch = "gs://bucket/tmp"
    return PathwaysJobSet(name, "default", scratch, tpu_type="v6e", topology="2x2", num_slices=slices, **more)


def _jobset(name, programs, own, worker, slices):
    """Parts that both templates have."""
    pod = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "volumes": [_TMP]}
    kinds = {"initContainers": programs, "containers": own} if own else {"containers": programs}
    head = {**pod, **kinds, "restartPolicy": "Never", "nodeSelector": {"cloud.google.com/gke-nodepool": "cpu-np"}}
    workers = {
        **pod,
        "containers": [worker],
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
            "cloud.google.com/gke-tpu-topology": "2x2",
        },
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
    }
    alone = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}}
    spec = {
        "coordinator": {"replicatedJob": "pathways-head"},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "failurePolicy": {"restartStrategy": "Recreate"},
        "replicatedJobs": [
            {"name": "pathways-head", "replicas": 1, "template": {"metadata": alone, **_job(head, 0)}},
            {"name": "worker", "replicas": slices, "template": _job(workers, 4)},
        ],
    }
    if own:
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["pathways-head"]}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _job(pod, backoff_limit):
    spec = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimit": backoff_limit}
    return {"spec": {**spec, "template": {"spec": pod}}}


def _template(jobset, number):
    return jobset["spec"]["replicatedJobs"][number]["template"]["spec"]["template"]


def _proxy(ports):
    arguments = ["--server_port=29000", "--resource_manager_address=$(PATHWAYS_HEAD):29001", _SCRATCH]
    return _container("pathways-proxy", "proxy_server", arguments, ports)


def _manager(slices, kind, ports):
    arguments = ["--server_port=29001", _SCRATCH, "--node_type=resource_manager"]
    arguments += [f"--instance_count={slices}", f"--instance_type={kind}"]
    marks = [_mark("REPLICATED_JOB_NAME", "replicatedjob-name"), _mark("JOBSET_NAME", "jobset-name")]
    env = [*marks, _coordinator("HOST_ADDRESS"), {"name": "TPU_SKIP_MDS_QUERY", "value": "true"}]
    return {**_container("pathways-rm", "server", arguments, ports), "env": env}


def _worker(ports, env):
    arguments = ["--server_port=29005", "--resource_manager_address=$(PATHWAYS_HEAD):29001", _SCRATCH]
    made = {**_container("pathways-worker", "server", arguments, ports), "env": env, "volumeMounts": _MOUNTS}
    return {**made, "resources": {"limits": {"google.com/tpu": "4"}}}


def _server_marks():
    """The variables of a worker."""
    fixed = {"XCLOUD_ENVIRONMENT": "GCP", "MEGASCALE_GRPC_ENABLE_XOR_TRACER": "false"}
    return [
        *({"name": name, "value": value} for name, value in fixed.items()),
        _label("MEGASCALE_NUM_SLICES", "replicatedjob-replicas"),
        _mark("JOBSET_NAME", "jobset-name"),
        _mark("REPLICATED_JOB_NAME", "replicatedjob-name"),
        _label("MEGASCALE_SLICE_ID", "job-index"),
        _coordinator("PATHWAYS_HEAD"),
        _coordinator("MEGASCALE_COORDINATOR_ADDRESS"),
    ]


def _container(name, image, arguments, ports):
    numbers = [{"containerPort": each} if isinstance(each, int) else each for each in ports]
    return {"name": name, "image": f"{_IMAGES}/{image}:latest", "args": arguments, "ports": numbers}


def _tcp(*ports):
    return [{"containerPort": each, "protocol": "TCP"} for each in ports]


def _limits(cpu, memory):
    return {"resources": {"limits": {"cpu": cpu, "memory": memory}}}


def _coordinator(variable):
    return _label(variable, "coordinator")


def _label(variable, label):
    return _field(variable, f"metadata.labels['jobset.sigs.k8s.io/{label}']")


def _mark(variable, annotation):
    return _field(variable, f"metadata.annotations['jobset.sigs.k8s.io/{annotation}']")


def _field(variable, path):
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _labels(own, name, queue):
    return {own: name, **({"kueue.x-k8s.io/queue-name": queue} if queue else {})}


def _line(command):
    return " ".join(command)
