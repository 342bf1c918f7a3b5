"""Commands about PathwaysJobs."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import (
    BUILDS_ELSEWHERE,
    CLUSTER,
    DRY_BUILD,
    FOLLOW,
    PUSH,
    QUEUE,
    Command,
    Option,
    Source,
    ValueKind,
    Word,
    assume_yes,
)

_JOB = Word("name", "the job's name", required=True)
JOB_APPLY = Command(
    "job apply",
    "Create a job from a manifest, after the cluster has checked it.",
    words=(Word("file", "the manifest", source=Source.FILES),),
    options=(
        Option("--filename", "the manifest, as kubectl takes it", short="-f", metavar="FILE", source=Source.FILES),
        Option("--as-jobset", "expand the job here, for a cluster that has JobSet only", ValueKind.FLAG),
        Option("--dry-run", "only have the cluster check it", ValueKind.FLAG),
        Option("--wait", "follow the job until it is over; a headless one, until it runs", ValueKind.FLAG),
        *QUEUE,
        *CLUSTER,
    ),
    examples={
        "job apply train.yaml": "create it",
        "job apply train.yaml --wait": "and follow it; exit code 1 if it fails",
    },
    details='The file "-" is standard input.',
    in_terminal="Exit code with --wait: 0 if the job completed, or is headless and runs; 1 if it failed.",
)
COMMANDS = (
    Command(
        "job new",
        "Write a job's manifest: the usual cases, to edit and apply.",
        words=(Word("name", "the new job's name", required=True),),
        options=(
            Option("--tpu", "slices, TYPE=COUNT", metavar="TYPE=COUNT", source=Source.INSTANCES),
            Option("--image", "image of the job's program, with JAX in it", metavar="IMAGE"),
            Option("--gcs-bucket", "bucket and path for Pathways' scratch files", metavar="gs://..."),
            Option("--pathways-version", "tag of the Pathways images", name="version", metavar="TAG", default="latest"),
            Option("--sidecar-image", "image of the colocated Python sidecar", metavar="IMAGE"),
            *QUEUE,
            Option("--output", "write to this file", short="-o", metavar="FILE", source=Source.FILES),
        ),
        examples={
            "job new train --tpu ct6e-standard-4t:2x2=2 --image IMAGE -- python train.py": "a program on two slices",
            "job new lab --tpu tpuv6e:2x2=1 -o lab.yaml": "headless: only Pathways, for a client of its own",
        },
        details="Without a program the job is headless. Restarts, elastic slices and the rest are fields to edit.",
        rest="program",
    ),
    JOB_APPLY,
    Command(
        "job list", "Jobs in the namespace, the newest first.", options=CLUSTER, examples={"job list --local": "all"}
    ),
    Command(
        "job show",
        "One job: state, pods, events.",
        words=(_JOB,),
        options=CLUSTER,
        examples={"job show train": "why does it not run?"},
    ),
    Command(
        "job logs",
        "The log of a job's program, of Pathways' programs in it, or of any other of its containers.",
        words=(
            _JOB,
            Word(
                "container",
                "a container's name, or main (the job's program, the default), rm, proxy, worker",
                source=Source.CONTAINERS,
            ),
            Word("slice", "slice of the worker, or SLICE-HOST", source=Source.SLICES),
        ),
        options=(
            FOLLOW,
            Option("--tail", "number of last lines; default: all", ValueKind.NUMBER),
            *CLUSTER,
        ),
        examples={"job logs train -f": "the program, continuously", "job logs train worker 1-0": "a worker"},
    ),
    Command(
        "job suspend",
        "Suspend a job: its pods end, and their TPUs are free for others; asks first.",
        words=(_JOB,),
        options=(assume_yes("suspend without asking"), *CLUSTER),
        examples={"job suspend train": "until job resume"},
    ),
    Command(
        "job resume",
        "Resume a suspended job; its program starts from the beginning.",
        words=(_JOB,),
        options=CLUSTER,
        examples={"job resume train": "start it again"},
    ),
    Command(
        "job delete",
        "Delete a job and all its pods; asks first.",
        words=(_JOB,),
        options=(assume_yes("delete without asking"), *CLUSTER),
        examples={"job delete train": "its logs are gone with it"},
    ),
    Command(
        "operator image",
        "Build the operator's image.",
        options=(
            Option("--wheel", "a wheel of this package", metavar="FILE", source=Source.FILES, default="its release"),
            PUSH,
            Option("--base-image", "base image, with Python 3.11 or later", metavar="IMAGE"),
            Option("--folder", "directory of the build context", source=Source.FILES, default="operator-image"),
            DRY_BUILD,
        ),
        examples={
            "operator image --dry-run": "look first",
            "operator image --push us-docker.pkg.dev/my-project/images": "build and push",
        },
        details=BUILDS_ELSEWHERE,
        only=Face.TERMINAL,
    ),
    Command(
        "operator manifests",
        "Print the manifests that install the controller of PathwaysJobs and sweeper of dead sessions.",
        options=(
            Option("--image", "the image that operator image builds, or any in which pathways_jupyter is installed"),
            Option("--namespace", "namespace of the operator", short="-n", default="pathways-system"),
            Option("--replicas", "one leads, others wait", ValueKind.NUMBER, default="2"),
            Option("--service-monitor", "add a ServiceMonitor for the Prometheus operator", ValueKind.FLAG),
            Option(
                "--part",
                "only the definition of PathwaysJob, whose deletion deletes all jobs, or all but that (operator)",
                metavar="definition|operator",
            ),
        ),
        examples={
            "operator manifests --image REGISTRY/pathways-operator:1 | kubectl apply --server-side -f -": "install it",
            "operator manifests --image IMAGE --part operator | kubectl delete -f -": "remove it, and keep the jobs",
        },
        details="The definition of PathwaysJob, the operator's permissions (the least it needs), its Deployment with a "
        "PodDisruptionBudget, and a NetworkPolicy that lets in the port of its metrics only.",
        only=Face.TERMINAL,
    ),
)
CELL = Command(
    "%%pathwaysjob",
    "Create the PathwaysJob that the cell describes in YAML, after the cluster has checked it.",
    options=JOB_APPLY.options,
    examples={"%%pathwaysjob --local --wait": "on the embedded cluster, until it is over"},
)
"""The cell magic ``%%pathwaysjob``."""
