"""``connect``, and ``run``, which takes what connect takes."""

from __future__ import annotations

from dataclasses import replace

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import CLUSTER, LOCAL, QUEUE, SERVICE, TPU, UNPICKLE, Command, Kind, Option

CONNECT = Command(
    "connect",
    "Give this notebook its own proxy on a Pathways service, and point JAX at it.",
    options=(
        TPU,
        SERVICE,
        *(replace(each, help=f"{each.help}, started when needed") if each is LOCAL else each for each in CLUSTER),
        Option(
            "--wait", "wait for taken slices, for SECONDS or without limit", Kind.SECONDS, default="0, fail at once"
        ),
        Option(
            "--at-least", "take fewer slices if not all are free, but at least N", Kind.NUMBER, default="all or none"
        ),
        *QUEUE,
        Option("--gcs-bucket", "scratch location of the proxy, gs://BUCKET/PATH", metavar="gs://..."),
        Option(
            "--linger",
            "keep the proxy this long after the kernel has ended",
            Kind.NUMBER,
            metavar="SECONDS",
            default="0, not at all",
        ),
        Option(
            "--max-lifetime",
            "the cluster ends the proxy after this time, even if it is in use; at least 60",
            Kind.NUMBER,
            metavar="SECONDS",
            default="86400, which is 24 h",
        ),
        Option(
            "--lease-seconds",
            "how long the proxy stays when this machine is unreachable; at least 10",
            Kind.NUMBER,
            metavar="SECONDS",
            default="60",
        ),
        Option(
            "--no-relay",
            "put no relay beside the proxy: an interruption of the network ends the session and its arrays",
            Kind.FLAG,
            name="relay",
            sets="false",
        ),
        Option(
            "--relay",
            "put one beside it also on the embedded cluster, where there is no network to interrupt",
            Kind.FLAG,
            sets="true",
        ),
        Option(
            "--keep",
            "how long the relay keeps arrays without a connection",
            Kind.NUMBER,
            metavar="SECONDS",
            default="7200, which is 2 h",
        ),
        Option(
            "--relay-image",
            "image of the relay, any with Python 3.9 or later, such as that of the colocated sidecar",
            default="mirror.gcr.io/library/python:3.13-slim",
        ),
        Option("--timeout", "how long the proxy pod may take to start", Kind.NUMBER, metavar="SECONDS", default="300"),
        Option(
            "--tunnel", "in a pod of the cluster: go through the API server instead of connecting directly", Kind.FLAG
        ),
        Option("--job", "attach to the proxy of this headless PathwaysJob, instead of making one", metavar="NAME"),
        Option(
            "--proxy-image",
            "image of the proxy",
            aliases=("--proxy-server-image",),
            default="the one of the service's version",
        ),
        Option("--proxy-options", "an additional flag for the proxy; may be repeated", Kind.LIST),
        Option("--proxy-xla-flags", "a flag of XLA for the proxy; may be repeated", Kind.LIST, metavar="--xla_..."),
        Option("--proxy-cpu", "CPUs that the proxy may use", metavar="QUANTITY", default="16"),
        Option("--proxy-memory", "memory that it may use", metavar="QUANTITY", default="100G"),
        Option(
            "--proxy-node-selector",
            "a label of the nodes that it may run on; may be repeated",
            Kind.LIST,
            metavar="KEY=VALUE",
        ),
        Option(
            "--proxy-tolerations",
            "a taint that it tolerates; may be repeated",
            Kind.LIST,
            metavar="KEY[=VALUE][:EFFECT]",
        ),
        Option("--proxy-priority-class", "its priority class", metavar="NAME"),
        Option(
            "--proxy-service-account",
            "the account with which it uses the bucket",
            metavar="NAME",
            default="the namespace's default",
        ),
        Option("--proxy-labels", "a label for its Job and pod; may be repeated", Kind.LIST, metavar="KEY=VALUE"),
        Option("--proxy-env", "a variable of its program; may be repeated", Kind.LIST, metavar="NAME=VALUE"),
        UNPICKLE,
    ),
    examples={
        "connect --local --tpu tpuv6e:2x2=2": "two slices of the embedded cluster",
        "connect --context my-gke --tpu tpuv6e:2x2=2": "the only service in that cluster's namespace",
        "connect --context my-gke --tpu tpuv6e:2x2=2 --keep 28800": "arrays outlive a night without a network",
        "connect --profile team --wait": "settings from pathways.toml; wait until slices are free",
        "connect --job lab --local": "to a headless job, which stays when the notebook disconnects",
        "connect --service pathways-cluster-pathways-head-0-0.pathways-cluster:29001 --tpu tpuv5e:4x4=1": "by address",
    },
    only=Face.NOTEBOOK,
)
RUN = Command(
    "run",
    "Run any JAX program on TPUs of its own; python train.py, unchanged.",
    options=(
        *(option for option in CONNECT.options if option.name != "linger"),
        Option(
            "--tcp",
            "give the program a loopback port, which other users of this machine can reach too, instead of a unix "
            "socket in a private directory",
            Kind.FLAG,
        ),
        Option("--quiet", "report only what goes wrong", Kind.FLAG, short="-q"),
    ),
    examples={
        "run --local --tpu tpuv6e:2x2=2 -- python train.py": "on the embedded cluster",
        "run --context my-gke --tpu tpuv6e:2x2=2 -- python train.py --steps 100": "with the program's own options",
        "run --profile team --wait -- torchrun train.py": "settings from pathways.toml; wait until slices are free",
    },
    json=False,
)
