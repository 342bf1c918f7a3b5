"""``connect``, ``run``, which takes what connect takes, and commands about sessions and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import (
    CLUSTER,
    FOLLOW,
    JSON,
    OF_NEXT_PROXY,
    SETTING_OPTIONS,
    Command,
    Option,
    Source,
    ValueKind,
    Word,
    assume_yes,
)


def _options() -> Iterator[Option]:
    """Yield the options of all settings; the cluster's flag says more than in other commands, the relay has two."""
    for name, option in SETTING_OPTIONS.items():
        if name == "local":
            yield replace(option, help=f"{option.help}, started when needed")
        elif name == "relay":
            help_text = "put no relay beside the proxy: an interruption of the network ends the session and its arrays"
            yield Option("--no-relay", help_text, ValueKind.FLAG, name=name, sets="false")
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


COMMANDS = (
    CONNECT,
    Command(
        "disconnect",
        "Remove the proxy and restore JAX.",
        examples={"disconnect": "arrays on TPUs become unusable; the output lists them"},
        in_terminal="Here, pathways-jupyter sessions disconnect does it.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "reconnect",
        "Replace the proxy by a new one, whether it is lost or not.",
        options=(*OF_NEXT_PROXY, assume_yes("do not ask before arrays are lost")),
        examples={
            "reconnect": "the same service and slices as before",
            "reconnect --tpu tpuv6e:2x2=1": "on one slice, while another one is down",
        },
        details="A new proxy has none of the arrays: where the old one works and has some, it asks first. "
        "An Interrupt stops it: the session stays, without a proxy, and can be reconnected again.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "status",
        "This notebook's session: state, service, age, devices by slice, last event.",
        options=(JSON,),
        examples={"status": "its card", "status --json": "for a program"},
        in_terminal="Here, pathways-jupyter sessions does it.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "panel",
        "Buttons to connect, reconnect and disconnect, for front ends without the sidebar.",
        examples={"panel": "for example in VS Code; the buttons act when no cell is running"},
        details="The card above the buttons is kept in the notebook's file. The buttons are widgets, which need their "
        "kernel: in a notebook opened again they are an error message until the cell is run again.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "logs",
        "The log of the resource manager, a worker, or a session's proxy or supervisor.",
        words=(
            Word(
                "program",
                "which program's log; default: the session's proxy",
                choices=("rm", "worker", "proxy", "supervisor"),
            ),
            Word(
                "slice",
                "the service's number of the worker's slice, or SLICE-HOST such as 1-0; default: the session's first",
                source=Source.SLICES,
            ),
        ),
        options=(
            FOLLOW,
            Option("--tail", "number of last lines; default: 100", ValueKind.NUMBER),
            Option("--session", "session id, or the beginning of one", metavar="ID", source=Source.SESSIONS),
            SETTING_OPTIONS["service"],
            *CLUSTER,
        ),
        examples={
            "logs": "the proxy of this session",
            "logs rm --tail 20": "the resource manager",
            "logs worker 1 -f": "the worker of slice 1, continuously",
        },
        in_terminal='With --json each line is an object with "pod" and "line".',
    ),
    Command(
        "events",
        "The events of this session: stages, slices down and healed, proxy lost.",
        in_terminal="A script says session.events().",
        only=Face.NOTEBOOK,
    ),
    Command(
        "sessions",
        "Sessions of all notebooks and scripts on this machine.",
        options=(JSON,),
        examples={"sessions": "all of them", "sessions --json": "for a program"},
    ),
    Command(
        "sessions disconnect",
        "End a session, and wait until it is removed.",
        words=(
            Word("session", "an id, or the beginning of one; the only session if left out", source=Source.SESSIONS),
        ),
        examples={"sessions disconnect 4f2a": "its notebook is notified"},
        details="SESSION is an id or the beginning of one; the only session if left out. Its notebook is notified. "
        "When this returns, the proxy, its Lease and the tunnel are removed.",
        only=Face.TERMINAL,
    ),
    Command(
        "env",
        "The environment variables by which %%bash, !python and other processes share this session.",
        options=(Option("--set", "set them for every process that this notebook starts from now on", ValueKind.FLAG),),
        examples={"env": "to copy into a terminal", "env --set": "then: !python train.py"},
        in_terminal="A script says session.environment(); pathways-jupyter run gives a program a proxy of its own.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "clean",
        "Remove proxies whose owner is gone, and files of sessions that ended.",
        options=(Option("--dry-run", "only list what would be removed", ValueKind.FLAG), *CLUSTER),
        examples={"clean --dry-run": "look first"},
        details="A proxy counts as abandoned once its Lease has expired; live sessions are never touched.",
        in_terminal="Exit code 1 if something could not be removed.",
        only=Face.TERMINAL,
    ),
    Command(
        "traceback",
        "The full traceback of the last Pathways error.",
        in_terminal="Here, pathways-jupyter --debug COMMAND shows that of its own.",
        only=Face.NOTEBOOK,
    ),
)
