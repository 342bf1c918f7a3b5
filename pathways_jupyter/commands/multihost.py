"""Options of the magics and the command line for many hosts."""

from __future__ import annotations

from pathways_jupyter.commands.declaration import CLUSTER, Command, Option, Source, ValueKind, Word, assume_yes

_FLAG, _LIST, _NUMBER = ValueKind.FLAG, ValueKind.LIST, ValueKind.NUMBER

_PROJECT = Option("--project", "Google Cloud project", default="gcloud's")
_ZONE = Option("--zone", "zone of the TPU VMs", default="gcloud's")
_WHERE = (_PROJECT, _ZONE)
_RUN_OPTIONS = (
    Option("--hosts", "file with one [USER@]HOST[:PORT] a line, or HOST,HOST", metavar="FILE", source=Source.FILES),
    Option("--tpu-prefix", "TPU VMs: exact name, or PREFIX of PREFIX-0, PREFIX-1 ...", metavar="PREFIX"),
    Option("--service", "the workers of a service", metavar="NAME", source=Source.SERVICES),
    Option("--job", "the workers of a PathwaysJob", metavar="NAME"),
    Option("--session", "the workers of a session's service", metavar="ID", source=Source.SESSIONS),
    Option("--user", "user name on the hosts", default="yours"),
    Option("--key", "private key; may be repeated", _LIST, name="keys", metavar="FILE", source=Source.FILES),
    Option("--known-hosts", "file with the hosts' keys", metavar="FILE", source=Source.FILES),
    Option("--accept-new", "accept the key of a host that is not known; never a changed one", _FLAG),
    Option("--internal-ip", "reach TPU VMs at their internal addresses", _FLAG),
    _ZONE,
    *(_PROJECT if each.flag == "--project" else each for each in CLUSTER),
    Option(
        "--dir", "what is sent", name="directory", metavar="DIR", source=Source.FILES, default="the current directory"
    ),
    Option(
        "--exclude", "leave out, a pattern as in .gitignore; may be repeated; !NAME sends what stays otherwise", _LIST
    ),
    Option("--dry-run", "list what would be sent, with sizes and what stays here; nothing is sent", _FLAG),
    Option("--run-name", "run directory on the hosts", name="name", metavar="NAME", default="the time"),
    Option("--use-existing-folder", "send nothing; the run directory is on the hosts", _FLAG, name="existing"),
    Option("--log-dir", "where the logs go", name="logs", metavar="DIR", source=Source.FILES, default="multihost-runs"),
    Option("--keep-going", "go on with the other hosts when one is missing or fails", _FLAG),
    Option("--detach", "return once it runs; it goes on without this machine", _FLAG),
    Option("--free-chips", "first end your processes that hold the TPU chips of the hosts", _FLAG),
    Option("--grace", "time between SIGTERM and SIGKILL", _NUMBER, metavar="SECONDS", default="10"),
)
_RUN = Word("run", "name of the run, or its beginning; default: the newest", source=Source.RUNS)
_NAME = Word("name", "name of the queued resource", required=True)
COMMANDS = (
    Command(
        "multihost run",
        "Send a directory to all hosts, and run a command on them.",
        options=_RUN_OPTIONS,
        examples={
            "multihost run --hosts hosts.txt -- python3 train.py": "the hosts of a file; this directory is sent",
            "multihost run --tpu-prefix my-tpu --dir maxtext -- bash setup.sh": "TPU VMs by name",
            "multihost run --service pathways-cluster --local -- nproc": "the workers of a service, by exec",
            "multihost run --dry-run": "what of this directory would be sent",
        },
        details="The command runs in the run directory, with SLICE and WORKER in its environment. The output of each "
        "host goes to output_slice_0000_worker_0000.txt and so on.",
        in_terminal="The exit code is the worst of all hosts; 255 for a host that could not be reached.",
        rest="command",
    ),
    Command(
        "multihost status",
        "The state of a run on each host.",
        words=(_RUN,),
        examples={"multihost status": "the newest run", "multihost status my-run": "by name"},
    ),
    Command("multihost runs", "The runs of this machine.", examples={"multihost runs": "the newest first"}),
    Command(
        "multihost attach",
        "Follow a run that was detached, or whose client has gone.",
        words=(_RUN,),
        examples={"multihost attach my-run": "Interrupt leaves off and ends nothing"},
    ),
    Command(
        "multihost logs",
        "The output of one host of a run, or of all.",
        words=(_RUN, Word("host", "SLICE-WORKER, or the worker's number; default: all")),
        options=(Option("--tail", "number of last lines", _NUMBER, default="100"),),
        examples={"multihost logs my-run 0-1": "one host", "multihost logs my-run --tail 5": "the last lines of each"},
    ),
    Command(
        "multihost stop",
        "End a run on all hosts.",
        words=(_RUN,),
        examples={"multihost stop my-run": "SIGTERM, after the run's --grace SIGKILL; nothing is left running"},
    ),
    Command(
        "multihost create",
        "Ask for TPU VMs with a queued resource.",
        words=(_NAME,),
        options=(
            Option("--accelerator-type", "for example v4-8", name="accelerator", metavar="TYPE"),
            Option(
                "--runtime-version",
                "image of the VMs",
                name="runtime",
                metavar="VERSION",
                default="tpu-ubuntu2204-base",
            ),
            Option("--node-count", "number of TPU VMs", _NUMBER, name="nodes", default="1"),
            Option("--node-prefix", "their names: PREFIX-0, PREFIX-1 ...", name="prefix", default="the name"),
            Option("--spot", "capacity that may be taken away, at the price of the market", _FLAG),
            Option("--reserved", "from your reservation", _FLAG),
            Option("--best-effort", "preemptible capacity", _FLAG),
            Option("--network", "network of the VMs", default="default"),
            Option("--internal-ips", "without external addresses", _FLAG, name="internal_only"),
            *_WHERE,
        ),
        examples={
            "multihost create my-tpu --accelerator-type v4-8 --node-count 2 --reserved": "two slices of a reservation",
            "multihost create my-tpu --accelerator-type v6e-4 --spot": "one, at the price of the market",
        },
    ),
    Command(
        "multihost list",
        "The queued resources of a zone, and their TPU VMs.",
        options=(Option("--filter", "only names that contain this", name="only", metavar="TEXT"), *_WHERE),
        examples={"multihost list": "all of the zone"},
    ),
    Command(
        "multihost wait",
        "Wait until a queued resource is ACTIVE and its TPU VMs are READY.",
        words=(_NAME,),
        options=(Option("--timeout", "longest wait", _NUMBER, metavar="SECONDS", default="3600"), *_WHERE),
        examples={"multihost wait my-tpu": "exit code 0 once all nodes can be used"},
    ),
    Command(
        "multihost delete",
        "Delete a queued resource, and with --force its TPU VMs.",
        words=(_NAME,),
        options=(
            Option("--force", "delete its TPU VMs too", _FLAG),
            Option("--async", "do not wait for the end", _FLAG, name="asynchronous"),
            assume_yes("do not ask"),
            *_WHERE,
        ),
        examples={
            "multihost delete my-tpu --force --async": "asks first when TPU VMs would be deleted, unless --yes",
        },
    ),
)
CELL = Command(
    "%%multihost",
    "Run this cell, a shell script, on all hosts.",
    options=_RUN_OPTIONS,
    examples={
        "%%multihost --hosts hosts.txt": "on the hosts of a file; the current directory is sent",
        "%%multihost --service pathways-cluster --local --dir code": "on the workers of a service",
    },
)
