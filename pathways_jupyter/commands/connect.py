"""``connect``, and ``run``, which takes what connect takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import SETTING_OPTIONS, Command, Option, ValueKind


def _options() -> Iterator[Option]:
    """Yield the options of all settings; the cluster's flag says more than in other commands, the relay has two."""
    for name, option in SETTING_OPTIONS.items():
        if name == "local":
            yield replace(option, help=f"{option.help}, started when needed")
        elif name == "relay":
            about = "put no relay beside the proxy: an interruption of the network ends the session and its arrays"
            yield Option("--no-relay", about, ValueKind.FLAG, name=name, sets="false")
            yield replace(option, sets="true")
        else:
            yield option


CONNECT = Command(
    "connect",
    "Give this notebook its own proxy on a Pathways service, and point JAX at it.",
    options=tuple(_options()),
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
        *(option for option in CONNECT.options if option.name not in {"linger", "suspend_after"}),
        Option(
            "--tcp",
            "give the program a loopback port, which other users of this machine can reach too, instead of a unix "
            "socket in a private directory",
            ValueKind.FLAG,
        ),
        Option("--quiet", "report only what goes wrong", ValueKind.FLAG, short="-q"),
    ),
    examples={
        "run --local --tpu tpuv6e:2x2=2 -- python train.py": "on the embedded cluster",
        "run --context my-gke --tpu tpuv6e:2x2=2 -- python train.py --steps 100": "with the program's own options",
        "run --profile team --wait -- torchrun train.py": "settings from pathways.toml; wait until slices are free",
    },
    json=False,
)
