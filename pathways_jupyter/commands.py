"""All commands and options, declared once for the magic and the command line.

Each interface builds its parser from these (argparse for ``%pathways``, click for ``pathways-jupyter``), and tab
completion uses the same table. Pure data: no parser is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The kind of value that an option takes."""

    TEXT = "text"
    FLAG = "flag"
    NUMBER = "number"
    SECONDS = "seconds"
    """A number of seconds; the flag alone means no limit."""
    LIST = "list"
    """A string; the option may be repeated."""


class Source(Enum):
    """The source of an option's values for tab completion."""

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
    RUNS = "runs"
    RUN_COMMANDS = "run-commands"
    JOBS = "jobs"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
      flag: Its spelling, e.g. ``--tpu``.
      name: The setting that it sets; a field of :class:`~pathways_jupyter.config.ConnectConfig` where there is one.
      short: One-letter spelling, e.g. ``-f``.
      implied: The value of an option of kind :attr:`Kind.SECONDS` that is given without one.
      aliases: Other flags for the same setting, known from other tools; accepted, but not shown.
      default: The default, as shown in help.
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
    """One positional argument.

    Attributes:
      choices: The allowed values; any if empty.
    """

    name: str
    help: str
    choices: tuple[str, ...] = ()
    source: Source = Source.NOTHING
    required: bool = False


@dataclass(frozen=True)
class Command:
    """One command with its arguments and examples.

    Attributes:
      examples: Command lines, without ``%pathways`` or ``pathways-jupyter``, and their purpose.
      details: Help text of the magic below the summary.
    """

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    words: tuple[Word, ...] = ()
    examples: Mapping[str, str] | None = None
    details: str = ""
    rest: str = ""
    """Name of the words after ``--``, which are not this package's; empty for a command that takes none."""


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
    Option("--context", "context", "context in the kubeconfig; your file is never modified", source=Source.CONTEXTS),
    Option("--kubeconfig", "kubeconfig", "another kubeconfig file", metavar="FILE", source=Source.FILES),
    Option("--namespace", "namespace", "Kubernetes namespace of the service", short="-n"),
    Option("--cluster", "cluster", "GKE cluster, reached without a kubeconfig; with --project and --region"),
    Option("--project", "project", "Google Cloud project of --cluster"),
    Option("--region", "region", "region or zone of --cluster"),
    Option("--profile", "profile", "name of a profile in pathways.toml", source=Source.PROFILES),
)
"""The options that select a cluster, the same for all commands."""

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
            "the cluster ends the proxy after this time, even if it is in use",
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
    ),
    examples={
        "connect --local --tpu tpuv6e:2x2=2": "two slices of the embedded cluster",
        "connect --context my-gke --tpu tpuv6e:2x2=2": "the only service in that cluster's namespace",
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
DISCONNECT = Command(
    "disconnect",
    "Remove the proxy and restore JAX.",
    examples={"disconnect": "arrays on TPUs become unusable; the output lists them"},
)
RECONNECT = Command(
    "reconnect",
    "Replace a lost proxy by a new one.",
    examples={"reconnect": "the same service and slices as before"},
)
STATUS = Command("status", "This notebook's session: state, service, age, devices by slice, last event.")
SLICES = Command(
    "slices",
    "The service's slices: ready, starting or down, and who holds them since when.",
    options=(SERVICE, *CLUSTER),
    examples={
        "slices": "the connected service, or else your current context",
        "slices --context my-gke": "before connecting: what is free?",
    },
)
PANEL = Command(
    "panel",
    "Buttons to connect, reconnect and disconnect, for front ends without the sidebar.",
    examples={"panel": "for example in VS Code; the buttons act when no cell is running"},
    details="The card above the buttons is kept in the notebook's file. The buttons are widgets, which need their "
    "kernel: in a notebook opened again they are an error message until the cell is run again.",
)
LOGS = Command(
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
            "slice of the worker, or SLICE-HOST such as 1-0 on slices of several hosts",
            source=Source.SLICES,
        ),
    ),
    options=(
        Option("--follow", "follow", "keep printing new lines until interrupted", kind=Kind.FLAG, short="-f"),
        Option("--tail", "tail", "number of last lines; default: 100", kind=Kind.NUMBER),
        SESSION_OPTION,
        SERVICE,
        *CLUSTER,
    ),
    examples={
        "logs": "the proxy of this session",
        "logs rm --tail 20": "the resource manager",
        "logs worker 1 -f": "the worker of slice 1, continuously",
    },
)
EVENTS = Command("events", "The events of this session: stages, slices down and healed, proxy lost.")
SESSIONS = Command(
    "sessions",
    "Sessions of all notebooks and scripts on this machine.",
    examples={"sessions": "all of them"},
)
ENV = Command(
    "env",
    "The environment variables by which %%bash, !python and other processes share this session.",
    options=(
        Option("--set", "set", "set them for every process that this notebook starts from now on", kind=Kind.FLAG),
    ),
    examples={"env": "to copy into a terminal", "env --set": "then: !python train.py"},
)
DOCTOR = Command(
    "doctor",
    "Check cluster, permissions, service, versions and leftovers, with advice for each problem.",
    options=(
        Option("--lab", "lab", "also check the permissions for pathways-jupyter lab", kind=Kind.FLAG),
        SERVICE,
        *CLUSTER,
    ),
    examples={
        "doctor": "the connected cluster, or else your current context",
        "doctor --local": "the embedded cluster",
    },
)
CLEAN = Command(
    "clean",
    "Remove proxies whose owner is gone, and files of sessions that ended.",
    options=(
        Option("--dry-run", "dry_run", "only list what would be removed", kind=Kind.FLAG),
        *CLUSTER,
    ),
    examples={"clean --dry-run": "look first"},
)
LAB_NAME = Option("--name", "name", "distinguishes several labs of yours", default="your user name")
LAB_PORT = Option("--port", "port", "local port", kind=Kind.NUMBER, default="any free one")
NO_BROWSER = Option("--no-browser", "no_browser", "print the address instead of opening a browser", kind=Kind.FLAG)
LAB_UP = Command(
    "up",
    "Start JupyterLab in the cluster, and open it in the browser.",
    options=(
        Option("--image", "image", "image with JupyterLab and pathways_jupyter", default="the embedded cluster's own"),
        Option("--cpu", "cpu", "CPUs of its pod", metavar="N", default="as the cluster decides"),
        Option("--memory", "memory", "memory of its pod, e.g. 32G", metavar="SIZE", default="as the cluster decides"),
        Option("--volume", "volume", "size of its home volume", metavar="SIZE", default="10Gi"),
        Option("--storage-class", "storage_class", "storage class of its home volume", default="the cluster's"),
        Option("--no-open", "no_open", "return once it runs, without a forward", kind=Kind.FLAG),
        NO_BROWSER,
        LAB_PORT,
        LAB_NAME,
        Option("--dry-run", "dry_run", "print what would be created, as YAML", kind=Kind.FLAG),
        *CLUSTER,
    ),
    examples={
        "lab up --local": "in the embedded cluster",
        "lab up --image REPOSITORY/lab:1 --cpu 8 --memory 32G --volume 50Gi": "in the cluster of your current context",
        "lab up --image REPOSITORY/lab:1 --dry-run | kubectl diff -f -": "look first",
    },
)
LAB_OPEN = Command(
    "open",
    "Open a running lab in the browser, until interrupted.",
    options=(NO_BROWSER, LAB_PORT, LAB_NAME, *CLUSTER),
    examples={"lab open": "a loopback port, forwarded to the lab"},
)
LAB_STATUS = Command(
    "status",
    "Show a lab: state, pod, image, home volume.",
    options=(LAB_NAME, *CLUSTER),
    examples={"lab status": "yours"},
)
LAB_DOWN = Command(
    "down",
    "End a lab; asks whether its home volume should be deleted too.",
    options=(
        Option("--keep-volume", "keep_volume", "keep the home volume, without asking", kind=Kind.FLAG),
        Option("--delete-volume", "delete_volume", "delete the home volume, without asking", kind=Kind.FLAG),
        LAB_NAME,
        *CLUSTER,
    ),
    examples={"lab down --keep-volume": "the next lab up finds all files again"},
)
USAGE_SPAN = "7d"
USAGE = Command(
    "usage",
    "Who has held how many chip-hours, as far as the cluster still knows.",
    options=(
        Option("--since", "since", "how far back, such as 7d, 12h or 1h30m", metavar="SPAN", default=USAGE_SPAN),
        Option("--all-namespaces", "all_namespaces", "all namespaces of the cluster", kind=Kind.FLAG, short="-A"),
        *CLUSTER,
    ),
    examples={
        "usage --since 12h": "the namespace of your current context",
        "usage --context my-gke -A --json": "for a script",
    },
)
SERVICES = Command(
    "services",
    "Services that you may see: address, slices and who uses them, image and JAX version, age.",
    options=CLUSTER,
    examples={
        "services": "in all namespaces that you may read",
        "services --context my-gke -n research": "in one namespace",
    },
)
_SERVICE_NAME = Word("name", "the service's name", source=Source.SERVICES, required=True)
_FOLLOW_SECONDS = Option(
    "--timeout",
    "timeout",
    "how long to follow its start; it stays after that",
    kind=Kind.NUMBER,
    metavar="SECONDS",
    default="1800",
)
SERVICE_DEPLOY = Command(
    "service deploy",
    "Deploy a service: check the cluster first, then create it, and follow its start.",
    words=(Word("name", "the new service's name", required=True),),
    options=(
        Option(
            "--tpu",
            "tpu",
            "type of its slices, such as tpuv6e:2x2",
            metavar="TYPE",
            source=Source.INSTANCES,
        ),
        Option("--slices", "slices", "number of slices", kind=Kind.NUMBER, default="1"),
        Option("--gcs-bucket", "gcs_bucket", "bucket and path for its scratch files", metavar="gs://..."),
        Option(
            "--server-image",
            "server_image",
            "image of resource manager and workers",
            metavar="IMAGE",
            default="Pathways' own for the JAX that is installed here",
        ),
        Option(
            "--sidecar-image",
            "sidecar_image",
            "image of the colocated Python sidecar",
            metavar="IMAGE",
            default="no sidecar",
        ),
        Option(
            "--max-slice-restarts",
            "max_slice_restarts",
            "how often each host of a slice may be restarted",
            kind=Kind.NUMBER,
            default="1000000",
        ),
        Option(
            "--max-restarts",
            "max_restarts",
            "how often the whole service may be recreated after its head failed",
            kind=Kind.NUMBER,
            default="30",
        ),
        Option(
            "--head-pool",
            "head_pool",
            "node pool of the resource manager; any for no choice",
            metavar="POOL",
            default="cpu-np",
        ),
        Option("--host-network", "host_network", "run the workers on their nodes' network", kind=Kind.FLAG),
        Option(
            "--nodes",
            "nodes",
            "with --host-network: an address range of the nodes, for the NetworkPolicy; may be repeated",
            kind=Kind.LIST,
            metavar="CIDR",
        ),
        Option("--dry-run", "dry_run", "only print what would be created", kind=Kind.FLAG),
        Option("--output", "output", "format of the dry run: yaml or json", short="-o", default="yaml"),
        Option("--skip-checks", "skip_checks", "deploy whatever the checks find", kind=Kind.FLAG),
        Option("--no-wait", "no_wait", "return when it is created, without following its start", kind=Kind.FLAG),
        _FOLLOW_SECONDS,
        *CLUSTER,
    ),
    examples={
        "service deploy team --tpu tpuv6e:2x2 --slices 2 --gcs-bucket gs://my-bucket/pathways": "two slices of 4 chips",
        "service deploy team --tpu tpuv6e:4x4 --gcs-bucket gs://b --dry-run -o yaml": "look at the manifests first",
        "service deploy mine --tpu tpuv5e:4x4 --local": "on spare nodes of the embedded cluster",
    },
)
SERVICE_SHOW = Command(
    "service show",
    "One service: address, images, slices and who uses them.",
    words=(_SERVICE_NAME,),
    options=CLUSTER,
    examples={"service show team": "what a colleague needs to connect"},
)
SERVICE_WAIT = Command(
    "service wait",
    "Follow a service's start until all its slices are ready.",
    words=(_SERVICE_NAME,),
    options=(_FOLLOW_SECONDS, *CLUSTER),
    examples={"service wait team": "after deploy --no-wait, or after an interrupt"},
)
SERVICE_DELETE = Command(
    "service delete",
    "Delete a service and its NetworkPolicy; asks first, and says who still uses it.",
    words=(_SERVICE_NAME,),
    options=(Option("--yes", "yes", "delete without asking", kind=Kind.FLAG, short="-y"), *CLUSTER),
    examples={"service delete team": "ends the sessions on it as well"},
)
ELASTIC = Command(
    "elastic",
    "The elastic training run of this notebook: slices and loss over time, goodput, events; live while it runs.",
    words=(
        Word("action", "what to do; default: show the run", choices=("inject", "heal", "export")),
        Word("what", "inject: slice-down; heal: the slice; export: the file, .json or .trace.json for Perfetto"),
        Word("slice", "inject: the slice", source=Source.SLICES),
    ),
    options=(
        Option(
            "--for",
            "seconds",
            "how long the slice stays down",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="until its worker is back",
        ),
        Option("--after", "after", "do it in SECONDS, while another cell runs", kind=Kind.NUMBER, metavar="SECONDS"),
        Option("--yes", "yes", "kill a worker of a real cluster without asking", kind=Kind.FLAG),
    ),
    examples={
        "elastic": "in the cell of train_loop, above it",
        "elastic inject slice-down 1 --for 10 --after 5": "in 5 seconds take slice 1 down, for 10 seconds",
        "elastic heal 1": "end that now",
        "elastic export run.trace.json": "open it at ui.perfetto.dev",
    },
)
_JOB = Word("name", "the job's name", source=Source.JOBS, required=True)
_AS_JOBSET = Option(
    "--as-jobset", "as_jobset", "expand the job here, for a cluster that has JobSet only", kind=Kind.FLAG
)
JOB_NEW = Command(
    "job new",
    "Write a job's manifest: the usual cases, to edit and apply.",
    words=(Word("name", "the new job's name", required=True),),
    options=(
        Option("--tpu", "tpu", "slices, TYPE=COUNT", metavar="TYPE=COUNT", source=Source.INSTANCES),
        Option("--image", "image", "image of the job's program, with JAX in it", metavar="IMAGE"),
        Option("--gcs-bucket", "gcs_bucket", "bucket and path for Pathways' scratch files", metavar="gs://..."),
        Option("--colocate", "colocate", "run the head on a TPU node, beside a worker", kind=Kind.FLAG),
        Option("--elastic-slices", "elastic_slices", "slices that may be missing", kind=Kind.NUMBER),
        Option("--max-restarts", "max_restarts", "restarts of the whole job", kind=Kind.NUMBER, default="0"),
        Option("--max-slice-restarts", "max_slice_restarts", "restarts of a slice", kind=Kind.NUMBER, default="1"),
        Option("--pathways-version", "version", "tag of the Pathways images", metavar="TAG", default="latest"),
        Option("--sidecar-image", "sidecar_image", "image of the colocated Python sidecar", metavar="IMAGE"),
        Option("--output", "output", "write to this file", short="-o", metavar="FILE", source=Source.FILES),
    ),
    examples={
        "job new train --tpu ct6e-standard-4t:2x2=2 --image IMAGE -- python train.py": "a program on two slices",
        "job new lab --tpu tpuv6e:2x2=1 -o lab.yaml": "headless: only Pathways, for a client of its own",
    },
    rest="program",
)
JOB_APPLY = Command(
    "job apply",
    "Create a job from a manifest, after the cluster has checked it.",
    words=(Word("file", "the manifest", source=Source.FILES, required=True),),
    options=(
        _AS_JOBSET,
        Option("--dry-run", "dry_run", "only have the cluster check it", kind=Kind.FLAG),
        Option("--wait", "wait", "follow the job until it is over", kind=Kind.FLAG),
        *CLUSTER,
    ),
    examples={
        "job apply train.yaml": "create it",
        "job apply train.yaml --wait": "and follow it; exit code 1 if it fails",
    },
)
JOB_LIST = Command(
    "job list", "Jobs in the namespace, the newest first.", options=CLUSTER, examples={"job list --local": "all"}
)
JOB_SHOW = Command(
    "job show",
    "One job: state, pods, events.",
    words=(_JOB,),
    options=CLUSTER,
    examples={"job show train": "why does it not run?"},
)
JOB_LOGS = Command(
    "job logs",
    "The log of a job's program, or of Pathways' programs in it.",
    words=(
        _JOB,
        Word("program", "which program's log; default: main, the job's own", choices=("main", "rm", "proxy", "worker")),
        Word("slice", "slice of the worker, or SLICE-HOST", source=Source.SLICES),
    ),
    options=(
        Option("--follow", "follow", "keep printing new lines until interrupted", kind=Kind.FLAG, short="-f"),
        Option("--tail", "tail", "number of last lines; default: all", kind=Kind.NUMBER),
        *CLUSTER,
    ),
    examples={"job logs train -f": "the program, continuously", "job logs train worker 1-0": "a worker"},
)
JOB_SUSPEND = Command(
    "job suspend",
    "Suspend a job: its pods end, and their TPUs are free for others.",
    words=(_JOB,),
    options=CLUSTER,
    examples={"job suspend train": "until job resume"},
)
JOB_RESUME = Command(
    "job resume",
    "Resume a suspended job; its program starts from the beginning.",
    words=(_JOB,),
    options=CLUSTER,
    examples={"job resume train": "start it again"},
)
JOB_DELETE = Command(
    "job delete",
    "Delete a job and all its pods; asks first.",
    words=(_JOB,),
    options=(Option("--yes", "yes", "delete without asking", kind=Kind.FLAG, short="-y"), *CLUSTER),
    examples={"job delete train": "its logs are gone with it"},
)
CELL_JOB = Command(
    "pathwaysjob",
    "Create the PathwaysJob that the cell describes in YAML, after the cluster has checked it.",
    options=JOB_APPLY.options,
    examples={"pathwaysjob --local --wait": "on the embedded cluster, until it is over"},
)
"""The cell magic ``%%pathwaysjob``."""
MULTIHOST = Command(
    "multihost",
    "Run a command on many hosts: run, status, runs, attach, logs, stop, hosts.",
    words=(Word("command", "which; %pathways multihost help lists them"),),
    examples={
        "multihost run --hosts hosts.txt -- python3 train.py": "this directory is sent to the hosts of a file",
        "multihost status": "the newest run",
    },
)
PROFILES = Command("profiles", "Profiles in pathways.toml, for connect --profile NAME.")
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
        ENV,
        SERVICES,
        SERVICE_DEPLOY,
        SERVICE_SHOW,
        SERVICE_WAIT,
        SERVICE_DELETE,
        JOB_NEW,
        JOB_APPLY,
        JOB_LIST,
        JOB_SHOW,
        JOB_LOGS,
        JOB_SUSPEND,
        JOB_RESUME,
        JOB_DELETE,
        MULTIHOST,
        DOCTOR,
        ELASTIC,
        PROFILES,
        TRACEBACK,
        HELP,
    )
}
"""The commands of ``%pathways``; a name of two words is a command of a group."""


def split(words: Sequence[str], commands: Mapping[str, Command]) -> tuple[str, Sequence[str]]:
    """Return the name of the command that `words` begin with, and the other words.

    A name of two words wins, so that a group may have a command of its own. The name may be of no command.
    """
    pair = " ".join(words[:2])
    return (pair, words[2:]) if len(words) > 1 and pair in commands else (words[0] if words else "", words[1:])


def group(name: str, commands: Mapping[str, Command]) -> tuple[str, ...]:
    """Return the second words of the commands of group `name`; none if there is no such group."""
    return tuple(each.partition(" ")[2] for each in commands if each.startswith(f"{name} "))
