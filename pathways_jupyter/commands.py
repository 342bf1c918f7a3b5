"""Every command and option, declared once, so that magic and command line cannot drift apart.

A face builds its own parser from these (argparse for ``%pathways``, click for ``pathways-jupyter``), and tab
completion reads the same table. Pure data: no parser is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What an option takes."""

    TEXT = "text"
    FLAG = "flag"
    NUMBER = "number"
    SECONDS = "seconds"
    """A number of seconds that may be left out, which means without end."""
    LIST = "list"
    """A text that may be given more than once."""


class Source(Enum):
    """Where the values that tab completion offers come from."""

    NOTHING = "nothing"
    INSTANCES = "instances"
    CONTEXTS = "contexts"
    PROFILES = "profiles"
    SERVICES = "services"
    SESSIONS = "sessions"
    COMMANDS = "commands"
    FILES = "files"
    SLICES = "slices"
    HOSTS = "hosts"
    HOST_COMMANDS = "host-commands"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
      flag: How it is written, e.g. ``--tpu``.
      name: The setting that it gives; a field of :class:`~pathways_jupyter.config.ConnectConfig` where there is one.
      short: One-letter spelling, e.g. ``-f``.
      implied: What an option of kind :attr:`Kind.SECONDS` means without a value.
      aliases: Other flags for the same, for people who come from other tools; understood, and not offered.
      default: What it is when left out, as help shows it.
    """

    flag: str
    name: str
    help: str
    kind: Kind = Kind.TEXT
    metavar: str = ""
    short: str = ""
    source: Source = Source.NOTHING
    implied: float = math.inf
    aliases: tuple[str, ...] = ()
    default: str = ""


@dataclass(frozen=True)
class Word:
    """One word that follows a command by its place.

    Attributes:
      choices: The only words allowed; any when empty.
    """

    name: str
    help: str
    choices: tuple[str, ...] = ()
    source: Source = Source.NOTHING
    required: bool = False


@dataclass(frozen=True)
class Command:
    """One command: what it does, what it takes, and how it is used.

    Attributes:
      examples: What follows ``%pathways`` or ``pathways-jupyter``, with what it is for.
      details: What a magic's help says below the summary.
    """

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    words: tuple[Word, ...] = ()
    examples: Mapping[str, str] | None = None
    details: str = ""


TPU = Option(
    "--tpu",
    "tpu",
    "slices wanted, TYPE=COUNT[,TYPE=COUNT]",
    metavar="TYPE=COUNT",
    source=Source.INSTANCES,
    aliases=("--expected-tpu-instances",),
)
SERVICE = Option(
    "--service",
    "service",
    "the Shared Pathways Service: its name, or host:port of its resource manager",
    metavar="SERVICE",
    source=Source.SERVICES,
    aliases=("--pathways-service",),
    default="the only one in the namespace",
)
LOCAL = Option("--local", "local", "use the embedded cluster on this machine, started when needed", kind=Kind.FLAG)
JSON = Option("--json", "json", "print the result as JSON", kind=Kind.FLAG)

CLUSTER = (
    LOCAL,
    Option("--context", "context", "context in the kubeconfig; your file is never changed", source=Source.CONTEXTS),
    Option("--kubeconfig", "kubeconfig", "another kubeconfig file", metavar="FILE", source=Source.FILES),
    Option("--namespace", "namespace", "Kubernetes namespace of the service", short="-n"),
    Option("--cluster", "cluster", "GKE cluster, reached without a kubeconfig; with --project and --region"),
    Option("--project", "project", "Google Cloud project of --cluster"),
    Option("--region", "region", "region or zone of --cluster"),
    Option("--profile", "profile", "settings kept under this name in pathways.toml", source=Source.PROFILES),
)
"""How to reach a cluster: the same for every command that asks one."""

SESSION = Word("session", "session id, or the beginning of one; this notebook's when left out", source=Source.SESSIONS)
SESSION_OPTION = Option(
    "--session", "session", "session id, or the beginning of one", metavar="ID", source=Source.SESSIONS
)

CONNECT = Command(
    "connect",
    "Give this notebook its own proxy on a Pathways service, and point JAX at it.",
    options=(
        TPU,
        SERVICE,
        *CLUSTER,
        Option(
            "--wait",
            "wait",
            "wait for taken slices, at most SECONDS, or without end",
            kind=Kind.SECONDS,
            default="0, fail at once",
        ),
        Option("--gcs-bucket", "gcs_bucket", "scratch location of the proxy, gs://BUCKET/PATH", metavar="gs://..."),
        Option(
            "--linger",
            "linger",
            "keep the proxy this long after the kernel ended",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="0, not at all",
        ),
        Option(
            "--max-lifetime",
            "max_lifetime",
            "the cluster ends the proxy after this time, also while it is used",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="86400, which is 24 h",
        ),
        Option(
            "--lease-seconds",
            "lease_seconds",
            "how long the proxy stays when its owner's machine is gone; at least 10",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="60",
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
            "--proxy-image",
            "proxy_image",
            "image of the proxy",
            aliases=("--proxy-server-image",),
            default="the one of the service's own version",
        ),
        Option(
            "--proxy-options",
            "proxy_options",
            "one more flag for the proxy; may be repeated",
            kind=Kind.LIST,
            aliases=("--proxy-option",),
        ),
    ),
    examples={
        "connect --local --tpu tpuv6e:2x2=2": "two slices of the embedded cluster",
        "connect --context my-gke --tpu tpuv6e:2x2=2": "the only service in that cluster's namespace",
        "connect --profile team --wait": "settings from pathways.toml; wait until slices are free",
        "connect --service pathways-cluster-pathways-head-0-0.pathways-cluster:29001 --tpu tpuv5e:4x4=1": "by address",
    },
)
DISCONNECT = Command(
    "disconnect",
    "Take the proxy down and put JAX back as it was.",
    examples={"disconnect": "arrays on TPUs become unusable; you are told which"},
)
RECONNECT = Command(
    "reconnect",
    "Get a new proxy after this one was lost.",
    examples={"reconnect": "the same service and slices as before"},
)
STATUS = Command("status", "This notebook's session: state, service, age, devices by slice, what happened last.")
SLICES = Command(
    "slices",
    "The service's slices: ready, starting or down, and who holds which since when.",
    options=(SERVICE, *CLUSTER),
    examples={
        "slices": "the connected service, or else your current context",
        "slices --context my-gke": "before connecting: what is free?",
    },
)
PANEL = Command(
    "panel",
    "Buttons to connect, reconnect and disconnect, for front ends without the sidebar.",
    examples={"panel": "in VS Code, say; the buttons act when no cell runs"},
    details="The card above the buttons is kept in the notebook's file. The buttons are widgets, which need their "
    "kernel: in a notebook opened again they are an error message until the cell is run again.",
)
LOGS = Command(
    "logs",
    "The log of the resource manager, a worker, or a session's proxy or supervisor.",
    words=(
        Word(
            "program", "whose log; the session's proxy when left out", choices=("rm", "worker", "proxy", "supervisor")
        ),
        Word(
            "slice",
            "slice of the worker, or SLICE-HOST such as 1-0 on slices of several hosts",
            source=Source.SLICES,
        ),
    ),
    options=(
        Option("--follow", "follow", "go on as lines are written; Interrupt ends it", kind=Kind.FLAG, short="-f"),
        Option("--tail", "tail", "how many of the last lines; 100 when left out", kind=Kind.NUMBER),
        SESSION_OPTION,
        SERVICE,
        *CLUSTER,
    ),
    examples={
        "logs": "the proxy of this session",
        "logs rm --tail 20": "the resource manager",
        "logs worker 1 -f": "the worker of slice 1, as it writes",
    },
)
EVENTS = Command("events", "What happened to this session: stages, slices down and healed, proxy lost.")
SESSIONS = Command(
    "sessions",
    "Sessions on this machine, whichever notebook or script they belong to.",
    examples={"sessions": "all of them"},
)
DOCTOR = Command(
    "doctor",
    "Check cluster, permissions, service, versions and leftovers; say what to do.",
    options=(SERVICE, *CLUSTER),
    examples={
        "doctor": "the connected cluster, or else your current context",
        "doctor --local": "the embedded cluster",
    },
)
CLEAN = Command(
    "clean",
    "Remove proxies whose owner is gone, and files of sessions that ended.",
    options=(
        Option("--dry-run", "dry_run", "only say what would be removed", kind=Kind.FLAG),
        *CLUSTER,
    ),
    examples={"clean --dry-run": "look first"},
)
PROFILES = Command("profiles", "Named settings in pathways.toml, for connect --profile NAME.")
TRACEBACK = Command("traceback", "The full traceback of the last Pathways error.")
HELP = Command("help", "All commands, or one of them.", words=(Word("command", "which", source=Source.COMMANDS),))

MAGIC: Mapping[str, Command] = {
    command.name: command
    for command in (
        CONNECT,
        DISCONNECT,
        RECONNECT,
        STATUS,
        SLICES,
        PANEL,
        LOGS,
        EVENTS,
        SESSIONS,
        DOCTOR,
        PROFILES,
        TRACEBACK,
        HELP,
    )
}
"""What ``%pathways`` knows."""
