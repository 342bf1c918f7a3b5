"""``connect``, and ``run``, which takes what connect takes."""

from __future__ import annotations

from dataclasses import replace

from pathways_jupyter.commands.declaration import CLUSTER, LOCAL, SERVICE, TPU, UNPICKLE, Command, Kind, Option, Source

CONNECT = Command(
    "connect",
    "Give this notebook its own proxy on a Pathways service, and point JAX at it.",
    options=(
        TPU,
        SERVICE,
        *(replace(each, help=f"{each.help}, started when needed") if each is LOCAL else each for each in CLUSTER),
        Option(
            "--wait",
            "wait",
            "wait for taken slices, for SECONDS or without limit",
            kind=Kind.SECONDS,
            default="0, fail at once",
        ),
        Option(
            "--at-least",
            "at_least",
            "take fewer slices if not all are free, but at least N",
            kind=Kind.NUMBER,
            default="all or none",
        ),
        Option("--gcs-bucket", "gcs_bucket", "scratch location of the proxy, gs://BUCKET/PATH", metavar="gs://..."),
        Option(
            "--linger",
            "linger",
            "keep the proxy this long after the kernel has ended",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="0, not at all",
        ),
        Option(
            "--max-lifetime",
            "max_lifetime",
            "the cluster ends the proxy after this time, even if it is in use; at least 60",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="86400, which is 24 h",
        ),
        Option(
            "--lease-seconds",
            "lease_seconds",
            "how long the proxy stays when this machine is unreachable; at least 10",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="60",
        ),
        Option(
            "--relay",
            "relay",
            "put a relay beside the proxy: the session and its arrays outlive interruptions of the network",
            kind=Kind.FLAG,
        ),
        Option(
            "--keep",
            "keep",
            "with --relay: how long arrays are kept without a connection",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="7200, which is 2 h",
        ),
        Option(
            "--relay-image",
            "relay_image",
            "with --relay: its image, any with Python 3.9 or later, such as that of the colocated sidecar",
            default="python:3.13-slim",
        ),
        Option(
            "--timeout",
            "timeout",
            "how long the proxy pod may take to start",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="300",
        ),
        Option(
            "--tunnel",
            "tunnel",
            "in a pod of the cluster: go through the API server instead of connecting directly",
            kind=Kind.FLAG,
        ),
        Option(
            "--plaintext",
            "plaintext",
            "in a pod of the cluster: connect directly without encryption, where ALTS does not work",
            kind=Kind.FLAG,
        ),
        Option(
            "--job",
            "job",
            "attach to the proxy of this headless PathwaysJob, instead of making one",
            metavar="NAME",
            source=Source.HEADLESS_JOBS,
        ),
        Option(
            "--proxy-image",
            "proxy_image",
            "image of the proxy",
            aliases=("--proxy-server-image",),
            default="the one of the service's version",
        ),
        Option(
            "--proxy-options",
            "proxy_options",
            "an additional flag for the proxy; may be repeated",
            kind=Kind.LIST,
            aliases=("--proxy-option",),
        ),
        Option(
            "--proxy-xla-flags",
            "proxy_xla_flags",
            "a flag of XLA for the proxy; may be repeated",
            kind=Kind.LIST,
            metavar="--xla_...",
        ),
        Option("--proxy-cpu", "proxy_cpu", "CPUs that the proxy may use", metavar="QUANTITY", default="16"),
        Option("--proxy-memory", "proxy_memory", "memory that it may use", metavar="QUANTITY", default="100G"),
        Option(
            "--proxy-node-selector",
            "proxy_node_selector",
            "a label of the nodes that it may run on; may be repeated",
            kind=Kind.LIST,
            metavar="KEY=VALUE",
        ),
        Option(
            "--proxy-tolerations",
            "proxy_tolerations",
            "a taint that it tolerates; may be repeated",
            kind=Kind.LIST,
            metavar="KEY[=VALUE][:EFFECT]",
        ),
        Option("--proxy-priority-class", "proxy_priority_class", "its priority class", metavar="NAME"),
        Option(
            "--proxy-service-account",
            "proxy_service_account",
            "the account with which it uses the bucket",
            metavar="NAME",
            default="the namespace's default",
        ),
        Option(
            "--proxy-labels",
            "proxy_labels",
            "a label for its Job and pod; may be repeated",
            kind=Kind.LIST,
            metavar="KEY=VALUE",
        ),
        Option(
            "--proxy-env",
            "proxy_env",
            "a variable of its program; may be repeated",
            kind=Kind.LIST,
            metavar="NAME=VALUE",
        ),
        UNPICKLE,
    ),
    examples={
        "connect --local --tpu tpuv6e:2x2=2": "two slices of the embedded cluster",
        "connect --context my-gke --tpu tpuv6e:2x2=2": "the only service in that cluster's namespace",
        "connect --context my-gke --tpu tpuv6e:2x2=2 --relay --keep 3600": "arrays outlive an hour without a network",
        "connect --profile team --wait": "settings from pathways.toml; wait until slices are free",
        "connect --service pathways-cluster-pathways-head-0-0.pathways-cluster:29001 --tpu tpuv5e:4x4=1": "by address",
    },
)
RUN = Command(
    "run",
    "Run any JAX program on TPUs of its own, and remove its proxy when it ends.",
    options=(
        *(option for option in CONNECT.options if option.name != "linger"),
        Option(
            "--tcp",
            "tcp",
            "give the program a loopback port, which other users of this machine can reach too, instead of a unix "
            "socket in a private directory",
            kind=Kind.FLAG,
        ),
        Option("--quiet", "quiet", "report only what goes wrong", kind=Kind.FLAG, short="-q"),
    ),
    examples={
        "run --local --tpu tpuv6e:2x2=2 -- python train.py": "on the embedded cluster",
        "run --context my-gke --tpu tpuv6e:2x2=2 -- python train.py --steps 100": "with the program's own options",
        "run --profile team --wait -- torchrun train.py": "settings from pathways.toml; wait until slices are free",
    },
)
