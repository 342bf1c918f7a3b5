"""Commands about services: what there is, who uses it, whether it works, and deploying one."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.base.setting_values import ANNOTATION, LABEL, NAME, TOLERATION
from pathways_jupyter.commands.declaration import (
    CLUSTER,
    QUEUE,
    SETTING_OPTIONS,
    Command,
    Option,
    Source,
    ValueKind,
    Word,
    assume_yes,
)

_SERVICE_NAME = Word("name", "the service's name", source=Source.SERVICES, required=True)
_FOLLOW_SECONDS = Option(
    "--timeout",
    "how long to follow its start; it stays after that",
    ValueKind.NUMBER,
    metavar="SECONDS",
    default="1800",
)


def _placement(part: str, what: str) -> tuple[Option, ...]:
    """Return the options that place the pods of a part of a service."""
    return tuple(
        Option(f"--{part}-{name}", f"{about.format(what)}; may be repeated", ValueKind.LIST, metavar=each.metavar)
        for name, about, each in (
            ("node-selector", "a label of the nodes for the {}", LABEL),
            ("tolerations", "a taint that the pods of the {} tolerate", TOLERATION),
            ("annotations", "an annotation of the pods of the {}", ANNOTATION),
        )
    )


COMMANDS = (
    Command(
        "slices",
        "The service's slices: ready, starting or down, and who holds them since when.",
        options=(SETTING_OPTIONS["service"], *CLUSTER),
        examples={
            "slices": "the connected service, or else your current context",
            "slices --context my-gke": "before connecting: what is free?",
        },
    ),
    Command(
        "doctor",
        "Check cluster, permissions, service, versions and leftovers, with advice for each problem.",
        options=(
            Option("--lab", "also check the permissions for pathways-jupyter lab", ValueKind.FLAG),
            Option(
                "--platform",
                "also check the permissions for deploying services and installing the operator",
                ValueKind.FLAG,
            ),
            Option("--jobs", "also check the permissions for jobs", ValueKind.FLAG),
            Option("--faults", "also check the permissions for elastic inject", ValueKind.FLAG),
            Option("--queue", "also check this queue of Kueue's, and its quota", metavar="NAME"),
            SETTING_OPTIONS["service"],
            *CLUSTER,
        ),
        examples={
            "doctor": "the connected cluster, or else your current context",
            "doctor --local": "the embedded cluster",
            "doctor --platform -n research": "may I prepare this namespace for others?",
        },
        in_terminal="Exit code 1 if a problem must be fixed before a notebook can connect.",
    ),
    Command(
        "explain",
        "What the documentation says about an error, a line of doctor, a setting or a limit.",
        words=(Word("topic", "its name, or words of it; default: a list of all", source=Source.TOPICS, many=True),),
        examples={
            "explain CapacityError": "an error, by its class",
            "explain expired": "a word of its message leads there too",
            "explain max_lifetime": "a setting",
        },
    ),
    Command(
        "services",
        "Services that you may see: address, slices and who uses them, image and JAX version, age.",
        options=CLUSTER,
        examples={
            "services": "in all namespaces that you may read",
            "services --context my-gke -n research": "in one namespace",
        },
    ),
    Command(
        "service deploy",
        "Deploy a service: check the cluster first, then create it, and follow its start.",
        words=(Word("name", "the new service's name", required=True),),
        options=(
            Option("--tpu", "type of its slices, such as tpuv6e:2x2", metavar="TYPE", source=Source.INSTANCES),
            Option("--slices", "number of slices", ValueKind.NUMBER, default="1"),
            Option("--gcs-bucket", "bucket and path for its scratch files", metavar="gs://..."),
            Option(
                "--server-image",
                "image of resource manager and workers",
                metavar="IMAGE",
                default="Pathways' own for the JAX that is installed here",
            ),
            Option("--sidecar-image", "image of the colocated Python sidecar", metavar="IMAGE", default="no sidecar"),
            Option(
                "--resource-manager-options",
                "an additional flag for the resource manager; may be repeated",
                ValueKind.LIST,
                metavar="--NAME=VALUE",
            ),
            Option(
                "--worker-options",
                "an additional flag for the workers; may be repeated",
                ValueKind.LIST,
                metavar="--NAME=VALUE",
            ),
            Option(
                "--suspend-after",
                "suspend sessions for which nothing was computed for so long, such as 4h; users may choose less",
                metavar="TIME",
                default="never",
            ),
            Option(
                "--max-slice-restarts",
                "how often each host of a slice may be restarted",
                ValueKind.NUMBER,
                default="1000000",
            ),
            Option(
                "--max-restarts",
                "how often the whole service may be recreated after its head failed",
                ValueKind.NUMBER,
                default="30",
            ),
            Option(
                "--head-pool",
                "node pool of the resource manager; any for no choice",
                metavar="POOL",
                default="cpu-np, or any with --head-node-selector",
            ),
            Option(
                "--service-account",
                "the Kubernetes account of resource manager and workers, e.g. for the bucket",
                metavar=NAME.metavar,
                default="the namespace's default",
            ),
            *_placement("head", "resource manager"),
            *_placement("worker", "workers"),
            *QUEUE,
            Option("--host-network", "run the workers on their nodes' network", ValueKind.FLAG),
            Option(
                "--nodes",
                "with --host-network: an address range of the nodes, for the NetworkPolicy; may be repeated",
                ValueKind.LIST,
                metavar="CIDR",
            ),
            Option("--dry-run", "only print what would be created", ValueKind.FLAG),
            Option("--skip-checks", "deploy whatever the checks find", ValueKind.FLAG),
            Option("--no-wait", "return when it is created, without following its start", ValueKind.FLAG),
            _FOLLOW_SECONDS,
            *CLUSTER,
        ),
        examples={
            "service deploy team --tpu tpuv6e:2x2 --slices 2 --gcs-bucket gs://my-bucket/pathways": "two slices",
            "service deploy team --tpu tpuv6e:4x4 --gcs-bucket gs://b --dry-run": "look at the manifests first",
            "service deploy mine --tpu tpuv5e:4x4 --local": "on spare nodes of the embedded cluster",
        },
        details="The checks: JobSet is installed, your permissions, the node pools of that type and topology, the "
        "node pool of the head, the bucket, and what recent events say about quota. An interrupt leaves the "
        "service as it is.",
    ),
    Command(
        "service show",
        "One service: address, images, slices and who uses them.",
        words=(_SERVICE_NAME,),
        options=CLUSTER,
        examples={"service show team": "what a colleague needs to connect"},
    ),
    Command(
        "service wait",
        "Follow a service's start until all its slices are ready.",
        words=(_SERVICE_NAME,),
        options=(_FOLLOW_SECONDS, *CLUSTER),
        examples={"service wait team": "after deploy --no-wait, or after an interrupt"},
        in_terminal="Exit code 1 if it is not ready in time, or has ended for good.",
    ),
    Command(
        "service delete",
        "Delete a service and its NetworkPolicy; asks first, and says who still uses it.",
        words=(_SERVICE_NAME,),
        options=(assume_yes("delete without asking"), *CLUSTER),
        examples={"service delete team": "ends the sessions on it as well"},
    ),
    Command(
        "network-policy",
        "Print NetworkPolicies that close the ports of proxies and services.",
        options=(
            Option("--namespace", "namespace in the manifests", metavar="NAME", default="kubectl's"),
            Option("--service", "also close the resource manager of this service", metavar="NAME"),
            Option(
                "--nodes",
                "an address range of the cluster's nodes, from which a service's workers connect; may be repeated",
                ValueKind.LIST,
                metavar="CIDR",
            ),
        ),
        examples={
            "network-policy | kubectl apply --namespace research -f -": "for proxies",
            "network-policy --service pathways-cluster --nodes 10.128.0.0/20": "for a service too",
        },
        details="They block connections from other pods to the proxies of sessions and to the resource manager of "
        "--service. Sessions need no open port, since they use port-forward. Does not contact a cluster.",
        only=Face.TERMINAL,
    ),
    Command(
        "manifests roles",
        "Print the Roles of those who connect, deploy services, start labs and so on.",
        words=(Word("name", "one of the Roles; all of them by default"),),
        examples={
            "manifests roles | kubectl apply --namespace research -f -": "all; they grant nothing until they are bound",
            "manifests roles pathways-jupyter-user": "what connecting needs",
        },
        details="They are what doctor checks. Does not contact a cluster.",
        only=Face.TERMINAL,
    ),
)
